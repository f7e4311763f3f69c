//! `quantized_decomposed::mixed_linear`: a linear layer of real operands over 8-bit weights, which are never made real as
//! a whole.

use super::error::OpError;
use super::layout::check_order;
use super::number::{load, write};
use super::promote::{check_dtype_arg, check_float};
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry, Tensor};
use crate::tensor::DType;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("quantized_decomposed::mixed_linear.out", mixed_linear);
}

/// (input [rows, depth], codes [columns, depth], scales [columns] or [columns, groups], zero points: null, element type
/// or null, out [rows, columns])
fn mixed_linear(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(5)?;
    let (x, codes, scales) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?);
    if inputs.optional_tensor(3)?.is_some() {
        return Err(OpError::Operands("zero points, which ExecuTorch's kernel does not take either".to_owned()).into());
    }
    check_dtype_arg(&inputs, 4, out.dtype)?;
    for (what, tensor) in [("the input", x), ("the weight", codes), ("the scales", scales), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    if !matches!(x.dtype, DType::F32 | DType::F16) {
        return Err(OpError::Type { what: "the input", dtype: x.dtype }.into());
    }
    for (what, have, want) in [("the weight", codes.dtype, DType::I8), ("the scales", scales.dtype, x.dtype)] {
        if have != want {
            return Err(OpError::TypesDiffer { what, have, want }.into());
        }
    }
    check_float("the output", out.dtype)?;
    let apart = || OpError::Shapes { a: x.dims.clone(), b: codes.dims.clone() };
    let (&[rows, depth], &[columns, inner]) = (&x.dims[..], &codes.dims[..]) else { return Err(apart().into()) };
    if depth != inner {
        return Err(apart().into());
    }
    let groups = match scales.dims[..] {
        [n] if n == columns => 1,
        [n, groups] if n == columns && groups > 0 => groups,
        _ => return Err(OpError::Shape { what: "the scales", dims: scales.dims.clone() }.into()),
    };
    out.resize(&[rows, columns])?;
    product(x, codes, (scales, groups), out)
}

/// In the order of ExecuTorch's loop, so that the bits are the same: sums within a group, then over the groups.
fn product(x: &Tensor, codes: &Tensor, (scales, groups): (&Tensor, usize), out: &mut Tensor) -> Result<()> {
    let (depth, columns) = (codes.dims[1], codes.dims[0]);
    let (x, codes, scales) = (load::<f32>(x)?, codes.view::<i8>()?, load::<f32>(scales)?);
    let group = depth.div_ceil(groups).max(1);
    write::<f32>(out, |out| {
        if depth == 0 || columns == 0 {
            return out.fill(0.0);
        }
        for (column, (codes, scales)) in codes.chunks_exact(depth).zip(scales.chunks_exact(groups)).enumerate() {
            for (x, out) in x.chunks_exact(depth).zip(out.iter_mut().skip(column).step_by(columns)) {
                let parts = x.chunks(group).zip(codes.chunks(group)).zip(scales);
                *out = parts.fold(0.0, |sum, ((x, codes), scale)| {
                    sum + x.iter().zip(codes).fold(0.0, |sum, (x, &code)| sum + x * f32::from(code)) * scale
                });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use crate::pte::EValue;
    use crate::tensor::DType;

    const NAME: [&str; 2] = ["quantized_decomposed::mixed_linear", "out"];

    fn call(scales: &[usize]) -> Call {
        let x = Call::new().constant(DType::F32, &[1, 4], &[1.0f32, 2.0, -1.0, 0.5]);
        let codes = x.constant(DType::I8, &[2, 4], &[10i8, -128, 127, 2, 0, 1, 2, 4]);
        let count = scales.iter().product();
        codes.constant(DType::F32, scales, &[0.5f32, 0.25, 2.0, 1.0][..count])
    }

    #[test]
    fn each_group_of_codes_has_its_scale() {
        let null = || EValue::Null;
        let run = |call: Call| elements::<f32>(&call.output(DType::F32, &[1, 2]).run(NAME[0], NAME[1]).unwrap().1);
        let rows = [10.0 - 256.0 - 127.0 + 1.0, 2.0 - 2.0 + 2.0];
        assert_eq!(run(call(&[2]).value(null()).value(null())), [0.5 * rows[0], 0.25 * rows[1]]);
        let groups = [-246.0 * 0.5 - 126.0 * 0.25, 2.0 * 2.0];
        assert_eq!(run(call(&[2, 2]).value(null()).int(6)), groups);
    }

    #[test]
    fn what_executorch_refuses_is_refused() {
        let null = || EValue::Null;
        let points = call(&[2]).constant(DType::F32, &[2], &[0.0f32; 2]).value(null());
        let wide = Call::new().constant(DType::F32, &[1, 3], &[0f32; 3]);
        let wide = wide.constant(DType::I8, &[2, 4], &[0i8; 8]).constant(DType::F32, &[2], &[1f32; 2]);
        for (call, want) in [
            (points, "zero points"),
            (wide.value(null()).value(null()), "[1, 3]"),
            (call(&[4]).value(null()).value(null()), "the scales"),
            (call(&[2]).value(null()).int(5), "a tensor"),
        ] {
            let error = call.output(DType::F32, &[1, 2]).run(NAME[0], NAME[1]).unwrap_err();
            assert!(error.chain().contains(want), "{}", error.chain());
        }
    }
}
