//! The 8-bit rounding of a linear layer's operand, and the layer, as one node.

use super::Pass;
use super::matching::is_plain_f32;
use crate::error::Result;
use crate::graph::{Before, Graph, Node, Op, Quantization, Replacement};

/// See the module. A rounding that several layers share is done by each, which costs little and lets an engine share
/// it again by the operand.
pub struct FuseDynamicQuantLinear;

impl Pass for FuseDynamicQuantLinear {
    fn name(&self) -> &'static str {
        "fuse-dynamic-quant-linear"
    }

    fn after(&self) -> &'static [&'static str] {
        &["simplify"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let count = graph.rewrite(|graph, before, id| fuse(graph, before, &before.nodes()[id]));
        graph.remove_dead_nodes();
        Ok(count)
    }
}

fn fuse(graph: &mut Graph, before: &Before, root: &Node) -> Option<Vec<Node>> {
    if root.op != Op::FullyConnected {
        return None;
    }
    let codes = root.inputs[0];
    let by_row = graph.value(codes).quantization == Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
    let rounding = &before.nodes()[before.producer_id(codes).filter(|_| by_row)?];
    let x = *rounding.inputs.first().filter(|&&x| rounding.op == Op::Convert && is_plain_f32(graph, x))?;
    graph.value(root.inputs[1]).quantization.as_ref()?;
    let mut inputs = root.inputs.clone();
    inputs[0] = x;
    Some(Replacement::new().finish(root, Op::DynamicQuantLinear, &inputs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::Llama;

    #[test]
    fn each_linear_layer_takes_its_rounding_along() {
        let llama = Llama { quantized: true, ..Llama::default() };
        let mut graph = llama.build();
        let before = llama.logits(&graph);
        let layers = graph.nodes.iter().filter(|node| node.op == Op::FullyConnected).count();
        assert_eq!(FuseDynamicQuantLinear.run(&mut graph).unwrap(), layers);
        graph.verify().unwrap();
        assert!(!graph.nodes.iter().any(|node| matches!(node.op, Op::FullyConnected | Op::Convert)));
        assert_eq!(llama.logits(&graph), before);
    }

    #[test]
    fn rows_of_several_axes_and_real_weights_stay() {
        let llama = Llama { quantized: true, ..Llama::default() };
        let mut graph = llama.build();
        for value in &mut graph.values {
            if let Some(Quantization::DynamicPerRow { nonbatch_dims }) = &mut value.quantization {
                *nonbatch_dims = 2;
            }
        }
        assert_eq!(FuseDynamicQuantLinear.run(&mut graph).unwrap(), 0);
        assert_eq!(FuseDynamicQuantLinear.run(&mut Llama::default().build()).unwrap(), 0);
    }
}
