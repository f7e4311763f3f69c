//! The model that runs when none is named, so that a bare checkout has something to say: a small story teller, trained
//! for this project, exported by this crate (`assets/README.md`) and part of the library, which so needs no file.

use crate::base::storage::Storage;
use std::sync::Arc;

/// What messages call it.
pub const NAME: &str = "the model that is built in (assets/story.pte)";

/// Its tokenizer, a `tokenizer.json`.
pub const TOKENIZER: &[u8] = include_bytes!("../../assets/tokenizer.json");

const PROGRAM: &[u8] = include_bytes!("../../assets/story.pte");

/// Its program: `forward(tokens, input_pos)`.
pub fn program() -> Arc<Storage> {
    Arc::new(Storage::Owned(PROGRAM.to_vec()))
}
