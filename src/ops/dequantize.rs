//! `quantized_decomposed::dequantize_*`: integer codes to real numbers, `(code - zero) · scale`.

use super::error::OpError;
use super::layout::{Sizes, check_order};
use super::number::{load, write};
use super::promote::{Compute, check_dtype_arg, check_float};
use super::quantize::{Parameters, channel_sizes, token_sizes};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::DType;

pub(super) fn register(registry: &mut KernelRegistry) {
    let mut quantized = |name: &str, kernel| registry.register(&format!("quantized_decomposed::{name}"), kernel);
    quantized("dequantize_per_tensor.out", |args| {
        let inputs = args.inputs();
        let (scale, zero) = (inputs.double(1)?, inputs.int(2)?);
        let places = Places { range: 3, dtype: 5, out_dtype: 6, out: 7 };
        dequantize(args, places, |_, a| Ok((Parameters::one(scale, zero), Sizes::new(&a.dims)?)))
    });
    quantized("dequantize_per_tensor.Tensor_out", |args| {
        let places = Places { range: 3, dtype: 5, out_dtype: 6, out: 7 };
        dequantize(args, places, |inputs, a| Ok((Parameters::of(inputs, 1, &[])?, Sizes::new(&a.dims)?)))
    });
    quantized("dequantize_per_channel.out", |args| {
        let places = Places { range: 4, dtype: 6, out_dtype: 7, out: 8 };
        dequantize(args, places, |inputs, a| {
            Ok((Parameters::of(inputs, 1, &channel_sizes(inputs, 3, a)?)?, Sizes::new(&a.dims)?))
        })
    });
    quantized("dequantize_per_token.out", |args| {
        let places = Places { range: 3, dtype: 5, out_dtype: 6, out: 7 };
        dequantize(args, places, |inputs, a| Ok((Parameters::of(inputs, 1, &token_sizes(a)?)?, Sizes::new(&a.dims)?)))
    });
    quantized("dequantize_per_channel_group.out", |args| {
        let places = Places { range: 3, dtype: 5, out_dtype: 7, out: 8 };
        dequantize(args, places, |inputs, a| {
            let group = inputs.int(6)?;
            let bad = || OpError::Operands(format!("groups of {group} in {a}"));
            let (&[rows, width], Ok(size)) = (&a.dims[..], usize::try_from(group)) else { return Err(bad().into()) };
            if size == 0 || !width.is_multiple_of(size) {
                return Err(bad().into());
            }
            let groups = width / size;
            Ok((Parameters::of(inputs, 1, &[rows, groups, 1])?, Sizes::new(&[rows, groups, size])?))
        })
    });
}

/// Where the arguments of an operator are.
struct Places {
    /// The smallest code; the largest follows.
    range: usize,
    dtype: usize,
    out_dtype: usize,
    out: usize,
}

/// (a, …, out); `parameters` also says at what sizes they broadcast.
fn dequantize(
    args: &mut KernelArgs<'_>,
    places: Places,
    parameters: impl for<'a> Fn(&Inputs<'a>, &Tensor) -> Result<(Parameters<'a>, Sizes)>,
) -> Result<()> {
    let (inputs, out) = args.split(places.out)?;
    let a = inputs.tensor(0)?;
    check_dtype_arg(&inputs, places.dtype, a.dtype)?;
    check_dtype_arg(&inputs, places.out_dtype, out.dtype)?;
    check_float("the output", out.dtype)?;
    if Compute::of(a.dtype).map_or(a.dtype != DType::Bits16, |compute| compute != Compute::I64) {
        return Err(OpError::Type { what: "a code", dtype: a.dtype }.into());
    }
    let (min, max) = (inputs.int(places.range)?, inputs.int(places.range + 1)?);
    if min > max {
        return Err(OpError::CodeRange { min, max }.into());
    }
    for (what, tensor) in [("the input", a), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    let (parameters, dims) = parameters(&inputs, a)?;
    out.resize(&a.dims)?;
    let codes = load::<i64>(a)?;
    let mut done = Ok(());
    write(out, |out: &mut [f32]| {
        done = parameters.each(&dims, |at, step, len, place, far| {
            for n in 0..len {
                let (at, place) = (at + n * step, place + n * far);
                out[at] = codes[at].wrapping_sub(parameters.zero(place)) as f32 * parameters.scales[place];
            }
        });
    })?;
    done
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;

    const CODES: [i8; 8] = [0, 1, 2, 3, -4, -5, -6, 127];
    const I8: i64 = DType::I8 as i64;
    const F32: i64 = DType::F32 as i64;

    fn run(name: &str, parameters: impl FnOnce(Call) -> Call, tail: &[i64]) -> Result<Vec<f32>> {
        let call = parameters(Call::new().constant(DType::I8, &[2, 4], &CODES));
        let call = tail.iter().fold(call.int(-128).int(127), |call, &int| call.int(int)).output(DType::F32, &[2, 4]);
        let (name, overload) = name.split_once('.').unwrap();
        call.run(&format!("quantized_decomposed::{name}"), overload).map(|(_, bytes)| elements(&bytes))
    }

    fn tensors(scales: &[f64], zeros: Option<&[i64]>) -> impl Fn(Call) -> Call {
        let (scales, zeros) = (scales.to_vec(), zeros.map(<[i64]>::to_vec));
        move |call| {
            let call = call.constant(DType::F64, &[scales.len()], &scales);
            match &zeros {
                Some(zeros) => call.constant(DType::I64, &[zeros.len()], zeros),
                None => call.value(EValue::Null),
            }
        }
    }

    #[test]
    fn parameters_for_all_a_channel_a_row_or_a_group() {
        let whole = |call: Call| call.value(EValue::Double(0.5)).int(1);
        let want = [-0.5, 0.0, 0.5, 1.0, -2.5, -3.0, -3.5, 63.0];
        assert_eq!(run("dequantize_per_tensor.out", whole, &[I8, F32]).unwrap(), want);
        let one = tensors(&[0.5], Some(&[1]));
        assert_eq!(run("dequantize_per_tensor.Tensor_out", one, &[I8, F32]).unwrap(), want);
        let rows = tensors(&[1.0, 2.0], Some(&[0, -4]));
        let want = [0.0, 1.0, 2.0, 3.0, 0.0, -2.0, -4.0, 262.0];
        assert_eq!(run("dequantize_per_token.out", &rows, &[I8, F32]).unwrap(), want);
        assert_eq!(run("dequantize_per_channel.out", |call| rows(call).int(0), &[I8, F32]).unwrap(), want);
        let columns = tensors(&[1.0, 2.0, 3.0, 4.0], None);
        let want = [0.0, 2.0, 6.0, 12.0, -4.0, -10.0, -18.0, 508.0];
        assert_eq!(run("dequantize_per_channel.out", |call| columns(call).int(-1), &[I8, F32]).unwrap(), want);
        let groups = tensors(&[1.0, 2.0, 3.0, 4.0], Some(&[0, 0, 1, 0]));
        let want = [0.0, 1.0, 4.0, 6.0, -15.0, -18.0, -24.0, 508.0];
        assert_eq!(run("dequantize_per_channel_group.out", groups, &[I8, 2, F32]).unwrap(), want);
    }

    #[test]
    fn sixteen_bits() {
        let call = Call::new().constant(DType::Bits16, &[2], &[0u16, 65_535]).value(EValue::Double(0.25)).int(65_535);
        let call = call.int(0).int(65_535).int(22).value(EValue::Null).output(DType::F32, &[2]);
        let (_, bytes) = call.run("quantized_decomposed::dequantize_per_tensor", "out").unwrap();
        assert_eq!(elements::<f32>(&bytes), [-16_383.75, 0.0]);
    }

    #[test]
    fn defects_are_named() {
        let rows = tensors(&[1.0, 2.0], Some(&[0, -4]));
        for (result, want) in [
            (run("dequantize_per_token.out", &rows, &[0, F32]), "a tensor has i8 elements, its type says u8"),
            (run("dequantize_per_token.out", &rows, &[I8, 7]), "a tensor has f32 elements, its type says f64"),
            (run("dequantize_per_token.out", &rows, &[I8, 99]), "it cannot take element type 99"),
            (
                run("dequantize_per_channel.out", |call| rows(call).int(1), &[I8, F32]),
                "the scales cannot have the sizes [2]",
            ),
            (
                run("dequantize_per_token.out", tensors(&[1.0, 2.0], Some(&[0])), &[I8, F32]),
                "the zero points cannot have the sizes [1]",
            ),
            (run("dequantize_per_channel_group.out", &rows, &[I8, 3, F32]), "it cannot take groups of 3 in i8[2, 4]"),
            (run("dequantize_per_channel_group.out", &rows, &[I8, 0, F32]), "it cannot take groups of 0 in i8[2, 4]"),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }
}
