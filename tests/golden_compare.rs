//! `cpp-harness/golden`: the C++ comparison, built once by CMake, finds equal what is equal, finds an altered token, and
//! agrees with ExecuTorch's own Module.
#![cfg(all(unix, not(target_os = "macos")))]

mod common;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo leaves the library beside the test program, or one level up.
fn library_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut dirs = program.ancestors().skip(1).take(2).map(Path::to_owned);
    dirs.find(|dir| dir.join("libllama_runner.so").is_file()).expect("libllama_runner.so")
}

#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{}\n{}", output.status, said[0], said[1]);
    output
}

/// The built program in a directory of its own.
struct Golden(TempDir);

impl Golden {
    fn build() -> Self {
        let dir = TempDir::new().unwrap();
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(root().join("cpp-harness/golden")).arg("-B").arg(dir.path());
        configure.arg(format!("-DLLR_LIB_DIR={}", library_dir().display()));
        if cfg!(have_executorch) {
            let executorch = PathBuf::from(std::env::var_os("LLR_EXECUTORCH_DIR").unwrap());
            configure.arg(format!("-DEXECUTORCH_DIR={}", executorch.display()));
        }
        succeed(&mut configure);
        succeed(Command::new("cmake").arg("--build").arg(dir.path()));
        Self(dir)
    }

    /// The exit code, what was printed, and the JSON file's first prompt.
    fn compare(&self, model: &Path, tokenizer: &Path, args: &[&str]) -> (Option<i32>, String, Value) {
        let json = self.0.path().join("found.json");
        let _ = fs::remove_file(&json);
        let mut command = Command::new(self.0.path().join("golden_compare"));
        command
            .arg("--model_path")
            .arg(model)
            .arg("--tokenizer_path")
            .arg(tokenizer)
            .arg("--json")
            .arg(&json)
            .args(args);
        // The loader looks into cargo's LD_LIBRARY_PATH first, which may name an older build.
        let output = command.env("LD_LIBRARY_PATH", library_dir()).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let json = fs::read(&json).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
        (output.status.code(), said, json["prompts"][0].clone())
    }
}

#[cfg_attr(not(have_cmake), ignore = "needs cmake")]
#[test]
fn a_recorded_run_another_program_and_executorch_are_met_and_an_altered_token_is_found() {
    let golden = Golden::build();
    let [model, tokenizer] = ["story.pte", "tokenizer.json"].map(|name| root().join("assets").join(name));
    let compare = |args: &[&str]| golden.compare(&model, &tokenizer, args);

    let trace = golden.0.path().join("trace.jsonl");
    let llama_main = env!("CARGO_BIN_EXE_llama_main");
    let flags = ["--prompt=Once upon a time", "--temperature=0", "--num_bos=1", "--max_new_tokens=12"];
    let mut record = Command::new(llama_main);
    record.arg("--model_path").arg(&model).arg("--tokenizer_path").arg(&tokenizer).args(flags);
    succeed(record.arg("--trace_path").arg(&trace));
    let recorded = format!("--recorded={}", trace.display());
    let (code, said, found) = compare(&[&recorded]);
    assert_eq!((code, &found["compared"], &found["first"]), (Some(0), &12.into(), &Value::Null), "{said}");
    assert!(said.contains("prompt 1: \"Once upon a time\"\n") && said.contains("the same 12 tokens\n"), "{said}");

    let text = fs::read_to_string(&trace).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let right = lines[4].clone();
    lines[4]["token"] = 7.into();
    let altered = golden.0.path().join("altered.jsonl");
    fs::write(&altered, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let altered = format!("--recorded={}", altered.display());
    let (code, said, found) = compare(&[&altered]);
    let first = &found["first"];
    assert_eq!((code, &first["step"], &first["a"]["token"]), (Some(1), &4.into(), &7.into()), "{said}");
    assert_eq!(first["b"]["token"], right["token"]);
    for (side, pair) in [("a", 0), ("a", 4), ("b", 0), ("b", 4)] {
        let (id, logit) = (&first[side]["top5"][pair][0], first[side]["top5"][pair][1].as_f64().unwrap());
        assert_eq!(id, &right["top5"][pair][0], "{said}");
        // Printed with nine digits.
        assert!((logit - right["top5"][pair][1].as_f64().unwrap()).abs() < 1e-5, "{said}");
    }
    // Forced, every other choice is still the recorded one.
    let (code, said, found) = compare(&[&altered, "--teacher_forced"]);
    assert_eq!((code, &found["compared"], &found["first"]["step"]), (Some(1), &12.into(), &4.into()), "{said}");

    let pattern = format!(
        "{llama_main} --model_path {{model}} --tokenizer_path {{tokenizer}} --prompt {{prompt}} --temperature 0 \
         --num_bos 1 --max_new_tokens {{max_new_tokens}} 2>&-"
    );
    let (code, said, _) = compare(&["--max_new_tokens=12", "--external", &pattern]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said, found) = compare(&["--max_new_tokens=12", "--external", "echo ', there was an end'"]);
    assert_eq!((code, &found["text_a"]), (Some(1), &", there was an end".into()), "{said}");
    assert!(found["first"]["step"].as_u64().is_some_and(|step| (1..12).contains(&step)), "{said}");

    for (args, want) in [
        (&[][..], "one reference is needed"),
        (&["--recorded=missing.jsonl"], "cannot read missing.jsonl"),
        (&["--external=false"], "the command failed"),
        (&["--external=echo {what}"], "which is none of {model}"),
    ] {
        let (code, said, _) = compare(args);
        assert!(code == Some(2) && said.contains(want), "{args:?}: {code:?} {said}");
    }
    if cfg!(all(have_executorch, have_shared)) {
        let model = common::model("xnnpack/xnn_s260k_fp32_kv.pte");
        let args = ["--executorch", "--max_new_tokens=40"];
        let (code, said, found) = golden.compare(&model, &common::model("tok512.et.bin"), &args);
        assert_eq!((code, &found["compared"]), (Some(0), &40.into()), "{said}");
    }
}
