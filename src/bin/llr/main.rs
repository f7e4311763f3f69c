//! `llr`: makes the programs that the runners run, looks into them, compares their runs and measures them.
#![deny(unsafe_code)]

mod bench;
mod compare;
#[path = "../shared/exit.rs"]
mod exit;
mod export;
mod inspect;
mod perplexity;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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

/// The command line, each flag of which may be written with `_` or with `-`.
fn command() -> clap::Command {
    let both = |arg: clap::Arg| {
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
}
