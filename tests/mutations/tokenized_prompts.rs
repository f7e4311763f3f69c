//! Damaged files of token ids, on a runner and through the program that reads them.

use crate::common;
use crate::damage::{Rng, damage};
use crate::programs::{on_fake, open as open_program, scratch};
use crate::subjects::Subjects;
use crate::worker::{assert_clean, run_program};
use llama_runner::runner::{GenerationConfig, Prompt, Runner, RunnerError, RunnerOptions};
use llama_runner::tokenizer::{Specials, TokenId, Tokenizer};
use llama_runner::{Error, Result, Status};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// How often a file also goes through `qnn_llama_runner`.
const PROGRAM_EVERY: u64 = 5;

pub fn open() -> Box<dyn FnMut(u64) -> bool> {
    let (subjects, dir) = (Subjects::load(), scratch());
    Box::new(move |seed| {
        let mut rng = Rng::new(seed ^ 0x1d5);
        let ids = (0..rng.below(24)).map(|_| rng.below(40) as TokenId);
        let mut bytes: Vec<u8> = ids.collect::<Vec<_>>().into_iter().flat_map(TokenId::to_le_bytes).collect();
        let whole = 0..bytes.len();
        damage(&mut rng, &mut bytes, whole);
        let subject = subjects.of_qnn(seed);
        let model = dir.path().join("sound.pte");
        std::fs::write(&model, &subject.bytes[..]).expect("a temporary file");
        if seed.is_multiple_of(PROGRAM_EVERY) {
            program(dir.path(), &bytes);
        }
        let ids: Vec<TokenId> = bytes.as_chunks().0.iter().map(|&id| TokenId::from_le_bytes(id)).collect();
        on_fake(&mut rng, &subject.contents, |_, fake| {
            let mut runner =
                Runner::load(Box::new(open_program(&model, fake)?), Arc::new(Numbers), RunnerOptions::default())?;
            let config = GenerationConfig { max_new_tokens: Some(3), ..GenerationConfig::default() };
            let mut turn = |ids: &[TokenId]| {
                runner.generate(Prompt::Tokens(ids), &config, &mut |_| ControlFlow::Continue(())).map(drop)
            };
            let made = turn(&ids);
            if let Err(error) = &made {
                // What is wrong with the ids is said before anything is done with them.
                assert!(error.find::<RunnerError>().is_some(), "{error:?}");
                turn(&[1, 2])?;
            }
            made
        })
    })
}

/// The program reads the file before it loads a model; without QNN's library nothing comes of it later.
fn program(dir: &Path, bytes: &[u8]) {
    let ids = dir.join("ids.bin");
    std::fs::write(&ids, bytes).expect("a temporary file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_qnn_llama_runner"));
    command
        .current_dir(dir)
        .env_remove("LLR_QNN_LIB_DIR")
        .args(["--model_path=sound.pte", "--tokenized_prompt=ids.bin"]);
    if cfg!(have_shared) {
        command.arg(format!("--tokenizer_path={}", common::model("tok512.et.bin").display()));
    }
    let ended = run_program(&mut command);
    assert_clean("qnn_llama_runner", &ended);
    assert_ne!(ended.code, Some(0));
}

/// Tokens are numbers.
struct Numbers;

impl Tokenizer for Numbers {
    fn format(&self) -> &'static str {
        "numbers"
    }

    fn vocab_size(&self) -> usize {
        1 << 16
    }

    fn bos(&self) -> Option<TokenId> {
        None
    }

    fn eos(&self) -> &[TokenId] {
        &[]
    }

    fn id_of(&self, _piece: &str) -> Option<TokenId> {
        None
    }

    fn encode(&self, _text: &str, _specials: Specials) -> Result<Vec<TokenId>> {
        Err(Error::new(Status::NotSupported, "no text here"))
    }

    fn decode(&self, _previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        Ok(token.to_string().into_bytes())
    }
}
