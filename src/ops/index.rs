//! `aten::` operators that find or place elements by index tensors: index, index_put, index_put_, embedding.
//!
//! `a[i, :, j]`: the index tensors broadcast to one shape, which stands where they stand when they are neighbours, and
//! in front otherwise. In memory that is three nested loops: dimensions before, the indices, dimensions after.

use super::copy::{Part, Target, move_elements};
use super::error::OpError;
use super::layout::{Loops, Sizes, broadcast, check_order, row_major, spread, spread_tensor, strides};
use super::number::{Number, load, write};
use super::promote::Compute;
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor};
use crate::tensor::{DType, element_count};

/// Most places that the index tensors of one call may name together.
const MAX_PLACES: usize = 1 << 26;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("aten::index.Tensor_out", index);
    registry.register("aten::index_put.out", index_put);
    registry.register("aten::index_put_", index_put_in_place);
    registry.register("aten::embedding.out", embedding);
}

/// Which elements of a tensor index tensors name.
struct Indexed {
    /// Sizes of what they name: before, indices, after.
    dims: Sizes,
    /// Where the parts of `dims` begin: indices, after.
    parts: [usize; 2],
    /// Strides of the named tensor at the dimensions before and after; zero at the indices'.
    strides: Sizes,
    /// For each element of the index tensors in logical order, how far it leads.
    places: Vec<usize>,
}

impl Indexed {
    /// `a` indexed by the tensors of argument `arg`.
    fn new(a: &Tensor, inputs: &Inputs<'_>, arg: usize) -> Result<Self> {
        let rank = a.dims.len();
        let listed = inputs.optional_tensors(arg)?.len();
        if listed > rank {
            return Err(OpError::Dimension { dim: listed as i64 - 1, rank }.into());
        }
        let (mut shape, mut first, mut last, mut named) = (Sizes::EMPTY, rank, 0, 0);
        for (dim, tensor) in inputs.optional_tensors(arg)?.enumerate() {
            let Some(tensor) = tensor? else { continue };
            shape = broadcast(&shape, &tensor.dims)?;
            (first, last, named) = (first.min(dim), dim, named + 1);
        }
        // Neighbours stand where the first stands.
        let ahead = if named > 0 && last - first + 1 == named { first } else { 0 };
        let far = strides(a)?;
        let count = element_count(&shape)?;
        if count > MAX_PLACES {
            return Err(OpError::TooManyPlaces { count, max: MAX_PLACES }.into());
        }
        let mut places = vec![0usize; count];
        let is_named = |dim: usize| -> Result<bool> {
            let tensor = inputs.optional_tensors(arg)?.nth(dim);
            Ok(tensor.transpose()?.flatten().is_some())
        };
        let (mut kept, mut kept_strides) = (Sizes::EMPTY, Sizes::EMPTY);
        for (dim, (&size, &stride)) in a.dims.iter().zip(far.iter()).enumerate() {
            if !is_named(dim)? {
                kept.push(size)?;
                kept_strides.push(stride)?;
            }
        }
        for (dim, tensor) in inputs.optional_tensors(arg)?.enumerate() {
            let Some(tensor) = tensor? else { continue };
            if !matches!(tensor.dtype, DType::I64 | DType::I32) {
                return Err(OpError::Type { what: "an index", dtype: tensor.dtype }.into());
            }
            let ids = load::<i64>(tensor)?;
            let loops = Loops::<2>::new(&shape, [&row_major(&shape)?, &spread_tensor(tensor, &shape)?]);
            let (len, mut wrong) = (a.dims[dim], None);
            let place = |index: i64| {
                let place = if index < 0 { index.saturating_add(len as i64) } else { index };
                usize::try_from(place).ok().filter(|&place| place < len)
            };
            loops.each(|[o, i]| {
                for n in 0..loops.len {
                    let id = ids[i + n * loops.steps[1]];
                    match place(id) {
                        Some(place) => {
                            let far = place.saturating_mul(far[dim]);
                            let place = &mut places[o + n * loops.steps[0]];
                            *place = place.saturating_add(far);
                        }
                        None => wrong = Some(id),
                    }
                }
            });
            if let Some(index) = wrong {
                return Err(OpError::Index { index, len }.into());
            }
        }
        let chain = |kept: &[usize], middle: &[usize]| {
            Sizes::collect(kept[..ahead].iter().chain(middle).chain(&kept[ahead..]).copied())
        };
        let dims = chain(&kept, &shape)?;
        let strides = chain(&kept_strides, &Sizes::filled(shape.len(), 0)?)?;
        Ok(Self { dims, parts: [ahead, ahead + shape.len()], strides, places })
    }

    /// Calls `visit` with runs of named elements: where in the tensor, and where in another that has the strides `other`
    /// at the named sizes; `steps` in each; and how many.
    fn each(&self, other: &[usize], mut visit: impl FnMut([usize; 2], [usize; 2], usize)) -> Result<()> {
        let [first, last] = self.parts;
        let part = |range: std::ops::Range<usize>| {
            Loops::<2>::new(&self.dims[range.clone()], [&self.strides[range.clone()], &other[range]])
        };
        let (before, after) = (part(0..first), part(last..self.dims.len()));
        let shape = &self.dims[first..last];
        let mut others = Vec::with_capacity(self.places.len());
        let own = row_major(shape)?;
        let indices = Loops::<2>::new(shape, [&own, &other[first..last]]);
        indices.each(|[_, at]| others.extend((0..indices.len).map(|n| at + n * indices.steps[1])));
        before.each(|[a, b]| {
            for n in 0..before.len {
                let (a, b) = (a + n * before.steps[0], b + n * before.steps[1]);
                for (place, other) in self.places.iter().zip(&others) {
                    after.each(|[c, d]| visit([a + place + c, b + other + d], after.steps, after.len));
                }
            }
        });
        Ok(())
    }
}

/// Calls `$body` with the Rust type that elements of `$dtype` are moved as.
macro_rules! moved_as {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype.size() {
            1 if matches!($dtype, DType::I8 | DType::QI8) => {
                type $type = i8;
                $body
            }
            1 => {
                type $type = u8;
                $body
            }
            2 if $dtype == DType::I16 => {
                type $type = i16;
                $body
            }
            2 => {
                type $type = u16;
                $body
            }
            _ => match $dtype {
                DType::F32 => {
                    type $type = f32;
                    $body
                }
                DType::I32 | DType::QI32 => {
                    type $type = i32;
                    $body
                }
                DType::U32 => {
                    type $type = u32;
                    $body
                }
                DType::F64 => {
                    type $type = f64;
                    $body
                }
                DType::U64 => {
                    type $type = u64;
                    $body
                }
                _ => {
                    type $type = i64;
                    $body
                }
            },
        }
    };
}

fn check_same(what: &'static str, tensor: &Tensor, want: DType) -> Result<()> {
    if tensor.dtype == want {
        return Ok(());
    }
    Err(OpError::TypesDiffer { what, have: tensor.dtype, want }.into())
}

/// (a, indices, out)
fn index(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(2)?;
    let a = inputs.tensor(0)?;
    check_same("the output", out, a.dtype)?;
    let indexed = Indexed::new(a, &inputs, 1)?;
    out.resize(&indexed.dims)?;
    let far = strides(out)?;
    moved_as!(a.dtype, T => {
        let (a, out) = (a.view::<T>()?, out.view_mut::<T>()?);
        indexed.each(&far, |[i, o], steps, len| {
            for n in 0..len {
                out[o + n * steps[1]] = a[i + n * steps[0]];
            }
        })
    })
}

/// Places the values, broadcast, where the indices say.
fn put(indexed: &Indexed, values: &Tensor, accumulate: bool, out: &mut Tensor) -> Result<()> {
    fn add<C: Number>(indexed: &Indexed, values: &Tensor, far: &[usize], out: &mut Tensor) -> Result<()> {
        let (values, before) = (load::<C>(values)?, load::<C>(out)?.into_owned());
        let mut done = Ok(());
        write(out, |out| {
            out.copy_from_slice(&before);
            done = indexed.each(far, |[o, i], steps, len| {
                for n in 0..len {
                    let out = &mut out[o + n * steps[0]];
                    *out = out.plus(values[i + n * steps[1]]);
                }
            });
        })?;
        done
    }
    let far = spread(&values.dims, &strides(values)?, &indexed.dims)?;
    if accumulate {
        return match Compute::of(out.dtype)? {
            Compute::F32 => add::<f32>(indexed, values, &far, out),
            Compute::F64 => add::<f64>(indexed, values, &far, out),
            Compute::I64 => add::<i64>(indexed, values, &far, out),
        };
    }
    moved_as!(out.dtype, T => {
        let (values, out) = (values.view::<T>()?, out.view_mut::<T>()?);
        indexed.each(&far, |[o, i], steps, len| match steps {
            [1, 1] => out[o..o + len].copy_from_slice(&values[i..i + len]),
            [step, far] => (0..len).for_each(|n| out[o + n * step] = values[i + n * far]),
        })
    })
}

/// (a, indices, values, accumulate, out): a with the values placed.
fn index_put(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(4)?;
    let (a, values) = (inputs.tensor(0)?, inputs.tensor(2)?);
    check_same("the values", values, a.dtype)?;
    for (what, tensor) in [("the input", a), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    let indexed = Indexed::new(a, &inputs, 1)?;
    out.resize(&a.dims)?;
    move_elements(Part::spread(a, &a.dims)?, Target::whole(out)?, out)?;
    put(&indexed, values, inputs.bool(3)?, out)
}

/// (a, indices, values, accumulate, …): the values placed in a.
fn index_put_in_place(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, a) = args.split(0)?;
    let values = inputs.tensor(2)?;
    check_same("the values", values, a.dtype)?;
    check_order("the input", a)?;
    if inputs.bool(3)? {
        return Err(OpError::Accumulate.into());
    }
    let indexed = Indexed::new(a, &inputs, 1)?;
    put(&indexed, values, false, a)
}

/// (weight [rows, dim], ids, padding, by frequency, sparse, out [.., dim]): rows of a table.
fn embedding(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(5)?;
    let (weight, ids) = (inputs.tensor(0)?, inputs.tensor(1)?);
    check_same("the weight", weight, out.dtype)?;
    for (what, tensor) in [("the weight", weight), ("the ids", ids), ("the output", &*out)] {
        check_order(what, tensor)?;
    }
    let &[rows, dim] = &weight.dims[..] else {
        return Err(OpError::Shape { what: "the weight", dims: weight.dims.clone() }.into());
    };
    if !matches!(ids.dtype, DType::I64 | DType::I32) {
        return Err(OpError::Type { what: "an id", dtype: ids.dtype }.into());
    }
    out.resize(&Sizes::collect(ids.dims.iter().copied().chain([dim]))?)?;
    let (ids, width) = (load::<i64>(ids)?, dim.saturating_mul(out.dtype.size()));
    let (table, out) = (weight.bytes()?, out.bytes_mut()?);
    for (place, &id) in ids.iter().enumerate() {
        let row = usize::try_from(id).ok().filter(|&row| row < rows);
        let row = row.ok_or(OpError::Id { id, place, rows })?;
        out[place * width..][..width].copy_from_slice(&table[row * width..][..width]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Call, elements};
    use super::*;
    use crate::pte::EValue;
    use crate::tensor::Dims;

    /// What an index tensor is: sizes and ids.
    type Ids<'a> = Option<(&'a [usize], &'a [i64])>;

    fn with_indices(mut call: Call, indices: &[Ids<'_>]) -> Call {
        let places: Vec<_> =
            indices.iter().map(|ids| ids.map(|(dims, ids)| call.hidden(DType::I64, dims, ids))).collect();
        call.optional_tensors(&places)
    }

    fn indexed(dims: &[usize], indices: &[Ids<'_>], bounds: &[usize]) -> Result<(Dims, Vec<i32>)> {
        let values: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
        let call = with_indices(Call::new().constant(DType::I32, dims, &values), indices);
        let (dims, bytes) = call.output(DType::I32, bounds).run("aten::index", "Tensor_out")?;
        Ok((dims, elements(&bytes)))
    }

    #[test]
    fn index_as_in_numpy() {
        let one: Ids<'_> = Some((&[2], &[1, -2]));
        for (dims, indices, want_dims, want) in [
            (&[3, 2][..], &[one][..], &[2, 2][..], &[2, 3, 2, 3][..]),
            (&[2, 3], &[None, one], &[2, 2], &[1, 1, 4, 4]),
            // Neighbours: in their place; apart: in front.
            (&[2, 2, 2], &[None, Some((&[2], &[0, 1])), Some((&[2], &[1, 0]))], &[2, 2], &[1, 2, 5, 6]),
            (&[2, 2, 3], &[Some((&[2], &[0, 1])), None, Some((&[2], &[2, 0]))], &[2, 2], &[2, 5, 6, 9]),
            (&[3], &[Some((&[2, 2], &[0, 1, 2, 0]))], &[2, 2], &[0, 1, 2, 0]),
            (&[2, 2], &[Some((&[2, 1], &[0, 1])), Some((&[2], &[0, 1]))], &[2, 2], &[0, 1, 2, 3]),
            (&[2, 2], &[Some((&[], &[1]))], &[2], &[2, 3]),
            (&[2], &[None], &[2], &[0, 1]),
        ] {
            let got = indexed(dims, indices, want_dims).unwrap();
            assert_eq!((&got.0[..], &got.1[..]), (want_dims, want), "{dims:?} {indices:?}");
        }
    }

    fn put(values: (&[usize], &[f32]), indices: &[Ids<'_>], accumulate: bool) -> Result<Vec<f32>> {
        let a = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0];
        let call = with_indices(Call::new().constant(DType::F32, &[1, 3, 2], &a), indices);
        let call = call.constant(DType::F32, values.0, values.1).value(EValue::Bool(accumulate));
        let (_, bytes) = call.output(DType::F32, &[1, 3, 2]).run("aten::index_put", "out")?;
        Ok(elements(&bytes))
    }

    #[test]
    fn index_put_places_rows_and_broadcasts() {
        let rows: &[Ids<'_>] = &[None, Some((&[2], &[2, 0]))];
        let values = [10.0, 11.0, 12.0, 13.0];
        assert_eq!(put((&[1, 2, 2], &values), rows, false).unwrap(), [12., 13., 2., 3., 10., 11.]);
        assert_eq!(put((&[1], &[9.0]), rows, false).unwrap(), [9., 9., 2., 3., 9., 9.]);
        assert_eq!(put((&[2], &[7.0, 8.0]), &[], false).unwrap(), [7., 8., 7., 8., 7., 8.]);
        let same: &[Ids<'_>] = &[None, Some((&[2], &[1, 1]))];
        assert_eq!(put((&[1], &[0.5]), same, true).unwrap(), [0., 1., 3., 4., 4., 5.]);
    }

    #[test]
    fn index_put_in_place_keeps_the_rest() {
        let call = Call::new().state(DType::I8, &[2, 3], &[0i8, 1, 2, 3, 4, 5]);
        let call = with_indices(call, &[None, Some((&[2], &[-1, 0]))]).constant(DType::I8, &[2, 2], &[9i8, 8, 7, 6]);
        let (_, bytes) = call.value(EValue::Bool(false)).again(0).run("aten::index_put_", "").unwrap();
        assert_eq!(elements::<i8>(&bytes), [8, 1, 9, 6, 4, 7]);
    }

    #[test]
    fn embedding_copies_rows() {
        let run = |ids: &[i64]| {
            let call = Call::new().constant(DType::F16, &[3, 2], &[1u16, 2, 3, 4, 5, 6]);
            let call = call.constant(DType::I64, &[1, ids.len()], ids).int(-1).value(EValue::Bool(false));
            call.value(EValue::Bool(false)).output(DType::F16, &[1, 4, 2]).run("aten::embedding", "out")
        };
        let (dims, bytes) = run(&[2, 0]).unwrap();
        assert_eq!((dims, elements::<u16>(&bytes)), (vec![1, 2, 2], vec![5, 6, 1, 2]));
        for id in [3, -1] {
            let text = run(&[0, id]).unwrap_err().chain();
            assert!(text.ends_with(&format!("id {id} at place 1 is not in the table of 3 rows")), "{text}");
        }
    }

    #[test]
    fn defects_are_named() {
        let rows: &[Ids<'_>] = &[None, Some((&[2], &[2, 0]))];
        for (result, want) in [
            (put((&[1], &[0.0]), &[None, Some((&[1], &[3]))], false), "index 3 is outside 0..3"),
            (put((&[1], &[0.0]), &[None, Some((&[1], &[-4]))], false), "index -4 is outside 0..3"),
            (put((&[1], &[0.0]), &[None; 4], false), "dimension 3 of a tensor with 3"),
            (put((&[3], &[0.0; 3]), rows, false), "sizes [3] cannot be broadcast to [1, 2, 2]"),
            (
                put((&[1], &[0.0]), &[Some((&[2], &[0, 0])), Some((&[3], &[0; 3]))], false),
                "sizes [2] and [3] do not go together",
            ),
        ] {
            let text = result.unwrap_err().chain();
            assert!(text.ends_with(want), "{text}");
        }
        let mut call = Call::new().constant(DType::F32, &[2], &[0.0f32; 2]);
        let mask = call.hidden(DType::Bool, &[2], &[1u8, 0]);
        let call = call.optional_tensors(&[Some(mask)]).output(DType::F32, &[2]);
        let text = call.run("aten::index", "Tensor_out").unwrap_err().chain();
        assert!(text.ends_with("an index cannot be bool"), "{text}");
        let call = with_indices(Call::new().state(DType::F32, &[2], &[0.0f32; 2]), &[Some((&[1], &[0]))]);
        let call = call.constant(DType::F32, &[1], &[1.0f32]).value(EValue::Bool(true)).again(0);
        let text = call.run("aten::index_put_", "").unwrap_err().chain();
        assert!(text.ends_with("values cannot be accumulated in place"), "{text}");
    }
}
