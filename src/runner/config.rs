//! What a caller chooses: once for a runner, and for each turn.

use crate::error::{Error, Result, Status};
use crate::tokenizer::TokenId;
use std::path::PathBuf;

/// Which methods do the work. The numbers are upstream's `--eval_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalMode {
    /// Prompt and answer go through the decode method (`kv_forward`, in older files `forward`).
    Kv = 0,
    /// The prompt goes through `prefill_forward` in blocks, the answer through `kv_forward`.
    Hybrid = 1,
    /// As hybrid, with a `kv_forward` of several rows that verifies guessed n-grams.
    Lookahead = 2,
}

impl EvalMode {
    /// The mode's name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Hybrid => "hybrid",
            Self::Lookahead => "lookahead",
        }
    }

    /// From upstream's number.
    pub fn from_number(number: i64) -> Result<Self> {
        match number {
            0 => Ok(Self::Kv),
            1 => Ok(Self::Hybrid),
            2 => Ok(Self::Lookahead),
            _ => Err(Error::new(
                Status::InvalidArgument,
                format!("eval_mode {number} is none of 0 (kv), 1 (hybrid), 2 (lookahead)"),
            )),
        }
    }
}

/// How new keys and values enter the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvUpdater {
    /// Copied to their place; the mask uncovers it.
    #[default]
    SmartMask,
    /// The cache tensors' start moves instead (PR 10578).
    ShiftPointer,
}

impl KvUpdater {
    /// From upstream's flag value, `SmartMask` or `ShiftPointer`.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "SmartMask" => Ok(Self::SmartMask),
            "ShiftPointer" => Ok(Self::ShiftPointer),
            _ => Err(Error::new(
                Status::InvalidArgument,
                format!("kv_updater {name:?} is neither SmartMask nor ShiftPointer"),
            )),
        }
    }
}

/// Lookahead decoding (Fu et al. 2024): its three sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookaheadConfig {
    /// Length of a guessed n-gram.
    pub ngram: usize,
    /// Lookahead branches.
    pub window: usize,
    /// N-grams verified in a step.
    pub gcap: usize,
}

/// Whether inputs, outputs and cache lie in memory shared with the DSP, so that nothing is copied to it and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SharedBuffer {
    /// They lie on the heap.
    #[default]
    Off,
    /// They do where libcdsprpc.so and QNN allow it, else they are copied, and a warning says why: upstream's
    /// `--shared_buffer`.
    Prefer,
    /// They do, or it is an error: of loading when there is no such memory, of the first step when QNN does not take a
    /// tensor in it.
    Require,
}

/// Choices for the life of a runner.
#[derive(Debug, Clone, Default)]
pub struct RunnerOptions {
    /// Of a static program. `None`: hybrid when the program has `prefill_forward`, else kv.
    pub eval_mode: Option<EvalMode>,
    /// The method of a `forward(tokens, input_pos)` program that processes prompts, and decodes where the program has no
    /// method `decode`. `Some` says that the program is of this kind, as an `eval_mode` says that it is not. `None`:
    /// `forward`, or `prefill`.
    pub method_name: Option<String>,
    /// How the cache is updated.
    pub kv_updater: KvUpdater,
    /// Upstream's `--decoder_model_version` (`llama2`, `llama3`, …): end tokens, chat template. `None`: `llama2`.
    pub decoder_model_version: Option<String>,
    /// Further tokens that end a generation.
    pub extra_eos: Vec<TokenId>,
    /// Sizes of lookahead decoding; needed by [`EvalMode::Lookahead`].
    pub lookahead: Option<LookaheadConfig>,
    /// Whether I/O buffers go into memory shared with the DSP.
    pub shared_buffer: SharedBuffer,
    /// `libcdsprpc.so`, or its directory, for shared buffers. `None`: see [`RpcMem::load`](crate::runtime::RpcMem::load).
    pub rpcmem_lib: Option<PathBuf>,
    /// When the caller began to load the program, in epoch milliseconds, for the statistics. `None`: when the runner
    /// was made.
    pub load_started_ms: Option<i64>,
}

/// Choices for one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// Length at which the turn ends, counted from the start of the context: prompt, answer and earlier turns. 0 means
    /// the model's context length; more than that is clamped to it.
    pub seq_len: usize,
    /// Most tokens to generate in this turn, the one that the prefill makes included. `None`: no limit of its own.
    pub max_new_tokens: Option<usize>,
    /// Most tokens to take from decode steps in this turn, the one that the prefill makes not included. `None`: no
    /// limit of its own.
    pub max_decode_steps: Option<usize>,
    /// 0 takes the likeliest token; above 0 samples. Negative or not finite is refused.
    pub temperature: f32,
    /// Smallest set of tokens whose probabilities reach this is sampled from; upstream fixes 0.9.
    pub top_p: f32,
    /// Seed of the sampler; the same seed gives the same tokens.
    pub seed: u64,
    /// Go on after an end-of-sequence token.
    pub ignore_eos: bool,
    /// Beginning-of-sequence tokens in front of a text prompt at position 0. Later turns get none.
    pub num_bos: usize,
    /// End-of-sequence tokens behind a text prompt.
    pub num_eos: usize,
    /// Teacher forcing: the turn's first tokens are these, whatever their rows of logits say; then it goes on by itself.
    pub forced: Vec<TokenId>,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            seq_len: 0,
            max_new_tokens: None,
            max_decode_steps: None,
            temperature: 0.0,
            top_p: 0.9,
            seed: 0,
            ignore_eos: false,
            num_bos: 1,
            num_eos: 0,
            forced: Vec::new(),
        }
    }
}

/// What a turn starts from.
#[derive(Debug, Clone, Copy)]
pub enum Prompt<'a> {
    /// Encoded by the runner's tokenizer.
    Text(&'a str),
    /// Used as they are; ids outside the vocabulary are refused.
    Tokens(&'a [TokenId]),
}
