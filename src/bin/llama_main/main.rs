//! `llama_main`: upstream's program of that name, flag for flag, on this library.
//!
//! It runs programs of the `forward(tokens, input_pos)` kind on the CPU. On stdout are the prompt, the answer piece by
//! piece, an end of line (and one more after an end token), and the `PyTorchObserver` line; on stderr the report. It exits
//! with 0, or with 1 on any error, a command line that is not understood included. What it does otherwise, on purpose:
//!
//! * Nothing is on stdout before the first token is there, so that what fails before leaves no half answer. A temperature
//!   outside 0 to 1, `--max_new_tokens 0` and a `--seq_len` that the prompt fills are errors, as upstream, but found
//!   before anything is printed; a temperature that is no number is one too.
//! * `--num_bos` and `--num_eos` mean what they say; upstream keeps the lowest eight bits (300 becomes 44).
//! * Pieces are written byte for byte; upstream drops tokens of a single unprintable byte.
//! * An end token that the prompt's last row already makes ends the answer; upstream goes on.
//! * `--warmup` runs what is asked for, with its temperature and special tokens; upstream's warm-up has its own.
//! * `--method_name` must be a method of the file, save that `forward` stands for `prefill` where the file has that
//!   instead. Where it also has `decode`, that method makes every token but the first, as upstream.
//! * `--cpu_threads` below -1 is an error; upstream asks for billions of threads.
//! * `--etdump_path`, when given, gets a profile as a Chrome trace (`profile.rs`), not an ETDump.
//! * Rates of a time below the clock's millisecond are left out of the observer line and 0 in the report; upstream prints
//!   `inf` and `nan`. `aggregate_model_execution_time_ms` is measured; upstream says 0.
//! * A failure is one line on stderr, `llama_main: error: …`.
//! * Flags of our own: `--seed`, `--trace_path`, `--module`, `--module_library`,
//!   `--log_level`.
#![deny(unsafe_code)]

// What `allow` is for: of a shared file each program uses its own part.
#[allow(dead_code)]
#[path = "../shared/gflags.rs"]
mod gflags;
#[path = "../shared/log_line.rs"]
mod log_line;
#[allow(dead_code)]
#[path = "../shared/output.rs"]
mod output;
#[allow(dead_code)]
#[path = "../shared/report.rs"]
mod report;
#[path = "../shared/trace.rs"]
mod trace;

mod answer;
mod profile;
mod settings;

use llama_runner::base::log::Level;
use settings::{FLAGS, Settings};
use std::io::Write;
use std::process::ExitCode;

/// The program's name in its messages.
const PROGRAM: &str = "llama_main";

fn main() -> ExitCode {
    let parsed = match gflags::parse(FLAGS, std::env::args_os().skip(1)) {
        Ok(parsed) => parsed,
        Err(error) => return fail(&error.to_string()),
    };
    if parsed.version {
        // As for the help: a reader that closes the pipe has seen enough.
        let _ = std::io::stdout().write_all(gflags::version(PROGRAM).as_bytes());
        return ExitCode::SUCCESS;
    }
    if parsed.help {
        let about = "Runs a forward(tokens, input_pos) llama program (.pte) on a prompt.";
        let help = gflags::Help { about, program: PROGRAM, flags: FLAGS }.to_string();
        // A reader that closes the pipe has seen enough.
        let _ = std::io::stdout().write_all(help.as_bytes());
        return ExitCode::SUCCESS;
    }
    let result = Settings::new(&parsed).and_then(|settings| {
        log_line::install(PROGRAM, settings.log_level);
        if !parsed.positional.is_empty() {
            warn(&format!("ignored, for they belong to no flag: {}", parsed.positional.join(" ")));
        }
        answer::run(&settings)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.chain()),
    }
}

/// A warning of the program itself; never silenced, for the user's own command line is at fault.
fn warn(text: &str) {
    log_line::write(Level::Warning, PROGRAM, text);
}

fn fail(message: &str) -> ExitCode {
    let line = format!("{PROGRAM}: error: {}\n", message.replace('\n', " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
    ExitCode::FAILURE
}
