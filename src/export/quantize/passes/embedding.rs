//! The token embedding as a blockwise table, which an operator on the CPU looks up.

use super::roles::is_token_embedding;
use crate::error::Result;
use crate::export::quantize::{CodeStore, Knowledge, Matrix, ScaleMethod, WeightFormat, quantize};
use crate::graph::{Graph, NodeId};
use crate::passes::Pass;
use std::sync::Arc;

/// See the module.
pub struct QuantizeEmbedding {
    /// Its codes.
    pub format: WeightFormat,
    /// How scales are found.
    pub scales: ScaleMethod,
    /// Holds the codes.
    pub store: Arc<CodeStore>,
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
            let make = || Ok(quantize(&matrix, self.format, self.scales, Knowledge::None)?);
            graph.nodes[id].inputs[0] = self.store.constant(graph, &matrix, make)?;
            count += 1;
        }
        Ok(count)
    }
}
