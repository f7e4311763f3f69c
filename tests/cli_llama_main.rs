//! `llama_main` from outside: streams, counts, flags and exit codes, on a program written for the purpose; and what it
//! and `qnn_llama_runner` say of each other's programs.

#[path = "common/bigram.rs"]
mod bigram;
#[path = "common/cli.rs"]
mod cli;
mod common;

use bigram::Files;
use common::model;
use llama_runner::tensor::DType;
use serde_json::{Value, json};
use std::process::Command;

/// What a run left behind.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// What stands on stdout before the observer line, which must be the last.
    #[track_caller]
    fn text(&self) -> &str {
        assert_eq!(self.code, Some(0), "stderr: {}", self.stderr);
        let (text, line) = self.stdout.rsplit_once("PyTorchObserver ").expect("an observer line");
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line:?}");
        text
    }

    /// Prompt and generated tokens, as the observer line says.
    #[track_caller]
    fn counts(&self) -> (u64, u64) {
        let line = self.stdout.rsplit_once("PyTorchObserver ").expect("an observer line").1;
        let json: Value = serde_json::from_str(line).expect("a JSON object");
        (json["prompt_tokens"].as_u64().unwrap(), json["generated_tokens"].as_u64().unwrap())
    }

    /// Asserts that nothing was printed, and that one line says why.
    #[track_caller]
    fn assert_fails(&self, words: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(1), ""), "stderr: {}", self.stderr);
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("llama_main: error: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(words), "{errors:?} lacks {words:?}");
    }
}

fn llama_main(files: &Files, args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_llama_main")).current_dir(files.dir()).args(args).output();
    let output = output.expect("the program starts");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A greedy run of the bigram program.
fn run(files: &Files, more: &[&str]) -> Run {
    let common = ["--model_path=bigram.pte", "--tokenizer_path=bigram.bin", "--temperature=0"];
    llama_main(files, &[&common, more].concat())
}

#[test]
fn streams_hold_what_upstream_prints_there_and_nothing_else() {
    let files = Files::new();
    let run = run(&files, &["--prompt=abc", "--max_new_tokens=4"]);
    assert_eq!(run.text(), "abcdefg\n");
    // The tokenizer puts a space in front; the token that the prefill makes is not counted.
    assert_eq!(run.counts(), (4, 3));
    for (origin, text) in [
        ("175", "\tPrompt Tokens: 4    Generated Tokens: 3"),
        ("181", "\tModel Load Time:\t\t"),
        ("225", "\tSampling time over 7 tokens:\t"),
    ] {
        let wanted = format!(" executorch:stats.h:{origin}] {text}");
        assert!(run.stderr.lines().any(|line| line.contains(&wanted)), "{wanted:?} in {}", run.stderr);
    }
    assert_eq!(run.stderr.lines().count(), 7, "{}", run.stderr);
}

#[test]
fn every_spelling_of_a_flag_is_read_and_the_last_prompt_counts() {
    let files = Files::new();
    for spelling in [&["--prompt", "ab"][..], &["-prompt=ab"], &["--prompt=x", "-prompt", "ab"]] {
        assert_eq!(run(&files, &[spelling, &["-max_new_tokens", "2"]].concat()).text(), "abcd\n");
    }
}

#[test]
fn an_end_token_ends_the_answer_with_an_empty_line() {
    let files = Files::new();
    // The bell is a token of one unprintable byte, which upstream drops.
    let ended = run(&files, &["--prompt=w", "--max_new_tokens=20"]);
    assert_eq!((ended.text(), ended.counts()), ("wx\u{7}z</s>\n\n", (2, 3)));
    let ignored = run(&files, &["--prompt=w", "--max_new_tokens=6", "--ignore_eos"]);
    assert_eq!(ignored.text(), "wx\u{7}z</s>EF\n");
    // Made by the prompt's last token, it ends the answer too.
    assert_eq!(run(&files, &["--prompt=z"]).text(), "z</s>\n\n");
}

#[test]
fn special_tokens_are_as_many_as_asked_for() {
    let files = Files::new();
    let bos = run(&files, &["--prompt=ab", "--num_bos=3", "--max_new_tokens=1"]);
    assert_eq!((bos.text(), bos.counts()), ("abc\n", (6, 0)));
    let eos = run(&files, &["--prompt=ab", "--num_eos=2", "--max_new_tokens=3"]);
    assert_eq!((eos.text(), eos.counts()), ("abEFG\n", (5, 2)));
    // Upstream keeps eight bits: 300 would be 44, and here even that does not fit.
    run(&files, &["--prompt=ab", "--num_bos=300"]).assert_fails("this adds 303: at most 31 fit");
    run(&files, &["--prompt=ab", "--num_bos=-1"]).assert_fails("--num_bos -1 is negative");
}

#[test]
fn o15_o16_lengths_count_as_upstream_and_a_cut_is_said() {
    let files = Files::new();
    let cut = run(&files, &["--prompt=aa", "--seq_len=8"]);
    assert_eq!((cut.text(), cut.counts()), ("aabcdef\n", (3, 4)));
    assert!(cut.stderr.contains("stopped at --seq_len 8 without an end token"), "{}", cut.stderr);
    let full = run(&files, &["--prompt=!", "--max_new_tokens=1000"]);
    assert_eq!(full.counts(), (2, 29));
    assert!(full.stderr.contains("the model's context of 32 tokens is full"), "{}", full.stderr);
    assert_eq!(run(&files, &["--prompt=!", "--seq_len=-1"]).text(), full.text());
    assert_eq!(run(&files, &["--prompt=!"]).text(), full.text(), "128 is more than the context");
}

#[test]
fn what_fails_leaves_no_text() {
    let files = Files::new();
    for (args, words) in [
        (&["--prompt="][..], "the prompt is empty"),
        (&["--temperature=2"], "--temperature 2 is not in 0 to 1"),
        (&["--temperature=-0.5"], "--temperature -0.5 is not in 0 to 1"),
        (&["--max_new_tokens=0"], "--max_new_tokens 0"),
        (&["--prompt=abc", "--seq_len=3"], "this adds 4: at most 2 fit"),
        (&["--prompt=abcdefghijklmnopqrstuvwxyzabcdefg"], "this adds 34: at most 31 fit"),
        (&["--method_name=lora"], "the file has no method lora; it has: forward"),
        (&["--model_path=missing.pte"], "missing.pte"),
        (&["--model_path=bigram.bin"], "not an ExecuTorch program"),
        (&["--model_path=bigram.ptd"], "external data (.ptd)"),
        (&["--tokenizer_path=missing.bin"], "missing.bin"),
        (&["--data_paths=missing.ptd"], "missing.ptd"),
        (&["--data_paths=bigram.pte"], "it is an ExecuTorch program (.pte)"),
        (&["--prompt_file=missing.txt"], "missing.txt"),
        (&["--trace_path=no/such/file"], "cannot write no/such/file"),
        (&["--etdump_path=no/such/file"], "cannot write no/such/file"),
        (&["--trace_path=bigram.pte"], "bigram.pte is to be read and cannot be written to"),
        (&["--etdump_path=./bigram.bin"], "bigram.bin is to be read and cannot be written to"),
        (&["--cpu_threads=-2"], "--cpu_threads -2"),
        // Not understood: 1 as well, as gflags exits.
        (&["--promt=x"], "unknown flag --promt, did you mean --prompt?"),
        (&["--seq_len=long"], "is not a 32-bit integer"),
    ] {
        run(&files, args).assert_fails(words);
    }
}

#[test]
fn help_names_every_flag_of_upstream() {
    let run = llama_main(&Files::new(), &["--help"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for flag in [
        "model_path",
        "data_paths",
        "tokenizer_path",
        "prompt",
        "prompt_file",
        "temperature",
        "seq_len",
        "max_new_tokens",
        "cpu_threads",
        "num_bos",
        "num_eos",
        "warmup",
        "ignore_eos",
        "etdump_path",
        "method_name",
    ] {
        assert!(run.stdout.contains(&format!("--{flag} ")), "{flag}");
    }
}

#[test]
fn a_prompt_file_is_taken_byte_for_byte() {
    let files = Files::new();
    files.write("prompt.txt", b"a\nb");
    let run = run(&files, &["--prompt=zzz", "--prompt_file=prompt.txt", "--max_new_tokens=2"]);
    assert_eq!((run.text(), run.counts()), ("a\nbcd\n", (4, 1)));
}

#[test]
fn a_warm_up_leaves_no_trace_of_its_own() {
    let files = Files::new();
    let args = ["--prompt=abc", "--max_new_tokens=4", "--warmup", "--trace_path=trace.jsonl", "--num_bos=1"];
    let run = run(&files, &args);
    assert_eq!((run.text(), run.counts()), ("abcdefg\n", (5, 3)));
    assert_eq!(files.read("trace.jsonl").lines().count(), 4);
}

#[test]
fn a_trace_has_a_line_a_token() {
    let files = Files::new();
    run(&files, &["--prompt=ab", "--max_new_tokens=2", "--trace_path=trace.jsonl"]).text();
    let lines: Vec<Value> = files.read("trace.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logit = |id| match id {
        102 => 100f32,
        36 => 99.0,
        _ => 0.0,
    };
    let row: Vec<u8> = (0..259).flat_map(|id| logit(id).to_le_bytes()).collect();
    let expected = json!({
        "turn": 0, "prompt_tokens": [35, 100, 101], "position": 2, "row": 2, "token": 102, "dtype": "f32",
        "logits_fnv1a64": format!("{:016x}", llama_runner::base::fnv::fnv1a64(&row)),
        "top5": [[102, 100], [36, 99], [0, 0], [1, 0], [2, 0]],
    });
    assert_eq!(lines[0], expected);
    assert_eq!(
        (lines.len(), &lines[1]["position"], &lines[1]["row"], &lines[1]["token"]),
        (2, &json!(3), &json!(0), &json!(103))
    );
}

#[test]
fn a_profile_is_written_when_its_path_is_given() {
    let files = Files::new();
    run(&files, &["--prompt=abc", "--max_new_tokens=3"]).text();
    assert!(!files.path("etdump.in").exists());
    run(&files, &["--prompt=abc", "--max_new_tokens=3", "--warmup", "--etdump_path=profile.json"]).text();
    let json: Value = serde_json::from_str(&files.read("profile.json")).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let names: Vec<&str> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Embedding", "forward", "Embedding", "forward", "Embedding", "forward"]);
    assert!(events.iter().all(|event| event["ph"] == "X" && event["dur"].as_f64().unwrap() >= 0.0));
}

#[test]
fn sampling_repeats_with_its_seed() {
    let files = Files::new();
    let sampled = |seed: &str| {
        run(&files, &["--prompt=abc", "--temperature=1", seed]).stdout.split("PyTorch").next().map(str::to_owned)
    };
    assert_eq!(sampled("--seed=1"), sampled("--seed=1"));
    assert!((2..20).any(|seed| sampled(&format!("--seed={seed}")) != sampled("--seed=1")));
}

#[test]
fn weights_come_from_data_files() {
    let files = Files::new();
    let external = ["--model_path=external.pte", "--prompt=abc", "--max_new_tokens=4"];
    run(&files, &external).assert_fails("under the name \"embedding.weight\"");
    assert_eq!(run(&files, &[&external[..], &["--data_paths=bigram.ptd"]].concat()).text(), "abcdefg\n");
}

#[test]
fn a_static_program_is_sent_to_the_other_runner() {
    let files = Files::new();
    let step = || vec![(DType::I32, vec![1, 1]), (DType::U16, vec![1, 1, 8]), (DType::I32, vec![1, 1])];
    files.write_methods("hybrid.pte", &[("kv_forward", step()), ("prefill_forward", step())]);
    files.write_methods("kv.pte", &[("forward", step())]);
    for (name, words) in [
        ("hybrid.pte", "the file has no method forward; it has: kv_forward, prefill_forward"),
        ("kv.pte", "forward(i32[1, 1], u16[1, 1, 8], i32[1, 1]) -> "),
    ] {
        let run = run(&files, &[&format!("--model_path={name}")]);
        run.assert_fails(words);
        assert!(run.stderr.contains(&format!("{name} is a program for qnn_llama_runner")), "{}", run.stderr);
    }
}

#[test]
fn a_forward_program_is_sent_here_by_the_other_runner() {
    let files = Files::new();
    let args = |more: &[&str]| {
        let paths = ["bigram.pte", "bigram.bin"].map(|name| files.path(name).display().to_string());
        let mut args = vec![format!("--model_path={}", paths[0]), format!("--tokenizer_path={}", paths[1])];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        args
    };
    for more in [&[][..], &["--eval_mode=0"], &["--eval_mode=1"]] {
        let run = cli::qnn_llama_runner(args(more));
        assert!(run.failed_cleanly() && run.code == Some(16), "{:?} {}", run.code, run.stderr);
        for words in ["bigram.pte is a program for llama_main", "forward(i64[1, ≤31], i64[1]) -> f32[1, ≤31, ≤259]"]
        {
            assert!(run.errors()[0].contains(words), "{words:?} in {}", run.stderr);
        }
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn a_real_static_program_is_sent_to_the_other_runner() {
    let files = Files::new();
    for name in ["ec8f0994ff", "qnn_s260k_hybrid_ar32", "qnn_s260k_kv", "qnn_s260k_lookahead_ar32"] {
        let program = format!("--model_path={}", model(&format!("qnn/{name}.pte")).display());
        run(&files, &[&program]).assert_fails("is a program for qnn_llama_runner");
    }
}
