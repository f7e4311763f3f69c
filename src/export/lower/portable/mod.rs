//! Nodes as calls of ExecuTorch's operators: those of libexecutorch_kernels_optimized and _quantized, and the two
//! `llama::` ones where the graph has attention as one operation. One family of operations a file.

mod cache;
mod elementwise;
mod linear;
mod movement;
mod quantized;

use super::error::LowerError;
use super::plan::PlanBuilder;
use super::{Assets, Part, lower as lower_parts};
use crate::graph::{Graph, Int, Node, NodeId, Op, ValueId};
use crate::passes::{DecomposeRmsNorm, DecomposeRotary, DecomposeSwiGlu, Pass};
use crate::pte::ExecutionPlan;
use crate::tensor::DType;

type Result<T = (), E = LowerError> = std::result::Result<T, E>;

/// The passes that bring a graph to the operations that operators do. Attention over a cache stays one operation where
/// the graph has it so: `llama::custom_sdpa` does it.
pub fn decompositions() -> Vec<Box<dyn Pass>> {
    vec![Box::new(DecomposeRmsNorm), Box::new(DecomposeRotary), Box::new(DecomposeSwiGlu)]
}

/// The method of `graph` in operators alone.
///
/// # Errors
/// A node that no operator does.
pub fn lower(graph: &Graph, assets: &mut Assets) -> Result<ExecutionPlan> {
    lower_parts(graph, (0..graph.nodes.len()).map(Part::Node).collect(), assets)
}

/// Appends the calls that do node `id`.
pub(super) fn node(plan: &mut PlanBuilder<'_, '_>, id: NodeId) -> Result {
    let graph = plan.graph();
    let node = &graph.nodes[id];
    let call = &mut Call { plan, graph, node, id };
    match &node.op {
        Op::Reshape => movement::reshape(call),
        Op::Permute { perm } => movement::permute(call, perm),
        Op::Slice { axis, start, step } => movement::slice(call, *axis, *start, *step),
        Op::Concat { axis } => movement::concat(call, *axis),
        Op::Expand => movement::expand(call),
        Op::Arange { start, step } => movement::arange(call, *start, *step),
        Op::Fill { value } => movement::fill(call, *value),
        Op::Scalar { value } => movement::scalar(call, *value),
        Op::Embedding => quantized::embedding(call),
        Op::Convert => quantized::convert(call),
        Op::SliceUpdate { axis, start } => cache::slice_update(call, *axis, *start),
        Op::CacheUpdate { layout, start } => cache::update(call, *layout, *start),
        Op::Attention { layout, start, scale } => cache::attention(call, *layout, *start, *scale),
        Op::Unary(op) => elementwise::unary(call, *op),
        Op::Binary(op) => elementwise::binary(call, *op),
        Op::Clamp { min, max } => elementwise::clamp(call, *min, *max),
        Op::Where => call.simple("aten::where.self_out"),
        Op::Mean { axes } => elementwise::mean(call, axes),
        Op::Any { axis } => elementwise::any(call, *axis),
        Op::Softmax { axis } => elementwise::softmax(call, *axis),
        Op::FullyConnected => linear::fully_connected(call),
        Op::MatMul { transpose_b } => linear::matmul(call, *transpose_b),
        Op::RmsNorm { .. } | Op::Rotary { .. } | Op::SwiGlu => {
            call.unsupported("no operator does this; a pass must decompose it first")
        }
        Op::DynamicQuantLinear => call.unsupported("only XNNPACK delegates do this"),
        Op::QuantizedAttention { .. } | Op::QuantizePerToken { .. } => call.unsupported("nothing exports this"),
    }
}

/// A node on its way into a plan.
struct Call<'c, 'g, 'a> {
    plan: &'c mut PlanBuilder<'g, 'a>,
    graph: &'g Graph,
    node: &'g Node,
    id: NodeId,
}

impl<'g> Call<'_, 'g, '_> {
    fn unsupported<T>(&self, why: impl Into<String>) -> Result<T> {
        Err(LowerError::node(self.graph, self.id, why))
    }

    /// The graph's value of operand `index`.
    fn input(&self, index: usize) -> ValueId {
        self.node.inputs[index]
    }

    /// The tensor of operand `index`.
    fn operand(&mut self, index: usize) -> Result<u32> {
        self.plan.operand(self.input(index))
    }

    /// The graph's value of the result.
    fn output(&self) -> ValueId {
        self.node.outputs[0]
    }

    fn dtype(&self, id: ValueId) -> DType {
        self.graph.value(id).dtype
    }

    /// The tensor for the result.
    fn result(&mut self) -> Result<u32> {
        self.plan.result(self.output())
    }

    /// An operator that takes the operands alone.
    fn simple(&mut self, name: &str) -> Result {
        self.with_args(name, &[])
    }

    /// An operator that takes the operands and then `extra`.
    fn with_args(&mut self, name: &str, extra: &[u32]) -> Result {
        let mut args = (0..self.node.inputs.len()).map(|index| self.operand(index)).collect::<Result<Vec<_>>>()?;
        args.extend(extra);
        let out = self.result()?;
        self.plan.call(name, &args, out);
        Ok(())
    }

    /// `x` at other sizes, in its own memory wherever that is the method's.
    fn reshaped(&mut self, x: u32, dtype: DType, shape: &[Int]) -> u32 {
        if self.plan.is_planned(x) {
            return self.plan.view(x, dtype, shape);
        }
        let sizes = self.plan.sizes(shape);
        let out = self.plan.temporary(dtype, shape);
        self.plan.call("aten::view_copy.out", &[x, sizes], out);
        out
    }

    /// Makes the result of `x`, which has its elements at other sizes.
    fn finish_as(&mut self, x: u32) -> Result {
        let output = self.output();
        let value = self.graph.value(output);
        if self.plan.is_unplanned_output(output) {
            let sizes = self.plan.sizes(&value.shape);
            let out = self.result()?;
            self.plan.call("aten::view_copy.out", &[x, sizes], out);
        } else {
            let view = self.reshaped(x, value.dtype, &value.shape);
            self.plan.set(output, view);
        }
        Ok(())
    }

    /// The tensor of a constant, or of anything that is of type `dtype` already; constants in half precision are
    /// widened to f32.
    fn as_real(&mut self, id: ValueId, dtype: DType) -> Result<u32> {
        let value = self.graph.value(id);
        if value.dtype == dtype {
            return self.plan.operand(id);
        }
        let wide = match self.graph.constant(id) {
            Some(data) if dtype == DType::F32 => self.plan.assets().as_f32(data, value.dtype),
            _ => Ok(None),
        };
        let wide = wide.map_err(|source| LowerError::Keep { value: value.name.clone(), source })?;
        let Some(wide) = wide else { return self.unsupported(format!("{} where {dtype} is needed", value.dtype)) };
        Ok(self.plan.constant(dtype, self.graph.max_shape(id), &wide))
    }
}
