//! `llr inspect`: what is in a program, for people and, with `--json`, for scripts.

use llama_runner::builtin::inspect::{self, Report};
use llama_runner::pte::Program;
use llama_runner::{Error, Result, Status};
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `llr inspect`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The program (.pte).
    file: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Where libQnnSystem.so is, which knows the graphs of QNN delegates; searched first.
    #[arg(long, value_name = "DIR")]
    qnn_lib_dir: Option<PathBuf>,
}

/// Reads the program and prints its report on stdout.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = Program::open(&arguments.file)?;
    let qnn_lib_dir = arguments.qnn_lib_dir.as_deref();
    let report = Report::new(&arguments.file, &program, &|delegate| inspect::qnn(delegate, qnn_lib_dir));
    let text = if arguments.json { format!("{:#}\n", inspect::json(&report)) } else { inspect::text(&report) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A pager that was left early has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
