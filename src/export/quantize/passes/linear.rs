//! Weights of linear layers as codes, and, for 8da4w, their operands rounded row by row.

use crate::error::Result;
use crate::export::quantize::recipe::{Activations, Recipe};
use crate::export::quantize::{CodeStore, Knowledge, Matrix, quantize};
use crate::graph::{Graph, Node, NodeId, Op, Quantization, ValueId};
use crate::passes::Pass;
use crate::tensor::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module. Layers are known by the names of their results.
pub struct QuantizeLinear {
    /// Which layer gets which codes.
    pub recipe: Recipe,
    /// Holds the codes; those that it has already are taken.
    pub store: Arc<CodeStore>,
}

impl Pass for QuantizeLinear {
    fn name(&self) -> &'static str {
        "quantize-linear"
    }

    fn after(&self) -> &'static [&'static str] {
        &["insert-requantize", "quantize-embedding"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let mut count = 0;
        for id in 0..graph.nodes.len() {
            if graph.nodes[id].op == Op::FullyConnected {
                count += usize::from(self.quantize(graph, id, Knowledge::None)?);
            }
        }
        if self.recipe.activations == Activations::DynamicRows {
            round_operands(graph);
        }
        Ok(count)
    }
}

impl QuantizeLinear {
    /// Quantizes the weights of the linear layer `id`; says whether it did.
    ///
    /// # Errors
    /// As [`quantize`].
    pub(in crate::export::quantize) fn quantize(
        &self,
        graph: &mut Graph,
        id: NodeId,
        knowledge: Knowledge<'_>,
    ) -> Result<bool> {
        let name = graph.value(graph.nodes[id].outputs[0]).name.clone();
        if self.recipe.linear.is_none() && self.recipe.rules.is_empty() {
            return Ok(false);
        }
        let Some(matrix) = Matrix::of(graph, graph.nodes[id].inputs[1])? else { return Ok(false) };
        let Some(format) = self.recipe.format_of(&name, matrix.columns()) else { return Ok(false) };
        let make = |_: &Graph| Ok(quantize(&matrix, format, self.recipe.scales, knowledge)?);
        graph.nodes[id].inputs[1] = self.store.constant(graph, (&matrix, format), make)?;
        Ok(true)
    }
}

/// Puts a rounding in front of every linear layer of integer weights, one for each operand.
pub(in crate::export::quantize) fn round_operands(graph: &mut Graph) {
    let mut rounded: HashMap<ValueId, ValueId> = HashMap::new();
    graph.rewrite(|graph, before, id| {
        let node = &before.nodes()[id];
        let quantized = node.op == Op::FullyConnected && graph.value(node.inputs[1]).quantization.is_some();
        if !quantized || graph.value(node.inputs[0]).dtype != DType::F32 {
            return None;
        }
        let operand = node.inputs[0];
        let mut nodes = Vec::new();
        let codes = *rounded.entry(operand).or_insert_with(|| {
            let of = graph.value(operand).clone();
            let name = format!("{}.rounded", of.name);
            let codes = graph.add_computed(name.clone(), DType::I8, of.shape);
            graph.value_mut(codes).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
            nodes.push(Node { origin: name, op: Op::Convert, inputs: vec![operand], outputs: vec![codes] });
            codes
        });
        let mut layer = node.clone();
        layer.inputs[0] = codes;
        nodes.push(layer);
        Some(nodes)
    });
}
