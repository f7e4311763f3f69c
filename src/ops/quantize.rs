//! `quantized_decomposed::quantize_*` and `choose_qparams*`: real numbers to integer codes, and the choice of scales.
//!
//! A code is `zero + round(real · (1 / scale))`, ties to even, in f32 as in ExecuTorch, held within the given range.

use super::error::OpError;
use super::layout::{Loops, Sizes, check_order, dimension, row_major, spread};
use super::number::{load, write};
use super::promote::{check_dtype_arg, check_float};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::{DType, element_count};
use std::borrow::Cow;

pub(super) fn register(registry: &mut KernelRegistry) {
    let mut quantized = |name: &str, kernel| registry.register(&format!("quantized_decomposed::{name}"), kernel);
    quantized("quantize_per_tensor.out", |args| {
        let inputs = args.inputs();
        let (scale, zero) = (inputs.double(1)?, inputs.int(2)?);
        quantize(args, 3, |_, _| Ok(Parameters::one(scale, zero)))
    });
    quantized("quantize_per_tensor.Tensor_out", |args| quantize(args, 3, |inputs, _| Parameters::of(inputs, 1, &[])));
    quantized("quantize_per_channel.out", |args| {
        quantize(args, 4, |inputs, a| Parameters::of(inputs, 1, &channel_sizes(inputs, 3, a)?))
    });
    quantized("quantize_per_token.out", |args| {
        quantize(args, 3, |inputs, a| Parameters::of(inputs, 1, &token_sizes(a)?))
    });
    quantized("choose_qparams.Tensor_out", choose_for_tensor);
    quantized("choose_qparams_per_token_asymmetric.out", choose_for_tokens);
}

/// Sizes of one parameter for each place of the dimension in argument `arg`.
pub(super) fn channel_sizes(inputs: &Inputs<'_>, arg: usize, a: &Tensor) -> Result<Sizes> {
    let rank = a.dims.len();
    let dim = inputs.int(arg)?;
    if rank == 0 {
        return Err(OpError::Dimension { dim, rank }.into());
    }
    let dim = dimension(dim, rank)?;
    Sizes::collect((0..rank).map(|at| if at == dim { a.dims[at] } else { 1 }))
}

/// Sizes of one parameter for each row of the last dimension.
pub(super) fn token_sizes(a: &Tensor) -> Result<Sizes> {
    let Some((_, around)) = a.dims.split_last() else {
        return Err(OpError::Shape { what: "rows", dims: Vec::new() }.into());
    };
    Sizes::collect(around.iter().copied().chain([1]))
}

/// Scales and zero points, at sizes that broadcast to what they are of.
pub(super) struct Parameters<'a> {
    pub(super) scales: Cow<'a, [f32]>,
    /// All zero where the program gives none.
    pub(super) zeros: Option<Cow<'a, [i64]>>,
    dims: Sizes,
}

impl<'a> Parameters<'a> {
    pub(super) fn one(scale: f64, zero: i64) -> Self {
        Self { scales: Cow::Owned(vec![scale as f32]), zeros: Some(Cow::Owned(vec![zero])), dims: Sizes::EMPTY }
    }

    /// Scales in argument `arg` and zero points, or null, in the next, as many as `dims` says.
    pub(super) fn of(inputs: &Inputs<'a>, arg: usize, dims: &[usize]) -> Result<Self> {
        let (scales, zeros) = (inputs.tensor(arg)?, inputs.optional_tensor(arg + 1)?);
        check_float("a scale", scales.dtype)?;
        let count = element_count(dims)?;
        for (what, tensor) in [("the scales", Some(scales)), ("the zero points", zeros)] {
            let Some(tensor) = tensor else { continue };
            check_order(what, tensor)?;
            if tensor.len() != count {
                return Err(OpError::Shape { what, dims: tensor.dims.clone() }.into());
            }
        }
        Ok(Self { scales: load(scales)?, zeros: zeros.map(load).transpose()?, dims: Sizes::new(dims)? })
    }

    /// Calls `visit` for each run of elements of a tensor of sizes `dims` that share a scale and a zero point, or that
    /// have neighbouring ones: where they start, how far they are apart, how many, where the parameters start, how far
    /// those are apart.
    pub(super) fn each(&self, dims: &[usize], mut visit: impl FnMut(usize, usize, usize, usize, usize)) -> Result<()> {
        let far = spread(&self.dims, &row_major(&self.dims)?, dims)?;
        let loops = Loops::<2>::new(dims, [&row_major(dims)?, &far]);
        loops.each(|[at, place]| visit(at, loops.steps[0], loops.len, place, loops.steps[1]));
        Ok(())
    }

    pub(super) fn zero(&self, place: usize) -> i64 {
        self.zeros.as_ref().map_or(0, |zeros| zeros[place])
    }
}

fn code(real: f32, inverse: f32, zero: i64, [min, max]: [i64; 2]) -> i64 {
    let code = zero as i32 as f32 + (inverse * real).round_ties_even();
    (code as i64).clamp(min, max)
}

/// The smallest and the largest code, in arguments `first` and the next, which must fit `dtype`.
fn code_range(inputs: &Inputs<'_>, first: usize, dtype: DType) -> Result<[i64; 2]> {
    let (min, max) = (inputs.int(first)?, inputs.int(first + 1)?);
    let (low, high) = match dtype {
        DType::U8 => (0, u8::MAX.into()),
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::U16 | DType::Bits16 => (0, u16::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        dtype => return Err(OpError::Type { what: "a code", dtype }.into()),
    };
    if min > max {
        return Err(OpError::CodeRange { min, max }.into());
    }
    if min < low || max > high {
        return Err(OpError::CodesOfType { min, max, dtype }.into());
    }
    Ok([min, max])
}

/// (a, …, smallest code, largest code, element type, out), the codes' range from argument `range` on.
fn quantize(
    args: &mut KernelArgs<'_>,
    range: usize,
    parameters: impl for<'a> Fn(&Inputs<'a>, &Tensor) -> Result<Parameters<'a>>,
) -> Result<()> {
    let (inputs, out) = args.split(range + 3)?;
    let a = inputs.tensor(0)?;
    check_float("the input", a.dtype)?;
    check_dtype_arg(&inputs, range + 2, out.dtype)?;
    for (what, tensor) in [("the input", a), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    let range = code_range(&inputs, range, out.dtype)?;
    let parameters = parameters(&inputs, a)?;
    out.resize(&a.dims)?;
    let reals = load::<f32>(a)?;
    // Rows of bytes are what a quantized cache is made of.
    if out.dtype == DType::I8 {
        let out = out.view_mut::<i8>()?;
        return codes(&parameters, &a.dims, &reals, range, out, |code| code as i8);
    }
    let mut done = Ok(());
    write(out, |out: &mut [i64]| done = codes(&parameters, &a.dims, &reals, range, out, |code| code))?;
    done
}

fn codes<T>(
    parameters: &Parameters<'_>,
    dims: &[usize],
    reals: &[f32],
    range: [i64; 2],
    out: &mut [T],
    to: impl Fn(i64) -> T,
) -> Result<()> {
    parameters.each(dims, |at, step, len, place, far| {
        let (mut inverse, mut zero) = (0.0, 0);
        for n in 0..len {
            if n == 0 || far > 0 {
                let place = place + n * far;
                (inverse, zero) = (1.0 / parameters.scales[place], parameters.zero(place));
            }
            out[at + n * step] = to(code(reals[at + n * step], inverse, zero, range));
        }
    })
}

/// Scales below this are raised to it.
const SMALLEST_SCALE: f32 = 6.1e-5;

/// The scale and zero point with which codes `min..=max` hold all of `reals`, and zero exactly.
fn choose(reals: &[f32], [min, max]: [i64; 2]) -> (f64, i64) {
    let fold = |better: fn(f32, f32) -> f32| reals.iter().copied().fold(0.0, better);
    let (mut low, mut high) = (fold(f32::min), fold(f32::max));
    let codes = (max - min) as f64;
    let mut scale = (f64::from(high) - f64::from(low)) / codes;
    if scale as f32 == 0.0 || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    if scale < f64::from(SMALLEST_SCALE) {
        let raised = SMALLEST_SCALE / scale as f32;
        scale = SMALLEST_SCALE.into();
        if low == 0.0 {
            high = SMALLEST_SCALE * codes as f32;
        } else if high == 0.0 {
            low = -SMALLEST_SCALE * codes as f32;
        } else {
            low *= raised;
            high *= raised;
        }
    }
    // The end with the smaller terms gives the smaller error.
    let (low, high) = (f64::from(low) / scale, f64::from(high) / scale);
    let (from_low, from_high) = (min as f64 - low, max as f64 - high);
    let low_error = (min as f64).abs() - low.abs();
    let high_error = (max as f64).abs() - high.abs();
    let zero = if low_error < high_error { from_low } else { from_high };
    let nearest = (zero.clamp(min as f64, max as f64) as f32).round_ties_even();
    (scale, nearest as i64)
}

/// Writes scales to argument `place` and zero points to the next, both of sizes `dims`.
fn set(args: &mut KernelArgs<'_>, place: usize, dims: &[usize], chosen: &[(f64, i64)]) -> Result<()> {
    let scales = args.tensor_mut(place)?;
    check_order("the scales", scales)?;
    scales.resize(dims)?;
    if scales.dtype != DType::F64 {
        return Err(OpError::Type { what: "a scale", dtype: scales.dtype }.into());
    }
    for (out, &(scale, _)) in scales.view_mut::<f64>()?.iter_mut().zip(chosen) {
        *out = scale;
    }
    let zeros = args.tensor_mut(place + 1)?;
    check_order("the zero points", zeros)?;
    zeros.resize(dims)?;
    if zeros.dtype != DType::I64 {
        return Err(OpError::Type { what: "a zero point", dtype: zeros.dtype }.into());
    }
    for (out, &(_, zero)) in zeros.view_mut::<i64>()?.iter_mut().zip(chosen) {
        *out = zero;
    }
    Ok(())
}

fn floats<'a>(args: &'a KernelArgs<'_>) -> Result<(&'a Tensor, &'a [f32])> {
    let a = args.tensor(0)?;
    check_order("the input", a)?;
    if a.dtype != DType::F32 {
        return Err(OpError::Type { what: "the input", dtype: a.dtype }.into());
    }
    Ok((a, a.view()?))
}

/// (a, smallest code, largest code, smallest scale, element type, scale, zero point)
fn choose_for_tensor(args: &mut KernelArgs<'_>) -> Result<()> {
    let (min, max) = (args.int(1)?, args.int(2)?);
    if min >= max || min < i32::MIN.into() || max > i32::MAX.into() {
        return Err(OpError::CodeRange { min, max }.into());
    }
    let (_, reals) = floats(args)?;
    let chosen = choose(reals, [min, max]);
    let dims = args.tensor(5)?.dims.clone();
    if element_count(&dims)? != 1 {
        return Err(OpError::Shape { what: "the scale", dims }.into());
    }
    set(args, 5, &dims, &[chosen])
}

/// (a, element type, scales, zero points, …): for each row of the last dimension, for codes of 8 bits.
fn choose_for_tokens(args: &mut KernelArgs<'_>) -> Result<()> {
    let (a, reals) = floats(args)?;
    let dims = token_sizes(a)?;
    let Some(width) = a.dims.last().copied().filter(|&width| width > 0) else {
        return Err(OpError::Shape { what: "rows", dims: a.dims.clone() }.into());
    };
    let range = [i8::MIN.into(), i8::MAX.into()];
    let chosen: Vec<_> = reals.chunks_exact(width).map(|row| choose(row, range)).collect();
    set(args, 2, &dims, &chosen)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;
    use crate::tensor::Element;

    const I8: i64 = DType::I8 as i64;

    fn per_tensor(reals: &[f32], scale: f64, zero: i64, range: [i64; 2]) -> Call {
        let call = Call::new().constant(DType::F32, &[reals.len()], reals);
        call.value(EValue::Double(scale)).int(zero).int(range[0]).int(range[1])
    }

    #[test]
    fn codes_round_to_even_and_stay_in_range() {
        let reals = [0.0, 0.25, 0.75, -0.26, 100.0, -100.0, f32::INFINITY];
        let call = per_tensor(&reals, 0.5, 3, [-8, 7]).int(I8).output(DType::I8, &[7]);
        let (_, bytes) = call.run("quantized_decomposed::quantize_per_tensor", "out").unwrap();
        assert_eq!(elements::<i8>(&bytes), [3, 3, 5, 2, 7, -8, 7]);
        let call = per_tensor(&reals[..3], 0.5, 32_768, [0, 65_535]).int(27).output(DType::U16, &[3]);
        let (_, bytes) = call.run("quantized_decomposed::quantize_per_tensor", "out").unwrap();
        assert_eq!(elements::<u16>(&bytes), [32_768, 32_768, 32_770]);
    }

    fn with<S: Element>(name: &str, scales: (&[usize], &[S]), zeros: &[i64], axis: Option<i64>) -> Result<Vec<i8>> {
        let dtype = S::DTYPES[0];
        let call = Call::new().constant(DType::F32, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let call = call.constant(dtype, scales.0, scales.1).constant(DType::I64, scales.0, zeros);
        let call = axis.into_iter().fold(call, Call::int).int(-128).int(127).int(I8);
        let (name, overload) = name.split_once('.').unwrap();
        let call = call.output(DType::I8, &[2, 3]);
        call.run(&format!("quantized_decomposed::{name}"), overload).map(|(_, bytes)| elements(&bytes))
    }

    #[test]
    fn a_scale_for_all_for_a_channel_or_for_a_row() {
        let (row, channel) = ([1.0f64, 2.0], [1.0f64, 0.5, 0.25]);
        let got = with("quantize_per_tensor.Tensor_out", (&[1], &[0.5f64]), &[1], None).unwrap();
        assert_eq!(got, [3, 5, 7, 9, 11, 13]);
        let got = with("quantize_per_token.out", (&[2, 1], &row), &[0, -10], None).unwrap();
        assert_eq!(got, [1, 2, 3, -8, -8, -7]);
        let got = with("quantize_per_channel.out", (&[3], &channel), &[0, 1, 2], Some(-1)).unwrap();
        assert_eq!(got, [1, 5, 14, 4, 11, 26]);
        let got = with("quantize_per_channel.out", (&[2], &[1.0f32, 2.0]), &[0, -10], Some(0)).unwrap();
        assert_eq!(got, [1, 2, 3, -8, -8, -7]);
    }

    #[test]
    fn chosen_parameters_hold_the_range_and_zero() {
        let range = [-128, 127];
        for (reals, scale, zero) in [
            (&[-0.5f32, 0.3, 1.2][..], 1.7 / 255.0, -53),
            (&[0.1, -0.8, 2.1], 2.9 / 255.0, -58),
            (&[1.0, 2.0], 2.0 / 255.0, -128),
            (&[-1.0, -2.0], 2.0 / 255.0, 127),
            (&[0.0, 0.0], 0.1, 127),
            (&[2e-6, -1e-6], f64::from(SMALLEST_SCALE), -43),
            (&[1e-6], f64::from(SMALLEST_SCALE), -128),
            (&[-1e-6], f64::from(SMALLEST_SCALE), 127),
        ] {
            let got = choose(reals, range);
            assert!((got.0 - scale).abs() < 1e-7 * scale.max(1.0), "{reals:?}: {got:?}");
            assert_eq!(got.1, zero, "{reals:?}");
        }
    }

    #[test]
    fn choice_for_each_row_and_for_all() {
        let rows = [-0.5f32, 0.3, 1.2, 0.1, -0.8, 2.1];
        let call = Call::new().constant(DType::F32, &[1, 2, 3], &rows).int(I8);
        let call = call.output(DType::F64, &[1, 4, 1]).second_output(DType::I64, &[1, 4, 1]);
        let got = call.run_all("quantized_decomposed::choose_qparams_per_token_asymmetric", "out").unwrap();
        assert_eq!(got[0].0, [1, 2, 1]);
        let scales: Vec<f64> = elements(&got[0].1);
        assert!((scales[0] - 1.7 / 255.0).abs() < 1e-8 && (scales[1] - 2.9 / 255.0).abs() < 1e-8);
        assert_eq!((&got[1].0[..], elements::<i64>(&got[1].1)), (&[1, 2, 1][..], vec![-53, -58]));
        let call = Call::new().constant(DType::F32, &[2, 3], &rows).int(0).int(255).value(EValue::Double(0.0)).int(0);
        let call = call.output(DType::F64, &[1]).second_output(DType::I64, &[1]);
        let got = call.run_all("quantized_decomposed::choose_qparams", "Tensor_out").unwrap();
        assert_eq!(elements::<i64>(&got[1].1), [70]);
        assert!((elements::<f64>(&got[0].1)[0] - 2.9 / 255.0).abs() < 1e-8);
    }

    #[test]
    fn defects_are_named() {
        let run = |call: Call, out| {
            call.output(out, &[1]).run("quantized_decomposed::quantize_per_tensor", "out").map(|_| Vec::new())
        };
        let one = |range| per_tensor(&[1.0], 1.0, 0, range);
        for (result, want) in [
            (run(one([7, -8]).int(I8), DType::I8), "the smallest code 7 is above the largest -8"),
            (run(one([-129, 7]).int(I8), DType::I8), "codes -129..=7 do not fit i8"),
            (run(one([0, 256]).int(0), DType::U8), "codes 0..=256 do not fit u8"),
            (run(one([0, 255]).int(I8), DType::U8), "a tensor has u8 elements, its type says i8"),
            (run(one([0, 255]).int(6), DType::F32), "a code cannot be f32"),
            (
                with("quantize_per_token.out", (&[3], &[1.0f64; 3]), &[0; 3], None),
                "the scales cannot have the sizes [3]",
            ),
            (
                with("quantize_per_channel.out", (&[2], &[1.0f64; 2]), &[0; 2], Some(2)),
                "dimension 2 of a tensor with 2",
            ),
            (with("quantize_per_token.out", (&[2, 1], &[1i64; 2]), &[0; 2], None), "a scale cannot be i64"),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
        let call = Call::new().constant(DType::F32, &[2, 3], &[0.0f32; 6]).int(I8);
        let call = call.output(DType::F32, &[2, 1]).second_output(DType::I64, &[2, 1]);
        let error = call.run_all("quantized_decomposed::choose_qparams_per_token_asymmetric", "out").unwrap_err();
        assert!(error.chain().ends_with("a scale cannot be f32"), "{}", error.chain());
    }
}
