//! Runs `qnn_llama_runner` in a directory of its own and collects everything that it leaves behind.
#![allow(dead_code)] // Each test program uses its own part.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// What a run left behind.
pub struct Run {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained.
    pub stderr: String,
    /// The output file; `None` when it was not made.
    pub output: Option<Vec<u8>>,
    /// The performance file.
    pub speed: Option<String>,
    /// The trace, a JSON object a token.
    pub trace: Vec<Value>,
    dir: TempDir,
}

impl Run {
    /// The directory it ran in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sampled tokens, turn by turn.
    pub fn tokens(&self) -> Vec<Vec<u64>> {
        let mut turns: Vec<Vec<u64>> = Vec::new();
        for line in &self.trace {
            let turn = line["turn"].as_u64().expect("a turn") as usize;
            turns.resize(turns.len().max(turn + 1), Vec::new());
            turns[turn].push(line["token"].as_u64().expect("a token"));
        }
        turns
    }

    /// The error lines on stderr.
    pub fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("qnn_llama_runner: error: ")).collect()
    }

    /// Whether it failed as it should: a code of its own (no signal, no panic, no abort) and one line that says why.
    pub fn failed_cleanly(&self) -> bool {
        self.code.is_some_and(|code| (1..101).contains(&code)) && self.errors().len() == 1
    }
}

/// Runs the program with `args`; its files go into a fresh directory unless `args` say otherwise.
pub fn qnn_llama_runner<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [output, speed, trace] =
        ["outputs.txt", "inference_speed.txt", "trace.jsonl"].map(|name| dir.path().join(name));
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_qnn_llama_runner"))
        .current_dir(dir.path())
        .arg("--trace_path")
        .arg(&trace)
        .args(args)
        .output()
        .expect("the program starts");
    let trace = std::fs::read_to_string(&trace).unwrap_or_default();
    Run {
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        output: std::fs::read(output).ok(),
        speed: std::fs::read_to_string(speed).ok(),
        trace: trace.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect(),
        dir,
    }
}
