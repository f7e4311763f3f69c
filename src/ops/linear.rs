//! `aten::` products of matrices: linear, mm, bmm, addmm. Plain loops that the compiler vectorises.

use super::error::OpError;
use super::layout::{Loops, Sizes, check_order, row_major, spread_tensor};
use super::number::{Number, load, write};
use super::promote::{Compute, Scalar, check_float};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};

/// Partial sums of a dot product that run beside each other.
const LANES: usize = 16;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::linear.out", linear);
    registry.register("aten::mm.out", |args| product(args, 2));
    registry.register("aten::bmm.out", |args| product(args, 3));
    registry.register("aten::addmm.out", addmm);
}

/// `Σ a·b`.
pub(super) fn dot<C: Number>(a: &[C], b: &[C]) -> C {
    let mut lanes = [C::ZERO; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let rest = rest.fold(C::ZERO, |sum, (&a, &b)| sum.plus(a.times(b)));
    for (a, b) in a_chunks.zip(b_chunks) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane = lane.plus(a.times(b));
        }
    }
    lanes.into_iter().fold(rest, C::plus)
}

/// `out += by · row`.
pub(super) fn add_scaled<C: Number>(out: &mut [C], by: C, row: &[C]) {
    for (out, &value) in out.iter_mut().zip(row) {
        *out = out.plus(by.times(value));
    }
}

/// Adds `a · b` to `out`.
fn add_product<C: Number>(a: &[C], b: &[C], out: &mut [C], columns: usize, depth: usize) {
    // a (rows, depth), b (depth, columns), out (rows, columns)
    if columns == 0 || depth == 0 {
        return;
    }
    for (a, out) in a.chunks_exact(depth).zip(out.chunks_exact_mut(columns)) {
        for (&a, b) in a.iter().zip(b.chunks_exact(columns)) {
            add_scaled(out, a, b);
        }
    }
}

/// Refuses tensors that are not real numbers of one type in logical order.
fn check(tensors: &[(&'static str, &Tensor)], out: &Tensor) -> Result<()> {
    for &(what, tensor) in tensors.iter().chain(&[("the output", out)]) {
        check_order(what, tensor)?;
        check_float(what, tensor.dtype)?;
        if tensor.dtype != out.dtype {
            return Err(OpError::TypesDiffer { what, have: tensor.dtype, want: out.dtype }.into());
        }
    }
    Ok(())
}

fn apart(a: &Tensor, b: &Tensor) -> OpError {
    OpError::Shapes { a: a.dims.clone(), b: b.dims.clone() }
}

/// (input [.., depth], weight [columns, depth], bias [columns] or null, out [.., columns])
fn linear(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(a: &Tensor, weight: &Tensor, bias: Option<&Tensor>, out: &mut Tensor) -> Result<()> {
        let (columns, depth) = (weight.dims[0], weight.dims[1]);
        let (a, weight, bias) = (load::<C>(a)?, load::<C>(weight)?, bias.map(load::<C>).transpose()?);
        write(out, |out| {
            if out.is_empty() {
                return;
            }
            // A row of weights meets all rows of the input while it is near.
            for column in 0..columns {
                let weight = &weight[column * depth..][..depth];
                let first = bias.as_ref().map_or(C::ZERO, |bias| bias[column]);
                for (row, out) in out.iter_mut().skip(column).step_by(columns).enumerate() {
                    *out = first.plus(dot(&a[row * depth..][..depth], weight));
                }
            }
        })
    }
    let (inputs, out) = args.split(3)?;
    let (a, weight, bias) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.optional_tensor(2)?);
    check(&[("the input", a), ("the weight", weight)], out)?;
    let (Some((&depth, around)), &[columns, weight_depth]) = (a.dims.split_last(), &weight.dims[..]) else {
        return Err(apart(a, weight).into());
    };
    if depth != weight_depth {
        return Err(apart(a, weight).into());
    }
    if let Some(bias) = bias {
        check(&[("the bias", bias)], out)?;
        if bias.dims != [columns] {
            return Err(OpError::Shape { what: "the bias", dims: bias.dims.clone() }.into());
        }
    }
    out.resize(&Sizes::collect(around.iter().copied().chain([columns]))?)?;
    match Compute::of(out.dtype)? {
        Compute::F64 => apply::<f64>(a, weight, bias, out),
        _ => apply::<f32>(a, weight, bias, out),
    }
}

/// Two matrices, or batches of them when `rank` is 3, and the sizes of their product.
fn matrices<'a>(inputs: &Inputs<'a>, first: usize, rank: usize) -> Result<(&'a Tensor, &'a Tensor, Sizes)> {
    let (a, b) = (inputs.tensor(first)?, inputs.tensor(first + 1)?);
    let fits = a.dims.len() == rank
        && b.dims.len() == rank
        && a.dims[..rank - 2] == b.dims[..rank - 2]
        && a.dims[rank - 1] == b.dims[rank - 2];
    if !fits {
        return Err(apart(a, b).into());
    }
    let dims = Sizes::collect(a.dims[..rank - 1].iter().copied().chain([b.dims[rank - 1]]))?;
    Ok((a, b, dims))
}

/// (a [batch, rows, depth], b [batch, depth, columns], out), without batch for rank 2.
fn product(args: &mut KernelArgs<'_>, rank: usize) -> Result<()> {
    fn apply<C: Number>(a: &Tensor, b: &Tensor, out: &mut Tensor) -> Result<()> {
        let [.., rows, depth] = a.dims[..] else { return Ok(()) };
        let columns = b.dims.last().copied().unwrap_or(0);
        let (a, b) = (load::<C>(a)?, load::<C>(b)?);
        write(out, |out| {
            out.fill(C::ZERO);
            if a.is_empty() || b.is_empty() {
                return;
            }
            let batch = a.chunks_exact(rows * depth).zip(b.chunks_exact(depth * columns));
            for ((a, b), out) in batch.zip(out.chunks_exact_mut(rows * columns)) {
                add_product(a, b, out, columns, depth);
            }
        })
    }
    let (inputs, out) = args.split(2)?;
    let (a, b, dims) = matrices(&inputs, 0, rank)?;
    check(&[("the left matrix", a), ("the right matrix", b)], out)?;
    out.resize(&dims)?;
    match Compute::of(out.dtype)? {
        Compute::F64 => apply::<f64>(a, b, out),
        _ => apply::<f32>(a, b, out),
    }
}

/// (added, a [rows, depth], b [depth, columns], beta, alpha, out): `beta · added + alpha · a · b`.
fn addmm(args: &mut KernelArgs<'_>) -> Result<()> {
    fn apply<C: Number>(
        added: (&Tensor, C),
        factors: (&Tensor, &Tensor),
        alpha: C,
        loops: &Loops<2>,
        out: &mut Tensor,
    ) -> Result<()> {
        let (depth, columns) = (factors.1.dims[0], factors.1.dims[1]);
        let (a, b, beta) = (load::<C>(factors.0)?, load::<C>(factors.1)?, added.1);
        let added = load::<C>(added.0)?;
        write(out, |out| {
            out.fill(C::ZERO);
            add_product(&a, &b, out, columns, depth);
            let product = out.to_vec();
            // With a factor of zero what is added does not count, not even what is no number.
            loops.map(&added, out, |added| if beta == C::ZERO { C::ZERO } else { beta.times(added) });
            add_scaled(out, alpha, &product);
        })
    }
    let (inputs, out) = args.split(5)?;
    let added = inputs.tensor(0)?;
    let (a, b, dims) = matrices(&inputs, 1, 2)?;
    check(&[("what is added", added), ("the left matrix", a), ("the right matrix", b)], out)?;
    let (beta, alpha) = (Scalar::of(&inputs, 3)?.to_f64(), Scalar::of(&inputs, 4)?.to_f64());
    let loops = Loops::new(&dims, [&row_major(&dims)?, &spread_tensor(added, &dims)?]);
    out.resize(&dims)?;
    match Compute::of(out.dtype)? {
        Compute::F64 => apply((added, beta), (a, b), alpha, &loops, out),
        _ => apply((added, beta as f32), (a, b), alpha as f32, &loops, out),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use crate::pte::EValue;
    use crate::tensor::DType;
    use half::f16;

    fn counted(len: usize) -> Vec<f32> {
        (1..=len).map(|value| value as f32).collect()
    }

    #[test]
    fn linear_takes_rows_of_weights() {
        let call = Call::new().constant(DType::F32, &[1, 2, 3], &counted(6));
        let call = call.constant(DType::F32, &[2, 3], &[1.0f32, 0.0, -1.0, 2.0, 1.0, 0.0]).value(EValue::Null);
        let (dims, bytes) = call.output(DType::F32, &[1, 9, 2]).run("aten::linear", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![1, 2, 2], vec![-2.0, 4.0, -2.0, 13.0]));
    }

    #[test]
    fn linear_with_bias_over_more_than_one_chunk() {
        let call = Call::new().constant(DType::F64, &[37], &[2.0f64; 37]).constant(DType::F64, &[1, 37], &[0.5f64; 37]);
        let call = call.constant(DType::F64, &[1], &[-7.0f64]).output(DType::F64, &[1]);
        assert_eq!(elements::<f64>(&call.run("aten::linear", "out").unwrap().1), [30.0]);
        let half = |value: f32| f16::from_f32(value).to_bits();
        let call = Call::new().constant(DType::F16, &[1, 2], &[half(1.5), half(2.0)]);
        let call = call.constant(DType::F16, &[1, 2], &[half(2.0), half(0.25)]).value(EValue::Null);
        let (_, bytes) = call.output(DType::F16, &[1, 1]).run("aten::linear", "out").unwrap();
        assert_eq!(elements::<u16>(&bytes), [half(3.5)]);
    }

    #[test]
    fn products_of_matrices_and_of_batches() {
        let a = [1.0f32, 2.0, 3.0, 4.0];
        let call = Call::new().constant(DType::F32, &[2, 2], &a).constant(DType::F32, &[2, 3], &counted(6));
        let (dims, bytes) = call.output(DType::F32, &[2, 3]).run("aten::mm", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2, 3], vec![9., 12., 15., 19., 26., 33.]));
        let call = Call::new().constant(DType::F32, &[2, 1, 2], &a).constant(DType::F32, &[2, 2, 1], &a);
        let (dims, bytes) = call.output(DType::F32, &[4, 2, 1]).run("aten::bmm", "out").unwrap();
        assert_eq!((dims, elements::<f32>(&bytes)), (vec![2, 1, 1], vec![5.0, 25.0]));
        let call = Call::new().constant::<f32>(DType::F32, &[2, 0], &[]).constant::<f32>(DType::F32, &[0, 1], &[]);
        let (_, bytes) = call.output(DType::F32, &[2, 1]).run("aten::mm", "out").unwrap();
        assert_eq!(elements::<f32>(&bytes), [0.0; 2]);
    }

    #[test]
    fn what_is_not_finite_spreads_as_ieee_says() {
        let call = Call::new().constant(DType::F32, &[1, 2], &[0.0f32, 1.0]);
        let call = call.constant(DType::F32, &[2, 1], &[f32::INFINITY, 1.0]).output(DType::F32, &[1, 1]);
        assert!(elements::<f32>(&call.run("aten::mm", "out").unwrap().1)[0].is_nan());
    }

    #[test]
    fn addmm_scales_both_parts() {
        let run = |added: &[f32], beta: EValue| {
            let call = Call::new().constant(DType::F32, &[added.len()], added);
            let call = call.constant(DType::F32, &[2, 1], &[1.0f32, 2.0]).constant(DType::F32, &[1, 2], &[3.0f32, 4.0]);
            let call = call.value(beta).value(EValue::Double(0.5)).output(DType::F32, &[2, 2]);
            elements::<f32>(&call.run("aten::addmm", "out").unwrap().1)
        };
        assert_eq!(run(&[10.0, 20.0], EValue::Int(2)), [21.5, 42.0, 23.0, 44.0]);
        assert_eq!(run(&[f32::NAN], EValue::Int(0)), [1.5, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn defects_are_named() {
        let pair = |a: &[usize], b: &[usize]| {
            let zeros = |dims: &[usize]| vec![0.0f32; dims.iter().product()];
            Call::new().constant(DType::F32, a, &zeros(a)).constant(DType::F32, b, &zeros(b))
        };
        for (result, want) in [
            (
                pair(&[1, 3], &[2, 2]).value(EValue::Null).output(DType::F32, &[1, 2]).run("aten::linear", "out"),
                "sizes [1, 3] and [2, 2] do not go together",
            ),
            (
                pair(&[1, 2], &[2, 2])
                    .constant(DType::F32, &[3], &[0.0f32; 3])
                    .output(DType::F32, &[1, 2])
                    .run("aten::linear", "out"),
                "the bias cannot have the sizes [3]",
            ),
            (
                pair(&[1, 2], &[2, 2]).value(EValue::Null).output(DType::F64, &[1, 2]).run("aten::linear", "out"),
                "the input has f32 elements, its type says f64",
            ),
            (
                pair(&[2, 1, 2], &[1, 2, 1]).output(DType::F32, &[2, 1, 1]).run("aten::bmm", "out"),
                "sizes [2, 1, 2] and [1, 2, 1] do not go together",
            ),
            (
                pair(&[1, 2], &[3, 1]).output(DType::F32, &[1, 1]).run("aten::mm", "out"),
                "sizes [1, 2] and [3, 1] do not go together",
            ),
            (
                pair(&[1, 2], &[2, 5]).output(DType::F32, &[1, 4]).run("aten::mm", "out"),
                "sizes [1, 5] do not fit the upper bounds [1, 4]",
            ),
            (
                pair(&[3], &[1, 2])
                    .constant(DType::F32, &[2, 2], &[0.0f32; 4])
                    .int(1)
                    .int(1)
                    .output(DType::F32, &[1, 2])
                    .run("aten::addmm", "out"),
                "sizes [3] cannot be broadcast to [1, 2]",
            ),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
