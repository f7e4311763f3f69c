//! Our own side: the runner as programs use it, behind the protocol of `peer.rs`.

use llama_runner::builtin::{ProgramOptions, open_program};
use llama_runner::runner::{GenerationConfig, Prompt, Runner, RunnerOptions, TokenEvent};
use llama_runner::tokenizer;
use serde_json::json;
use std::io::BufRead;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Seconds that the threads of this process have had a processor for.
fn on_processor() -> f64 {
    let mut time = [0; 2];
    // SAFETY: on 64-bit Unix a timespec is two words of 64 bits, which the call fills.
    let result = unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    if result == 0 { time[0] as f64 + time[1] as f64 * 1e-9 } else { f64::NAN }
}

/// Of Linux.
const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: &mut [i64; 2]) -> i32;
}

fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Answers requests until there are no more.
pub fn serve(program: &Path, tokenizer: &Path, threads: NonZeroUsize) {
    let options = ProgramOptions { cpu_threads: Some(threads), ..ProgramOptions::default() };
    let module = open_program(program, &options).unwrap_or_else(|error| panic!("{}", error.chain()));
    let tokenizer = tokenizer::load(tokenizer).expect("the tokenizer loads");
    let mut runner = Runner::load(module, tokenizer, RunnerOptions::default()).expect("the runner loads");
    let start = Instant::now();
    let now = || [start.elapsed().as_secs_f64(), on_processor()];
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let [new, _, text] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("not a request: {line}") };
        let max_new_tokens = Some(new.parse().expect("a number of tokens"));
        let config = GenerationConfig { max_new_tokens, ignore_eos: true, num_bos: 0, ..GenerationConfig::default() };
        runner.reset();
        let begin = now();
        let mut first = None;
        let mut on_token = |_: &TokenEvent<'_>| {
            first.get_or_insert_with(now);
            ControlFlow::Continue(())
        };
        let generation = runner.generate(Prompt::Text(text), &config, &mut on_token).expect("a turn");
        let (first, end) = (first.expect("a first token"), now());
        let between = |from: [f64; 2], to: [f64; 2]| [to[0] - from[0], to[1] - from[1]];
        let answer = json!({
            "prompt": generation.prompt_tokens.len(),
            "tokens": generation.tokens.len(),
            "prefill": between(begin, first),
            "decode": between(first, end),
            "peak": peak_bytes(),
        });
        println!("{answer}");
    }
}
