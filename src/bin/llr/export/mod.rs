//! `llr export`: from a checkpoint to a `.pte`, and its first run.

mod arguments;
mod bars;
mod trial;

pub use arguments::Arguments;

use crate::output;
use bars::Bars;
use llama_runner::export::options::{Options, OptionsError};
use llama_runner::export::report::Report;
use llama_runner::runner::Family;
use llama_runner::{Error, Result, Status, export};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use trial::Answer;

/// Exports, writes the report, runs the program: as far as the arguments ask for each.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.pre_gen_pte.is_some() {
        let answers = answers(arguments, None)?;
        return finish(arguments, None, answers);
    }
    let options = arguments.options()?;
    if arguments.print_passes {
        return print(&(export::passes(&options)?.join("\n") + "\n"));
    }
    check_later_steps(arguments)?;
    let report = export(arguments, &options)?;
    if let Some(path) = &arguments.report {
        std::fs::write(path, report.to_html())
            .map_err(|error| Error::new(Status::AccessFailed, format!("cannot write {}: {error}", path.display())))?;
    }
    if !arguments.json && !arguments.quiet {
        print(&summary(&report))?;
    }
    let answers = match report.output.is_some() && !arguments.compile_only {
        true => answers(arguments, report.tokenizer.as_ref())?,
        false => Vec::new(),
    };
    finish(arguments, Some(&report), answers)
}

/// What comes after an export, which may take long, fails before it where it can.
fn check_later_steps(arguments: &Arguments) -> Result<()> {
    if !arguments.compile_only && arguments.prompts().iter().any(String::is_empty) {
        return Err(OptionsError::EmptyPrompt.into());
    }
    if !arguments.compile_only {
        Family::from_name(arguments.family())?;
    }
    if let Some(report) = arguments.report.as_deref() {
        let same = |path: &Path| std::path::absolute(path).ok();
        if report.is_dir() || same(report) == same(&arguments.program()) {
            let message = format!(
                "the report {} is {}",
                report.display(),
                if report.is_dir() { "a folder" } else { "the program" }
            );
            return Err(Error::new(Status::InvalidArgument, message));
        }
        output::refuse_inputs(arguments.inputs(), [report])?;
    }
    let folder = arguments.report.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            let message = format!("the report's folder {} is not there", folder.display());
            Err(Error::new(Status::AccessFailed, message))
        }
        _ => Ok(()),
    }
}

fn export(arguments: &Arguments, options: &Options) -> Result<Report> {
    // With --json stdout is for the one object alone.
    let graphs: Box<dyn Write> = if arguments.json { Box::new(std::io::stderr()) } else { Box::new(std::io::stdout()) };
    export::run(options, &mut Bars::new(arguments.quiet || arguments.json, graphs))
}

/// The run: its text goes to stdout as it is made, unless one object is to be there.
fn answers(arguments: &Arguments, found: Option<&PathBuf>) -> Result<Vec<Answer>> {
    let program = arguments.program();
    let near = program.parent().unwrap_or(Path::new("")).join("tokenizer.json");
    let tokenizer = arguments.run_tokenizer().or(found).unwrap_or(&near);
    match arguments.json {
        true => trial::run(arguments, tokenizer, &mut std::io::sink()),
        false => trial::run(arguments, tokenizer, &mut std::io::stdout().lock()),
    }
}

fn finish(arguments: &Arguments, report: Option<&Report>, answers: Vec<Answer>) -> Result<()> {
    if !arguments.json {
        return Ok(());
    }
    let mut value = report.map_or_else(|| json!({}), Report::to_json);
    let answers = answers
        .into_iter()
        .map(|Answer { prompt, text, tokens }| json!({ "prompt": prompt, "text": text, "tokens": tokens }));
    value["answers"] = Value::Array(answers.collect());
    print(&format!("{value:#}\n"))
}

/// The report in a few lines.
fn summary(report: &Report) -> String {
    let mut text = String::new();
    let seconds = report.elapsed().as_secs_f64();
    if let Some(output) = &report.output {
        let megabytes = output.bytes as f64 / 1e6;
        let _ = write!(text, "{}: {megabytes:.2} MB in {seconds:.2} s", output.path.display());
        if let Some(peak) = report.peak_memory {
            let _ = write!(text, ", at most {:.0} MB of memory", peak as f64 / 1e6);
        }
        text.push('\n');
    }
    if let Some(found) = report.perplexity {
        let (tokens, float, quantized) = (found.tokens, found.float, found.quantized);
        let _ = writeln!(text, "perplexity over {tokens} tokens: float {float:.2}, quantized {quantized:.2}");
    }
    if let Some(worst) = report.layers.iter().min_by(|a, b| a.sqnr_db.total_cmp(&b.sqnr_db)) {
        let _ = writeln!(text, "noisiest layer: {}, {:.1} dB", worst.name, worst.sqnr_db);
    }
    text
}

fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A pager that was left early has seen enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Status::AccessFailed, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
