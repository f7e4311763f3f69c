//! `aten::` operators that give the same elements, in the same order, other sizes: view, squeeze, unsqueeze.

use super::copy::{Part, Target, move_elements};
use super::error::OpError;
use super::layout::{Sizes, check_order, dimension, row_major};
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::MAX_RANK;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::view_copy.out", view);
    registry.register("aten::_reshape_copy.out", view);
    registry.register("aten::squeeze_copy.dims_out", |args| squeeze(args, Squeezed::List));
    registry.register("aten::squeeze_copy.dim_out", |args| squeeze(args, Squeezed::One));
    registry.register("aten::unsqueeze_copy.out", unsqueeze);
}

/// Copies `a` to the output at sizes `dims`, which have as many elements.
fn reshape(a: &Tensor, dims: &[usize], out: &mut Tensor) -> Result<()> {
    for (what, tensor) in [("the input", a), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    out.resize(dims)?;
    let strides = row_major(dims)?;
    let from = Part { tensor: a, start: 0, strides };
    move_elements(from, Target { start: 0, dims: Sizes::new(dims)?, strides }, out)
}

/// Sizes in argument `arg` for `len` elements, of which one may be -1.
fn view_sizes(inputs: &Inputs<'_>, arg: usize, len: usize) -> Result<Sizes> {
    let asked = inputs.ints(arg)?;
    let bad = || -> Result<Sizes> {
        let asked = inputs.ints(arg)?.collect::<Result<Vec<_>>>()?;
        Err(OpError::ViewSizes(asked).into())
    };
    let (mut dims, mut open, mut known) = (Sizes::EMPTY, None, Some(1usize));
    for (dim, size) in asked.enumerate() {
        let size = match size? {
            -1 if open.is_none() => {
                open = Some(dim);
                1
            }
            size => match usize::try_from(size) {
                Ok(size) => size,
                Err(_) => return bad(),
            },
        };
        known = known.and_then(|known| known.checked_mul(size));
        dims.push(size)?;
    }
    match (open, known) {
        (None, Some(known)) if known == len => Ok(dims),
        (Some(open), Some(known)) if known > 0 && len.is_multiple_of(known) => {
            dims[open] = len / known;
            Ok(dims)
        }
        _ => bad(),
    }
}

/// (a, sizes, out)
fn view(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let a = inputs.tensor(0)?;
    let dims = view_sizes(&inputs, 1, a.len())?;
    reshape(a, &dims, out)
}

#[derive(Clone, Copy)]
enum Squeezed {
    One,
    List,
}

/// (a, dimension or dimensions, out): those are left out that have the size 1.
fn squeeze(args: &mut KernelArgs<'_>, squeezed: Squeezed) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let a = inputs.tensor(0)?;
    let rank = a.dims.len();
    let mut named = [false; MAX_RANK];
    match squeezed {
        Squeezed::One => named[dimension(inputs.int(1)?, rank)?] = true,
        Squeezed::List => {
            for dim in inputs.ints(1)? {
                let dim = dimension(dim?, rank)?;
                if std::mem::replace(&mut named[dim], true) {
                    return Err(OpError::DimensionTwice(dim).into());
                }
            }
        }
    }
    let kept = a.dims.iter().zip(named).filter(|&(&size, named)| !(named && size == 1));
    let dims = Sizes::collect(kept.map(|(&size, _)| size))?;
    reshape(a, &dims, out)
}

/// (a, dimension, out): a dimension of size 1 more.
fn unsqueeze(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let a = inputs.tensor(0)?;
    let dim = dimension(inputs.int(1)?, a.dims.len() + 1)?;
    let (before, after) = a.dims.split_at(dim);
    let dims = Sizes::collect(before.iter().copied().chain([1]).chain(after.iter().copied()))?;
    reshape(a, &dims, out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::error::Error;
    use crate::tensor::{DType, Dims};

    fn run(name: &str, dims: &[usize], argument: impl FnOnce(Call) -> Call, bounds: &[usize]) -> Result<Dims, Error> {
        let values: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
        let call = argument(Call::new().constant(DType::I32, dims, &values)).output(DType::I32, bounds);
        let (name, overload) = name.split_once('.').unwrap();
        let (got, bytes) = call.run(&format!("aten::{name}"), overload)?;
        assert_eq!(elements::<i32>(&bytes), values, "{name}");
        Ok(got)
    }

    #[test]
    fn views_infer_one_size() {
        for (asked, want) in
            [(&[3, -1][..], &[3, 4][..]), (&[-1], &[12]), (&[2, 3, 2], &[2, 3, 2]), (&[12, 1], &[12, 1])]
        {
            let bounds: Vec<usize> = want.iter().map(|size| size + 1).collect();
            assert_eq!(run("view_copy.out", &[2, 6], |call| call.ints(asked), &bounds).unwrap(), want);
        }
        for asked in [&[5, -1][..], &[-1, -1], &[-2, 6], &[11], &[0, -1], &[1 << 62, 1 << 62]] {
            let text = run("view_copy.out", &[2, 6], |call| call.ints(asked), &[12, 12]).unwrap_err().chain();
            assert!(text.ends_with(&format!("a view cannot have the sizes {asked:?}")), "{text}");
        }
    }

    #[test]
    fn squeeze_leaves_out_what_is_named_and_one() {
        for (dims, list, want) in [
            (&[2, 1, 3, 1][..], &[3][..], &[2, 1, 3][..]),
            (&[2, 1, 3, 1], &[-1, 1], &[2, 3]),
            (&[2, 1, 3], &[0, 1], &[2, 3]),
            (&[1, 1], &[0, 1], &[]),
        ] {
            assert_eq!(run("squeeze_copy.dims_out", dims, |call| call.ints(list), want).unwrap(), want, "{list:?}");
        }
        assert_eq!(run("squeeze_copy.dim_out", &[2, 1], |call| call.int(-1), &[2]).unwrap(), [2]);
        let twice = run("squeeze_copy.dims_out", &[2, 1], |call| call.ints(&[1, -1]), &[2]).unwrap_err().chain();
        assert!(twice.ends_with("dimension 1 is named twice"), "{twice}");
        let far = run("squeeze_copy.dim_out", &[2, 1], |call| call.int(2), &[2]).unwrap_err().chain();
        assert!(far.ends_with("dimension 2 of a tensor with 2"), "{far}");
    }

    #[test]
    fn unsqueeze_counts_from_either_end() {
        for (dim, want) in [(0, [1, 2, 3]), (1, [2, 1, 3]), (2, [2, 3, 1]), (-1, [2, 3, 1]), (-3, [1, 2, 3])] {
            assert_eq!(run("unsqueeze_copy.out", &[2, 3], |call| call.int(dim), &[2, 3, 1]).unwrap(), want);
        }
        let text = run("unsqueeze_copy.out", &[2, 3], |call| call.int(3), &[2, 3, 1]).unwrap_err().chain();
        assert!(text.ends_with("dimension 3 of a tensor with 3"), "{text}");
        let text = run("unsqueeze_copy.out", &[2, 3], |call| call.int(0), &[2, 3]).unwrap_err().chain();
        assert!(text.ends_with("sizes [1, 2, 3] do not fit the upper bounds [2, 3]"), "{text}");
    }
}
