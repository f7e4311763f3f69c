//! The cache against a plain list of positions, for every layout, updater, element size and AR pair.

use super::*;
use crate::runner::buffer_alloc::Memory;

const CONTEXT: usize = 24;
/// Keys and values of one layer, per layer and per head.
const LAYOUTS: [[CacheShape; 2]; 2] = [
    [CacheShape { rows: 6, inner: 1, element_size: 1 }, CacheShape { rows: 2, inner: 3, element_size: 1 }],
    [CacheShape { rows: 3, inner: 1, element_size: 1 }, CacheShape { rows: 1, inner: 3, element_size: 1 }],
];

struct Cache {
    kv: KvManager,
    arena: IoArena,
    shapes: Vec<CacheShape>,
    /// For each position: what tells its bytes from those of any other.
    model: Vec<u8>,
    cache_len: usize,
    ar: usize,
    next: u8,
}

impl Cache {
    fn new(updater: KvUpdater, shapes: &[CacheShape], ars: &[usize]) -> Self {
        let limits = CacheLimits { cache_len: CONTEXT - ars.iter().min().unwrap(), ar: *ars.iter().max().unwrap() };
        let mut buffers = BufferAlloc::default();
        let kv = KvManager::plan(&mut buffers, updater, shapes, limits).unwrap();
        let arena = buffers.allocate(Memory::ClientMem).unwrap();
        let (cache_len, ar) = (limits.cache_len, limits.ar);
        Self { kv, arena, shapes: shapes.to_vec(), model: Vec::new(), cache_len, ar, next: 1 }
    }

    fn arrange(&mut self, ar: usize) {
        (self.ar, self.cache_len) = (ar, CONTEXT - ar);
        self.kv.arrange(&mut self.arena, ar, Some(CONTEXT - ar));
        self.check();
    }

    /// What a method writes: every byte names tensor, row, element and token.
    fn byte(tensor: usize, row: usize, element: usize, token: u8) -> u8 {
        (tensor * 101 + row * 29 + element * 7) as u8 ^ token
    }

    fn step(&mut self, selected: &[usize]) {
        let tokens: Vec<u8> = (0..self.ar).map(|row| self.next.wrapping_add(row as u8).max(1)).collect();
        for (tensor, shape) in self.shapes.iter().enumerate() {
            let output = self.arena.bytes_mut(self.kv.output(tensor));
            let step = shape.inner * shape.element_size;
            for (at, byte) in output.iter_mut().enumerate() {
                let (row, token, element) = (at / (self.ar * step), at / step % self.ar, at % step);
                *byte = Self::byte(tensor, row, element, tokens[token]);
            }
        }
        if selected.iter().enumerate().all(|(place, &row)| place == row) {
            self.kv.append(&mut self.arena, selected.len());
        } else {
            self.kv.append_selected(&mut self.arena, selected);
        }
        self.model.extend(selected.iter().map(|&row| tokens[row]));
        self.next = self.next.wrapping_add(self.ar as u8);
        self.check();
    }

    /// Every position is where the method will look for it, and every byte that no row attends to is zero.
    fn check(&self) {
        assert_eq!(self.kv.len(), self.model.len());
        let first_column = if self.kv.moves() { self.cache_len - self.model.len() } else { 0 };
        for (tensor, shape) in self.shapes.iter().enumerate() {
            let input = self.arena.bytes(self.kv.input(tensor));
            let step = shape.inner * shape.element_size;
            assert_eq!(input.len(), shape.rows * self.cache_len * step);
            for (at, &byte) in input.iter().enumerate() {
                let (row, column, element) = (at / (self.cache_len * step), at / step % self.cache_len, at % step);
                let position = column.checked_sub(first_column).and_then(|position| self.model.get(position));
                let wanted = position.map_or(0, |&token| Self::byte(tensor, row, element, token));
                assert_eq!(byte, wanted, "tensor {tensor} row {row} column {column} element {element}");
            }
        }
    }
}

/// Runs `test` for every layout, updater, element size and pair of AR lengths.
fn for_each_cache(test: impl Fn(&mut Cache, [usize; 2])) {
    for layout in LAYOUTS {
        for element_size in [1, 2, 4] {
            let shapes = layout.map(|shape| CacheShape { element_size, ..shape });
            for updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
                for ars in [[1, 1], [4, 1], [8, 1], [8, 3], [3, 8], [1, 8], [12, 1], [23, 1]] {
                    test(&mut Cache::new(updater, &shapes, &ars), ars);
                }
            }
        }
    }
}

fn first(n: usize) -> Vec<usize> {
    (0..n).collect()
}

#[test]
fn every_position_is_found_after_every_step() {
    for_each_cache(|cache, [prefill, decode]| {
        for turn in 0..3 {
            cache.arrange(prefill);
            let n = (turn + 2).min(prefill).min(cache.kv.room());
            cache.step(&first(n));
            if cache.kv.len() <= CONTEXT - decode {
                cache.arrange(decode);
                for _ in 0..2 {
                    cache.step(&first(cache.kv.room().min(1)));
                }
            }
            if cache.kv.len() > CONTEXT - prefill {
                break;
            }
        }
    });
}

#[test]
fn the_last_position_fits() {
    for_each_cache(|cache, ars| {
        for ar in ars {
            cache.arrange(ar);
            while cache.kv.room() > 0 {
                cache.step(&first(ar.min(cache.kv.room())));
            }
            cache.kv.reset(&mut cache.arena);
            cache.model.clear();
            cache.check();
        }
    });
}

#[test]
fn selected_rows_close_up() {
    for_each_cache(|cache, ars| {
        let ar = ars.into_iter().max().unwrap();
        if !(4..=CONTEXT / 2).contains(&ar) {
            return;
        }
        cache.arrange(ar);
        cache.step(&[0, ar - 1]);
        cache.step(&[0, 2, 3]);
        cache.step(&[0]);
    });
}

#[test]
fn rewinding_forgets_and_zeroes() {
    for_each_cache(|cache, [prefill, decode]| {
        cache.arrange(prefill);
        cache.step(&first(prefill.min(cache.kv.room())));
        for len in [100, 3, 1, 0] {
            cache.kv.rewind(&mut cache.arena, len);
            cache.model.truncate(len);
            cache.check();
        }
        cache.arrange(decode);
        cache.step(&first(1));
    });
}

#[test]
fn saved_contents_return_in_any_arrangement() {
    for_each_cache(|cache, [prefill, decode]| {
        cache.arrange(prefill);
        cache.step(&first(1));
        let saved = cache.kv.save(&mut cache.arena);
        let model = cache.model.clone();
        cache.arrange(decode);
        cache.step(&first(1));
        assert!(cache.kv.restore(&mut cache.arena, &saved));
        cache.model = model;
        cache.check();
        assert!(!cache.kv.restore(&mut cache.arena, &saved[1..]), "a torn image");
        assert!(!cache.kv.restore(&mut cache.arena, &saved.repeat(CONTEXT)), "more than fits");
        cache.check();
    });
}

#[test]
fn a_method_without_cache_inputs_leaves_the_cache_as_arranged() {
    for updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        for layout in LAYOUTS {
            let mut buffers = BufferAlloc::default();
            let limits = CacheLimits { cache_len: CONTEXT - 1, ar: CONTEXT };
            let kv = KvManager::plan(&mut buffers, updater, &layout, limits).unwrap();
            let arena = buffers.allocate(Memory::ClientMem).unwrap();
            let mut cache = Cache {
                kv,
                arena,
                shapes: layout.to_vec(),
                model: Vec::new(),
                cache_len: CONTEXT - 1,
                ar: CONTEXT,
                next: 1,
            };
            cache.kv.arrange(&mut cache.arena, CONTEXT, None);
            cache.step(&first(9));
            cache.arrange(1);
            cache.step(&first(1));
        }
    }
}

#[test]
fn absurd_shapes_are_refused() {
    let shape = CacheShape { rows: usize::MAX, inner: 2, element_size: 4 };
    for updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        let limits = CacheLimits { cache_len: 1 << 40, ar: 1 };
        let planned = KvManager::plan(&mut BufferAlloc::default(), updater, &[shape], limits);
        assert_eq!(planned.err(), Some(RunnerError::TooLarge));
    }
}
