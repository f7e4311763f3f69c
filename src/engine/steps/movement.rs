//! Operations that move elements without looking at them; any type of 1, 2, 4 or 8 bytes.

use super::nest::{Nest, Strides, broadcast, dense};
use super::{Step, in_parts};
use crate::engine::integers;
use crate::engine::memory::{Frame, StepResult};
use crate::graph::{CacheLayout, Int, ValueId};
use crate::kernels::ThreadPool;
use crate::tensor::{DType, MAX_RANK};

/// Gathers the elements that `nest` finds in `x`, from element `base` on.
fn gather(pool: &ThreadPool, out: &mut [u8], x: &[u8], size: usize, nest: &Nest<1>, base: usize) {
    match size {
        1 => gather_sized::<1>(pool, out, x, nest, base),
        2 => gather_sized::<2>(pool, out, x, nest, base),
        4 => gather_sized::<4>(pool, out, x, nest, base),
        _ => gather_sized::<8>(pool, out, x, nest, base),
    }
}

fn gather_sized<const SIZE: usize>(pool: &ThreadPool, out: &mut [u8], x: &[u8], nest: &Nest<1>, base: usize) {
    let x: &[[u8; SIZE]] = x.as_chunks().0;
    in_parts(pool, out.as_chunks_mut::<SIZE>().0, 1, 1, |start, out| {
        nest.pieces(start..start + out.len(), |elements, [at]| {
            let (out, at) = (&mut out[elements], base + at);
            match nest.step[0] {
                0 => out.fill(x[at]),
                1 => out.copy_from_slice(&x[at..at + out.len()]),
                step => out.iter_mut().enumerate().for_each(|(i, out)| *out = x[at + i * step]),
            }
        });
    });
}

/// Scatters `values` to the elements that `nest` finds in `out`, from element `base` on.
fn scatter(out: &mut [u8], values: &[u8], size: usize, nest: &Nest<1>, base: usize) {
    nest.pieces(0..values.len() / size, |elements, [at]| {
        let values = &values[elements.start * size..elements.end * size];
        let at = base + at;
        if nest.step[0] == 1 {
            return out[at * size..][..values.len()].copy_from_slice(values);
        }
        for (i, value) in values.chunks_exact(size).enumerate() {
            out[(at + i * nest.step[0]) * size..][..size].copy_from_slice(value);
        }
    });
}

/// `start` as an index, when `count` elements `step` apart fit into an axis of `size` from there on.
pub(in crate::engine) fn place(start: i64, count: usize, step: usize, size: usize) -> StepResult<usize> {
    let fits = |start: &usize| {
        let last = count.saturating_sub(1).checked_mul(step).and_then(|length| length.checked_add(*start));
        *start <= size && (count == 0 || last.is_some_and(|last| last < size))
    };
    let place = usize::try_from(start).ok().filter(fits);
    place.ok_or_else(|| format!("{count} elements from {start} on, {step} apart, leave an axis of {size}"))
}

/// out ← x, element for element.
#[derive(Debug)]
pub(in crate::engine) struct Copy {
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for Copy {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        if frame.shared.same_place(self.x, self.out) {
            return Ok(());
        }
        let ([out], reader) = frame.split([self.out])?;
        out.copy_from_slice(reader.bytes(self.x)?);
        Ok(())
    }
}

/// out ← x with its axes permuted.
#[derive(Debug)]
pub(in crate::engine) struct Permute {
    pub x: ValueId,
    pub out: ValueId,
    pub perm: Vec<usize>,
    pub size: usize,
}

impl Step for Permute {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let own = dense(shared.dims(self.x));
        let mut strides: Strides = [0; MAX_RANK];
        self.perm.iter().zip(&mut strides).for_each(|(&axis, stride)| *stride = own[axis]);
        let nest = Nest::new(shared.dims(self.out), [strides]);
        let ([out], reader) = frame.split([self.out])?;
        gather(shared.pool, out, reader.bytes(self.x)?, self.size, &nest, 0);
        Ok(())
    }
}

/// out ← elements of x along one axis.
#[derive(Debug)]
pub(in crate::engine) struct Slice {
    pub x: ValueId,
    pub out: ValueId,
    pub axis: usize,
    pub start: Int,
    pub step: usize,
    pub size: usize,
}

impl Step for Slice {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (from, to) = (shared.dims(self.x), shared.dims(self.out));
        let start = place(shared.int(self.start), to[self.axis], self.step, from[self.axis])?;
        let mut strides = dense(from);
        let base = start * strides[self.axis];
        strides[self.axis] *= self.step;
        let ([out], reader) = frame.split([self.out])?;
        gather(shared.pool, out, reader.bytes(self.x)?, self.size, &Nest::new(to, [strides]), base);
        Ok(())
    }
}

/// out ← x repeated along axes of size 1.
#[derive(Debug)]
pub(in crate::engine) struct Expand {
    pub x: ValueId,
    pub out: ValueId,
    pub size: usize,
}

impl Step for Expand {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let to = shared.dims(self.out);
        let nest = Nest::new(to, [broadcast(shared.dims(self.x), to)]);
        let ([out], reader) = frame.split([self.out])?;
        gather(shared.pool, out, reader.bytes(self.x)?, self.size, &nest, 0);
        Ok(())
    }
}

/// out ← all of `parts`, one after the other along an axis.
#[derive(Debug)]
pub(in crate::engine) struct Concat {
    pub parts: Vec<ValueId>,
    pub out: ValueId,
    pub axis: usize,
    pub size: usize,
}

impl Step for Concat {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let to = shared.dims(self.out);
        let joined: usize = self.parts.iter().map(|&part| shared.dims(part)[self.axis]).sum();
        if joined != to[self.axis] {
            return Err(format!("{joined} along axis {} where the result has {}", self.axis, to[self.axis]));
        }
        let row: usize = to[self.axis..].iter().product::<usize>() * self.size;
        let ([out], reader) = frame.split([self.out])?;
        if out.is_empty() {
            return Ok(());
        }
        let mut first = 0;
        for &part in &self.parts {
            let length: usize = shared.dims(part)[self.axis..].iter().product::<usize>() * self.size;
            if length == 0 {
                continue;
            }
            for (out, part) in out.chunks_exact_mut(row).zip(reader.bytes(part)?.chunks_exact(length)) {
                out[first..first + length].copy_from_slice(part);
            }
            first += length;
        }
        Ok(())
    }
}

/// out ← target, with `values` written over a range of one axis.
#[derive(Debug)]
pub(in crate::engine) struct Update {
    pub target: ValueId,
    pub values: ValueId,
    pub out: ValueId,
    pub start: Int,
    pub size: usize,
    /// The axis, when both have the same axes; else how the cache's axes differ.
    pub along: Along,
}

/// Where an update goes.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) enum Along {
    /// A range of this axis.
    Axis(usize),
    /// Positions of a cache.
    Positions(CacheLayout),
}

impl Step for Update {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (target, values) = (shared.dims(self.target), shared.dims(self.values));
        let mut strides = dense(target);
        // The axis of `target`, and the same axis of `values`.
        let (axis, of_values) = match self.along {
            Along::Axis(axis) => (axis, axis),
            Along::Positions(CacheLayout::PositionMajor) => (1, 1),
            Along::Positions(CacheLayout::HeadMajor) => {
                strides.swap(1, 2);
                (2, 1)
            }
        };
        let start = place(shared.int(self.start), values[of_values], 1, target[axis])?;
        let base = start * strides[of_values];
        let in_place = shared.same_place(self.target, self.out);
        let ([out], reader) = frame.split([self.out])?;
        if !in_place {
            out.copy_from_slice(reader.bytes(self.target)?);
        }
        scatter(out, reader.bytes(self.values)?, self.size, &Nest::new(values, [strides]), base);
        Ok(())
    }
}

/// out ← a where the condition is true, else b.
#[derive(Debug)]
pub(in crate::engine) struct Where {
    pub condition: ValueId,
    pub a: ValueId,
    pub b: ValueId,
    pub out: ValueId,
    pub size: usize,
}

impl Where {
    fn run_sized<const SIZE: usize>(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let dims = shared.dims(self.out);
        let nest = Nest::new(dims, [self.condition, self.a, self.b].map(|value| broadcast(shared.dims(value), dims)));
        let ([out], reader) = frame.split([self.out])?;
        let condition = reader.bytes(self.condition)?;
        let a: &[[u8; SIZE]] = reader.bytes(self.a)?.as_chunks().0;
        let b: &[[u8; SIZE]] = reader.bytes(self.b)?.as_chunks().0;
        let [step, a_step, b_step] = nest.step;
        in_parts(shared.pool, out.as_chunks_mut::<SIZE>().0, 1, 2, |start, out| {
            nest.pieces(start..start + out.len(), |elements, [at, a_at, b_at]| {
                for (i, out) in out[elements].iter_mut().enumerate() {
                    let first = condition[at + i * step] != 0;
                    *out = if first { a[a_at + i * a_step] } else { b[b_at + i * b_step] };
                }
            });
        });
        Ok(())
    }
}

impl Step for Where {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        match self.size {
            1 => self.run_sized::<1>(frame),
            2 => self.run_sized::<2>(frame),
            4 => self.run_sized::<4>(frame),
            _ => self.run_sized::<8>(frame),
        }
    }
}

/// out ← start, start + step, …; a step of 0 makes all elements equal.
#[derive(Debug)]
pub(in crate::engine) struct Count {
    pub out: ValueId,
    pub start: Int,
    pub step: i64,
    /// Of integers; `None` for reals.
    pub dtype: Option<DType>,
}

impl Step for Count {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let start = frame.shared.int(self.start);
        let number = |index: usize| start.wrapping_add((index as i64).wrapping_mul(self.step));
        match self.dtype {
            None => {
                let (out, _) = frame.write::<f32>(self.out)?;
                out.iter_mut().enumerate().for_each(|(index, out)| *out = number(index) as f32);
            }
            Some(dtype) => {
                let ([out], _) = frame.split([self.out])?;
                for (index, out) in out.chunks_exact_mut(dtype.size()).enumerate() {
                    integers::store(dtype, &[number(index)], out);
                }
            }
        }
        Ok(())
    }
}

/// out ← the same real everywhere.
#[derive(Debug)]
pub(in crate::engine) struct FillReal {
    pub out: ValueId,
    pub value: f32,
}

impl Step for FillReal {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let (out, _) = frame.write::<f32>(self.out)?;
        out.fill(self.value);
        Ok(())
    }
}
