//! `aten::` operators whose output is a strided part of their input, and the joining of parts: select, slice, permute,
//! transpose, t, expand, cat.

use super::copy::{Part, Target, move_elements};
use super::error::OpError;
use super::layout::{Loops, Sizes, check_order, dimension, spread_tensor, strides};
use super::number::{Number, load, write};
use super::promote::{Compute, check_cast};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor, Value};
use crate::tensor::MAX_RANK;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::select_copy.int_out", select);
    registry.register("aten::slice_copy.Tensor_out", slice);
    registry.register("aten::permute_copy.out", permute);
    registry.register("aten::transpose_copy.int_out", |args| {
        let inputs = args.inputs();
        let (a, b) = (inputs.int(1)?, inputs.int(2)?);
        transpose(args, 3, a, b)
    });
    registry.register("aten::t_copy.out", |args| {
        let a = args.tensor(0)?;
        match a.dims.len() {
            0 | 1 => transpose(args, 1, 0, 0),
            2 => transpose(args, 1, 0, 1),
            _ => Err(OpError::Shape { what: "a matrix", dims: a.dims.clone() }.into()),
        }
    });
    registry.register("aten::expand_copy.out", expand);
    registry.register("aten::cat.out", cat);
}

/// Makes the output the part of `tensor` with sizes `dims`.
fn take(from: Part<'_>, dims: &[usize], out: &mut Tensor) -> Result<()> {
    out.resize(dims)?;
    move_elements(from, Target::whole(out)?, out)
}

/// (a, dimension, index, out)
fn select(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(3)?;
    let (a, index) = (inputs.tensor(0)?, inputs.int(2)?);
    let rank = a.dims.len();
    let dim = inputs.int(1)?;
    if rank == 0 {
        return Err(OpError::Dimension { dim, rank }.into());
    }
    let dim = dimension(dim, rank)?;
    let len = a.dims[dim];
    let place = if index < 0 { index.checked_add(len as i64) } else { Some(index) };
    let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < len);
    let place = place.ok_or(OpError::Index { index, len })?;
    let far = strides(a)?;
    let without = |items: &[usize]| Sizes::collect(items[..dim].iter().chain(&items[dim + 1..]).copied());
    let start = place.saturating_mul(far[dim]);
    take(Part { tensor: a, start, strides: without(&far)? }, &without(&a.dims)?, out)
}

/// Argument `arg`, a bound of a slice that counts from the end where negative, within `0..=len`.
fn bound(inputs: &Inputs<'_>, arg: usize, absent: usize, len: usize) -> Result<usize> {
    if matches!(inputs.value(arg)?, Value::Null) {
        return Ok(absent);
    }
    let bound = inputs.int(arg)?;
    let bound = if bound < 0 { bound.saturating_add(len as i64) } else { bound };
    Ok(bound.clamp(0, len as i64) as usize)
}

/// (a, dimension, start or null, end or null, step, out)
fn slice(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(5)?;
    let (a, step) = (inputs.tensor(0)?, inputs.int(4)?);
    let (dim, rank) = (inputs.int(1)?, a.dims.len());
    if rank == 0 {
        return Err(OpError::Dimension { dim, rank }.into());
    }
    let dim = dimension(dim, rank)?;
    let len = a.dims[dim];
    let (start, end) = (bound(&inputs, 2, 0, len)?, bound(&inputs, 3, len, len)?);
    let Some(step) = usize::try_from(step).ok().filter(|&step| step > 0) else {
        return Err(OpError::Step(step as f64).into());
    };
    let (mut dims, mut far) = (Sizes::new(&a.dims)?, strides(a)?);
    dims[dim] = end.saturating_sub(start).div_ceil(step);
    let first = start.saturating_mul(far[dim]);
    // A step past the end is taken by no second element.
    far[dim] = far[dim].saturating_mul(step);
    take(Part { tensor: a, start: first, strides: far }, &dims, out)
}

/// (a, dimensions, out)
fn permute(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let a = inputs.tensor(0)?;
    let rank = a.dims.len();
    let bad = || -> Result<()> {
        let dims = inputs.ints(1)?.collect::<Result<Vec<_>>>()?;
        Err(OpError::Permutation { dims, rank }.into())
    };
    let order = inputs.ints(1)?;
    if order.len() != rank {
        return bad();
    }
    let from = strides(a)?;
    let (mut dims, mut far, mut seen) = (Sizes::EMPTY, Sizes::EMPTY, [false; MAX_RANK]);
    for dim in order {
        let Ok(dim) = dimension(dim?, rank) else { return bad() };
        if std::mem::replace(&mut seen[dim], true) {
            return bad();
        }
        dims.push(a.dims[dim])?;
        far.push(from[dim])?;
    }
    take(Part { tensor: a, start: 0, strides: far }, &dims, out)
}

/// (a, …, out): dimensions `first` and `second` change places.
fn transpose(args: &mut KernelArgs<'_>, place: usize, first: i64, second: i64) -> Result<()> {
    let (inputs, out) = args.split(place)?;
    let a = inputs.tensor(0)?;
    let rank = a.dims.len();
    let (first, second) = (dimension(first, rank)?, dimension(second, rank)?);
    let (mut dims, mut far) = (Sizes::new(&a.dims)?, strides(a)?);
    if rank > 0 {
        dims.swap(first, second);
        far.swap(first, second);
    }
    take(Part { tensor: a, start: 0, strides: far }, &dims, out)
}

/// (a, sizes, implicit, out): -1 keeps a size.
fn expand(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(3)?;
    let a = inputs.tensor(0)?;
    let sizes = inputs.ints(1)?;
    let bad = || -> Result<()> {
        let asked = inputs.ints(1)?.collect::<Result<Vec<_>>>()?;
        Err(OpError::ViewSizes(asked).into())
    };
    let Some(ahead) = sizes.len().checked_sub(a.dims.len()) else { return bad() };
    let mut dims = Sizes::EMPTY;
    for (dim, size) in sizes.enumerate() {
        let own = dim.checked_sub(ahead).map(|dim| a.dims[dim]);
        match (size?, own) {
            (-1, Some(own)) => dims.push(own)?,
            (size, _) => match usize::try_from(size) {
                Ok(size) => dims.push(size)?,
                Err(_) => return bad(),
            },
        }
    }
    let far = spread_tensor(a, &dims)?;
    take(Part { tensor: a, start: 0, strides: far }, &dims, out)
}

/// A part of the output becomes `from`, converted.
fn place_converted(from: &Tensor, target: Target, out: &mut Tensor) -> Result<()> {
    fn apply<C: Number>(from: &Tensor, target: Target, out: &mut Tensor) -> Result<()> {
        let far = strides(from)?;
        let loops = Loops::<2>::new(&target.dims, [&target.strides, &far]);
        let (from, before) = (load::<C>(from)?, load::<C>(out)?.into_owned());
        write(out, |out| {
            out.copy_from_slice(&before);
            loops.copy(&from, &mut out[target.start..]);
        })
    }
    match Compute::of(from.dtype)? {
        Compute::F32 => apply::<f32>(from, target, out),
        Compute::F64 => apply::<f64>(from, target, out),
        Compute::I64 => apply::<i64>(from, target, out),
    }
}

/// (tensors, dimension, out)
fn cat(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    check_order("the output", out)?;
    // A tensor of sizes [0] goes with all sizes, as in PyTorch.
    let joined = || -> Result<_> {
        Ok(inputs.tensors(0)?.filter(|tensor| !tensor.as_ref().is_ok_and(|tensor| tensor.dims == [0])))
    };
    let Some(first) = joined()?.next().transpose()? else {
        if inputs.tensors(0)?.len() == 0 {
            return Err(OpError::NothingToJoin.into());
        }
        return out.resize(&[0]);
    };
    let rank = first.dims.len();
    let dim = inputs.int(1)?;
    if rank == 0 {
        return Err(OpError::Dimension { dim, rank }.into());
    }
    let dim = dimension(dim, rank)?;
    let mut dims = Sizes::new(&first.dims)?;
    dims[dim] = 0;
    for tensor in joined()? {
        let tensor = tensor?;
        check_cast(tensor.dtype, out.dtype)?;
        let fits = tensor.dims.len() == rank && (0..rank).all(|at| at == dim || tensor.dims[at] == dims[at]);
        if !fits {
            return Err(OpError::Shapes { a: first.dims.clone(), b: tensor.dims.clone() }.into());
        }
        dims[dim] = dims[dim].checked_add(tensor.dims[dim]).ok_or(OpError::Overflow("a size"))?;
    }
    out.resize(&dims)?;
    let far = strides(out)?;
    let mut start = 0;
    for tensor in joined()? {
        let tensor = tensor?;
        let target = Target { start, dims: Sizes::new(&tensor.dims)?, strides: far };
        if tensor.is_empty() {
            continue;
        }
        if tensor.dtype == out.dtype {
            move_elements(Part { tensor, start: 0, strides: strides(tensor)? }, target, out)?;
        } else {
            place_converted(tensor, target, out)?;
        }
        start += tensor.dims[dim] * far[dim];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;
    use crate::tensor::{DType, Dims};

    fn counted(dims: &[usize]) -> Call {
        let values: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
        Call::new().constant(DType::I32, dims, &values)
    }

    fn run(call: Call, bounds: &[usize], name: &str, overload: &str) -> Result<(Dims, Vec<i32>)> {
        let call = call.output(DType::I32, bounds);
        call.run(&format!("aten::{name}"), overload).map(|(dims, bytes)| (dims, elements(&bytes)))
    }

    fn sliced(dims: &[usize], dim: i64, bounds: [Option<i64>; 2], step: i64) -> Result<(Dims, Vec<i32>)> {
        let call = bounds
            .into_iter()
            .fold(counted(dims).int(dim), |call, bound| call.value(bound.map_or(EValue::Null, EValue::Int)));
        run(call.int(step), dims, "slice_copy", "Tensor_out")
    }

    #[test]
    fn select_takes_one_of_a_dimension() {
        for (dim, index, want_dims, want) in [
            (0, 1, [2, 2], [4, 5, 6, 7]),
            (1, 0, [2, 2], [0, 1, 4, 5]),
            (-1, -1, [2, 2], [1, 3, 5, 7]),
            (-3, -2, [2, 2], [0, 1, 2, 3]),
        ] {
            let got = run(counted(&[2, 2, 2]).int(dim).int(index), &[2, 2], "select_copy", "int_out").unwrap();
            assert_eq!(got, (want_dims.to_vec(), want.to_vec()), "{dim} {index}");
        }
        assert_eq!(run(counted(&[3]).int(0).int(-1), &[], "select_copy", "int_out").unwrap(), (vec![], vec![2]));
        for (call, want) in [
            (counted(&[2, 2]).int(1).int(2), "index 2 is outside 0..2"),
            (counted(&[2, 2]).int(1).int(-3), "index -3 is outside 0..2"),
            (counted(&[2, 2]).int(2).int(0), "dimension 2 of a tensor with 2"),
            (counted(&[]).int(0).int(0), "dimension 0 of a tensor with 0"),
        ] {
            let text = run(call, &[2], "select_copy", "int_out").unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }

    #[test]
    fn slices_clamp_count_from_the_end_and_step() {
        for (dim, bounds, step, want_dims, want) in [
            (0, [Some(1), Some(3)], 1, [2, 3], &[3, 4, 5, 6, 7, 8][..]),
            (0, [None, None], 2, [2, 3], &[0, 1, 2, 6, 7, 8]),
            (-1, [Some(-1), None], 1, [4, 1], &[2, 5, 8, 11]),
            (1, [Some(-100), Some(100)], 2, [4, 2], &[0, 2, 3, 5, 6, 8, 9, 11]),
            (1, [Some(1), Some(-1)], 1, [4, 1], &[1, 4, 7, 10]),
            (0, [Some(3), Some(1)], 1, [0, 3], &[]),
            (0, [Some(9), None], 1, [0, 3], &[]),
            (0, [Some(2), Some(i64::MAX)], i64::MAX, [1, 3], &[6, 7, 8]),
            (0, [Some(i64::MIN), Some(1)], 1, [1, 3], &[0, 1, 2]),
        ] {
            let got = sliced(&[4, 3], dim, bounds, step).unwrap();
            assert_eq!(got, (want_dims.to_vec(), want.to_vec()), "{dim} {bounds:?} {step}");
        }
        for step in [0, -1] {
            let text = sliced(&[4, 3], 0, [None, None], step).unwrap_err().chain();
            assert!(text.ends_with(&format!("a step of {step}")), "{text}");
        }
        assert_eq!(sliced(&[0, 3], 1, [Some(2), None], 1).unwrap(), (vec![0, 1], vec![]));
    }

    #[test]
    fn permute_and_transpose() {
        let got = run(counted(&[2, 1, 3]).ints(&[2, -3, 1]), &[3, 2, 1], "permute_copy", "out").unwrap();
        assert_eq!(got, (vec![3, 2, 1], vec![0, 3, 1, 4, 2, 5]));
        let got = run(counted(&[2, 3]).int(-1).int(0), &[3, 4], "transpose_copy", "int_out").unwrap();
        assert_eq!(got, (vec![3, 2], vec![0, 3, 1, 4, 2, 5]));
        assert_eq!(run(counted(&[2, 3]), &[3, 2], "t_copy", "out").unwrap().1, [0, 3, 1, 4, 2, 5]);
        assert_eq!(run(counted(&[3]), &[3], "t_copy", "out").unwrap().1, [0, 1, 2]);
        for dims in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3]] {
            let text = run(counted(&[2, 1, 3]).ints(dims), &[2, 1, 3], "permute_copy", "out").unwrap_err().chain();
            assert!(text.ends_with(&format!("{dims:?} is no order of 3 dimensions")), "{text}");
        }
        let text = run(counted(&[2, 1, 1]), &[2, 1, 1], "t_copy", "out").unwrap_err().chain();
        assert!(text.ends_with("a matrix cannot have the sizes [2, 1, 1]"), "{text}");
    }

    #[test]
    fn expand_repeats_ones() {
        let expanded = |dims: &[usize], sizes: &[i64], bounds: &[usize]| {
            run(counted(dims).ints(sizes).value(EValue::Bool(false)), bounds, "expand_copy", "out")
        };
        let got = expanded(&[2, 1], &[2, 2, 3], &[2, 2, 3]).unwrap();
        assert_eq!(got, (vec![2, 2, 3], [0, 0, 0, 1, 1, 1].repeat(2)));
        assert_eq!(expanded(&[2, 1, 2], &[-1, 2, -1], &[2, 2, 2]).unwrap().1, [0, 1, 0, 1, 2, 3, 2, 3]);
        assert_eq!(expanded(&[], &[2], &[2]).unwrap().1, [0, 0]);
        for (sizes, want) in [
            (&[3, 1][..], "sizes [2, 1] cannot be broadcast to [3, 1]"),
            (&[2], "a view cannot have the sizes [2]"),
            (&[-1, 2, 1], "a view cannot have the sizes [-1, 2, 1]"),
        ] {
            let text = expanded(&[2, 1], sizes, &[2, 2, 1]).unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }

    fn joined(lists: &[(&[usize], &[i32])], dim: i64, bounds: &[usize]) -> Result<(Dims, Vec<i32>)> {
        let (mut call, mut places) = (Call::new(), Vec::new());
        for (dims, values) in lists {
            places.push(call.hidden(DType::I32, dims, values));
        }
        run(call.tensors(&places).int(dim), bounds, "cat", "out")
    }

    #[test]
    fn cat_along_any_dimension() {
        let (a, b) = ((&[2, 1][..], &[1, 2][..]), (&[2, 2][..], &[3, 4, 5, 6][..]));
        assert_eq!(joined(&[a, b], -1, &[2, 3]).unwrap(), (vec![2, 3], vec![1, 3, 4, 2, 5, 6]));
        let c = (&[1, 2][..], &[7, 8][..]);
        assert_eq!(joined(&[b, c], 0, &[5, 2]).unwrap(), (vec![3, 2], vec![3, 4, 5, 6, 7, 8]));
        let none = (&[0][..], &[][..]);
        assert_eq!(joined(&[none, c, none], 0, &[1, 2]).unwrap(), (vec![1, 2], vec![7, 8]));
        for (lists, dim, want) in [
            (&[a, c][..], 1, "sizes [2, 1] and [1, 2] do not go together"),
            (&[a, b], 2, "dimension 2 of a tensor with 2"),
            (&[], 0, "nothing to join"),
        ] {
            let text = joined(lists, dim, &[2, 3]).unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
    }

    #[test]
    fn cat_converts() {
        let mut call = Call::new();
        let places = [call.hidden(DType::I64, &[1], &[3i64]), call.hidden(DType::F32, &[2], &[0.5f32, -1.0])];
        let call = call.tensors(&places).int(0).output(DType::F32, &[3]);
        assert_eq!(elements::<f32>(&call.run("aten::cat", "out").unwrap().1), [3.0, 0.5, -1.0]);
        let mut call = Call::new();
        let places = [call.hidden(DType::F32, &[1], &[3.0f32])];
        let call = call.tensors(&places).int(0).output(DType::I32, &[1]);
        let text = call.run("aten::cat", "out").unwrap_err().chain();
        assert!(text.ends_with("a result of f32 cannot be stored as i32"), "{text}");
    }
}
