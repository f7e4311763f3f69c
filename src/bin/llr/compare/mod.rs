//! `llr compare`: the same prompts through two sides – programs, modes, execution ways, SDKs, backends, recorded runs –
//! token by token, down to the logits of the first difference.

mod arguments;
mod comparison;
mod json;
mod live;
mod logits;
mod prompts;
mod recording;
mod report;
mod run;
pub mod side;
mod source;
mod text;
mod wire;
pub mod worker;

pub use arguments::Arguments;

use crate::output;
use llama_runner::{Error, Result, Status};
use std::io::Write;
use std::path::Path;

/// The hidden command that the child process of a side is.
pub const WORKER: &str = "compare_side";

/// The exit code of sides that diverge.
const DIVERGED: u8 = 1;

/// The exit code when nothing can be said.
pub const FAILED: u8 = 2;

/// Compares, prints, and gives the exit code.
pub fn run(arguments: &Arguments) -> Result<u8> {
    arguments.check()?;
    output::refuse_inputs(arguments.inputs(), arguments.json.as_deref())?;
    let report = run::run(arguments, &mut |text| print(text))?;
    print(&text::summary(&report))?;
    if let Some(path) = &arguments.json {
        write(path, &format!("{:#}\n", json::value(&report)))?;
    }
    Ok(if report.totals().diverged > 0 { DIVERGED } else { 0 })
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A pager that was left early has seen enough; the exit code still counts.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::new(Status::AccessFailed, format!("cannot write {}: {error}", path.display())))
}
