//! A process that answers requests, ours or another's. Both speak one protocol of lines, so both are measured alike.
//!
//! A request is `new⇥ids⇥text`: how many tokens to generate, the prompt as numbers separated by spaces, the same prompt
//! as text. The context is empty before each. The answer is one JSON object.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a process is asked to do.
pub struct Request {
    pub new: usize,
    pub ids: Vec<u64>,
    pub text: String,
}

/// What it did.
pub struct Answer {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens that were made, the first at the end of the prefill.
    pub tokens: usize,
    /// Seconds to the first token: by the clock, of the processor.
    pub prefill: [f64; 2],
    /// Seconds from there to the last.
    pub decode: [f64; 2],
    /// Most bytes the process has had in memory.
    pub peak: u64,
}

impl Answer {
    fn parse(line: &str) -> Option<Self> {
        let fields: Value = serde_json::from_str(line).ok()?;
        let count = |name: &str| fields[name].as_u64();
        let seconds = |name: &str| Some([fields[name][0].as_f64()?, fields[name][1].as_f64()?]);
        Some(Self {
            prompt: count("prompt")? as usize,
            tokens: count("tokens")? as usize,
            prefill: seconds("prefill")?,
            decode: seconds("decode")?,
            peak: count("peak")?,
        })
    }
}

/// A running process, and its latest peak.
pub struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub peak: u64,
}

impl Peer {
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, input, output: BufReader::new(output), peak: 0 }
    }

    pub fn ask(&mut self, request: &Request) -> Answer {
        let ids = request.ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        writeln!(self.input, "{}\t{ids}\t{}", request.new, request.text).expect("the process reads");
        let mut line = String::new();
        // Libraries of a peer may print; an answer begins with a brace.
        while !line.starts_with('{') {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).expect("the process answers"), 0, "the process has ended");
        }
        let answer = Answer::parse(&line).unwrap_or_else(|| panic!("not an answer: {line}"));
        assert_eq!(answer.prompt, request.ids.len(), "the peer's prompt has another length");
        self.peak = answer.peak;
        answer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Whatever it is doing, nobody waits for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
