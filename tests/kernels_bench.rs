//! How fast the kernels are on this machine. Not a test: run it on purpose, in release, and read the numbers.
//! `cargo test --release --test kernels_bench -- --ignored --nocapture`; `LLR_KERNELS` chooses the set.

mod kernels_common;

use kernels_common::Random;
use llama_runner::kernels::{
    Attention, Clamp, KernelSet, KeyValues, Mask, Nibbles, PackedF32, PackedWeights, QuantizedProduct, QuantizedRows,
    Scales, Strides, ThreadPool, Unary, WeightShape,
};
use std::time::Instant;

/// Load average and time the hypervisor took, as far as the system tells.
fn load() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let steal = read("/proc/stat").lines().next().and_then(|cpu| cpu.split_whitespace().nth(8).map(str::to_owned));
    format!("load {}, stolen ticks {}", read("/proc/loadavg").trim(), steal.unwrap_or_default())
}

/// Seconds of a call: the median, and the best, which is what an idle machine would give.
#[derive(Clone, Copy)]
struct Time {
    median: f64,
    best: f64,
}

impl Time {
    /// Two rates, the median's and the best one, of `amount` a call.
    fn rates(self, amount: f64) -> String {
        format!("{:6.1} ({:6.1})", amount / self.median * 1e-9, amount / self.best * 1e-9)
    }
}

fn time(runs: usize, mut run: impl FnMut(usize)) -> Time {
    let mut times: Vec<f64> = (0..runs)
        .map(|i| {
            let begin = Instant::now();
            run(i);
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Time { median: times[runs / 2], best: times[0] }
}

fn weights(random: &mut Random, n: usize, k: usize) -> PackedWeights {
    let shape = WeightShape { n, k, group: 32 };
    let scales: Vec<u16> = (0..n * k / 32).map(|_| 0x3c00 + (random.next() & 127) as u16).collect();
    let bytes = random.bytes(n * k / 2);
    PackedWeights::pack_4bit(shape, &bytes, Nibbles::Offset8, Scales::Bf16(&scales), None).unwrap()
}

#[test]
#[ignore = "a benchmark"]
fn bench_kernels_quantized() {
    let set = KernelSet::best();
    println!("{}; {}", set.kernel_name("qd8q4f32", "gemm"), load());
    let mut random = Random(1);
    for (n, k) in [(576, 576), (576, 1536), (1536, 576), (49152, 576)] {
        // Enough copies that no cache holds them, as when a model's layers pass by.
        let one = weights(&mut random, n, k);
        let bytes = one.size_bytes();
        let copies: Vec<PackedWeights> = std::iter::repeat_n(one, (96 << 20) / bytes + 1).collect();
        for rows in [1, 4, 128] {
            let x = random.floats(rows * k, -1.0, 1.0);
            let mut out = vec![0.0; rows * n];
            for threads in [1, 2] {
                let pool = ThreadPool::new(threads);
                let mut activations = QuantizedRows::new();
                set.quantize_rows(&pool, &x, k, 32, &mut activations);
                let runs = if rows < 128 { 301.max(2 * copies.len()) } else { 31 };
                let time = time(runs, |i| {
                    let weights = &copies[i % copies.len()];
                    let (activations, out) = (&activations, &mut out[..]);
                    set.quantized_gemm(&pool, QuantizedProduct { activations, weights, clamp: Clamp::NONE, out });
                });
                println!(
                    "{rows:4} x {k:5} · {n:5}, {threads} threads: {:9.1} µs, GB/s {}, GOPS {}",
                    time.median * 1e6,
                    time.rates(bytes as f64),
                    time.rates(2.0 * (rows * n * k) as f64),
                );
            }
        }
    }
    println!("{}", load());
}

#[test]
#[ignore = "a benchmark"]
fn bench_kernels_attention() {
    let set = KernelSet::best();
    println!("{}; {}", set.kernel_name("f32f32f32", "attention"), load());
    let mut random = Random(2);
    let (heads, kv_heads, dim, layers) = (9, 3, 64, 30);
    let cache = 1600 * kv_heads * dim;
    let caches: Vec<[Vec<f32>; 2]> = (0..layers).map(|_| [0, 1].map(|_| random.floats(cache, -1.0, 1.0))).collect();
    for (queries, start) in [(1, 100), (1, 1499), (128, 0), (512, 0)] {
        let q = random.floats(queries * heads * dim, -1.0, 1.0);
        let mut out = vec![0.0; q.len()];
        for threads in [1, 2] {
            let pool = ThreadPool::new(threads);
            let strides = Strides { token: kv_heads * dim, head: dim };
            let time = time(layers * if queries == 1 { 21 } else { 1 }, |i| {
                let [k, v] = &caches[i % layers];
                let call = Attention {
                    queries,
                    heads,
                    kv_heads,
                    head_dim: dim,
                    scale: 0.125,
                    mask: Mask::Causal { start },
                    q: &q,
                    q_strides: Strides { token: heads * dim, head: dim },
                    k: KeyValues::F32 { data: k, strides },
                    v: KeyValues::F32 { data: v, strides },
                    out_strides: Strides { token: heads * dim, head: dim },
                };
                set.attention(&pool, &call, &mut out);
            });
            let (median, best) = (time.median * 1e6, time.best * 1e6);
            println!("{queries:4} queries at {start:4}, {threads} threads: {median:8.1} µs ({best:8.1}) a layer");
        }
    }
    println!("{}", load());
}

#[test]
#[ignore = "a benchmark"]
fn bench_kernels_float() {
    let set = KernelSet::best();
    println!("{}; {}", set.kernel_name("f32f32f32", "gemm"), load());
    let mut random = Random(3);
    let (n, k) = (1536, 576);
    let w = random.floats(n * k, -1.0, 1.0);
    let packed: Vec<PackedF32> = (0..24).map(|_| PackedF32::pack(n, k, &w, None).unwrap()).collect();
    for rows in [1, 128] {
        let x = random.floats(rows * k, -1.0, 1.0);
        let mut out = vec![0.0; rows * n];
        for threads in [1, 2] {
            let pool = ThreadPool::new(threads);
            let time = time(241, |i| set.gemm(&pool, &x, &packed[i % packed.len()], Clamp::NONE, &mut out));
            println!(
                "{rows:4} x {k} · {n} f32, {threads} threads: GB/s {}, GFLOPS {}",
                time.rates(packed[0].size_bytes() as f64),
                time.rates(2.0 * (rows * n * k) as f64),
            );
        }
    }
    let mut x = random.floats(1 << 14, -4.0, 4.0);
    for f in [Unary::Exp, Unary::Silu, Unary::Tanh, Unary::Gelu] {
        let time = time(301, |_| {
            set.map_in_place(f, &mut x);
            set.map_in_place(Unary::Clamp { min: -4.0, max: 4.0 }, &mut x);
        });
        println!(
            "{f:?} and a bound: {:.2} ns ({:.2}) an element",
            time.median * 1e9 / x.len() as f64,
            time.best * 1e9 / x.len() as f64
        );
    }
    let pool = ThreadPool::new(2);
    let time = time(301, |_| (0..100).for_each(|_| pool.parallel_for(2, |_| {})));
    println!("empty loop on 2 threads: {:.2} µs ({:.2}); {}", time.median * 1e4, time.best * 1e4, load());
}
