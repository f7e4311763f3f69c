//! `qnn_llama_runner`: upstream's program of that name, flag for flag, on this library.
//!
//! It takes the flags of both upstream revisions it mirrors (PR 10578 and the newer per-layer-cache one), writes the same
//! files, and prints the same lines on stdout and stderr. What it does otherwise, on purpose:
//!
//! * `--prompt=x`, `-prompt x` and `-prompt=x` count as prompts; upstream sees only the exact word `--prompt`.
//! * Without `--prompt` the documented default prompt is used; upstream loads the model and generates nothing.
//! * Without `--eval_mode` the mode follows the program: hybrid when it has `prefill_forward`, else kv.
//! * `--eval_mode` other than 0, 1, 2, a missing n-gram size, `--num_iters` below 1 and a temperature that is negative
//!   or no number are errors.
//! * `--kv_updater` is accepted for every program and defaults to `SmartMask` (PR 10578 has default and help swapped).
//! * The output file is written and flushed token by token, so that a failing turn leaves all text made so far; it is
//!   emptied only after the model is loaded. A path that cannot be written is an error before anything is loaded.
//! * `--tokenized_prompt`: the output file begins with the text of the tokens, a leading beginning-of-sequence token left
//!   out, where upstream writes the file's name; a size that is no multiple of 8 and ids outside the vocabulary are
//!   errors; `--num_iters` counts for it too.
//! * `--dump_logits_path` is written row by row in the order of the context: prompt rows, then answer rows, turn by turn.
//!   One turn gives upstream's file; with several, upstream puts the prompt rows of all turns first.
//! * Rates of a time below the clock's millisecond are left out of the observer line, 0 in the report, and computed for
//!   one millisecond in the performance file; upstream prints `inf` and `nan`.
//! * `aggregate_model_execution_time_ms` is measured; upstream always says 0.
//! * Lookahead ends at `--seq_len` exactly; upstream takes all of a verified n-gram, even beyond it.
//! * Temperature samples from dequantized logits with `--seed`; upstream's raw codes make every temperature greedy.
//! * Arguments that belong to no flag are named in a warning; upstream ignores them.
//! * A failure is one line on stderr, `qnn_llama_runner: error: …`, and an exit code that says its family (`exit.rs`).
//! * Flags of our own: `--max_decode_steps`, `--seed`, `--trace_path`, `--qnn_lib_dir`, `--module`, `--module_library`,
//!   `--log_level`.
#![deny(unsafe_code)]

#[path = "../shared/exit.rs"]
mod exit;
#[path = "../shared/gflags.rs"]
mod gflags;
#[path = "../shared/log_line.rs"]
mod log_line;
#[path = "../shared/output.rs"]
mod output;
#[path = "../shared/report.rs"]
mod report;
#[path = "../shared/trace.rs"]
mod trace;

mod prompts;
mod settings;
mod turns;

use llama_runner::base::log::Level;
use settings::{FLAGS, Settings};
use std::io::Write;
use std::process::ExitCode;

/// The program's name in its messages.
const PROGRAM: &str = "qnn_llama_runner";

fn main() -> ExitCode {
    let parsed = match gflags::parse(FLAGS, std::env::args_os().skip(1)) {
        Ok(parsed) => parsed,
        Err(error) => return fail(&error.to_string(), exit::USAGE),
    };
    if parsed.version {
        // As for the help: a reader that closes the pipe has seen enough.
        let _ = std::io::stdout().write_all(gflags::version(PROGRAM).as_bytes());
        return ExitCode::SUCCESS;
    }
    if parsed.help {
        let about = "Runs a Qualcomm (QNN) llama program (.pte) on one or more prompts.";
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
        turns::run(&settings)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.chain(), exit::code(error.status())),
    }
}

/// A warning of the program itself; never silenced, for the user's own command line is at fault.
fn warn(text: &str) {
    log_line::write(Level::Warning, PROGRAM, text);
}

fn fail(message: &str, code: u8) -> ExitCode {
    let line = format!("{PROGRAM}: error: {}\n", message.replace('\n', " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
    ExitCode::from(code)
}
