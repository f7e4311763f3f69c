//! Which nodes are linear layers that XNNPACK computes.

use crate::graph::{CodeOrder, Graph, NodeId, Op, Quantization, Value, ValueId, ValueKind};
use crate::tensor::DType;

/// Codes that share a scale: XNNPACK wants a multiple of this.
const BLOCK: usize = 32;

/// A linear layer with constant weights.
pub(super) struct Linear {
    /// Its operand, in reals.
    pub source: ValueId,
    /// The node that quantizes the operand, where it is a node of its own.
    pub convert: Option<NodeId>,
}

impl Linear {
    /// Node `id` as a linear layer, if it is one that XNNPACK computes.
    pub(super) fn of(graph: &Graph, producers: &[Option<NodeId>], id: NodeId) -> Option<Self> {
        let node = &graph.nodes[id];
        let operand = *node.inputs.first()?;
        let (convert, source) = match (&node.op, &graph.value(operand).quantization) {
            (Op::DynamicQuantLinear, None) | (Op::FullyConnected, None) => (None, operand),
            (Op::FullyConnected, Some(Quantization::DynamicPerRow { nonbatch_dims: 1 })) => {
                let convert = producers[operand.0 as usize]?;
                (graph.nodes[convert].op == Op::Convert).then_some(())?;
                (Some(convert), graph.nodes[convert].inputs[0])
            }
            _ => return None,
        };
        let is_dynamic = convert.is_some() || node.op == Op::DynamicQuantLinear;
        let weights = graph.value(node.inputs[1]);
        let bias = node.inputs.get(2).is_none_or(|&bias| is_real_constant(graph.value(bias)));
        let fits = if is_dynamic { are_codes(weights) } else { is_real_constant(weights) };
        let real = |id: ValueId| graph.value(id).dtype == DType::F32 && graph.value(id).quantization.is_none();
        (fits && bias && real(source) && real(node.outputs[0])).then_some(Self { source, convert })
    }
}

fn is_constant(value: &Value) -> bool {
    matches!(value.kind, ValueKind::Constant(_))
}

fn is_real_constant(value: &Value) -> bool {
    let real = matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16);
    is_constant(value) && real && value.quantization.is_none()
}

fn are_codes(value: &Value) -> bool {
    let known = match &value.quantization {
        Some(Quantization::PerChannel { bits: 4 | 8, axis: 0, .. }) => true,
        Some(Quantization::Blockwise {
            bits: 4, block, scale_dtype: DType::BF16, zero_points: None, order, ..
        }) => *order == CodeOrder::LowFirst && block.is_multiple_of(BLOCK),
        _ => false,
    };
    known && is_constant(value)
}
