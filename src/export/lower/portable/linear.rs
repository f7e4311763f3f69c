//! Products: linear layers over real weights or 8-bit ones, and matrix products.

use super::{Call, Result};
use crate::graph::{Int, Quantization, Value};
use crate::tensor::DType;

/// The operator wants one element type throughout: half-precision constants are widened.
pub(super) fn fully_connected(call: &mut Call<'_, '_, '_>) -> Result {
    let operands = call.node.inputs.clone();
    let weights = call.graph.value(operands[1]);
    if let (None, Some(quantization)) = (&call.graph.value(operands[0]).quantization, &weights.quantization) {
        return over_codes(call, weights, quantization);
    }
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

/// The operator wants matrices, signed bytes with an f32 scale a row, and no bias.
fn over_codes(call: &mut Call<'_, '_, '_>, weights: &Value, quantization: &Quantization) -> Result {
    let (Quantization::PerChannel { bits: 8, axis: 0, scales }, DType::I8) = (quantization, weights.dtype) else {
        return call
            .unsupported("weights of other codes than 8 bits with a scale a row; only XNNPACK delegates do these");
    };
    let (x, output) = (call.graph.value(call.input(0)), call.graph.value(call.output()));
    let Some(rows) = rows(&x.shape) else { return call.unsupported("a number of rows that no value holds") };
    let Some((&depth, &columns)) = x.shape.last().zip(output.shape.last()) else {
        return call.unsupported("an operand without elements");
    };
    if [x.dtype, output.dtype] != [DType::F32; 2] {
        return call.unsupported(format!("8-bit weights and operands of {}", x.dtype));
    }
    let shape = call.graph.max_shape(call.input(1));
    let Some(codes) = call.graph.constant(call.input(1)) else {
        return call.unsupported("weights that are no constant");
    };
    let codes = call.plan.constant(DType::I8, shape.clone(), codes);
    let scales = call.plan.constant(DType::F32, vec![shape[0]], &scales.data);
    let x = call.operand(0)?;
    let x = call.reshaped(x, DType::F32, &[rows, depth]);
    let args = [x, codes, scales, call.plan.null(), call.plan.null()];
    let mut product = call.plan.temporary(DType::F32, &[rows, columns]);
    call.plan.call("quantized_decomposed::mixed_linear.out", &args, product);
    if call.node.inputs.len() == 3 {
        let bias = call.as_real(call.input(2), DType::F32)?;
        let sum = call.plan.temporary(DType::F32, &[rows, columns]);
        let args = [product, bias, call.plan.int(1)];
        call.plan.call("aten::add.out", &args, sum);
        product = sum;
    }
    call.finish_as(product)
}

/// How many rows a tensor of these sizes has, as a size: all but one of the leading ones are known, or 1.
fn rows(shape: &[Int]) -> Option<Int> {
    let (_, leading) = shape.split_last()?;
    let mut symbols = leading.iter().filter(|dim| matches!(dim, Int::Symbol(_)));
    let known: i64 = leading.iter().map(|dim| if let Int::Const(size) = dim { *size } else { 1 }).product();
    match (symbols.next(), symbols.next(), known) {
        (None, _, known) => Some(Int::Const(known)),
        (Some(&symbol), None, 1) => Some(symbol),
        _ => None,
    }
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
