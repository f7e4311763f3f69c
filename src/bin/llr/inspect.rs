//! `llr inspect`: what is in a program, for people and, with `--json`, for scripts.

use llama_runner::builtin::inspect::{self, Qnn, Report};
use llama_runner::pte::Program;
use llama_runner::{Error, Result, Status};
use std::io::Write;
use std::path::{Path, PathBuf};

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

/// Reads the program and prints its report on stdout; what could not be looked into is said on stderr.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = Program::open(&arguments.file)?;
    let qnn_lib_dir = arguments.qnn_lib_dir.as_deref();
    let report = Report::new(&arguments.file, &program, &|delegate| inspect::qnn(delegate, qnn_lib_dir));
    let text = if arguments.json { format!("{:#}\n", inspect::json(&report)) } else { inspect::text(&report) };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A pager that was left early has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")));
        }
        _ => {}
    }
    if let Some(warning) = warning(&report, qnn_lib_dir) {
        let _ = std::io::stderr().write_all(format!("llr: warning: {warning}\n").as_bytes());
    }
    Ok(())
}

/// What the report lacks, or what of the command line had no use. Why a graph is unknown stands in the report.
fn warning(report: &Report, qnn_lib_dir: Option<&Path>) -> Option<String> {
    let qnn: Vec<&Qnn> = report.delegates.iter().filter_map(|delegate| delegate.qnn.as_ref()).collect();
    let (file, all) = (&report.file, qnn.len());
    let unknown = qnn.iter().filter(|qnn| qnn.graphs.is_err()).count();
    let lacks = format!("the graphs of {unknown} of {all} QNN delegates of {file} could not be looked into");
    match qnn_lib_dir {
        Some(_) if all == 0 => Some(format!("--qnn_lib_dir is not needed: no delegate of {file} is a QnnBackend's")),
        _ if unknown == 0 => None,
        Some(given) => Some(format!("{lacks} with --qnn_lib_dir {}: see \"graphs unknown\"", given.display())),
        None => Some(format!("{lacks}, see \"graphs unknown\"; --qnn_lib_dir DIR says where the libraries are")),
    }
}
