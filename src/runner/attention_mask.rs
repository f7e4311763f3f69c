//! Which positions each token of a step may attend to, as the method's mask input says it.
//!
//! A mask is `[ar, context_len]`: the last `ar` columns stand for the tokens of the step, the columns before them for
//! the cache. It is built once a turn and then follows the cache: a step that adds n positions uncovers n columns.

use super::config::KvUpdater;
use crate::runtime::{IoArena, IoSlice};
use crate::tensor::DType;
use bytemuck::Pod;
use std::num::NonZeroUsize;
use std::ops::Range;

/// How the tokens of a step hang together: each continues the past or another, earlier token of the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttentionMap {
    parents: Vec<Option<usize>>,
    depths: Vec<usize>,
}

impl AttentionMap {
    /// Each token continues the one before it, the first one continues the past.
    pub fn causal(ar: usize) -> Self {
        Self::tree((0..ar).map(|row| row.checked_sub(1)).collect())
    }

    /// Token `row` continues token `parents[row]`, or the past where that is `None`. Panics when a parent does not come
    /// before its child.
    pub fn tree(parents: Vec<Option<usize>>) -> Self {
        let mut depths = Vec::with_capacity(parents.len());
        for &parent in &parents {
            depths.push(parent.map_or(0, |parent: usize| depths[parent] + 1));
        }
        Self { parents, depths }
    }

    /// How many tokens of the step token `row` continues: its distance from the end of the past.
    pub fn depth(&self, row: usize) -> usize {
        self.depths[row]
    }

    /// Tokens of the step.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// True for no token.
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// The token `generations` above `row`, if it is of this step.
    fn ancestor(&self, row: usize, generations: usize) -> Option<usize> {
        (0..generations).try_fold(row, |row, _| self.parents[row])
    }
}

/// The two values of a mask, as bits.
#[derive(Debug, Clone, Copy)]
enum Codes {
    One(Pair<u8>),
    Two(Pair<u16>),
    Four(Pair<u32>),
}

#[derive(Debug, Clone, Copy)]
struct Pair<T> {
    attend: T,
    masked: T,
}

impl Codes {
    fn of(dtype: DType) -> Option<Self> {
        match dtype {
            DType::U8 => Some(Self::One(Pair { attend: 255, masked: 0 })),
            DType::U16 | DType::Bits16 => Some(Self::Two(Pair { attend: 65_535, masked: 0 })),
            DType::F32 => Some(Self::Four(Pair { attend: 0f32.to_bits(), masked: (-65_535f32).to_bits() })),
            // -65535 is beyond half precision.
            DType::F16 => Some(Self::Two(Pair { attend: 0, masked: half::f16::MIN.to_bits() })),
            _ => None,
        }
    }
}

/// Sizes of a mask and what it must know of the cache.
#[derive(Debug, Clone, Copy)]
pub struct MaskShape {
    /// Tokens of a step: rows.
    pub ar: usize,
    /// Cache and step: columns.
    pub context_len: usize,
    /// Where the past lies in the cache.
    pub updater: KvUpdater,
    /// Positions that a token sees, itself included; `None` for all.
    pub window: Option<NonZeroUsize>,
}

/// One mask input of a method.
#[derive(Debug)]
pub struct AttentionMask {
    place: IoSlice,
    codes: Codes,
    shape: MaskShape,
}

impl AttentionMask {
    /// Whether masks of this type can be written.
    pub fn supports(dtype: DType) -> bool {
        Codes::of(dtype).is_some()
    }

    /// A mask at `place`. `None` when masks of type `dtype` are not known.
    pub fn new(place: IoSlice, dtype: DType, shape: MaskShape) -> Option<Self> {
        Some(Self { place, codes: Codes::of(dtype)?, shape })
    }

    /// Where it lies in the arena.
    pub fn place(&self) -> IoSlice {
        self.place
    }

    /// Writes the whole mask for a step of `map` after `n_past` positions.
    pub fn fill(&self, arena: &mut IoArena, map: &AttentionMap, n_past: usize) {
        match self.codes {
            Codes::One(codes) => self.fill_typed(arena.typed_mut(self.place), codes, map, n_past),
            Codes::Two(codes) => self.fill_typed(arena.typed_mut(self.place), codes, map, n_past),
            Codes::Four(codes) => self.fill_typed(arena.typed_mut(self.place), codes, map, n_past),
        }
    }

    /// Brings a mask written for a past of `joined.start` positions up to one of `joined.end`.
    pub fn follow(&self, arena: &mut IoArena, map: &AttentionMap, joined: Range<usize>) {
        match self.codes {
            Codes::One(codes) => self.follow_typed(arena.typed_mut(self.place), codes, map, joined),
            Codes::Two(codes) => self.follow_typed(arena.typed_mut(self.place), codes, map, joined),
            Codes::Four(codes) => self.follow_typed(arena.typed_mut(self.place), codes, map, joined),
        }
    }

    fn fill_typed<T: Pod>(&self, mask: &mut [T], codes: Pair<T>, map: &AttentionMap, n_past: usize) {
        let MaskShape { ar, context_len, window, .. } = self.shape;
        let cache_len = context_len - ar;
        mask.fill(codes.masked);
        for row in 0..ar {
            let (above, below) = mask.split_at_mut(row * context_len);
            let (past, block) = below[..context_len].split_at_mut(cache_len);
            if let Some(parent) = map.parents[row] {
                block.copy_from_slice(&above[parent * context_len + cache_len..][..ar]);
            }
            block[row] = codes.attend;
            // The parent sees one token more than its window leaves the child.
            if let Some(left_behind) = window.and_then(|window| map.ancestor(row, window.get())) {
                block[left_behind] = codes.masked;
            }
            let first = self.first_visible(map.depth(row), n_past);
            past[self.columns(first..n_past, n_past)].fill(codes.attend);
        }
    }

    fn follow_typed<T: Pod>(&self, mask: &mut [T], codes: Pair<T>, map: &AttentionMap, joined: Range<usize>) {
        let MaskShape { ar, context_len, window, updater } = self.shape;
        let n_past = joined.end;
        if window.is_some() {
            for (row, cells) in mask.chunks_exact_mut(context_len).enumerate() {
                let first = self.first_visible(map.depth(row), n_past);
                cells[..context_len - ar].fill(codes.masked);
                cells[self.columns(first..n_past, n_past)].fill(codes.attend);
            }
            return;
        }
        // With the past on the right, older positions have moved left and their columns are uncovered already.
        let fresh = match updater {
            KvUpdater::SmartMask => self.columns(joined, n_past),
            KvUpdater::ShiftPointer => self.columns(0..joined.len(), n_past),
        };
        for cells in mask.chunks_exact_mut(context_len) {
            cells[fresh.clone()].fill(codes.attend);
        }
    }

    /// Columns of `positions` while the cache holds `n_past`.
    fn columns(&self, positions: Range<usize>, n_past: usize) -> Range<usize> {
        let start = match self.shape.updater {
            KvUpdater::SmartMask => 0,
            KvUpdater::ShiftPointer => self.shape.context_len - self.shape.ar - n_past,
        };
        start + positions.start.min(positions.end)..start + positions.end
    }

    /// The first position that a token `depth` behind a past of `n_past` sees.
    fn first_visible(&self, depth: usize, n_past: usize) -> usize {
        self.shape.window.map_or(0, |window| (n_past + depth + 1).saturating_sub(window.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::buffer_alloc::{BufferAlloc, Memory};

    fn mask(dtype: DType, shape: MaskShape) -> (AttentionMask, IoArena) {
        let mut buffers = BufferAlloc::default();
        let place = buffers.reserve(shape.ar * shape.context_len * dtype.size()).unwrap();
        (AttentionMask::new(place, dtype, shape).unwrap(), buffers.allocate(Memory::ClientMem).unwrap())
    }

    /// One line a row, `#` for attend.
    fn picture(mask: &AttentionMask, arena: &IoArena) -> Vec<String> {
        let row = |cells: &[u16]| cells.iter().map(|&cell| if cell == 65_535 { '#' } else { '.' }).collect();
        arena.typed::<u16>(mask.place).chunks(mask.shape.context_len).map(row).collect()
    }

    const SHAPE: MaskShape = MaskShape { ar: 4, context_len: 6, updater: KvUpdater::SmartMask, window: None };

    #[test]
    fn the_worked_example_of_upstreams_header() {
        let (mask, mut arena) = mask(DType::U16, SHAPE);
        mask.fill(&mut arena, &AttentionMap::causal(4), 0);
        assert_eq!(
            arena.typed::<u16>(mask.place).chunks(6).collect::<Vec<_>>(),
            [
                [0, 0, 65_535, 0, 0, 0],
                [0, 0, 65_535, 65_535, 0, 0],
                [0, 0, 65_535, 65_535, 65_535, 0],
                [0, 0, 65_535, 65_535, 65_535, 65_535],
            ]
        );
    }

    #[test]
    fn smart_mask_uncovers_from_the_left_and_shift_pointer_from_the_right() {
        for (updater, one, two) in
            [(KvUpdater::SmartMask, "#...#", "##..#"), (KvUpdater::ShiftPointer, "...##", "..###")]
        {
            let shape = MaskShape { ar: 1, context_len: 5, updater, window: None };
            let (mask, mut arena) = mask(DType::U16, shape);
            let map = AttentionMap::causal(1);
            mask.fill(&mut arena, &map, 1);
            assert_eq!(picture(&mask, &arena), [one], "{updater:?}");
            mask.follow(&mut arena, &map, 1..2);
            assert_eq!(picture(&mask, &arena), [two], "{updater:?}");
        }
    }

    #[test]
    fn tree_rows_see_their_ancestors_only() {
        let (mask, mut arena) = mask(DType::U16, SHAPE);
        let map = AttentionMap::tree(vec![None, Some(0), Some(0), Some(2)]);
        mask.fill(&mut arena, &map, 1);
        assert_eq!(picture(&mask, &arena), ["#.#...", "#.##..", "#.#.#.", "#.#.##"]);
        assert_eq!((map.depth(1), map.depth(3)), (1, 2));
    }

    #[test]
    fn a_window_hides_old_positions_of_past_and_block() {
        let (mask, mut arena) = mask(DType::U16, MaskShape { window: NonZeroUsize::new(2), ..SHAPE });
        mask.fill(&mut arena, &AttentionMap::causal(4), 2);
        assert_eq!(picture(&mask, &arena), [".##...", "..##..", "...##.", "....##"]);
    }

    #[test]
    fn following_equals_filling_anew() {
        let maps = [AttentionMap::causal(4), AttentionMap::tree(vec![None, Some(0), Some(0), Some(2)])];
        for map in &maps {
            for updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
                for window in [0, 1, 2, 3, 7, 30] {
                    let shape = MaskShape { ar: 4, context_len: 20, updater, window: NonZeroUsize::new(window) };
                    for steps in [[1, 1, 1], [4, 3, 1], [2, 4, 4]] {
                        let (followed, mut arena) = mask(DType::U16, shape);
                        followed.fill(&mut arena, map, 0);
                        let mut n_past = 0;
                        for n in steps {
                            followed.follow(&mut arena, map, n_past..n_past + n);
                            n_past += n;
                            let (anew, mut other) = mask(DType::U16, shape);
                            anew.fill(&mut other, map, n_past);
                            assert_eq!(picture(&followed, &arena), picture(&anew, &other), "{shape:?} {n_past}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_type_has_its_two_values() {
        let shape = MaskShape { ar: 1, context_len: 2, updater: KvUpdater::SmartMask, window: None };
        let bytes = |dtype| {
            let (mask, mut arena) = mask(dtype, shape);
            mask.fill(&mut arena, &AttentionMap::causal(1), 0);
            arena.bytes(mask.place).to_vec()
        };
        assert_eq!(bytes(DType::U8), [0, 255]);
        assert_eq!(bytes(DType::Bits16), [0, 0, 255, 255]);
        assert_eq!(bytes(DType::F32), [(-65_535f32).to_le_bytes(), 0f32.to_le_bytes()].concat());
        assert_eq!(bytes(DType::F16), [half::f16::from_f32(-65_504.0).to_le_bytes(), [0, 0]].concat());
        assert!(!AttentionMask::supports(DType::I32));
    }
}
