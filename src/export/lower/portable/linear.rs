//! Products: linear layers over real weights, and matrix products.

use super::{Call, Result};
use crate::graph::Int;
use crate::tensor::DType;

/// The operator wants one element type throughout: half-precision constants are widened.
pub(super) fn fully_connected(call: &mut Call<'_, '_, '_>) -> Result {
    let operands = call.node.inputs.clone();
    if operands.iter().any(|&id| call.graph.value(id).quantization.is_some()) {
        return call.unsupported("quantized weights or operands; only XNNPACK delegates do this");
    }
    let x = call.operand(0)?;
    let dtype = call.dtype(call.output());
    let mut args = vec![x];
    for &id in &operands[1..] {
        args.push(call.as_real(id, dtype)?);
    }
    if args.len() == 2 {
        args.push(call.plan.null());
    }
    let out = call.result()?;
    call.plan.call("aten::linear.out", &args, out);
    Ok(())
}

/// As a product of stacked matrices; leading axes are expanded to those of the result first.
pub(super) fn matmul(call: &mut Call<'_, '_, '_>, transpose_b: bool) -> Result {
    if call.node.inputs.iter().any(|&id| call.graph.value(id).quantization.is_some()) {
        return call.unsupported("quantized factors");
    }
    let output = call.graph.value(call.output());
    let (leading, matrix) = output.shape.split_at(output.shape.len() - 2);
    let known = |dim: &Int| if let Int::Const(size) = dim { Some(*size) } else { None };
    let Some(count) = leading.iter().map(known).product::<Option<i64>>() else {
        return call.unsupported("a number of products that is known only at run time");
    };
    let a = call.factor(0)?;
    let mut b = call.factor(1)?;
    if transpose_b {
        b = b.transposed(call);
    }
    let args = [a, b].map(|factor| factor.stacked(call, leading, count));
    if leading.len() == 1 {
        let out = call.result()?;
        call.plan.call("aten::bmm.out", &args, out);
        return Ok(());
    }
    let product = call.plan.temporary(output.dtype, &[Int::Const(count), matrix[0], matrix[1]]);
    call.plan.call("aten::bmm.out", &args, product);
    call.finish_as(product)
}

/// One side of a product.
struct Factor {
    tensor: u32,
    dtype: DType,
    shape: Vec<Int>,
}

impl Factor {
    fn transposed(self, call: &mut Call<'_, '_, '_>) -> Self {
        let Self { tensor, dtype, mut shape } = self;
        let rank = shape.len();
        let mut perm: Vec<i64> = (0..rank as i64).collect();
        perm.swap(rank - 2, rank - 1);
        shape.swap(rank - 2, rank - 1);
        let perm = call.plan.ints(&perm);
        let out = call.plan.temporary(dtype, &shape);
        call.plan.call("aten::permute_copy.out", &[tensor, perm], out);
        Self { tensor: out, dtype, shape }
    }

    /// As `[count, rows, columns]`, which `leading` comes to.
    fn stacked(self, call: &mut Call<'_, '_, '_>, leading: &[Int], count: i64) -> u32 {
        let Self { mut tensor, dtype, shape } = self;
        let (own, matrix) = shape.split_at(shape.len() - 2);
        let mut full = leading.to_vec();
        full.extend(matrix);
        if own != leading {
            let args = [tensor, call.plan.sizes(&full), call.plan.bool(false)];
            tensor = call.plan.temporary(dtype, &full);
            call.plan.call("aten::expand_copy.out", &args, tensor);
        }
        if leading.len() == 1 {
            tensor
        } else {
            call.reshaped(tensor, dtype, &[Int::Const(count), matrix[0], matrix[1]])
        }
    }
}

impl Call<'_, '_, '_> {
    fn factor(&mut self, index: usize) -> Result<Factor> {
        let value = self.graph.value(self.input(index));
        Ok(Factor { tensor: self.operand(index)?, dtype: value.dtype, shape: value.shape.clone() })
    }
}
