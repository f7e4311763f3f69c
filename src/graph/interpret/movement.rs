//! Operations that move elements: each is a list of which input element every output element is.

use super::quantized::Rows;
use super::step::{OpResult, Step};
use super::tensor::{Data, is_real};

/// Distance, in elements, of neighbours along each axis.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// For each element of `out_shape`, in order: `base + Σ coordinate[axis] * strides[axis]`.
pub(super) fn walk(out_shape: &[usize], strides: &[usize], base: usize) -> Vec<usize> {
    let mut indices = vec![base];
    for (&size, &stride) in out_shape.iter().zip(strides) {
        indices = indices.iter().flat_map(|&index| (0..size).map(move |i| index + i * stride)).collect();
    }
    indices
}

/// For each element of `to`: the element of `from` that broadcasting puts there.
pub(super) fn broadcast(from: &[usize], to: &[usize]) -> OpResult<Vec<usize>> {
    let missing = to.len().checked_sub(from.len()).ok_or_else(|| format!("{from:?} does not broadcast to {to:?}"))?;
    let mut steps = vec![0; missing];
    for (axis, stride) in strides(from).into_iter().enumerate() {
        match from[axis] {
            1 => steps.push(0),
            size if size == to[missing + axis] => steps.push(stride),
            _ => return Err(format!("{from:?} does not broadcast to {to:?}")),
        }
    }
    Ok(walk(to, &steps, 0))
}

pub(super) fn permute(step: &Step<'_>, perm: &[usize]) -> OpResult {
    let x = step.operand(0)?;
    let from = strides(&x.shape);
    let steps: Vec<usize> = perm.iter().map(|&axis| from[axis]).collect();
    Ok(x.data.gather(&walk(step.out_shape(0), &steps, 0)))
}

/// `start` if `count` elements, `step` apart, lie within an axis of `size` from there.
fn place(start: i64, count: usize, step: usize, size: usize) -> OpResult<usize> {
    let fits = |start: &usize| {
        let last = count.saturating_sub(1).checked_mul(step).and_then(|length| length.checked_add(*start));
        *start <= size && (count == 0 || last.is_some_and(|last| last < size))
    };
    let start = usize::try_from(start).ok().filter(fits);
    start
        .ok_or_else(|| "it leaves the axis".to_owned())
        .map_err(|why| format!("{why}: {count} elements of an axis of {size}"))
}

pub(super) fn slice(step: &Step<'_>, axis: usize, start: i64, distance: usize) -> OpResult {
    let x = step.operand(0)?;
    let out_shape = step.out_shape(0);
    let first = place(start, out_shape[axis], distance, x.shape[axis])
        .map_err(|why| format!("{why} from {start}, {distance} apart"))?;
    let mut steps = strides(&x.shape);
    let base = first * steps[axis];
    steps[axis] *= distance;
    Ok(x.data.gather(&walk(out_shape, &steps, base)))
}

pub(super) fn concat(step: &Step<'_>, axis: usize) -> OpResult {
    let out_shape = step.out_shape(0);
    let outer: usize = out_shape[..axis].iter().product();
    let parts = (0..step.operands()).map(|index| step.operand(index)).collect::<OpResult<Vec<_>>>()?;
    let joined: usize = parts.iter().map(|part| part.shape[axis]).sum();
    if joined != out_shape[axis] {
        return Err(format!("{joined} along axis {axis} where the result has {}", out_shape[axis]));
    }
    let mut all = if is_real(step.result(0).dtype) || step.result(0).quantization.is_some() {
        Data::Real(Vec::new())
    } else {
        Data::Integer(Vec::new())
    };
    for block in 0..outer {
        for part in &parts {
            let length: usize = part.shape[axis..].iter().product();
            let range = block * length..(block + 1) * length;
            match (&mut all, &part.data) {
                (Data::Real(all), Data::Real(part)) => all.extend_from_slice(&part[range]),
                (Data::Integer(all), Data::Integer(part)) => all.extend_from_slice(&part[range]),
                _ => return Err("reals and integers are joined".into()),
            }
        }
    }
    Ok(all)
}

pub(super) fn embedding(step: &Step<'_>) -> OpResult {
    let indices = step.integers(1)?;
    let rows = step.operand_shape(0)?[0];
    let inner: usize = step.operand_shape(0)?[1..].iter().product();
    let table = Rows::of_operand(step, 0)?;
    let per_index = inner / table.columns().max(1);
    let mut data = Vec::with_capacity(indices.len() * inner);
    for index in indices {
        let row = usize::try_from(index).ok().filter(|&row| row < rows);
        let row = row.ok_or_else(|| format!("index {index} into a table of {rows} rows"))?;
        for part in row * per_index..(row + 1) * per_index {
            data.extend(table.row(part));
        }
    }
    Ok(Data::Real(data))
}

/// `target` with `values` written over the elements at `places`.
fn overwrite(target: Data, values: &Data, places: &[usize]) -> OpResult {
    match (target, values) {
        (Data::Real(mut target), Data::Real(values)) => {
            places.iter().zip(values).for_each(|(&place, &value)| target[place] = value);
            Ok(Data::Real(target))
        }
        (Data::Integer(mut target), Data::Integer(values)) => {
            places.iter().zip(values).for_each(|(&place, &value)| target[place] = value);
            Ok(Data::Integer(target))
        }
        _ => Err("reals and integers are mixed".into()),
    }
}

pub(super) fn slice_update(step: &Step<'_>, axis: usize, start: i64) -> OpResult {
    let (target, values) = (step.operand(0)?, step.operand(1)?);
    let first = place(start, values.shape[axis], 1, target.shape[axis]).map_err(|why| format!("{why} from {start}"))?;
    let steps = strides(&target.shape);
    let places = walk(&values.shape, &steps, first * steps[axis]);
    overwrite(target.into_owned().data, &values.data, &places)
}

/// `cache` with `new` written at positions `start..`; `axes` of `cache` are those of `new` in another order.
pub(super) fn write_positions(step: &Step<'_>, axes: [usize; 4], start: i64) -> OpResult {
    let (cache, new) = (step.operand(0)?, step.operand(1)?);
    let strides = strides(&cache.shape);
    let steps: Vec<usize> = axes.iter().map(|&axis| strides[axis]).collect();
    let (tokens, positions) = (new.shape[1], cache.shape[axes[1]]);
    let first = place(start, tokens, 1, positions).map_err(|why| format!("{why} from {start}"))?;
    let places = walk(&new.shape, &steps, first * steps[1]);
    overwrite(cache.into_owned().data, &new.data, &places)
}

pub(super) fn arange(step: &Step<'_>, start: i64, distance: i64) -> Data {
    let count: usize = step.out_shape(0).iter().product();
    let numbers = (0..count as i64).map(|i| start.wrapping_add(i.wrapping_mul(distance)));
    if is_real(step.result(0).dtype) {
        Data::Real(numbers.map(|number| number as f32).collect())
    } else {
        Data::Integer(numbers.collect())
    }
}

pub(super) fn fill(step: &Step<'_>, value: f64) -> Data {
    let count = step.out_shape(0).iter().product();
    if is_real(step.result(0).dtype) || step.result(0).quantization.is_some() {
        Data::Real(vec![value as f32; count])
    } else {
        Data::Integer(vec![value as i64; count])
    }
}

pub(super) fn scalar(step: &Step<'_>, value: i64) -> Data {
    if is_real(step.result(0).dtype) { Data::Real(vec![value as f32]) } else { Data::Integer(vec![value]) }
}
