//! Sizes and strides, and the loops over several tensors that lie in memory in different ways.
//!
//! Neighbouring dimensions that every tensor walks in one stride become one, so that equal shapes are one run and a
//! broadcast row or scalar is a run for each row, with nothing to compute at an element.

use super::error::OpError;
use crate::error::Result;
use crate::runtime::Tensor;
use crate::tensor::MAX_RANK;
use std::ops::{Deref, DerefMut};

/// Sizes or strides of a tensor, on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    rank: usize,
    items: [usize; MAX_RANK],
}

impl Sizes {
    pub(super) const EMPTY: Self = Self { rank: 0, items: [0; MAX_RANK] };

    pub(super) fn new(sizes: &[usize]) -> Result<Self> {
        Self::collect(sizes.iter().copied())
    }

    pub(super) fn filled(rank: usize, item: usize) -> Result<Self> {
        Self::collect(std::iter::repeat_n(item, rank))
    }

    pub(super) fn collect(sizes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut collected = Self::EMPTY;
        for size in sizes {
            collected.push(size)?;
        }
        Ok(collected)
    }

    pub(super) fn push(&mut self, size: usize) -> Result<()> {
        *self.items.get_mut(self.rank).ok_or(OpError::Rank)? = size;
        self.rank += 1;
        Ok(())
    }
}

impl Deref for Sizes {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.items[..self.rank]
    }
}

impl DerefMut for Sizes {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.items[..self.rank]
    }
}

/// Strides of elements that lie in the order `order`, outermost first.
fn strides_in(dims: &[usize], order: impl DoubleEndedIterator<Item = usize>) -> Result<Sizes> {
    let mut strides = Sizes::filled(dims.len(), 0)?;
    let mut stride = 1usize;
    for dim in order.rev() {
        let (Some(place), Some(size)) = (strides.get_mut(dim), dims.get(dim)) else {
            return Err(OpError::Order { what: "a tensor" }.into());
        };
        *place = stride;
        // Only a tensor without elements can be cut off here, and nothing is read of that.
        stride = stride.saturating_mul(*size);
    }
    Ok(strides)
}

/// Strides of a tensor's elements.
pub(super) fn strides(tensor: &Tensor) -> Result<Sizes> {
    strides_in(&tensor.dims, tensor.dim_order.iter().map(|&dim| dim.into()))
}

/// Strides of elements that lie in logical order.
pub(super) fn row_major(dims: &[usize]) -> Result<Sizes> {
    strides_in(dims, 0..dims.len())
}

/// Strides of a tensor of sizes `dims` seen at sizes `to`, by the rules of broadcasting.
pub(super) fn spread(dims: &[usize], strides: &[usize], to: &[usize]) -> Result<Sizes> {
    let bad = || OpError::Broadcast { from: dims.to_vec(), to: to.to_vec() };
    let ahead = to.len().checked_sub(dims.len()).ok_or_else(bad)?;
    let mut spread = Sizes::filled(to.len(), 0)?;
    for (dim, (&size, &stride)) in dims.iter().zip(strides).enumerate() {
        match (size, to[ahead + dim]) {
            (size, want) if size == want => spread[ahead + dim] = stride,
            (1, _) => {}
            _ => return Err(bad().into()),
        }
    }
    Ok(spread)
}

/// Strides of `tensor` seen at sizes `to`.
pub(super) fn spread_tensor(tensor: &Tensor, to: &[usize]) -> Result<Sizes> {
    spread(&tensor.dims, &strides(tensor)?, to)
}

/// The sizes at which `a` and `b` meet.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Sizes> {
    let rank = a.len().max(b.len());
    let mut meet = Sizes::filled(rank, 1)?;
    let at = |dims: &[usize], dim: usize| (dim + dims.len()).checked_sub(rank).map_or(1, |dim| dims[dim]);
    for (dim, meet) in meet.iter_mut().enumerate() {
        *meet = match (at(a, dim), at(b, dim)) {
            (a, b) if a == b => a,
            (1, size) | (size, 1) => size,
            _ => return Err(OpError::Shapes { a: a.to_vec(), b: b.to_vec() }.into()),
        };
    }
    Ok(meet)
}

/// A dimension counted from the end where negative; a scalar has one.
pub(super) fn dimension(dim: i64, rank: usize) -> Result<usize> {
    let count = rank.max(1) as i64;
    let place = if dim < 0 { dim.checked_add(count) } else { Some(dim) };
    match place {
        Some(place) if (0..count).contains(&place) => Ok(place as usize),
        _ => Err(OpError::Dimension { dim, rank }.into()),
    }
}

/// Refuses a tensor that does not lie in logical order.
pub(super) fn check_order(what: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.is_contiguous() { Ok(()) } else { Err(OpError::Order { what }.into()) }
}

/// Nested loops over the elements of `N` tensors: the innermost is a run of `len` elements, each tensor's `steps` apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loops<const N: usize> {
    /// Elements of a run.
    pub(super) len: usize,
    /// Distance of a run's neighbours in each tensor.
    pub(super) steps: [usize; N],
    /// The loops around, outermost first: how often, and how far in each tensor.
    outer: [(usize, [usize; N]); MAX_RANK],
    depth: usize,
    empty: bool,
}

impl<const N: usize> Loops<N> {
    /// Loops over `dims` in the order in which the first tensor lies in memory.
    pub(super) fn new(dims: &[usize], strides: [&[usize]; N]) -> Self {
        let mut loops = [(1, [0; N]); MAX_RANK];
        let mut depth = 0;
        // Beside a size of zero, here or in loops around these, the others may be beyond all bounds.
        if dims.contains(&0) {
            return Self { len: 0, steps: [0; N], outer: loops, depth, empty: true };
        }
        for (dim, &size) in dims.iter().enumerate().filter(|&(_, &size)| size != 1) {
            loops[depth] = (size, strides.map(|strides| strides[dim]));
            depth += 1;
        }
        // Stable, so that a broadcast first tensor keeps the logical order.
        loops[..depth].sort_by(|(_, a), (_, b)| b[0].cmp(&a[0]));
        let mut kept = 0;
        for place in 1..depth {
            let (size, steps) = loops[place];
            let (around, far) = loops[kept];
            if std::iter::zip(far, steps).all(|(far, step)| far == step.saturating_mul(size)) {
                loops[kept] = (around.saturating_mul(size), steps);
            } else {
                kept += 1;
                loops[kept] = (size, steps);
            }
        }
        let (len, steps) = loops[kept];
        Self { len, steps, outer: loops, depth: kept, empty: false }
    }

    /// Calls `visit` with where each run starts in each tensor.
    #[inline]
    pub(super) fn each(&self, mut visit: impl FnMut([usize; N])) {
        if self.empty {
            return;
        }
        let mut count = [0; MAX_RANK];
        let mut at = [0; N];
        'runs: loop {
            visit(at);
            for (count, (size, steps)) in count.iter_mut().zip(&self.outer).take(self.depth).rev() {
                *count += 1;
                let last = *count == *size;
                for (at, step) in at.iter_mut().zip(steps) {
                    *at = if last { *at - step * (size - 1) } else { *at + step };
                }
                if !last {
                    continue 'runs;
                }
                *count = 0;
            }
            return;
        }
    }
}

impl Loops<2> {
    /// `out = a`, element by element.
    #[inline]
    pub(super) fn copy<T: Copy>(&self, a: &[T], out: &mut [T]) {
        match (self.len, self.steps) {
            (len, [1, 1]) => self.each(|[o, i]| out[o..o + len].copy_from_slice(&a[i..i + len])),
            _ => self.map(a, out, |a| a),
        }
    }

    /// `out = f(a)`, element by element.
    #[inline]
    pub(super) fn map<A: Copy, O>(&self, a: &[A], out: &mut [O], f: impl Fn(A) -> O) {
        let len = self.len;
        match self.steps {
            [1, 1] => self.each(|[o, i]| {
                for (out, &a) in out[o..o + len].iter_mut().zip(&a[i..i + len]) {
                    *out = f(a);
                }
            }),
            [step, far] => self.each(|[o, i]| {
                for n in 0..len {
                    out[o + n * step] = f(a[i + n * far]);
                }
            }),
        }
    }
}

impl Loops<3> {
    /// `out = f(a, b)`, element by element.
    #[inline]
    pub(super) fn map<A: Copy, B: Copy, O>(&self, a: &[A], b: &[B], out: &mut [O], f: impl Fn(A, B) -> O) {
        let len = self.len;
        match self.steps {
            [1, 1, 1] => self.each(|[o, i, j]| {
                for ((out, &a), &b) in out[o..o + len].iter_mut().zip(&a[i..i + len]).zip(&b[j..j + len]) {
                    *out = f(a, b);
                }
            }),
            [1, 1, 0] => self.each(|[o, i, j]| {
                let b = b[j];
                for (out, &a) in out[o..o + len].iter_mut().zip(&a[i..i + len]) {
                    *out = f(a, b);
                }
            }),
            [1, 0, 1] => self.each(|[o, i, j]| {
                let a = a[i];
                for (out, &b) in out[o..o + len].iter_mut().zip(&b[j..j + len]) {
                    *out = f(a, b);
                }
            }),
            [step, far, wide] => self.each(|[o, i, j]| {
                for n in 0..len {
                    out[o + n * step] = f(a[i + n * far], b[j + n * wide]);
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs<const N: usize>(loops: &Loops<N>) -> Vec<[usize; N]> {
        let mut runs = Vec::new();
        loops.each(|at| runs.push(at));
        runs
    }

    #[test]
    fn equal_shapes_are_one_run() {
        let strides = row_major(&[1, 3, 1, 4]).unwrap();
        let loops = Loops::new(&[1, 3, 1, 4], [&strides, &strides]);
        assert_eq!((loops.len, loops.steps, runs(&loops)), (12, [1, 1], vec![[0, 0]]));
    }

    #[test]
    fn a_broadcast_row_and_a_broadcast_column_are_a_run_for_each_row() {
        let dims = [1, 3, 4];
        let full = row_major(&dims).unwrap();
        let row = spread(&[4], &[1], &dims).unwrap();
        let column = spread(&[1, 3, 1], &row_major(&[1, 3, 1]).unwrap(), &dims).unwrap();
        let loops = Loops::new(&dims, [&full, &row]);
        assert_eq!((loops.len, loops.steps, runs(&loops)), (4, [1, 1], vec![[0, 0], [4, 0], [8, 0]]));
        let loops = Loops::new(&dims, [&full, &column]);
        assert_eq!((loops.len, loops.steps, runs(&loops)), (4, [1, 0], vec![[0, 0], [4, 1], [8, 2]]));
    }

    #[test]
    fn the_first_tensor_is_walked_in_its_own_order() {
        // Sizes [2, 3], the first tensor lies column by column.
        let loops = Loops::new(&[2, 3], [&[1, 2], &[3, 1]]);
        assert_eq!((loops.len, loops.steps, runs(&loops)), (2, [1, 3], vec![[0, 0], [2, 1], [4, 2]]));
    }

    #[test]
    fn scalars_and_empty_tensors() {
        assert_eq!(runs(&Loops::<1>::new(&[], [&[]])), [[0]]);
        assert_eq!(runs(&Loops::<1>::new(&[2, 0, 3], [&[0, 3, 1]])), [[0]; 0]);
    }

    #[test]
    fn three_loops_deep() {
        let loops = Loops::new(&[2, 2, 2, 2], [&[100, 50, 10, 1]]);
        assert_eq!(runs(&loops).into_iter().flatten().collect::<Vec<_>>(), [0, 10, 50, 60, 100, 110, 150, 160]);
    }

    #[test]
    fn sizes_meet_or_are_refused() {
        assert_eq!(&broadcast(&[5, 1, 3], &[4, 1]).unwrap()[..], [5, 4, 3]);
        assert_eq!(&broadcast(&[], &[0, 2]).unwrap()[..], [0, 2]);
        assert_eq!(&broadcast(&[1], &[0]).unwrap()[..], [0]);
        let text = broadcast(&[2, 3], &[2, 2]).unwrap_err().chain();
        assert!(text.ends_with("sizes [2, 3] and [2, 2] do not go together"), "{text}");
        let text = spread(&[2, 3], &[3, 1], &[3]).unwrap_err().chain();
        assert!(text.ends_with("sizes [2, 3] cannot be broadcast to [3]"), "{text}");
    }

    #[test]
    fn dimensions_count_from_either_end() {
        for (dim, rank, want) in [(0, 3, 0), (-1, 3, 2), (-3, 3, 0), (0, 0, 0), (-1, 0, 0)] {
            assert_eq!(dimension(dim, rank).unwrap(), want);
        }
        for (dim, rank) in [(3, 3), (-4, 3), (1, 0), (i64::MIN, 3), (i64::MAX, 3)] {
            assert!(dimension(dim, rank).is_err(), "{dim} of {rank}");
        }
    }
}
