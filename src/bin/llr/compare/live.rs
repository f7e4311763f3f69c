//! A side that runs: the child process, as the comparison sees it.

use super::side::Values;
use super::wire::{End, Hello, Reply, Request};
use llama_runner::tokenizer::TokenId;
use llama_runner::{Error, Result, Status};
use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What receives the tokens of a turn with their rows.
pub type OnStep<'a> = dyn FnMut(TokenId, u64, Vec<f32>) -> Result<()> + 'a;

/// A child that has one runner.
#[derive(Debug)]
pub struct Live {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Live {
    /// Starts the child; it begins to load at once.
    pub fn start(values: &Values, family: &str) -> Result<Self> {
        let fail = |error: std::io::Error| Error::new(Status::AccessFailed, format!("starting a process: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(fail)?);
        command.arg(super::WORKER).args(values.to_arguments()).arg(format!("--decoder_model_version={family}"));
        if let Some(kernels) = values.0.get("kernels") {
            command.env(llama_runner::base::env::KERNELS, kernels);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fail)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(replies)) => Ok(Self { child, requests, replies: BufReader::new(replies) }),
            _ => Err(Error::new(Status::Internal, "a child without pipes")),
        }
    }

    /// What it is, when it is loaded.
    pub fn hello(&mut self) -> Result<Hello> {
        match self.reply()? {
            Reply::Hello(hello) => Ok(hello),
            other => Err(out_of_turn(&other)),
        }
    }

    /// Runs a turn.
    pub fn run(&mut self, request: &Request, on_step: &mut OnStep<'_>) -> Result<End> {
        // A child that is gone shows in what it answers.
        let _ = request.write(&mut self.requests);
        loop {
            match self.reply()? {
                Reply::Step { token, hash, row } => on_step(token, hash, row)?,
                Reply::End(end) => return Ok(end),
                other => return Err(out_of_turn(&other)),
            }
        }
    }

    fn reply(&mut self) -> Result<Reply> {
        match Reply::read(&mut self.replies)? {
            Some(Reply::Failed(why)) => Err(Error::new(Status::Internal, why)),
            Some(reply) => Ok(reply),
            None => {
                let how = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(Error::new(Status::Internal, format!("its process ended: {how}")))
            }
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // It holds nothing that a kill could spoil, and may be in the middle of a turn that nobody waits for any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn out_of_turn(reply: &Reply) -> Error {
    let name = match reply {
        Reply::Hello(_) => "hello",
        Reply::Step { .. } => "a step",
        Reply::End(_) => "an end",
        Reply::Failed(_) => "a failure",
    };
    Error::new(Status::Internal, format!("it said {name} out of turn"))
}
