//! What a caller of the runner, or a program given to it, can get wrong.

use super::config::EvalMode;
use crate::error::{Error, Status};
use crate::tokenizer::TokenId;

/// One variant for each way to be wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum RunnerError {
    #[error("eval_mode {} ({}) needs method {needs}; the file has: {present}{hint}", *.mode as i32, .mode.name())]
    MethodMissing { mode: EvalMode, needs: &'static str, present: String, hint: &'static str },
    #[error(
        "the file has no language model's method (forward, prefill, kv_forward, prefill_forward); it has: {present}"
    )]
    NoMethod { present: String },
    #[error("the file has no method {asked}; it has: {present}{hint}")]
    NoSuchMethod { asked: String, present: String, hint: &'static str },
    #[error("a method_name is for forward(tokens, input_pos) programs, an eval_mode for static ones: give one of them")]
    MethodAndMode,
    #[error(
        "{signature} is a step of a static llama program, with its mask, keys and values among the inputs: an eval_mode \
         runs it, not a method_name"
    )]
    StaticMethod { signature: String },
    #[error(
        "{signature} is of a forward(tokens, input_pos) program, which keeps its keys and values to itself: it runs \
         without an eval_mode, not in {} ({})", *.mode as i32, .mode.name()
    )]
    TextMethod { signature: String, mode: EvalMode },
    #[error("the program states {stated} as {name}")]
    StatedLength { name: &'static str, stated: i64 },
    #[error("the program states no length of its context (get_max_context_len or get_max_seq_len)")]
    NoContextLength,
    #[error(
        "method {method} reads exactly {tokens} tokens in each call, has no cache and gives the logits of the last one \
         alone: a context of another length has none"
    )]
    WholeContextRow { method: String, tokens: usize },
    #[error("method {method} takes exactly {tokens} tokens a call, and no method takes one: nothing can decode")]
    NoSingleToken { method: String, tokens: usize },
    #[error("the context holds {have} tokens and this adds {need}: at most {limit} fit (context length or seq_len)")]
    ContextExceeded { have: usize, need: usize, limit: usize },
    #[error("this program takes a prompt only at position 0, the context is at {position}: reset it first")]
    OnlyAtStart { position: usize },
    #[error("the prompt is empty, and there are no logits of earlier tokens from which the turn could go on")]
    EmptyPrompt,
    #[error("token {index} of the input is {token}, the vocabulary has {vocab} tokens")]
    TokenOutsideVocabulary { index: usize, token: TokenId, vocab: usize },
    #[error("forced token {index} is {token}, the vocabulary has {vocab} tokens")]
    ForcedOutsideVocabulary { index: usize, token: TokenId, vocab: usize },
    #[error("end token {token} is outside the vocabulary of {vocab}")]
    ExtraEosOutsideVocabulary { token: TokenId, vocab: usize },
    #[error("temperature {0} is neither 0 nor a positive number")]
    Temperature(f32),
    #[error("top_p {0} is not above 0 and at most 1")]
    TopP(f32),
    #[error("the logits are no numbers (NaN): damaged weights, or a computation beyond the range of its type")]
    NanLogits,
    #[error("max_new_tokens 0 leaves nothing to generate")]
    NothingToGenerate,
    #[error(
        "temperature above 0 needs the scale of the logits, and the program has neither get_logits_scale nor a \
         delegate that knows it"
    )]
    NoLogitsScale,
    #[error("a failed turn left the context invalid: reset it first")]
    Poisoned,
    #[error("no logits are there: nothing was fed by itself since the last turn, reset, rewind or restore")]
    NoLogits,
    #[error("this program only reads whole prompts: nothing continues a context token by token")]
    NothingContinues,
    #[error("the context holds {have} tokens, it cannot go back to {asked}")]
    RewindBeyond { have: usize, asked: usize },
    #[error("the prompt was cancelled; the context is as it was")]
    Cancelled,
    #[error("loading was called off")]
    LoadCancelled,
    #[error("decoder_model_version {name:?} is none of {known}")]
    UnknownFamily { name: String, known: String },
    #[error("eval_mode 2 (lookahead) needs ngram, window and gcap")]
    LookaheadUnset,
    #[error("eval_mode 2 (lookahead) needs a decode method that reads a cache")]
    LookaheadNeedsCache,
    #[error("lookahead needs ngram >= 2, window >= 1 and gcap >= 1, not {ngram}, {window} and {gcap}")]
    LookaheadSizes { ngram: usize, window: usize, gcap: usize },
    #[error("lookahead feeds (window + gcap) * (ngram - 1) = {rows} tokens a step, the decode method takes {ar}")]
    LookaheadRows { rows: usize, ar: usize },
    #[error("the buffers of this program need more memory than can be addressed")]
    TooLarge,
}

impl From<RunnerError> for Error {
    fn from(error: RunnerError) -> Self {
        use RunnerError::*;
        let status = match error {
            MethodMissing { .. } | NoMethod { .. } | NoSuchMethod { .. } => Status::NotFound,
            StatedLength { .. } | NoContextLength | NanLogits => Status::InvalidProgram,
            ContextExceeded { .. } => Status::ContextExceeded,
            OnlyAtStart { .. } | Poisoned | NoLogits => Status::InvalidState,
            Cancelled | LoadCancelled => Status::Cancelled,
            NoLogitsScale
            | NothingContinues
            | LookaheadNeedsCache
            | StaticMethod { .. }
            | TextMethod { .. }
            | WholeContextRow { .. }
            | NoSingleToken { .. } => Status::NotSupported,
            TooLarge => Status::MemoryAllocationFailed,
            EmptyPrompt
            | MethodAndMode
            | TokenOutsideVocabulary { .. }
            | ForcedOutsideVocabulary { .. }
            | Temperature(_)
            | TopP(_)
            | NothingToGenerate
            | ExtraEosOutsideVocabulary { .. }
            | RewindBeyond { .. }
            | UnknownFamily { .. }
            | LookaheadUnset
            | LookaheadSizes { .. }
            | LookaheadRows { .. } => Status::InvalidArgument,
        };
        Error::from_source(status, error)
    }
}
