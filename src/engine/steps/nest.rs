//! Loops over the elements of several tensors at once, with as few and as long rows as their strides allow.

use crate::tensor::MAX_RANK;
use std::ops::Range;

/// Distance of neighbours along each axis; the last axes of the array are unused.
pub(in crate::engine) type Strides = [usize; MAX_RANK];

/// Strides of a dense tensor.
pub(in crate::engine) fn dense(dims: &[usize]) -> Strides {
    let mut strides = [0; MAX_RANK];
    let mut step = 1;
    for axis in (0..dims.len()).rev() {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

/// Strides that repeat a dense tensor of sizes `from` over `to`; its axes of size 1, and those it lacks in front, stay.
pub(in crate::engine) fn broadcast(from: &[usize], to: &[usize]) -> Strides {
    let own = dense(from);
    let missing = to.len() - from.len();
    let mut strides = [0; MAX_RANK];
    for axis in 0..from.len() {
        strides[missing + axis] = if from[axis] == 1 { 0 } else { own[axis] };
    }
    strides
}

/// A nest of loops over a dense tensor, and where `N` other tensors are at each of its elements.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Nest<const N: usize> {
    /// Elements of a row.
    pub len: usize,
    /// Distance of neighbours in a row.
    pub step: [usize; N],
    rank: usize,
    sizes: [usize; MAX_RANK],
    strides: [[usize; N]; MAX_RANK],
}

impl<const N: usize> Nest<N> {
    /// Over a tensor of sizes `dims`.
    pub fn new(dims: &[usize], strides: [Strides; N]) -> Self {
        let mut nest = Self { len: 1, step: [1; N], rank: 0, sizes: [1; MAX_RANK], strides: [[0; N]; MAX_RANK] };
        for (axis, &size) in dims.iter().enumerate() {
            if size == 1 {
                continue;
            }
            let stride: [usize; N] = std::array::from_fn(|n| strides[n][axis]);
            let joins = nest.rank > 0 && (0..N).all(|n| nest.strides[nest.rank - 1][n] == stride[n] * size);
            if joins {
                nest.sizes[nest.rank - 1] *= size;
                nest.strides[nest.rank - 1] = stride;
            } else {
                nest.sizes[nest.rank] = size;
                nest.strides[nest.rank] = stride;
                nest.rank += 1;
            }
        }
        if nest.rank > 0 {
            nest.rank -= 1;
            nest.len = nest.sizes[nest.rank];
            nest.step = nest.strides[nest.rank];
        }
        nest
    }

    /// Where the other tensors are at the first element of row `row`.
    fn row(&self, mut row: usize) -> [usize; N] {
        let mut at = [0; N];
        for axis in (0..self.rank).rev() {
            let index = row % self.sizes[axis];
            row /= self.sizes[axis];
            (0..N).for_each(|n| at[n] += index * self.strides[axis][n]);
        }
        at
    }

    /// Calls `visit` with each piece of a row within the elements `range`: which elements these are, counted from the
    /// start of `range`, and where the others are at the first of them.
    pub fn pieces(&self, range: Range<usize>, mut visit: impl FnMut(Range<usize>, [usize; N])) {
        let mut at = range.start;
        while at < range.end {
            let column = at % self.len;
            let count = (self.len - column).min(range.end - at);
            let mut others = self.row(at / self.len);
            (0..N).for_each(|n| others[n] += column * self.step[n]);
            visit(at - range.start..at - range.start + count, others);
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of all elements, plainly.
    fn offsets(dims: &[usize], strides: &Strides) -> Vec<usize> {
        let mut all = vec![0];
        for (&size, &stride) in dims.iter().zip(strides) {
            all = all.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
        }
        all
    }

    #[test]
    fn pieces_cover_any_range_at_the_right_places() {
        let cases: [(&[usize], [&[usize]; 2]); 6] = [
            (&[2, 3, 4], [&[2, 3, 4], &[4]]),
            (&[2, 3, 4], [&[2, 1, 4], &[3, 1]]),
            (&[5], [&[1], &[5]]),
            (&[], [&[], &[]]),
            (&[1, 6, 1], [&[6, 1], &[1]]),
            (&[0, 3], [&[0, 3], &[3]]),
        ];
        for (dims, from) in cases {
            let strides = from.map(|from| broadcast(from, dims));
            let nest = Nest::new(dims, strides);
            let expected: Vec<_> =
                offsets(dims, &strides[0]).into_iter().zip(offsets(dims, &strides[1])).map(|(a, b)| [a, b]).collect();
            for start in 0..=expected.len() {
                for end in start..=expected.len() {
                    let mut seen = Vec::new();
                    nest.pieces(start..end, |elements, at| {
                        assert_eq!(elements.start, seen.len());
                        seen.extend(
                            elements
                                .clone()
                                .map(|i| std::array::from_fn(|n| at[n] + (i - elements.start) * nest.step[n])),
                        );
                    });
                    assert_eq!(seen, expected[start..end], "{dims:?} {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn axes_that_follow_each_other_are_one() {
        let nest = Nest::new(&[2, 3, 4], [dense(&[2, 3, 4])]);
        assert_eq!((nest.len, nest.step), (24, [1]));
        let nest = Nest::new(&[2, 3, 4], [broadcast(&[2, 3, 4], &[2, 3, 4]), broadcast(&[4], &[2, 3, 4])]);
        assert_eq!((nest.len, nest.step), (4, [1, 1]));
    }
}
