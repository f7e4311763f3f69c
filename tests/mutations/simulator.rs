//! Damaged programs on Qualcomm's simulator, through `qnn_llama_runner`. Only inputs whose context binaries are whole go
//! there: the simulator itself trusts those.

use crate::common;
use crate::damage::{Rng, damage};
use crate::programs::scratch;
use crate::subjects::{Subject, Subjects};
use crate::worker::{assert_clean, run_program};
use llama_runner::pte::{Program, Storage};
use llama_runner::qnn::DelegateBlob;
use std::process::Command;
use std::sync::Arc;

pub fn open() -> Box<dyn FnMut(u64) -> bool> {
    let (subjects, dir) = (Subjects::load(), scratch());
    Box::new(move |seed| {
        let mut rng = Rng::new(seed ^ 0x51);
        // The written program has no context binary that the simulator knows.
        let subject = subjects.of_qnn(1 + seed % 18);
        let mut bytes = subject.bytes.to_vec();
        while bytes == subject.bytes[..] || !reaches_the_library(subject, &bytes) {
            bytes = subject.bytes.to_vec();
            damage(&mut rng, &mut bytes, subject.flatbuffer.clone());
        }
        let path = dir.path().join("damaged.pte");
        std::fs::write(&path, &bytes).expect("a temporary file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_qnn_llama_runner"));
        command.current_dir(dir.path()).args(["--model_path=damaged.pte", "--prompt=a", "--max_decode_steps=1"]);
        command.arg(format!("--tokenizer_path={}", common::model("tok512.et.bin").display()));
        let ended = run_program(&mut command);
        assert_clean("qnn_llama_runner", &ended);
        ended.code == Some(0)
    })
}

/// Whether `bytes` are a program all of whose context binaries are those of `subject`.
fn reaches_the_library(subject: &Subject, bytes: &[u8]) -> bool {
    let payloads = |program: &Program| -> Option<Vec<Vec<u8>>> {
        let delegates = program.plans.iter().flat_map(|plan| &plan.delegates);
        let payload = |blob: &[u8]| Some(blob[DelegateBlob::parse(blob).ok()?.payload].to_vec());
        delegates.map(|delegate| payload(&delegate.processed)).collect()
    };
    let Ok(program) = Program::from_storage(Arc::new(Storage::Owned(bytes.to_vec()))) else { return false };
    payloads(&program).is_some_and(|found| Some(found) == payloads(&subject.program))
}
