//! `qnn_llama_runner` from outside: every fault has its exit code and one line, and stdout stays clean.

#[path = "common/cli.rs"]
mod cli;
mod common;

use cli::{Run, qnn_llama_runner};
use std::ffi::OsString;
use std::path::Path;

const USAGE: i32 = 2;
const NOT_SUPPORTED: i32 = 16;
const INVALID_ARGUMENT: i32 = 18;
const ACCESS_FAILED: i32 = 34;
const INVALID_PROGRAM: i32 = 35;
const INVALID_EXTERNAL_DATA: i32 = 36;

/// Asserts that a run failed with `code` and one line that contains `words`, and that nothing is on stdout.
#[track_caller]
fn assert_fails(run: &Run, code: i32, words: &str) {
    assert_eq!(run.code, Some(code), "stderr: {}", run.stderr);
    let errors = run.errors();
    assert_eq!(errors.len(), 1, "stderr: {}", run.stderr);
    assert!(errors[0].contains(words), "{:?} lacks {words:?}", errors[0]);
    assert_eq!(run.stdout, "");
}

#[test]
fn command_lines_that_are_not_understood() {
    for (args, words) in [
        (&["--model_pth", "x"][..], "unknown flag --model_pth, did you mean --model_path?"),
        (&["--zzz"], "unknown flag --zzz, --help lists the flags"),
        (&["--model", "x"], "unknown flag --model, did you mean --model_path?"),
        (&["--seq_len"], "flag --seq_len needs a value"),
        (&["--seq_len=long"], "flag --seq_len: \"long\" is not a 32-bit integer"),
        (&["--seq_len", "99999999999"], "is not a 32-bit integer"),
        (&["--temperature", "warm"], "flag --temperature: \"warm\" is not a number"),
        (&["--shared_buffer=perhaps"], "is not true or false"),
        (&["--noprompt"], "only a boolean flag can be negated"),
    ] {
        assert_fails(&qnn_llama_runner(args), USAGE, words);
    }
}

#[test]
fn flags_that_make_no_sense() {
    for (args, words) in [
        // OC3: upstream casts any integer to its enum.
        (&["--eval_mode", "7"][..], "eval_mode 7 is none of 0 (kv), 1 (hybrid), 2 (lookahead)"),
        (&["-eval_mode=-1"], "eval_mode -1 is none of"),
        (&["--eval_mode=2"], "needs --ngram above 0"),
        (&["--eval_mode=2", "--ngram=5", "--window=-8", "--gcap=8"], "needs --window above 0, not -8"),
        (&["--prompt", "a", "--tokenized_prompt", "b"], "give --prompt or --tokenized_prompt, not both"),
        (&["--kv_updater", "smartmask"], "kv_updater \"smartmask\" is neither SmartMask nor ShiftPointer"),
        // OC5: dumping logits is for kv mode.
        (&["--dump_logits_path", "l.bin", "--eval_mode", "1"], "--dump_logits_path needs --eval_mode 0"),
        (&["--decoder_model_version", "llama9"], "\"llama9\" is none of llama2, llama3"),
        (&["--temperature=-1"], "--temperature -1"),
        (&["--num_iters=0"], "--num_iters 0"),
    ] {
        assert_fails(&qnn_llama_runner(args), INVALID_ARGUMENT, words);
    }
    assert_fails(&qnn_llama_runner(["--attention_sink_rope_path=x.pte"]), NOT_SUPPORTED, "attention sink");
}

#[cfg(unix)]
#[test]
fn arguments_that_are_no_text() {
    use std::os::unix::ffi::OsStringExt;
    let words = "\"--prompt=\u{fffd}\" is not UTF-8 (argument 3)";
    assert_fails(&qnn_llama_runner([OsString::from_vec(b"--prompt=\xff".to_vec())]), USAGE, words);
}

#[test]
fn help_goes_to_stdout_and_is_a_success() {
    for spelling in ["--help", "-help", "--helpfull", "-h"] {
        let run = qnn_llama_runner([spelling]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        for flag in ["--decoder_model_version", "--kv_updater", "--gcap", "--trace_path"] {
            assert!(run.stdout.contains(flag), "{flag}");
        }
    }
}

#[test]
fn a_version_goes_to_stdout() {
    for program in [env!("CARGO_BIN_EXE_qnn_llama_runner"), env!("CARGO_BIN_EXE_llama_main"), env!("CARGO_BIN_EXE_llr")]
    {
        let output = std::process::Command::new(program).arg("--version").output().unwrap();
        let name = Path::new(program).file_stem().unwrap().to_str().unwrap();
        let want = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
        assert!(output.status.success() && output.stderr.is_empty(), "{name}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
    }
}

#[test]
fn oc4_paths_that_cannot_be_written_are_found_before_anything_is_loaded() {
    for flag in ["--output_path", "--performance_output_path", "--trace_path", "--dump_logits_path"] {
        let run = qnn_llama_runner(["--eval_mode=0", "--model_path=missing.pte", flag, "no/such/directory/file"]);
        assert_fails(&run, ACCESS_FAILED, "cannot write no/such/directory/file");
        let run = qnn_llama_runner(["--eval_mode=0", "--model_path=missing.pte", flag, "."]);
        assert_fails(&run, ACCESS_FAILED, "cannot write .");
    }
}

#[test]
fn what_is_read_is_never_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, [1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    for input in ["--model_path", "--tokenizer_path", "--tokenized_prompt"] {
        for output in ["--output_path", "--performance_output_path", "--trace_path", "--dump_logits_path"] {
            let paths = [input, output].map(|flag| [OsString::from(flag), file.clone().into()]);
            let run = qnn_llama_runner(paths.concat().into_iter().chain(["--eval_mode=0".into()]));
            assert_fails(&run, INVALID_ARGUMENT, "is to be read and cannot be written to");
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn token_files_that_are_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ids.bin");
    let run = |path: &Path| qnn_llama_runner([OsString::from("--tokenized_prompt"), path.into()]);
    assert_fails(&run(&file), ACCESS_FAILED, "ids.bin");
    for size in [0, 1, 7, 9] {
        std::fs::write(&file, vec![0; size]).unwrap();
        assert_fails(&run(&file), INVALID_EXTERNAL_DATA, "ids.bin");
    }
}

#[test]
fn o4_model_paths_that_are_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for (path, code) in [
        (dir.path().join("missing.pte"), ACCESS_FAILED),
        (dir.path().to_owned(), ACCESS_FAILED),
        (write("empty.pte", b""), INVALID_PROGRAM),
        (write("text.pte", b"this is no program, only a text of some length\n"), INVALID_PROGRAM),
        (write("garbage.pte", &[0xa5; 4096]), INVALID_PROGRAM),
    ] {
        let run = qnn_llama_runner([OsString::from("--model_path"), path.clone().into()]);
        assert_fails(&run, code, path.file_name().unwrap().to_str().unwrap());
        assert!(run.output.is_none_or(|text| text.is_empty()));
    }
}

#[test]
fn a_run_that_fails_to_load_leaves_the_old_output_alone() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("outputs.txt");
    std::fs::write(&output, "yesterday's answer").unwrap();
    let run =
        qnn_llama_runner([OsString::from("--output_path"), output.clone().into(), "--model_path=missing.pte".into()]);
    assert!(run.failed_cleanly());
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "yesterday's answer");
}

#[test]
fn stray_arguments_are_named() {
    let run = qnn_llama_runner(["--model_path=missing.pte", "stray", "--shared_buffer", "true"]);
    assert!(run.stderr.contains("ignored, for they belong to no flag: stray true"), "{}", run.stderr);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn tokenizer_paths_that_are_no_tokenizer() {
    let program = common::model("portable/portable_s260k_fp32_kv.pte");
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing.bin"), dir.path().to_owned()] {
        let run = qnn_llama_runner([
            OsString::from("--model_path"),
            program.clone().into(),
            "--tokenizer_path".into(),
            path.clone().into(),
        ]);
        assert_fails(&run, ACCESS_FAILED, path.file_name().unwrap().to_str().unwrap());
    }
}
