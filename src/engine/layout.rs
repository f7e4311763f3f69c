//! Where buffers lie in the arena, for one class of runs.

use super::buffers::{Buffer, FOREVER};
use super::plan::Plan;
use super::symbols::value_of;

/// Alignment of buffers: a cache line.
const ALIGNMENT: usize = 64;

/// Offsets of all buffers, none of which overlaps another that is needed at the same time.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Of each buffer, in bytes.
    pub offsets: Vec<usize>,
    /// Bytes of the arena.
    pub len: usize,
}

impl Layout {
    /// For runs whose symbols are at most `limits`. `None` when no address space holds it.
    pub fn new(plan: &Plan, buffers: &[Buffer], limits: &[i64]) -> Option<Self> {
        let size = |buffer: &Buffer| {
            let shape = &plan.graph.value(buffer.value).shape;
            let mut sizes = shape.iter().map(|&dim| usize::try_from(value_of(dim, limits)).unwrap_or(0));
            let count = sizes.try_fold(1usize, usize::checked_mul)?;
            count.checked_mul(plan.sizes[buffer.value.0 as usize])?.checked_next_multiple_of(ALIGNMENT)
        };
        let sizes = buffers.iter().map(size).collect::<Option<Vec<_>>>()?;
        Self::place(buffers, &sizes)
    }

    /// Largest first, each into the smallest gap that its neighbours in time leave.
    fn place(buffers: &[Buffer], sizes: &[usize]) -> Option<Self> {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(sizes[index]));
        let mut layout = Self { offsets: vec![0; buffers.len()], len: 0 };
        let mut placed: Vec<usize> = Vec::new(); // by offset
        for index in order {
            let (size, mut free, mut best) = (sizes[index], 0usize, None::<(usize, usize)>);
            for &other in placed.iter().filter(|&&other| overlap(&buffers[index], &buffers[other])) {
                let gap = layout.offsets[other].saturating_sub(free);
                if gap >= size && best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, free));
                }
                free = free.max(layout.offsets[other].checked_add(sizes[other])?);
            }
            let offset = best.map_or(free, |(_, offset)| offset);
            layout.offsets[index] = offset;
            layout.len = layout.len.max(offset.checked_add(size)?);
            let at = placed.partition_point(|&other| layout.offsets[other] < offset);
            placed.insert(at, index);
        }
        Some(layout)
    }
}

fn overlap(a: &Buffer, b: &Buffer) -> bool {
    let end = |buffer: &Buffer| if buffer.last == FOREVER { FOREVER } else { buffer.last.max(buffer.first) };
    a.first <= end(b) && b.first <= end(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ValueId;

    fn buffer(first: usize, last: usize) -> Buffer {
        Buffer { value: ValueId(0), first, last }
    }

    #[test]
    fn neighbours_in_time_do_not_overlap_and_strangers_share() {
        let mut random = 1u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        for _ in 0..50 {
            let count = 1 + next(60);
            let buffers: Vec<Buffer> = (0..count)
                .map(|_| {
                    let first = next(40);
                    buffer(first, if next(10) == 0 { FOREVER } else { first + next(8) })
                })
                .collect();
            let sizes: Vec<usize> = (0..count).map(|_| next(20) * ALIGNMENT).collect();
            let layout = Layout::place(&buffers, &sizes).unwrap();
            let range = |i: usize| layout.offsets[i]..layout.offsets[i] + sizes[i];
            for a in 0..count {
                assert!(range(a).end <= layout.len);
                for b in 0..a {
                    let apart = range(a).end <= range(b).start || range(b).end <= range(a).start;
                    assert!(apart || sizes[a] * sizes[b] == 0 || !overlap(&buffers[a], &buffers[b]), "{a} {b}");
                }
            }
        }
        let chain: Vec<Buffer> = (0..10).map(|i| buffer(i, i + 1)).collect();
        assert_eq!(Layout::place(&chain, &[64; 10]).unwrap().len, 128);
    }

    #[test]
    fn too_large_is_no_layout() {
        assert!(Layout::place(&[buffer(0, 1), buffer(1, 2)], &[usize::MAX - 63, 64]).is_none());
    }
}
