//! `llr export` from outside: every combination that is offered says what the float weights say, what cannot be is
//! refused by name, and a failure leaves nothing behind.

mod common;
mod forward_common;

use common::model;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Tokens that must be those of the float weights.
const STEPS: usize = 20;

fn llr(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llr")).current_dir(folder).arg("export").args(args).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An export of the small story model, with what the program said when it ran.
fn stories(folder: &Path, more: &str) -> Value {
    let [checkpoint, tokenizer] = ["stories260K.bin", "tok512.bin"].map(|name| model(name).display().to_string());
    let mut args = vec!["--json", "--checkpoint", &checkpoint, "--tokenizer_model", &tokenizer, "--artifact", "out"];
    args.extend(more.split_whitespace());
    let output = llr(folder, &args);
    assert!(output.status.success(), "{more}: {}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{more}: {error}: {}", text(&output.stdout)));
    if let Some(parts) = report["output"]["parts"].as_object() {
        let sum: u64 = parts.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(sum, report["output"]["bytes"], "{more}: {parts:?}");
    }
    report
}

fn tokens(report: &Value) -> Vec<i64> {
    report["answers"][0]["tokens"].as_array().expect("tokens").iter().map(|id| id.as_i64().unwrap()).collect()
}

/// The recorded greedy answer of the float weights to "Once upon a time".
fn recorded() -> Vec<i64> {
    let golden = forward_common::golden(&common::shared(), "portable_s260k_fp32_kv");
    forward_common::ids(&golden, "ids_prefill").split_off(forward_common::ids(&golden, "prompt").len())
}

/// Exports with each of `lines` and compares the answers with the recorded one.
fn agree(lines: &[String]) {
    let (folder, want) = (tempfile::tempdir().unwrap(), recorded());
    for line in lines {
        let have = tokens(&stories(folder.path(), line));
        assert_eq!(have[..STEPS], want[..STEPS], "{line}");
    }
}

/// Every mode with and without a quantized embedding.
fn modes(common: &str) -> Vec<String> {
    let modes = ["kv", "hybrid", "lookahead", "prefill", "dynamic"];
    let line = |mode: &str, embedding: &str| {
        let lookahead = if mode == "lookahead" { "--ngram 3 --window 3 --gcap 3" } else { "" };
        // Whole contexts cost their square.
        let length = if mode == "prefill" { 28 } else { 48 };
        format!("{common} --model_mode {mode} {lookahead} {embedding} --max_seq_len {length} --prefill_ar_len 8")
    };
    modes.iter().flat_map(|mode| ["", "-E 4,32"].map(|embedding| line(mode, embedding))).collect()
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_mode_in_operators_says_what_the_weights_say() {
    agree(&modes("--backend portable"));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_mode_in_float_delegates_says_what_the_weights_say() {
    agree(&modes("--backend xnnpack --ptq none"));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn weights_of_8_bits_in_operators_say_what_the_weights_say() {
    agree(&["dynamic", "hybrid"].map(|mode| format!("--backend portable --ptq int8 --model_mode {mode} -E 8,0")));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_mode_in_8da4w_says_what_the_weights_say() {
    agree(&modes("--backend xnnpack --ptq 8da4w"));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_width_and_layout_of_keys_and_values_says_what_the_weights_say() {
    let mut lines = Vec::new();
    for backend in ["portable", "xnnpack"] {
        for bits in [8, 16, 32] {
            for layout in ["per_layer", "per_head"] {
                lines.push(format!(
                    "--backend {backend} --model_mode hybrid --kv_bits {bits} --kv_layout {layout} --max_seq_len 48 \
                     --prefill_ar_len 8 -E 4,32"
                ));
            }
        }
    }
    agree(&lines);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn hybrid_and_kv_programs_of_one_model_give_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    for line in ["--backend portable --kv_bits 8", "--backend xnnpack --kv_bits 16 -E 2,32"] {
        let [kv, hybrid] = ["kv", "hybrid"]
            .map(|mode| tokens(&stories(folder.path(), &format!("{line} --model_mode {mode} --max_seq_len 64"))));
        assert!(kv.len() > 50);
        assert_eq!(kv, hybrid, "{line}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn context_binaries_say_what_the_weights_say() {
    let qnn = |more: &str| format!("--backend qnn --max_seq_len 64 --prefill_ar_len 16 {more}");
    agree(&[
        qnn("--model_mode hybrid"),
        qnn("--model_mode kv --kv_layout per_head --kv_bits 16 --num_sharding 2"),
        qnn("--model_mode hybrid --group_size 32 -E 4,32"),
        qnn("--model_mode kv --ptq 16a8w --kv_bits 16 -E 8,32"),
    ]);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_program_that_is_there_is_run_without_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let first = stories(folder.path(), "--backend portable --max_seq_len 32 --compile-only");
    assert_eq!(first["answers"], Value::Array(Vec::new()));
    let tokenizer = model("tok512.bin").display().to_string();
    let args = ["--pre_gen_pte", "out", "--backend", "portable", "--max_seq_len", "32", "--tokenizer-bin", &tokenizer];
    let again = llr(folder.path(), &args);
    assert!(text(&again.stdout).starts_with("Once upon a time, there was a little girl"), "{}", text(&again.stderr));
    let json = llr(folder.path(), &[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(tokens(&json), recorded()[..tokens(&json).len()]);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn the_report_is_written_and_the_graph_shown_where_asked() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--backend xnnpack --max_seq_len 32 --weight_scales search --report report.html --compile_only";
    let report = stories(folder.path(), line);
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg ") && page.ends_with("</html>\n"));
    let size = std::fs::metadata(folder.path().join(report["output"]["path"].as_str().unwrap())).unwrap().len();
    assert_eq!(report["output"]["bytes"].as_u64(), Some(size));

    let checkpoint = model("stories260K.bin").display().to_string();
    let stop =
        ["--checkpoint", &checkpoint, "--backend", "portable", "--stop-after", "decompose-swiglu", "-o", "x.pte"];
    let stopped = llr(folder.path(), &stop);
    let shown = text(&stopped.stdout);
    assert!(
        stopped.status.success() && shown.starts_with("; after decompose-swiglu\ngraph forward "),
        "{}",
        text(&stopped.stderr)
    );
    assert!(shown.contains("Sigmoid") && !shown.contains("SwiGlu"));
    assert!(!folder.path().join("x.pte").exists());
}

/// The computed orders. A change here is a change of what users see.
#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn passes_run_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = model("stories260K.bin").display().to_string();
    let order = |more: &str| {
        let args =
            [&["--checkpoint", &checkpoint, "--print-passes"][..], &more.split(' ').collect::<Vec<_>>()].concat();
        let output = llr(folder.path(), &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let decompositions = ["decompose-rms-norm", "decompose-rotary", "decompose-swiglu", "decompose-attention"];
    let then = |first: &[&'static str], more: &[&'static str]| [first, more].concat();
    assert_eq!(order("--backend portable"), then(&decompositions, &["simplify-fused", "dead-code"]));
    assert_eq!(
        order("--backend xnnpack -E 4,32"),
        then(&decompositions[..3], &["simplify-fused", "quantize-embedding", "quantize-linear", "dead-code"])
    );
    assert_eq!(
        order("--backend xnnpack --model_mode kv --kv_bits 8"),
        then(&decompositions, &["simplify-fused", "quantize-linear", "quantize-kv-io", "dead-code"])
    );
    assert_eq!(
        order("--backend qnn --group_size 4 -E 4,32 --enable-pass constant-fold"),
        [
            "decompose-rotary",
            "decompose-swiglu",
            "insert-requantize",
            "quantize-embedding",
            "quantize-linear",
            "annotate",
            "quantize-scalars",
            "fit-block-scales",
            "constant-fold",
            "dead-code"
        ]
    );
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn what_fails_is_named_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = model("stories260K.bin").display().to_string();
    std::fs::create_dir(folder.path().join("folder.pte")).unwrap();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    for (line, code, want) in [
        ("--backend qnn --kv_bits 32", 18, "kv_bits 32 does not go with backend qnn"),
        ("--backend qnn --soc_model SM8651", 18, "there is no SoC \"SM8651\"; the nearest is SM8650"),
        ("--disable-pass annotate", 18, "pass quantize-scalars cannot run without annotate, which is switched off"),
        ("--disable-pass annotat", 18, "there is no pass \"annotat\"; the nearest is \"annotate\""),
        ("--backend portable --dump-after decompose", 18, "there is no pass \"decompose\"; the nearest is"),
        ("--backend portable --disable-pass decompose-swiglu", 16, "a pass must decompose it first"),
        ("--backend portable -o folder.pte", 18, "folder.pte is a folder"),
        ("--backend xnnpack --kv_bits 8 --model_mode kv --calibration_text missing.txt", 34, "missing.txt"),
        ("--backend xnnpack --max_seq_len 1", 18, "a context of 1 tokens is not in 2 to"),
        ("--num_sharding 9", 18, "num_sharding 9 is more than the model's 5 layers"),
        ("--report missing/report.html", 34, "the report's folder missing is not there"),
    ] {
        let args = ["--checkpoint", &checkpoint, "--compile_only", "-a", "new/out"];
        let args = [&args[..], &line.split(' ').collect::<Vec<_>>()].concat();
        let output = llr(folder.path(), &args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(want) && output.stdout.is_empty(), "{line}: {said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before, "{line}");
    }
    // The run afterwards is thought of before the export.
    for (args, want) in [(&["--prompt", ""][..], "a prompt is empty"), (&[], "the run afterwards needs a tokenizer")] {
        let output = llr(folder.path(), &[&["--checkpoint", &checkpoint, "-a", "new/out"][..], args].concat());
        assert_eq!(output.status.code(), Some(18));
        assert!(text(&output.stderr).contains(want), "{}", text(&output.stderr));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before, "{want}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn only_programs_are_written_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(model("stories260K.bin"), folder.path().join("söme weights.bin")).unwrap();
    let run = |output: &str, more: &[&str]| {
        let args = ["--backend", "portable", "--checkpoint", "söme weights.bin", "-c", "-q", "-o", output];
        llr(folder.path(), &[&args[..], more].concat())
    };
    let size = || std::fs::metadata(folder.path().join("söme weights.bin")).unwrap().len();
    let before = size();
    let mut refused = vec![
        ("söme weights.bin", &[][..], "söme weights.bin is there already and is no program (.pte)"),
        ("x.pte", &["--report", "x.pte"], "the report x.pte is the program"),
        ("x.pte", &["--report", "söme weights.bin"], "söme weights.bin is to be read and cannot be written to"),
        ("x.pte", &["--report", "."], "the report . is a folder"),
    ];
    // Not /dev/null: a fault here would replace it.
    #[cfg(unix)]
    {
        let _ = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        refused.push(("socket", &[], "the output socket is no regular file"));
    }
    for (output, more, want) in refused {
        let run = run(output, more);
        assert!(run.status.code() == Some(18) && text(&run.stderr).contains(want), "{want}: {}", text(&run.stderr));
        assert_eq!((size(), folder.path().join("x.pte").exists()), (before, false), "{want}");
    }
    std::fs::write(folder.path().join("x.pte"), "").unwrap();
    for round in 0..2 {
        let run = run("x.pte", &[]);
        assert!(run.status.success(), "{round}: {}", text(&run.stderr));
    }
}

#[test]
fn an_unknown_flag_is_refused_with_the_nearest_and_both_spellings_are_known() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, nearest) in [
        ("--prefil_ar_len", "--prefill_ar_len"),
        ("--embeding-quantize", "--embedding-quantize"),
        ("--promt", "--prompt"),
    ] {
        let output = llr(folder.path(), &["--checkpoint", "x", flag, "3"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(nearest), "{said}");
    }
    let output = llr(folder.path(), &["--checkpoint", "x", "--ptq", "16a4"]);
    assert!(text(&output.stderr).contains("a similar value exists: '16a4w'"), "{}", text(&output.stderr));
    for flag in ["--max_seq_len", "--max-seq-len"] {
        let output = llr(folder.path(), &["--checkpoint", "missing.bin", flag, "32"]);
        assert!(text(&output.stderr).contains("missing.bin"), "{flag}: {}", text(&output.stderr));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{flag}");
    }
}
