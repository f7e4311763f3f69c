//! Five thousand damaged inputs – programs, contents of context binaries, compile specs, tokenizers, tokenized prompts –
//! each on the way a user's file takes: none may crash, panic, hang for ten seconds or take 512 MiB.
//!
//! A batch runs in a process of its own, this program started again, whose memory the kernel limits and whose silence
//! ends it; so whatever happens is reported with the number that makes the input again:
//! `target/debug/deps/mutations-… --worker programs 17 1`.

#[path = "../common/mod.rs"]
mod common;

mod damage;
mod programs;
mod simulator;
mod subjects;
mod tokenized_prompts;
mod tokenizers;
mod worker;

use libtest_mimic::{Arguments, Trial};

/// One kind of input.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// How many inputs are made.
    count: u64,
    /// Whether Qualcomm's library and real programs are needed.
    needs_simulator: bool,
    /// Makes what all inputs have in common, then input after input. Says of each whether it was taken as good.
    open: fn() -> Box<dyn FnMut(u64) -> bool>,
}

const KINDS: [Kind; 6] = [
    Kind { name: "programs", count: 2400, needs_simulator: false, open: programs::files },
    Kind { name: "context_contents", count: 500, needs_simulator: false, open: programs::contents },
    Kind { name: "compile_specs", count: 600, needs_simulator: false, open: programs::compile_specs },
    Kind { name: "tokenizers", count: 1000, needs_simulator: false, open: tokenizers::open },
    Kind { name: "tokenized_prompts", count: 500, needs_simulator: false, open: tokenized_prompts::open },
    Kind { name: "simulator", count: 24, needs_simulator: true, open: simulator::open },
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, name, first, count] = &args[..]
        && flag == "--worker"
    {
        let kind = KINDS.iter().find(|kind| kind.name == name).expect("a kind of input");
        let (first, count): (u64, u64) = (first.parse().expect("a number"), count.parse().expect("a number"));
        return worker::run(kind, first..first + count);
    }
    let have_simulator = cfg!(have_shared) && cfg!(have_qnn);
    let trial = |kind: Kind| {
        let ignored = kind.needs_simulator && !have_simulator;
        Trial::test(kind.name, move || worker::supervise(&kind)).with_ignored_flag(ignored)
    };
    libtest_mimic::run(&Arguments::from_args(), KINDS.map(trial).into()).exit();
}
