//! `llr`: the tool for looking into the programs that the runners run.
#![deny(unsafe_code)]

#[path = "../shared/exit.rs"]
mod exit;
mod inspect;

use clap::{Parser, Subcommand};
use llama_runner::Result;
use std::io::Write;
use std::process::ExitCode;

/// Looks into ExecuTorch language-model programs.
#[derive(Debug, Parser)]
#[command(name = "llr", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows a program: methods, inputs and outputs, constants, operators, delegates, segments.
    Inspect(inspect::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            // Help and version go to stdout, complaints to stderr; a closed stream is no further reason to fail.
            let _ = message.print();
            return if message.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let result: Result<()> = match cli.command {
        Command::Inspect(arguments) => inspect::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::stderr().write_all(format!("llr: error: {}\n", error.chain()).as_bytes());
            ExitCode::from(exit::code(error.status()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
