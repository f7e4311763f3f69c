//! How fast the engine is on this machine, on a model of SmolLM2-135M's sizes with random 4-bit weights. Not a test: run
//! it on purpose, in release, and read the numbers.
//! `cargo test --release --test engine_bench -- --ignored --nocapture --test-threads 1`

mod engine_common;

use engine_common::llama::{Sizes, llama, prompt};
use llama_runner::engine::{CompileOptions, Compiled, InputView, Instance, StepProfile, WeightCache};
use llama_runner::kernels::{KernelSet, ThreadPool};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const SMOLLM2: Sizes =
    Sizes { layers: 30, dim: 576, heads: 9, kv_heads: 3, hidden: 1536, vocabulary: 49_152, context: 2048, tokens: 512 };

fn instance(sizes: Sizes, threads: usize) -> Instance {
    let pool = Arc::new(ThreadPool::new(threads));
    let weights = WeightCache::default();
    let graph = llama(sizes, true).graph;
    let begin = Instant::now();
    let compiled = Compiled::new(graph, KernelSet::best(), pool, &weights, &CompileOptions::default()).unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} steps compiled in {seconds:.2} s, {} MB of weights",
        compiled.step_count(),
        weights.size_bytes() >> 20
    );
    Instance::new(compiled).unwrap()
}

/// Seconds that this thread has had a processor for, where the system tells; other programs do not count in.
fn on_processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns * 1e-9)
}

fn feed(instance: &mut Instance, tokens: usize, position: usize) -> f64 {
    let inputs = prompt(&vec![1; tokens], position as i64);
    let begin = Instant::now();
    instance.run(&inputs.each_ref().map(|(dims, bytes)| InputView { dims, bytes })).unwrap();
    begin.elapsed().as_secs_f64()
}

/// Median and best seconds.
fn times(mut all: Vec<f64>) -> (f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[all.len() / 2], all[0])
}

fn by_name(profile: &[StepProfile]) {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for step in profile {
        let sum = sums.entry(&step.name).or_default();
        *sum = (sum.0 + step.calls, sum.1 + step.ns);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(_, (_, ns))| std::cmp::Reverse(*ns));
    for (name, (calls, ns)) in rows {
        println!("    {:9.1} us {:6} calls  {name}", ns as f64 / 1e3, calls);
    }
}

#[test]
#[ignore = "measures, and takes its time"]
fn tokens_a_second() {
    println!("load {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    for threads in [1, 2] {
        let mut instance = instance(SMOLLM2, threads);
        for tokens in [128, 512] {
            let begin = on_processor();
            let (median, best) = times((0..5).map(|_| feed(&mut instance, tokens, 0)).collect());
            let own = (on_processor() - begin) / 5.0;
            let [median, best, own] = [median, best, own].map(|seconds| tokens as f64 / seconds);
            println!(
                "{threads} threads, prefill {tokens}: {median:.0} tokens/s (best {best:.0}, by own time {own:.0})"
            );
        }
        for context in [100, 1500] {
            feed(&mut instance, 1, context - 1);
            let begin = on_processor();
            let (median, best) = times((0..100).map(|i| feed(&mut instance, 1, context + i)).collect());
            let own = (on_processor() - begin) / 100.0;
            let [median, best, own] = [median, best, own].map(|seconds| 1.0 / seconds);
            println!(
                "{threads} threads, decode at {context}: {median:.1} tokens/s (best {best:.1}, by own time {own:.1})"
            );
        }
        for tokens in [1, 128] {
            instance.set_profiling(true);
            feed(&mut instance, tokens, 100);
            by_name(&instance.profile());
        }
    }
}

#[test]
#[ignore = "measures, and takes its time"]
fn overhead_of_a_token() {
    let tiny =
        Sizes { layers: 30, dim: 32, heads: 1, kv_heads: 1, hidden: 32, vocabulary: 32, context: 128, tokens: 8 };
    for threads in [1, 2] {
        let mut instance = instance(tiny, threads);
        feed(&mut instance, 1, 0);
        let (median, best) = times((0..2000).map(|i| feed(&mut instance, 1, i % 8)).collect());
        println!("{threads} threads: {:.1} us a token (best {:.1})", median * 1e6, best * 1e6);
        instance.set_profiling(true);
        (0..100).for_each(|i| _ = feed(&mut instance, 1, i % 8));
        by_name(&instance.profile());
    }
}
