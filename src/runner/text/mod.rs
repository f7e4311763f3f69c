//! Programs of the `forward(tokens, input_pos)` kind, which keep their keys and values to themselves: the runner hands
//! tokens over and reads logits. In upstream's parts: TextDecoderRunner, TextPrefiller, TextTokenGenerator.

mod decoder_runner;
mod metadata;
mod model;
mod prefiller;
mod signature;
mod token_generator;

pub(crate) use model::{TextModel, has_method};
pub(crate) use prefiller::{feed_prompt, prefill};
pub(crate) use signature::{describe, is_text, vocab};
pub(crate) use token_generator::generate;
