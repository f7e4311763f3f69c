//! The runner, in the five parts of the upstream refactor (PR 10578): DecoderRunner, PromptProcessor, TokenGenerator,
//! KvManager, BufferAlloc.
//!
//! They run static programs, whose mask, keys and values go through the runner. Programs of the other kind,
//! `forward(tokens, input_pos)`, are run by `text`; `loaded` tells the two apart.
//!
//! `session` is what callers see. A turn goes through `prompt_processor`, then through `token_generator` or
//! `lookahead`; all three drive a `stage` (one method with its buffers), sample with `sampler` and report through
//! `turn`. `model` loads the methods, `io` finds out what their tensors are for.

pub mod attention_mask;
pub mod buffer_alloc;
mod config;
mod decoder_runner;
mod error;
mod event;
mod family;
mod io;
pub mod kv_manager;
mod load_progress;
mod loaded;
mod logits;
mod lookahead;
mod memory;
mod model;
mod prompt_processor;
mod sampler;
mod session;
mod snapshot;
mod stage;
mod stats;
mod summary;
mod text;
mod token_generator;
mod token_steps;
mod turn;

pub use config::{EvalMode, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, RunnerOptions, SharedBuffer};
pub use error::RunnerError;
pub use event::{FinishReason, Generation, LogitsRow, TokenEvent};
pub use family::{CacheMode, FAMILIES, Family};
pub use io::{IoError, Place};
pub use load_progress::{LoadObserver, LoadProgress, LoadStage, OnProgress};
pub use logits::LogitsFormat;
pub use memory::RunnerMemory;
pub use session::{Canceller, Runner};
pub use snapshot::SnapshotError;
pub use stats::Stats;
pub use summary::{ProgramFacts, ProgramKind, ProgramSummary};
