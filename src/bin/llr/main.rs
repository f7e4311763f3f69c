//! `llr`: makes the programs that the runners run, looks into them, compares their runs and measures them.
#![deny(unsafe_code)]

mod bar;
mod bench;
mod compare;
#[path = "../shared/exit.rs"]
mod exit;
mod export;
mod inspect;
#[allow(dead_code)] // It is the runners' too.
#[path = "../shared/output.rs"]
mod output;
mod perplexity;
mod value;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use llama_runner::Result;
use std::io::Write;
use std::process::ExitCode;

/// Makes ExecuTorch language-model programs, looks into them, compares their runs and measures them.
#[derive(Debug, Parser)]
#[command(name = "llr", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
// One is made for a process.
#[allow(clippy::large_enum_variant)]
enum Command {
    /// Measures how fast a program loads, takes prompts and makes tokens.
    Bench(bench::Arguments),
    /// Runs prompts through two sides, and shows where their tokens and logits part.
    Compare(compare::Arguments),
    /// One side of a comparison.
    #[command(name = compare::WORKER, hide = true)]
    CompareSide(compare::worker::Arguments),
    /// Makes a program from a checkpoint, and runs it.
    Export(export::Arguments),
    /// Shows a program: methods, inputs and outputs, constants, operators, delegates, segments.
    Inspect(inspect::Arguments),
    /// Measures how well a program foretells a text.
    Perplexity(perplexity::Arguments),
}

fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(message) if message.kind() == ErrorKind::InvalidUtf8 => {
            let _ = std::io::stderr().write_all(format!("llr: error: {}\n", not_utf8()).as_bytes());
            return ExitCode::from(exit::USAGE);
        }
        Err(message) => {
            // Help and version go to stdout, complaints to stderr; a closed stream is no further reason to fail.
            let _ = message.print();
            return if message.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let comparing = matches!(cli.command, Command::Compare(_));
    let result: Result<u8> = match cli.command {
        Command::Bench(arguments) => bench::run(&arguments).map(|()| 0),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::CompareSide(arguments) => compare::worker::run(&arguments).map(|()| 0),
        Command::Export(arguments) => export::run(&arguments).map(|()| 0),
        Command::Inspect(arguments) => inspect::run(&arguments).map(|()| 0),
        Command::Perplexity(arguments) => perplexity::run(&arguments).map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = std::io::stderr().write_all(format!("llr: error: {}\n", error.chain()).as_bytes());
            // A script that compares must tell a failure from a difference, whatever failed.
            ExitCode::from(if comparing { compare::FAILED } else { exit::code(error.status()) })
        }
    }
}

/// Which argument is no text, and what stands before it.
fn not_utf8() -> String {
    let args: Vec<_> = std::env::args_os().collect();
    let at = args.iter().position(|arg| arg.to_str().is_none()).unwrap_or_default();
    let show = |at: usize| args.get(at).map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{:?}, behind {:?}, is not UTF-8", show(at), show(at.saturating_sub(1)))
}

/// The command line, each flag of which may be written with `_` or with `-`. What looks like a negative number is a value,
/// which the flag judges.
fn command() -> clap::Command {
    let both = |arg: clap::Arg| {
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let arg = arg.allow_negative_numbers(takes_value);
        let other = arg.get_long().map(|name| match name.contains('_') {
            true => name.replace('_', "-"),
            false => name.replace('-', "_"),
        });
        match other.filter(|other| Some(other.as_str()) != arg.get_long()) {
            Some(other) => arg.alias(other),
            None => arg,
        }
    };
    Cli::command().mut_subcommands(|command| command.mut_args(both))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_a_value_and_is_refused_with_its_flag() {
        let export = ["llr", "export", "--checkpoint=x"];
        for (line, flag, why) in [
            (&export[..], "--max_seq_len", "it is no whole number from 0 on"),
            (&export, "--group_size", "it is no whole number above 0"),
            (&export, "--temperature", "it is no number from 0 on"),
            (&["llr", "bench"], "--max_new_tokens", "-1 is not in 2..=4294967295"),
            (&["llr", "compare"], "--num-bos", "it is no whole number from 0 on"),
        ] {
            let error = command().try_get_matches_from([line, &[flag, "-1"]].concat()).unwrap_err().to_string();
            let flag = flag.replace("num-bos", "num_bos");
            assert!(error.contains(&format!("invalid value '-1' for '{flag} <")) && error.contains(why), "{error}");
        }
        let side = command().try_get_matches_from(["llr", "bench", "--cpu_threads", "-1"]);
        assert!(side.is_ok(), "judged with the other options of a side");
    }
}
