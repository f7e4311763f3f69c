//! Scalars of arithmetic as quantized constants.
//!
//! Integer accelerators take no real operand beside integer ones. A constant that is a tensor where a scalar belongs
//! would silently become one of a coarse grid, so it is an error that names it.

use super::constants;
use crate::error::Result;
use crate::export::quantize::{CodeStore, CodeType, QuantizeError};
use crate::graph::{Constant, Graph, Op, Quantization, ValueKind};
use crate::passes::Pass;
use std::sync::Arc;

/// See the module.
pub struct QuantizeScalars {
    /// Takes the codes.
    pub store: Arc<CodeStore>,
}

impl Pass for QuantizeScalars {
    fn name(&self) -> &'static str {
        "quantize-scalars"
    }

    fn requires(&self) -> &'static [&'static str] {
        &["annotate"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let (mut kept, mut count) = (Vec::with_capacity(graph.nodes.len()), 0);
        for node in std::mem::take(&mut graph.nodes) {
            let constant = node.inputs.first().copied().filter(|&id| graph.constant(id).is_some());
            let (Op::Convert, Some(constant)) = (&node.op, constant) else {
                kept.push(node);
                continue;
            };
            let made = node.outputs[0];
            let Some(Quantization::PerTensor { bits, encoding }) = graph.value(made).quantization else {
                kept.push(node);
                continue;
            };
            let shape = graph.max_shape(constant);
            if shape.iter().product::<usize>() != 1 {
                let name = graph.value(constant).name.clone();
                return Err(QuantizeError::NotScalar { node: node.origin, name, shape }.into());
            }
            let codes = CodeType::asymmetric(bits);
            let data = constants::stored(&self.store, graph, constant, codes, encoding)?;
            graph.value_mut(made).kind = ValueKind::Constant(Constant { data });
            count += 1;
        }
        graph.nodes = kept;
        Ok(count)
    }
}
