//! `llr inspect`: what is in a program, for people and, with `--json`, for scripts.

mod json;
mod report;
mod sources;
mod text;

use llama_runner::{Error, Result, Status};
use report::Report;
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
    let program = sources::program(&arguments.file)?;
    let report =
        Report::new(&arguments.file, &program, &|delegate| sources::qnn(delegate, arguments.qnn_lib_dir.as_deref()));
    let text = if arguments.json { format!("{:#}\n", json::value(&report)) } else { text::render(&report) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A pager that was left early has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
