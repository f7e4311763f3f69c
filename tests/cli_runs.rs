//! `qnn_llama_runner` and `llr` on real programs and the HTP simulator: what a user sees of a good run.

#[path = "common/cli.rs"]
mod cli;
mod common;

use cli::{Run, qnn_llama_runner};
use common::model;
use std::process::Command;

const INVALID_ARGUMENT: i32 = 18;
const CONTEXT_EXCEEDED: i32 = 67;

/// A run of one of the QNN programs.
fn run(program: &str, more: &[&str]) -> Run {
    let mut args = vec![
        format!("--model_path={}", model(&format!("qnn/{program}.pte")).display()),
        format!("--tokenizer_path={}", model("tok512.et.bin").display()),
    ];
    args.extend(more.iter().map(|&arg| arg.to_owned()));
    qnn_llama_runner(args)
}

#[track_caller]
fn assert_succeeds(run: &Run) {
    assert_eq!(run.code, Some(0), "stderr: {}", run.stderr);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn oc1_every_spelling_of_a_prompt_gives_the_same_answer() {
    let spellings: [&[&str]; 4] = [&["--prompt", "Once"], &["--prompt=Once"], &["-prompt", "Once"], &["-prompt=Once"]];
    let answers = spellings.map(|spelling| {
        let run = run("ec8f0994ff", &[spelling, &["--seq_len=6"]].concat());
        assert_succeeds(&run);
        run.output.unwrap()
    });
    assert!(answers[0].starts_with(b"Once") && answers[0].len() > 4);
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn streams_hold_what_upstream_prints_there_and_nothing_else() {
    let run = run("ec8f0994ff", &["--prompt=Once upon a time", "--seq_len=8"]);
    assert_succeeds(&run);
    // Stopped at seq_len: an empty line before the observer line.
    let lines: Vec<&str> = run.stdout.split('\n').collect();
    assert_eq!(lines.len(), 3, "{:?}", run.stdout);
    assert_eq!((lines[0], lines[2]), ("", ""));
    let observer = lines[1].strip_prefix("PyTorchObserver ").unwrap();
    let json: serde_json::Value = serde_json::from_str(observer).unwrap();
    assert_eq!((&json["prompt_tokens"], &json["generated_tokens"]), (&5.into(), &2.into()));
    for (origin, text) in [
        ("175", "\tPrompt Tokens: 5    Generated Tokens: 2"),
        ("181", "\tModel Load Time:\t\t"),
        ("225", "\tSampling time over 7 tokens:\t"),
    ] {
        let found = run.stderr.lines().find(|line| line.contains(&format!(" executorch:stats.h:{origin}] {text}")));
        assert!(found.is_some_and(|line| line.starts_with("I 00:0")), "{text:?} in {}", run.stderr);
    }
    // O16: the user is told that the answer was cut, and what to do.
    assert!(
        run.stderr.contains("stopped at 8 tokens without an end token: raise --seq_len (up to 128)"),
        "{}",
        run.stderr
    );
    // OC4, OC8: upstream's number.
    let total = json["inference_end_ms"].as_f64().unwrap() - json["inference_start_ms"].as_f64().unwrap();
    let speed: f64 = run.speed.unwrap().parse().unwrap();
    assert!((speed - 2.0 / total.max(1.0) * 1000.0).abs() < 1e-3 * speed);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o17_odd_lengths_are_the_models_context_with_a_warning() {
    // Two decode steps keep the runs short; the length shows in the warning.
    for (seq_len, words) in [
        ("-5", "--seq_len -5 is not above 0: the model's context of 128 tokens is used instead"),
        ("0", "--seq_len 0 is not above 0"),
        ("100000", "--seq_len 100000 exceeds the model's context of 128 tokens"),
    ] {
        let run = run("ec8f0994ff", &["--prompt=a", "--max_decode_steps=2", "--seq_len", seq_len]);
        assert_succeeds(&run);
        assert!(run.stderr.contains(words), "{}", run.stderr);
        assert_eq!(run.tokens()[0].len(), 3);
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o14_a_turn_that_does_not_fit_keeps_the_text_made_before() {
    let run = run("ec8f0994ff", &["--seq_len=9", "--prompt=Once upon a time", "--prompt=there was a dog"]);
    assert_eq!(run.code, Some(CONTEXT_EXCEEDED), "{}", run.stderr);
    assert!(run.failed_cleanly() && run.errors()[0].contains("turn 2 of 2"), "{}", run.stderr);
    assert!(run.output.as_ref().unwrap().starts_with(b"Once upon a time, "));
    assert_eq!(run.tokens().len(), 1);
    assert_eq!(run.stdout.matches("PyTorchObserver").count(), 1);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o2_a_mode_that_the_program_lacks_is_named_and_none_is_chosen() {
    for mode in ["1", "2"] {
        let sizes = ["--ngram=3", "--window=2", "--gcap=2"];
        let run = run("qnn_s260k_kv", &[&["--prompt=a", "--eval_mode", mode], &sizes[..]].concat());
        assert!(run.failed_cleanly(), "{}", run.stderr);
        assert!(run.errors()[0].contains("prefill_forward"), "{}", run.stderr);
    }
    let run = run("qnn_s260k_kv", &["--prompt=a", "--seq_len=5"]);
    assert_succeeds(&run);
    assert_eq!(run.tokens(), run_tokens("qnn_s260k_kv", &["--prompt=a", "--seq_len=5", "--eval_mode=0"]));
}

fn run_tokens(program: &str, more: &[&str]) -> Vec<Vec<u64>> {
    let run = run(program, more);
    assert_succeeds(&run);
    run.tokens()
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn token_ids_are_echoed_as_text_and_refused_outside_the_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ids.bin");
    let ids = |ids: &[u64]| {
        std::fs::write(&file, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        run("ec8f0994ff", &["--seq_len=8", &format!("--tokenized_prompt={}", file.display())])
    };
    let good = ids(&[1, 403, 407, 261, 378]);
    assert_succeeds(&good);
    let text = run("ec8f0994ff", &["--seq_len=8", "--prompt=Once upon a time"]);
    assert_eq!(good.output, text.output);
    assert_eq!(good.trace, text.trace);
    for id in [512, u64::from(u32::MAX), u64::MAX] {
        let bad = ids(&[1, id]);
        assert_eq!(bad.code, Some(INVALID_ARGUMENT), "{}", bad.stderr);
        assert!(bad.failed_cleanly() && bad.errors()[0].contains(&id.to_string()), "{}", bad.stderr);
        assert_eq!(bad.output.as_deref(), Some(&b""[..]));
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn oc5_dumped_logits_are_the_rows_of_prompt_and_answer_in_order() {
    let common = ["--eval_mode=0", "--seq_len=9", "--prompt=Once upon a time"];
    let plain = run("ec8f0994ff", &common);
    assert_succeeds(&plain);
    let dumped = run("ec8f0994ff", &[&common[..], &["--dump_logits_path=logits.bin"]].concat());
    assert_succeeds(&dumped);
    assert_eq!(dumped.output, plain.output);
    let bytes = std::fs::read(dumped.dir().join("logits.bin")).unwrap();
    let rows: Vec<&[u8]> = bytes.chunks(2 * 512).collect();
    // Five prompt rows, three decode rows.
    assert_eq!((rows.len(), bytes.len()), (8, 8 * 1024));
    let hashes: Vec<String> =
        rows.iter().map(|row| format!("{:016x}", llama_runner::base::fnv::fnv1a64(row))).collect();
    let traced: Vec<&str> = plain.trace.iter().map(|line| line["logits_fnv1a64"].as_str().unwrap()).collect();
    assert_eq!(hashes[4..], traced);
    assert!(dumped.stderr.contains("Prompt Tokens: 5    Generated Tokens: 3"), "{}", dumped.stderr);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn o10_inspect_shows_the_soc_with_methods_constants_and_delegates() {
    let inspect = |more: &[&str]| {
        let file = model("qnn/qnn_s260k_hybrid_ar32_emb432.pte");
        let output = Command::new(env!("CARGO_BIN_EXE_llr")).arg("inspect").arg(file).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = inspect(&[]);
    for words in [
        "kv_forward  (2 instructions, 31 values, 256 B of planned memory)",
        "prefill_forward  (2 instructions, 31 values, 8192 B of planned memory)",
        "quantized_decomposed::embedding_4bit.dtype_out",
        "SM8650",
        "get_n_layers",
    ] {
        assert!(text.contains(words), "{words:?} in\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&inspect(&["--json"])).unwrap();
    assert_eq!(json["constant_methods"]["get_n_layers"], serde_json::json!([5]));
    assert_eq!(json["constant_methods"]["get_kv_output_0_quant_attr"][4], "torch.uint8");
    assert_eq!(json["methods"][0]["inputs"][3]["dims"], serde_json::json!([1, 4, 8, 127]));
    assert_eq!(json["delegates"].as_array().unwrap().len(), 1, "both methods share one blob");
    assert_eq!(
        json["segments"],
        serde_json::json!([
            { "offset": 19712, "bytes": 20480 },
            { "offset": 19712 + 20480, "bytes": 1_199_720 },
        ])
    );
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn inspect_says_what_it_could_not_look_into() {
    let inspect = |file: std::path::PathBuf, more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_llr"))
            .arg("inspect")
            .arg(file)
            .args(["--qnn_lib_dir", "no/such/folder"])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success());
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [text, warning] = inspect(model("qnn/ec8f0994ff.pte"), &[]);
    let want = "llr: warning: the graphs of 1 of 1 QNN delegates of ec8f0994ff.pte could not be looked into with \
                --qnn_lib_dir no/such/folder: see \"graphs unknown\"\n";
    assert_eq!(warning, want);
    assert!(text.contains("  graphs unknown: libQnnHtp.so cannot be loaded") && text.contains("no/such/folder/libQnn"));
    let [json, warning] = inspect(model("qnn/ec8f0994ff.pte"), &["--json"]);
    assert!(json.contains("\"graphs_unknown\": \"libQnnHtp.so cannot") && warning == want);
    let [text, warning] = inspect(model("portable/portable_s260k_fp32_kv.pte"), &[]);
    let want = "--qnn_lib_dir is not needed: no delegate of portable_s260k_fp32_kv.pte is a QnnBackend's\n";
    assert!(warning.ends_with(want) && !text.contains("unknown"), "{warning}");
}

#[test]
fn inspect_says_what_is_wrong_with_a_file() {
    let output = Command::new(env!("CARGO_BIN_EXE_llr")).args(["inspect", "missing.pte"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(34), "{stderr}");
    assert!(stderr.starts_with("llr: error: ") && stderr.contains("missing.pte"), "{stderr}");
    assert_eq!(stderr.matches('\n').count(), 1);
}
