//! Attention over a key-value cache, without ever forming the matrix of scores.
//!
//! Keys are taken in splits of 128, counted from position 0. In a split each query row takes the scores of its keys, their
//! maximum, exponentials and weighted sum of values; splits are merged in order. What a row computes depends on its own
//! position only, so prefill and decoding give the same bits, and decoding may spread the splits over threads.

use super::pool::ThreadPool;
use super::set::KernelSet;
use super::shared::SharedMut;
use std::cell::RefCell;

mod merge;
mod rows;
mod split;

use merge::{Finish, Merge};
use split::{ROWS, SPLIT, SplitRows};

/// Distances, in elements, between neighbours of a tensor whose innermost dimension is dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// From a token to the next.
    pub token: usize,
    /// From a head to the next.
    pub head: usize,
}

/// Keys or values of all cached positions.
#[derive(Debug, Clone, Copy)]
pub enum KeyValues<'a> {
    /// Plain floats.
    F32 {
        /// [tokens, kv_heads, head_dim] in the order that `strides` says.
        data: &'a [f32],
        /// Strides of `data`.
        strides: Strides,
    },
    /// int8 with a scale and zero point for each token and head: (q − zero point) · scale.
    I8 {
        /// [tokens, kv_heads, head_dim] in the order that `strides` says.
        data: &'a [i8],
        /// Strides of `data`.
        strides: Strides,
        /// [tokens, kv_heads] in the order that `quant_strides` says.
        scales: &'a [f32],
        /// As `scales`.
        zero_points: &'a [i8],
        /// Strides of `scales` and `zero_points`.
        quant_strides: Strides,
    },
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy)]
pub enum Mask<'a> {
    /// Query i sees keys 0..=start + i.
    Causal {
        /// Position of the first query.
        start: usize,
    },
    /// Every query sees the first `keys` keys.
    Full {
        /// Number of keys.
        keys: usize,
    },
    /// Every query sees the first `keys` keys, with `bias` [queries, keys] added to the scores.
    Bias {
        /// Number of keys.
        keys: usize,
        /// Added to scaled scores; −∞ hides a key.
        bias: &'a [f32],
    },
}

/// One attention call. Query head h reads key-value head h / (heads / kv_heads).
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Query tokens.
    pub queries: usize,
    /// Query heads.
    pub heads: usize,
    /// Key-value heads; divides `heads`.
    pub kv_heads: usize,
    /// Numbers a head has.
    pub head_dim: usize,
    /// Factor of the scores, usually 1/√head_dim.
    pub scale: f32,
    /// Which keys are seen.
    pub mask: Mask<'a>,
    /// Queries, [queries, heads, head_dim] in the order that `q_strides` says.
    pub q: &'a [f32],
    /// Strides of `q`.
    pub q_strides: Strides,
    /// Keys.
    pub k: KeyValues<'a>,
    /// Values.
    pub v: KeyValues<'a>,
    /// Strides of the output.
    pub out_strides: Strides,
}

thread_local! {
    static SCRATCH: RefCell<Vec<[f32; 16]>> = const { RefCell::new(Vec::new()) };
}

impl Attention<'_> {
    /// Query heads of a key-value head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Keys that query `query` sees.
    fn keys(&self, query: usize) -> usize {
        match self.mask {
            Mask::Causal { start } => start + query + 1,
            Mask::Full { keys } | Mask::Bias { keys, .. } => keys,
        }
    }

    /// Vectors a head takes.
    fn vectors(&self) -> usize {
        self.head_dim.div_ceil(16)
    }

    /// Panics unless every index that the kernels form lies in its slice.
    fn check(&self, out: usize) {
        assert!(
            self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads) && self.head_dim > 0,
            "heads do not divide"
        );
        // Saturating: strides too large for any memory must not come round to a small end.
        let last = |strides: Strides, tokens: usize, heads: usize, dim: usize| {
            let token = strides.token.saturating_mul(tokens - 1);
            token.saturating_add(strides.head.saturating_mul(heads - 1)).saturating_add(dim)
        };
        let keys = self.keys(self.queries - 1);
        assert!(keys > 0, "no keys");
        for cache in [self.k, self.v] {
            match cache {
                KeyValues::F32 { data, strides } => {
                    assert!(last(strides, keys, self.kv_heads, self.head_dim) <= data.len(), "cache too short");
                }
                KeyValues::I8 { data, strides, scales, zero_points, quant_strides } => {
                    assert!(last(strides, keys, self.kv_heads, self.head_dim) <= data.len(), "cache too short");
                    let quants = last(quant_strides, keys, self.kv_heads, 1);
                    assert!(quants <= scales.len() && quants <= zero_points.len(), "cache parameters too short");
                }
            }
        }
        if let Mask::Bias { keys, bias } = self.mask {
            assert_eq!(bias.len(), self.queries * keys, "mask has not queries · keys elements");
        }
        assert!(last(self.q_strides, self.queries, self.heads, self.head_dim) <= self.q.len(), "queries too short");
        assert!(last(self.out_strides, self.queries, self.heads, self.head_dim) <= out, "output too short");
        let (Strides { token, head }, dim) = (self.out_strides, self.head_dim);
        let span = |stride: usize, count: usize| stride.saturating_mul(count - 1).saturating_add(dim);
        let apart = match (self.queries, self.heads) {
            (1, 1) => true,
            (1, _) => head >= dim,
            (_, 1) => token >= dim,
            (queries, heads) => {
                (head >= dim && token >= span(head, heads)) || (token >= dim && head >= span(token, queries))
            }
        };
        assert!(apart, "output heads overlap");
    }
}

impl KernelSet {
    /// Attention of `call` into `out` [queries, heads, head_dim], in the order that `out_strides` says. A query that sees
    /// no key (all −∞) gives zeros.
    ///
    /// # Panics
    /// When slices are too short for the shapes, or heads of the output overlap.
    #[allow(unsafe_code)]
    pub fn attention(&self, pool: &ThreadPool, call: &Attention<'_>, out: &mut [f32]) {
        if call.queries == 0 {
            return;
        }
        call.check(out.len());
        let (group, row_vectors) = (call.group(), 1 + call.vectors());
        let rows = call.queries * group;
        let blocks = rows.div_ceil(ROWS);
        let splits = call.keys(call.queries - 1).div_ceil(SPLIT);
        let out = SharedMut::new(out);
        let finish = |kv_head: usize, row: usize, total: &mut [[f32; 16]]| {
            let head = kv_head * group + row % group;
            let at = row / group * call.out_strides.token + head * call.out_strides.head;
            // SAFETY: each (token, head) is finished once, and `check` found that heads of the output do not overlap.
            let out = unsafe { out.part(at..at + call.head_dim) };
            self.run(Finish(total, out));
        };

        if blocks == 1 {
            // [splits][kv_heads][rows][row_vectors]: all heads of a split together, since their keys lie side by side.
            let split_vectors = call.kv_heads * rows * row_vectors;
            let mut partials = vec![[0.0; 16]; splits * split_vectors];
            pool.parallel_chunks(&mut partials, split_vectors, |split, partials| {
                SCRATCH.with_borrow_mut(|scratch| {
                    self.run(SplitRows { call, kv_heads: 0..call.kv_heads, rows: 0..rows, split, partials, scratch });
                });
            });
            let (total, rest) = partials.split_at_mut(split_vectors);
            for next in rest.chunks_exact_mut(split_vectors) {
                self.run(Merge(total, next, row_vectors));
            }
            for (i, total) in total.chunks_exact_mut(row_vectors).enumerate() {
                finish(i / rows, i % rows, total);
            }
            return;
        }

        pool.parallel_for(call.kv_heads * blocks, |i| {
            let (kv_head, block) = (i / blocks, i % blocks);
            let rows = block * ROWS..rows.min((block + 1) * ROWS);
            let splits = call.keys((rows.end - 1) / group).div_ceil(SPLIT);
            let size = rows.len() * row_vectors;
            let mut partials = vec![[0.0; 16]; 2 * size];
            let (total, next) = partials.split_at_mut(size);
            SCRATCH.with_borrow_mut(|scratch| {
                for split in 0..splits {
                    let (kv_heads, rows) = (kv_head..kv_head + 1, rows.clone());
                    let partials = if split == 0 { &mut *total } else { &mut *next };
                    self.run(SplitRows { call, kv_heads, rows, split, partials, scratch });
                    if split > 0 {
                        self.run(Merge(total, next, row_vectors));
                    }
                }
            });
            for (row, total) in rows.zip(total.chunks_exact_mut(row_vectors)) {
                finish(kv_head, row, total);
            }
        });
    }
}
