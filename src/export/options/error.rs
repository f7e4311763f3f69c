//! Why a set of choices cannot be exported.

use super::MAX_CONTEXT;
use super::choice::{Backend, Choice, KvBits, Mode, Ptq};
use crate::error::{Error, Status};
use std::path::PathBuf;

/// Choices that do not go together, or with the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum OptionsError {
    /// Dynamic shapes do not exist on the HTP.
    #[error(
        "mode dynamic does not go with backend qnn, whose methods are static; use kv, hybrid, lookahead or prefill"
    )]
    DynamicOnQnn,
    #[error("ptq {} does not go with backend {}, which takes {}", .ptq.name(), .backend.name(), takes(*.backend))]
    PtqOnBackend { ptq: Ptq, backend: Backend },
    #[error("kv_bits 32 does not go with backend qnn, whose keys and values are quantized; use 8 or 16")]
    FloatCacheOnQnn,
    #[error("kv_bits 16 does not go with ptq 8a8w, whose activations have 8 bits")]
    WideCache,
    #[error("kv_bits {} does not go with mode dynamic, which keeps its cache in float inside the program", .bits.name())]
    NarrowCacheInside { bits: KvBits },
    #[error("kv_layout per_head does not go with mode dynamic, which keeps its cache inside the program")]
    LayoutOfDynamic,
    #[error("full logits are of mode dynamic; mode {} gives them anyway", .mode.name())]
    FullLogits { mode: Mode },
    #[error("num_sharding 0: a program has at least one part")]
    NoShards,
    #[error("num_sharding does not go with backend {}: only QNN context binaries are divided", .backend.name())]
    ShardsOnCpu { backend: Backend },
    #[error("num_sharding {shards} is more than the model's {layers} layers")]
    MoreShardsThanLayers { shards: usize, layers: usize },
    #[error("weight sharing is between two methods of a QNN context: modes hybrid and lookahead of backend qnn")]
    NothingToShare,
    #[error("there is no SoC {name:?}; the nearest is {nearest}")]
    UnknownSoc { name: String, nearest: &'static str },
    #[error("a context of {length} tokens is not in 2 to {MAX_CONTEXT}")]
    Context { length: usize },
    #[error("max_seq_len {max_seq_len} is above max_context_len {context}")]
    SequenceBeyondContext { max_seq_len: usize, context: usize },
    #[error("prefill_ar_len {prefill_ar_len} is not in 1 to the context, {context}")]
    PrefillBlock { prefill_ar_len: usize, context: usize },
    #[error("mode lookahead needs ngram of at least 2, window and gcap of at least 1")]
    LookaheadSizes,
    #[error("a lookahead step of (window + gcap) * (ngram - 1) tokens{} does not fit the context, {context}", .rows.map_or(String::new(), |rows| format!(" = {rows}")))]
    LookaheadRows { rows: Option<usize>, context: usize },
    #[error("embedding quantization {text:?} is not <2, 4 or 8>,<group size>, as in 4,32")]
    Embedding { text: String },
    #[error("the embedding's group size {group} does not divide its rows of {dim}")]
    EmbeddingGroup { group: usize, dim: usize },
    #[error("group_size {group} is below 2")]
    GroupSize { group: usize },
    #[error("group_size {group} does not go with ptq 8da4w: XNNPACK takes multiples of 32")]
    GroupOfXnnpack { group: usize },
    #[error("group_size does not go with ptq {}: only 4-bit weights have blocks", .ptq.name())]
    GroupWithoutBlocks { ptq: Ptq },
    #[error("group_size {group} does not divide the model's dim of {dim}")]
    WeightGroup { group: usize, dim: usize },
    #[error(
        "the run afterwards needs a tokenizer, and there is none in or beside the checkpoint: name one with \
         --tokenizer_model, or only export with --compile_only"
    )]
    NoTokenizer,
    #[error("soc_model {name} does not go with backend {}, which runs on any CPU", .backend.name())]
    SocOnCpu { name: String, backend: Backend },
    #[error("ngram, window and gcap go with mode lookahead; the mode is {}", .mode.name())]
    LookaheadWithoutMode { mode: Mode },
    #[error("nothing is calibrated with ptq none: the calibration file would not be read")]
    NothingToCalibrate,
    #[error("prompt {number} needs {tokens} tokens with what is before it, a context of {context} has room for {}", .context - 1)]
    QuestionTooLong { number: usize, tokens: usize, context: usize },
    #[error(
        "prompt {number}: token {token} is outside the model's vocabulary of {vocab}: is {} its tokenizer?",
        .tokenizer.display()
    )]
    StrangeQuestion { number: usize, token: u64, vocab: usize, tokenizer: PathBuf },
    #[error("a prompt is empty")]
    EmptyPrompt,
}

impl From<OptionsError> for Error {
    fn from(error: OptionsError) -> Self {
        Error::from_source(Status::InvalidArgument, error)
    }
}

fn takes(backend: Backend) -> &'static str {
    match backend {
        Backend::Qnn => "16a4w, 16a8w and 8a8w",
        Backend::Xnnpack => "8da4w and none",
        Backend::Portable => "int8 and none",
    }
}
