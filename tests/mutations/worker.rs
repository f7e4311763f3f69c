//! A batch's process and the one that watches it.

use crate::Kind;
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest that one input may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most memory of a batch, in KiB.
const MEMORY: u64 = 512 << 10;
/// Failures after which a batch is given up.
const MAX_FAILURES: usize = 10;

/// Runs the inputs `seeds`, announcing each.
pub fn run(kind: &Kind, seeds: Range<u64>) {
    let mut input = (kind.open)();
    let mut accepted = 0;
    for seed in seeds {
        say(&format!("begin {seed}"));
        accepted += u64::from(input(seed));
    }
    say(&format!("done {accepted} {}", peak_memory()));
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).expect("somebody listens");
}

/// Most memory that this process has had, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kB")
}

/// Runs every input of `kind` in processes that are started anew behind each failure.
pub fn supervise(kind: &Kind) -> Result<(), Failed> {
    let began = Instant::now();
    let (mut failures, mut accepted, mut next) = (Vec::new(), 0, 0);
    while next < kind.count && failures.len() < MAX_FAILURES {
        let batch = watch(kind, next..kind.count);
        accepted += batch.accepted;
        match batch.failure {
            None => break,
            Some(failure) => failures.push(format!("{} {}: {failure}", kind.name, batch.last)),
        }
        next = batch.last + 1;
    }
    if !failures.is_empty() {
        return Err(failures.join("\n").into());
    }
    println!("{}: {accepted} of {} taken as good, {:?}", kind.name, kind.count, began.elapsed());
    // Damage that always or never shows proves nothing.
    if accepted == 0 || accepted == kind.count {
        return Err(format!("{accepted} of {} inputs were taken as good", kind.count).into());
    }
    Ok(())
}

struct Batch {
    /// The input that was announced last.
    last: u64,
    accepted: u64,
    failure: Option<String>,
}

fn watch(kind: &Kind, seeds: Range<u64>) -> Batch {
    let mut child = start(kind, &seeds);
    let (sender, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut stderr = child.stderr.take().expect("piped");
    let complaints = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut batch = Batch { last: seeds.start, accepted: 0, failure: None };
    let mut done: Option<(u64, u64)> = None;
    // The first line waits for what all inputs have in common.
    let mut patience = 6 * PATIENCE;
    loop {
        match lines.recv_timeout(patience) {
            Ok(line) => match line.split(' ').collect::<Vec<_>>()[..] {
                ["begin", seed] => batch.last = seed.parse().expect("a number"),
                ["done", accepted, peak] => {
                    done = Some((accepted.parse().expect("a number"), peak.parse().expect("a number")));
                }
                _ => {}
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                batch.failure = Some(format!("no end within {patience:?}"));
                break;
            }
        }
        patience = PATIENCE;
    }
    let status = stop(&mut child, batch.failure.is_some());
    let complaints = complaints.join().expect("reads to the end");
    match done {
        Some((accepted, peak)) if status.success() => {
            batch.accepted = accepted;
            if peak > MEMORY {
                batch.failure = Some(format!("the batch took {peak} KiB"));
            }
        }
        _ => {
            let said = complaints.lines().rev().take(12).collect::<Vec<_>>();
            let said = said.into_iter().rev().collect::<Vec<_>>().join("\n  ");
            batch.failure.get_or_insert(format!("{status}\n  {said}"));
        }
    }
    batch
}

/// Starts this program as a worker. `ulimit -d` counts what a process may write to: heap and anonymous maps, not mapped
/// files.
fn start(kind: &Kind, seeds: &Range<u64>) -> Child {
    Command::new("sh")
        .args(["-c", &format!("ulimit -d {MEMORY} && ulimit -c 0 && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("this program's path"))
        .args(["--worker", kind.name, &seeds.start.to_string(), &(seeds.end - seeds.start).to_string()])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell")
}

fn stop(child: &mut Child, hangs: bool) -> ExitStatus {
    if hangs {
        child.kill().expect("a process of ours");
    }
    child.wait().expect("a process of ours")
}

/// How a program of ours ended.
pub struct Ended {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub stderr: String,
}

/// Runs one of this crate's programs for less than [`PATIENCE`].
pub fn run_program(command: &mut Command) -> Ended {
    let files = [0; 2].map(|_| tempfile::tempfile().expect("a temporary file"));
    let [stdout, mut stderr] = files;
    let errors = stderr.try_clone().expect("a second handle");
    let mut child = command.stdin(Stdio::null()).stdout(stdout).stderr(errors).spawn().expect("a program of ours");
    let began = Instant::now();
    let status = loop {
        match child.try_wait().expect("a process of ours") {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE.mul_f32(0.9) => {
                child.kill().expect("a process of ours");
                panic!("{command:?} does not end");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut text = Vec::new();
    std::io::Seek::rewind(&mut stderr).and_then(|()| stderr.read_to_end(&mut text)).expect("a temporary file");
    Ended { code: status.code(), stderr: String::from_utf8_lossy(&text).into_owned() }
}

/// Asserts that `program` did what was asked or said in one line why not, with a code of its own.
pub fn assert_clean(program: &str, ended: &Ended) {
    let errors = ended.stderr.lines().filter(|line| line.starts_with(&format!("{program}: error: "))).count();
    let clean = match ended.code {
        Some(0) => errors == 0,
        Some(code) => (1..101).contains(&code) && errors == 1,
        None => false,
    };
    assert!(clean, "{program} ended with {:?}: {}", ended.code, ended.stderr);
}
