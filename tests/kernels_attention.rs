//! Attention against its definition in f64, for every layout, mask and cache type; and the same bits for prefill and
//! decoding, for any number of threads and any set.

mod kernels_common;

use kernels_common::{Random, assert_same, sets};
use llama_runner::kernels::{Attention, KernelSet, KeyValues, Mask, Strides, ThreadPool};

#[derive(Clone)]
struct Case {
    queries: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    tokens: usize,
    /// True for [heads, tokens, dim], false for [tokens, heads, dim].
    head_major: bool,
    int8: bool,
    q: Vec<f32>,
    /// Keys and values as the kernel sees them after dequantization.
    floats: [Vec<f32>; 2],
    bytes: [Vec<i8>; 2],
    scales: [Vec<f32>; 2],
    zero_points: [Vec<i8>; 2],
}

impl Case {
    fn new(random: &mut Random, shape: [usize; 5], head_major: bool, int8: bool) -> Self {
        let [queries, heads, kv_heads, dim, tokens] = shape;
        let n = kv_heads * tokens;
        let q = random.floats(queries * heads * dim, -2.0, 2.0);
        let bytes = [0, 1].map(|_| random.bytes(n * dim).into_iter().map(|b| b as i8).collect::<Vec<_>>());
        let scales = [0, 1].map(|_| random.floats(n, 0.002, 0.02));
        let zero_points = [0, 1].map(|_| random.bytes(n).into_iter().map(|b| b as i8 / 2).collect::<Vec<_>>());
        let floats = [0, 1].map(|i: usize| {
            let value = |at: usize, b: i8| (f32::from(b) - f32::from(zero_points[i][at / dim])) * scales[i][at / dim];
            bytes[i].iter().enumerate().map(|(at, &b)| value(at, b)).collect::<Vec<_>>()
        });
        Self { queries, heads, kv_heads, dim, tokens, head_major, int8, q, floats, bytes, scales, zero_points }
    }

    fn strides(&self, heads: usize, tokens: usize, dim: usize) -> Strides {
        if self.head_major {
            Strides { token: dim, head: tokens * dim }
        } else {
            Strides { token: heads * dim, head: dim }
        }
    }

    fn cache(&self, i: usize) -> KeyValues<'_> {
        let strides = self.strides(self.kv_heads, self.tokens, self.dim);
        if self.int8 {
            KeyValues::I8 {
                data: &self.bytes[i],
                strides,
                scales: &self.scales[i],
                zero_points: &self.zero_points[i],
                quant_strides: self.strides(self.kv_heads, self.tokens, 1),
            }
        } else {
            KeyValues::F32 { data: &self.floats[i], strides }
        }
    }

    fn run(&self, set: KernelSet, pool: &ThreadPool, mask: Mask<'_>) -> Vec<f32> {
        let strides = self.strides(self.heads, self.queries, self.dim);
        let call = Attention {
            queries: self.queries,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.dim,
            scale: 1.0 / (self.dim as f32).sqrt(),
            mask,
            q: &self.q,
            q_strides: strides,
            k: self.cache(0),
            v: self.cache(1),
            out_strides: strides,
        };
        let mut out = vec![f32::NAN; self.q.len()];
        set.attention(pool, &call, &mut out);
        out
    }

    /// Softmax(q·k · scale + bias) · v in f64; `bias(query, key)` is `None` for keys out of sight.
    fn reference(&self, keys: usize, bias: impl Fn(usize, usize) -> Option<f32>) -> Vec<f64> {
        let (qs, ks) =
            (self.strides(self.heads, self.queries, self.dim), self.strides(self.kv_heads, self.tokens, self.dim));
        let mut out = vec![0.0; self.q.len()];
        for query in 0..self.queries {
            for head in 0..self.heads {
                let q = query * qs.token + head * qs.head;
                let kv = |key: usize| key * ks.token + head / (self.heads / self.kv_heads) * ks.head;
                let seen: Vec<(usize, f64)> = (0..keys)
                    .filter_map(|key| Some((key, f64::from(bias(query, key)?))))
                    .map(|(key, bias)| {
                        let dot: f64 = (0..self.dim)
                            .map(|d| f64::from(self.q[q + d]) * f64::from(self.floats[0][kv(key) + d]))
                            .sum();
                        (key, dot / (self.dim as f64).sqrt() + bias)
                    })
                    .collect();
                let max = seen.iter().map(|&(_, s)| s).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = seen.iter().map(|&(_, s)| (s - max).exp()).sum();
                for (key, score) in seen {
                    let weight = (score - max).exp() / sum;
                    for d in 0..self.dim {
                        out[q + d] += weight * f64::from(self.floats[1][kv(key) + d]);
                    }
                }
            }
        }
        out
    }
}

fn assert_near(what: &str, y: &[f32], exact: &[f64]) {
    let magnitude = exact.iter().fold(1e-3f64, |m, y| m.max(y.abs()));
    for (i, (&y, &exact)) in y.iter().zip(exact).enumerate() {
        assert!((f64::from(y) - exact).abs() <= 3e-6 * magnitude, "{what}: element {i}: {y} for {exact}");
    }
}

// queries, heads, kv_heads, dim, tokens
const SHAPES: [[usize; 5]; 10] = [
    [1, 1, 1, 8, 5],
    [1, 9, 3, 64, 140],
    [3, 4, 2, 16, 300],
    [7, 8, 4, 8, 40],
    [40, 6, 2, 32, 400],
    [2, 4, 4, 80, 257],
    [1, 5, 1, 24, 129],
    [1, 4, 2, 32, 900],
    [13, 3, 1, 128, 256],
    [70, 2, 2, 20, 70],
];

#[test]
fn causal_attention_is_right_and_equal_on_all_sets() {
    let mut random = Random(1);
    for shape in SHAPES {
        for (head_major, int8) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = Case::new(&mut random, shape, head_major, int8);
            let start = case.tokens - case.queries;
            let exact = case.reference(case.tokens, |query, key| (key <= start + query).then_some(0.0));
            let mut first = None;
            for (set, pool) in sets() {
                let what = format!("{} {shape:?} {head_major} {int8}", set.tier());
                let y = case.run(set, &pool, Mask::Causal { start });
                assert_near(&what, &y, &exact);
                assert_same(&what, &y, first.get_or_insert_with(|| y.clone()));
            }
        }
    }
}

#[test]
fn full_and_biased_attention() {
    let mut random = Random(2);
    for shape in SHAPES {
        let case = Case::new(&mut random, shape, false, false);
        let keys = case.tokens - case.tokens / 4;
        let mut bias = random.floats(case.queries * keys, -2.0, 2.0);
        for (i, bias) in bias.iter_mut().enumerate() {
            if i % 3 == 1 {
                *bias = f32::NEG_INFINITY;
            }
        }
        let full = case.reference(keys, |_, _| Some(0.0));
        let biased = case.reference(keys, |query, key| Some(bias[query * keys + key]).filter(|b| b.is_finite()));
        let mut first = None;
        for (set, pool) in sets() {
            assert_near(set.tier(), &case.run(set, &pool, Mask::Full { keys }), &full);
            let y = case.run(set, &pool, Mask::Bias { keys, bias: &bias });
            assert_near(set.tier(), &y, &biased);
            assert_same(set.tier(), &y, first.get_or_insert_with(|| y.clone()));
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gives_zeros() {
    let case = Case::new(&mut Random(3), [2, 2, 1, 16, 300], false, false);
    let mut bias = vec![f32::NEG_INFINITY; 600];
    bias[599] = 0.0;
    for (set, pool) in sets() {
        let y = case.run(set, &pool, Mask::Bias { keys: 300, bias: &bias });
        assert!(y[..32].iter().all(|&y| y == 0.0));
        assert_near(
            set.tier(),
            &y[32..48],
            &case.floats[1][299 * 16..].iter().map(|&v| f64::from(v)).collect::<Vec<_>>(),
        );
    }
}

#[test]
fn prefill_equals_decoding_to_the_bit() {
    let mut random = Random(4);
    for int8 in [false, true] {
        let case = Case::new(&mut random, [530, 6, 2, 64, 530], false, int8);
        for (set, pool) in sets() {
            let all = case.run(set, &pool, Mask::Causal { start: 0 });
            let row = case.heads * case.dim;
            for (threads, queries) in [(1, 1), (2, 1), (3, 5)] {
                let pool = ThreadPool::new(threads);
                for start in [0, 1, 15, 16, 127, 128, 200, 255, 256, 510, 511, 512, 525] {
                    let mut part = case.clone();
                    part.queries = queries;
                    part.q = case.q[start * row..(start + queries) * row].to_vec();
                    let y = part.run(set, &pool, Mask::Causal { start });
                    assert_same(&format!("{} at {start}", set.tier()), &y, &all[start * row..][..queries * row]);
                }
            }
        }
    }
}

#[test]
fn later_keys_do_not_reach_earlier_queries() {
    let mut case = Case::new(&mut Random(5), [8, 2, 1, 32, 200], false, false);
    let clean = case.run(KernelSet::best(), &ThreadPool::new(1), Mask::Causal { start: 192 });
    for cache in &mut case.floats {
        cache[199 * 32..].fill(f32::NAN);
    }
    for (set, pool) in sets() {
        let y = case.run(set, &pool, Mask::Causal { start: 192 });
        assert_same(set.tier(), &y[..7 * 64], &clean[..7 * 64]);
        assert!(y[7 * 64..].iter().all(|y| y.is_nan()));
    }
}

#[test]
fn shapes_that_do_not_fit_panic() {
    let case = Case::new(&mut Random(6), [2, 2, 1, 16, 20], false, false);
    let good = Strides { token: 32, head: 16 };
    let run = |out_strides, keys, queries, len| {
        std::panic::catch_unwind(|| {
            let call = Attention {
                queries,
                heads: 2,
                kv_heads: 1,
                head_dim: 16,
                scale: 0.25,
                mask: Mask::Full { keys },
                q: &case.q,
                q_strides: good,
                k: case.cache(0),
                v: case.cache(1),
                out_strides,
            };
            KernelSet::best().attention(&ThreadPool::new(1), &call, &mut vec![0.0; len]);
        })
        .is_ok()
    };
    assert!(run(good, 20, 2, 64));
    assert!(run(Strides { token: 16, head: 32 }, 20, 2, 64), "head-major output");
    assert!(!run(good, 21, 2, 64), "more keys than the cache has");
    assert!(!run(good, 0, 2, 64), "no keys");
    assert!(!run(good, 20, 3, 96), "more queries than there are");
    assert!(!run(good, 20, 2, 63), "output too short");
    assert!(!run(Strides { token: 31, head: 16 }, 20, 2, 64), "output heads overlap");
    assert!(!run(Strides { token: usize::MAX / 2 + 17, head: 1 << 63 }, 20, 2, 64), "strides that overflow");
}
