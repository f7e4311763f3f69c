//! How fast `forward(tokens, input_pos)` programs run, and in how much memory, beside ExecuTorch's own runners.
//!
//! ```text
//! cargo bench --bench forward_speed -- --runner "PYTHON benches/peers/executorch_runner.py" --host HOST
//! ```
//!
//! PYTHON has `executorch==1.5.1` and `torch==2.14.1` installed; HOST is `benches/peers/executorch_host.cpp`, compiled as its head says.
//! The first runs the programs with custom operators (`_sdpa` in the name), the second the others; without them only
//! our own figures are printed. `--threads 1,2`, `--samples 7`, `--only SUBSTRING`, and `--json` for one object a line.
//!
//! For each program and number of threads, our runner and the peer are one process each, started alike and asked in turn
//! (A B, B A, …) to take a prompt of some tokens and to generate some more; the one that is not asked sleeps. Both are
//! told the number of threads. Time runs from the call to the first token (prefill) and from there to the last one
//! (decode at that context), text and all. Rates are medians in tokens a second; the ratio is the median over pairs, so a
//! load that both halves of a pair share falls out of it. `cpu` is the same ratio by processor time, which other
//! programs hardly change. Peak memory is VmHWM of the process, as a multiple of the program's file.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "forward_speed/peer.rs"]
mod peer;
#[path = "forward_speed/serve.rs"]
mod serve;

use clap::Parser;
use llama_runner::builtin::{ProgramOptions, open_program};
use llama_runner::runtime::Value;
use llama_runner::tokenizer::{self, Specials};
use peer::{Answer, Peer, Request};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Parser)]
struct Options {
    /// Command of ExecuTorch's TextLLMRunner.
    #[arg(long)]
    runner: Option<String>,
    /// Command of a C++ host of ExecuTorch.
    #[arg(long)]
    host: Option<String>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Pairs of runs a figure.
    #[arg(long, default_value_t = 7)]
    samples: usize,
    /// Only programs with this in their name.
    #[arg(long, default_value = "")]
    only: String,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Answer requests: a process that the benchmark starts.
    #[arg(long, num_args = 3, value_names = ["PROGRAM", "TOKENIZER", "THREADS"])]
    serve: Option<Vec<String>>,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A prompt length, and how many tokens are generated; both parts are figures, unless that is one token.
#[derive(Clone, Copy)]
struct Work {
    prompt: usize,
    new: usize,
}

const WORK: [Work; 4] = [
    Work { prompt: 100, new: 25 },
    Work { prompt: 128, new: 1 },
    Work { prompt: 512, new: 1 },
    Work { prompt: 1500, new: 33 },
];

/// A program of `../shared/models`.
struct Subject {
    name: String,
    program: PathBuf,
    tokenizer: PathBuf,
    context: usize,
}

fn subjects(only: &str) -> Vec<Subject> {
    let mut found = Vec::new();
    for (folder, tokenizer) in
        [("smollm2", "smollm2/tokenizer.json"), ("xnnpack", "tok512.model"), ("portable", "tok512.model")]
    {
        let files = std::fs::read_dir(common::model(folder)).into_iter().flatten().flatten();
        let mut programs: Vec<_> =
            files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "pte")).collect();
        programs.sort();
        for program in programs {
            let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains(only) {
                let context = context_of(&program);
                found.push(Subject { name, program, tokenizer: common::model(tokenizer), context });
            }
        }
    }
    found
}

fn context_of(program: &Path) -> usize {
    let mut module = open_program(program, &ProgramOptions::default()).expect("the program opens");
    match module.constant("get_max_context_len").expect("its metadata").as_deref() {
        Some([Value::Int(context)]) => *context as usize,
        other => panic!("{}: its context is {other:?}", program.display()),
    }
}

/// A prompt of exactly `tokens` tokens.
fn request(subject: &Subject, work: Work) -> Request {
    let tokenizer = tokenizer::load(&subject.tokenizer).expect("the tokenizer loads");
    let text = ["the"].into_iter().chain(std::iter::repeat_n(" the", work.prompt - 1)).collect::<String>();
    let ids = tokenizer.encode(&text, Specials::default()).expect("the prompt encodes");
    assert_eq!(ids.len(), work.prompt, "one word of the prompt is not one token");
    Request { new: work.new, ids, text }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Medians over pairs of runs.
struct Row {
    ours: f64,
    /// The peer's, and what ours is a multiple of: by the clock, by processor time.
    theirs: Option<(f64, [f64; 2])>,
}

/// Tokens a second, by the clock and of the processor.
type Rates = [f64; 2];

impl Row {
    fn of(pairs: &[(Rates, Option<Rates>)]) -> Self {
        let theirs: Option<Vec<Rates>> = pairs.iter().map(|pair| pair.1).collect();
        let ratio = |kind: usize| {
            median(pairs.iter().filter_map(|(ours, theirs)| Some(ours[kind] / theirs.as_ref()?[kind])).collect())
        };
        let theirs = theirs.map(|theirs| (median(theirs.iter().map(|rates| rates[0]).collect()), [ratio(0), ratio(1)]));
        Self { ours: median(pairs.iter().map(|pair| pair.0[0]).collect()), theirs }
    }
}

fn prefill_rates(answer: &Answer) -> Rates {
    answer.prefill.map(|seconds| answer.prompt as f64 / seconds)
}

fn decode_rates(answer: &Answer) -> Rates {
    answer.decode.map(|seconds| answer.tokens.saturating_sub(1) as f64 / seconds)
}

/// Asks both in turn.
fn measure(
    ours: &mut Peer,
    theirs: &mut Option<Peer>,
    request: &Request,
    samples: usize,
) -> Vec<(Answer, Option<Answer>)> {
    let mut pairs = Vec::with_capacity(samples);
    for sample in 0..samples {
        // The peer goes first every other time.
        let early = theirs.as_mut().filter(|_| sample % 2 == 1).map(|theirs| theirs.ask(request));
        let own = ours.ask(request);
        pairs.push((own, early.or_else(|| theirs.as_mut().map(|theirs| theirs.ask(request)))));
    }
    pairs
}

fn run(options: &Options, subject: &Subject, threads: usize) {
    let command = if subject.name.contains("_sdpa") { &options.runner } else { &options.host };
    let arguments = [subject.program.as_os_str(), subject.tokenizer.as_os_str()];
    let start = |command: &mut Command| Peer::start(command.args(arguments).arg(threads.to_string()));
    let own = std::env::current_exe().expect("the path of this program");
    let mut ours = start(Command::new(own).arg("--serve"));
    let mut theirs = command.as_ref().map(|command| {
        let mut words = command.split_whitespace();
        // ExecuTorch logs much; what goes wrong shows when the command is run by hand.
        start(Command::new(words.next().expect("a command")).args(words).stderr(Stdio::null()))
    });
    let work = WORK.into_iter().filter(|work| work.prompt + work.new <= subject.context);
    let requests: Vec<_> = work.map(|work| (work, request(subject, work))).collect();
    for peer in [Some(&mut ours), theirs.as_mut()].into_iter().flatten() {
        peer.ask(&requests[0].1);
    }
    for (Work { prompt, new }, request) in &requests {
        let pairs = measure(&mut ours, &mut theirs, request, options.samples);
        let figure = |what: String, rates: fn(&Answer) -> Rates| {
            let rates = |(ours, theirs): &(Answer, Option<Answer>)| (rates(ours), theirs.as_ref().map(rates));
            print(options.json, subject, threads, &what, &Row::of(&pairs.iter().map(rates).collect::<Vec<_>>()));
        };
        figure(format!("prefill {prompt}"), prefill_rates);
        if *new > 1 {
            figure(format!("decode at {prompt}"), decode_rates);
        }
    }
    let bytes = std::fs::metadata(&subject.program).expect("the program's size").len() as f64;
    let peak = |peer: &Peer| peer.peak as f64 / bytes;
    let row = Row { ours: peak(&ours), theirs: theirs.as_ref().map(|theirs| (peak(theirs), [f64::NAN; 2])) };
    print(options.json, subject, threads, "peak/file", &row);
}

fn print(as_json: bool, subject: &Subject, threads: usize, what: &str, row: &Row) {
    let load = load();
    let Subject { name, .. } = subject;
    if as_json {
        let theirs = row.theirs.map(|(rate, [clock, cpu])| json!({ "rate": rate, "ratio": clock, "cpu_ratio": cpu }));
        let ours = row.ours;
        println!(
            "{}",
            json!({ "program": name, "threads": threads, "what": what, "ours": ours, "theirs": theirs, "load": load })
        );
        return;
    }
    let theirs = row.theirs.map_or_else(String::new, |(rate, [clock, cpu])| match clock.is_nan() {
        true => format!("{rate:>10.2}"),
        false => format!("{rate:>10.2} {clock:>7.2} {cpu:>7.2}"),
    });
    println!("{name:<38} {threads:>2} {what:<15} {:>10.2} {theirs:<26}  load {load}", row.ours);
}

fn main() {
    let options = Options::parse();
    if let Some([program, tokenizer, threads]) = options.serve.as_deref() {
        return serve::serve(Path::new(program), Path::new(tokenizer), threads.parse().expect("a number of threads"));
    }
    let subjects = subjects(&options.only);
    if subjects.is_empty() {
        println!("forward_speed: needs ../shared/models");
        return;
    }
    if !options.json {
        println!("{:<38} {:>2} {:<15} {:>10} {:>10} {:>7} {:>7}", "program", "t", "", "ours", "peer", "ratio", "cpu");
    }
    for subject in &subjects {
        options.threads.iter().for_each(|&threads| run(&options, subject, threads));
    }
}
