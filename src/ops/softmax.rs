//! `aten::_softmax` and `aten::_log_softmax` along one dimension.
//!
//! As in ExecuTorch, a row of nothing but minus infinity becomes NaN: programs that mask whole rows replace it after.

use super::error::OpError;
use super::layout::{check_order, dimension};
use super::number::{Number, load, write};
use super::promote::{Compute, check_float};
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry, Tensor};

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::_softmax.out", |args| {
        softmax(args, |row: &mut Row<'_, f32>| row.softmax(f32::exp), |row: &mut Row<'_, f64>| row.softmax(f64::exp))
    });
    registry.register("aten::_log_softmax.out", |args| {
        softmax(
            args,
            |row: &mut Row<'_, f32>| row.log_softmax(f32::exp, f32::ln),
            |row: &mut Row<'_, f64>| row.log_softmax(f64::exp, f64::ln),
        )
    });
}

/// Elements along the dimension, `step` apart.
struct Row<'a, C> {
    a: &'a [C],
    out: &'a mut [C],
    step: usize,
}

impl<C: Number + std::ops::Sub<Output = C> + std::ops::Div<Output = C>> Row<'_, C> {
    fn largest(&self) -> C {
        let mut values = self.a.iter().step_by(self.step).copied();
        let first = values.next().unwrap_or(C::ZERO);
        values.fold(first, |largest, value| if value > largest || value.is_unordered() { value } else { largest })
    }

    fn softmax(&mut self, exp: impl Fn(C) -> C) {
        let (largest, mut sum) = (self.largest(), C::ZERO);
        for (out, &a) in self.out.iter_mut().zip(self.a).step_by(self.step) {
            *out = exp(a - largest);
            sum = sum.plus(*out);
        }
        for out in self.out.iter_mut().step_by(self.step) {
            *out = *out / sum;
        }
    }

    fn log_softmax(&mut self, exp: impl Fn(C) -> C, ln: impl Fn(C) -> C) {
        let largest = self.largest();
        let sum = self.a.iter().step_by(self.step).fold(C::ZERO, |sum, &a| sum.plus(exp(a - largest)));
        let ln = ln(sum);
        for (out, &a) in self.out.iter_mut().zip(self.a).step_by(self.step) {
            *out = a - largest - ln;
        }
    }
}

fn rows<C: Number>(a: &Tensor, dim: usize, out: &mut Tensor, one: impl Fn(&mut Row<'_, C>)) -> Result<()> {
    if a.is_empty() {
        return Ok(());
    }
    let len = a.dims.get(dim).copied().unwrap_or(1);
    let step: usize = a.dims.iter().skip(dim + 1).product();
    let a = load::<C>(a)?;
    write(out, |out| {
        for (a, out) in a.chunks_exact(len * step).zip(out.chunks_exact_mut(len * step)) {
            for first in 0..step {
                one(&mut Row { a: &a[first..], out: &mut out[first..], step });
            }
        }
    })
}

/// (a, dimension, half to float, out)
fn softmax(
    args: &mut KernelArgs<'_>,
    single: impl Fn(&mut Row<'_, f32>),
    double: impl Fn(&mut Row<'_, f64>),
) -> Result<()> {
    let (inputs, out) = args.split(3)?;
    let (a, dim) = (inputs.tensor(0)?, inputs.int(1)?);
    if inputs.bool(2)? {
        return Err(OpError::Operands("halves that become floats".into()).into());
    }
    for (what, tensor) in [("the input", a), ("the output", &*out)] {
        check_order(what, tensor)?;
        check_float(what, tensor.dtype)?;
    }
    if a.dtype != out.dtype {
        return Err(OpError::TypesDiffer { what: "the output", have: out.dtype, want: a.dtype }.into());
    }
    let dim = dimension(dim, a.dims.len())?;
    out.resize(&a.dims)?;
    match Compute::of(a.dtype)? {
        Compute::F64 => rows(a, dim, out, double),
        _ => rows(a, dim, out, single),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, close, elements};
    use crate::pte::EValue;
    use crate::tensor::DType;

    const LOW: f32 = f32::NEG_INFINITY;

    fn run(name: &str, dims: &[usize], values: &[f32], dim: i64) -> Vec<f32> {
        let call = Call::new().constant(DType::F32, dims, values).int(dim).value(EValue::Bool(false));
        let (got, bytes) = call.output(DType::F32, dims).run(name, "out").unwrap();
        assert_eq!(got, dims);
        elements(&bytes)
    }

    #[test]
    fn along_the_last_dimension_and_across() {
        let values = [0.0, 3f32.ln(), 2f32.ln(), 2f32.ln() + 800.0, 800.0, LOW];
        let thirds = [2.0 / 3.0, 1.0 / 3.0];
        close(
            &run("aten::_softmax", &[2, 3], &values, -1),
            &[1.0 / 6.0, 0.5, 1.0 / 3.0, thirds[0], thirds[1], 0.0],
            1e-4,
        );
        let values = [0.0, 5.0, 2f32.ln(), 5.0];
        close(&run("aten::_softmax", &[2, 2], &values, 0), &[thirds[1], 0.5, thirds[0], 0.5], 1e-6);
        close(
            &run("aten::_log_softmax", &[2, 2], &values, 0),
            &[thirds[1].ln(), 0.5f32.ln(), thirds[0].ln(), 0.5f32.ln()],
            1e-6,
        );
        close(&run("aten::_softmax", &[], &[7.0], 0), &[1.0], 0.0);
    }

    #[test]
    fn a_row_of_minus_infinity_is_nan_and_the_others_are_not() {
        let got = run("aten::_softmax", &[2, 2], &[LOW, LOW, LOW, 1.0], 1);
        assert!(got[..2].iter().all(|value| value.is_nan()));
        assert_eq!(got[2..], [0.0, 1.0]);
        assert!(run("aten::_softmax", &[1, 3], &[1.0, f32::NAN, 2.0], 1).iter().all(|value| value.is_nan()));
    }

    #[test]
    fn defects_are_named() {
        let call = |dtype, dim, wide| {
            let call = Call::new().constant(DType::F32, &[2, 2], &[0.0f32; 4]).int(dim).value(EValue::Bool(wide));
            call.output(dtype, &[2, 2]).run("aten::_softmax", "out")
        };
        for (result, want) in [
            (call(DType::F32, 2, false), "dimension 2 of a tensor with 2"),
            (call(DType::F32, 1, true), "it cannot take halves that become floats"),
            (call(DType::F64, 1, false), "the output has f64 elements, its type says f32"),
            (call(DType::I32, 1, false), "the output cannot be i32"),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
