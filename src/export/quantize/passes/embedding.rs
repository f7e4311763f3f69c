//! The token embedding as a blockwise table, which an operator on the CPU looks up.

use super::Keep;
use super::roles::is_token_embedding;
use crate::error::Result;
use crate::export::quantize::{Knowledge, Matrix, ScaleMethod, WeightFormat, quantize};
use crate::graph::{Graph, NodeId, ValueId};
use crate::passes::Pass;

/// See the module.
pub struct QuantizeEmbedding {
    /// Its codes.
    pub format: WeightFormat,
    /// How scales are found.
    pub scales: ScaleMethod,
    /// Takes the codes.
    pub keep: Keep,
}

impl Pass for QuantizeEmbedding {
    fn name(&self) -> &'static str {
        "quantize-embedding"
    }

    fn after(&self) -> &'static [&'static str] {
        &["insert-requantize"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let look_ups: Vec<NodeId> =
            (0..graph.nodes.len()).filter(|&id| is_token_embedding(graph, &graph.nodes[id])).collect();
        let mut count = 0;
        for id in look_ups {
            let Some(matrix) = Matrix::of(graph, graph.nodes[id].inputs[0])? else { continue };
            let table = self.table(graph, &matrix)?;
            graph.nodes[id].inputs[0] = table;
            count += 1;
        }
        Ok(count)
    }
}

impl QuantizeEmbedding {
    fn table(&self, graph: &mut Graph, matrix: &Matrix) -> Result<ValueId> {
        let codes = quantize(matrix, self.format, self.scales, Knowledge::None)?;
        matrix.data().release();
        super::add_codes(graph, matrix, codes, &self.keep)
    }
}
