//! The token embedding as a blockwise table, which an operator on the CPU looks up.

use super::roles::is_token_embedding;
use crate::error::Result;
use crate::export::quantize::readers::moments_of_readers;
use crate::export::quantize::recipe::NARROW;
use crate::export::quantize::{
    CodeStore, Feedback, Knowledge, Matrix, QuantizeError, QuantizedMatrix, ScaleMethod, WeightFormat, quantize,
};
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
            let make = |graph: &Graph| Ok(self.codes(graph, &matrix)?);
            graph.nodes[id].inputs[0] = self.store.constant(graph, (&matrix, self.format), make)?;
            count += 1;
        }
        Ok(count)
    }
}

impl QuantizeEmbedding {
    fn codes(&self, graph: &Graph, matrix: &Matrix) -> Result<QuantizedMatrix, QuantizeError> {
        // In wide rows errors average out, and feedback over a large vocabulary takes long.
        let narrow = matrix.columns() < NARROW && self.scales == ScaleMethod::Search;
        let moments = if narrow { moments_of_readers(graph, matrix.columns())? } else { None };
        let feedback = moments.map(|moments| Feedback::new(moments, matrix.name())).transpose()?;
        quantize(matrix, self.format, self.scales, feedback.as_ref().map_or(Knowledge::None, Knowledge::Feedback))
    }
}
