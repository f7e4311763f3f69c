//! How fast a `forward` program runs, on this machine, now: `cargo test --release --test forward_speed -- --ignored
//! --nocapture`. `LLR_BENCH_THREADS` lists numbers of threads, `LLR_EXECUTION` the way.

mod common;
mod forward_common;

use forward_common::{Model, golden, greedy, ids};
use llama_runner::runtime::Execution;
use std::time::Instant;

/// Median of tokens a second over `runs` of `tokens` tokens each.
fn rate(runs: usize, tokens: usize, mut run: impl FnMut()) -> f64 {
    let mut rates: Vec<f64> = (0..runs)
        .map(|_| {
            let begin = Instant::now();
            run();
            tokens as f64 / begin.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[runs / 2]
}

fn memory() -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

#[test]
#[ignore = "a measurement: run it alone, with --release"]
fn chat_model() {
    const NAME: &str = "smollm2_135m_8da4w_emb432_sdpa";
    let run = &golden(&common::shared(), NAME)["water"];
    let ids: Vec<i64> = ids(run, "prompt_ids").into_iter().cycle().take(2048).collect();
    let threads = std::env::var("LLR_BENCH_THREADS").unwrap_or_else(|_| "1,2".into());
    for threads in threads.split(',').map(|threads| threads.parse().unwrap()) {
        let begin = Instant::now();
        let path = common::model(&format!("smollm2/{NAME}.pte"));
        let mut model = Model::open_with(&path, Execution::Auto, Some(threads));
        let load = begin.elapsed();
        model.last(&ids[..1], 0);
        let first = begin.elapsed();
        println!("{threads} threads: loaded in {load:.2?}, first token after {first:.2?}; {}", memory());
        for tokens in [128, 512] {
            let rate = rate(5, tokens, || drop(model.last(&ids[..tokens], 0)));
            println!("{threads} threads: prefill {tokens}: {rate:.0} tokens/s");
        }
        for start in [0, 512, 1024] {
            model.last(&ids[start..start + 512], start);
        }
        for context in [100, 1500] {
            let mut next = ids[context];
            let mut position = context;
            let rate = rate(9, 16, || {
                for _ in 0..16 {
                    next = greedy(&model.last(&[next], position));
                    position += 1;
                }
            });
            println!("{threads} threads: decode at {context}: {rate:.0} tokens/s");
        }
        println!("{threads} threads: {}", memory());
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {load}");
}
