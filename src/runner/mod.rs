//! The runner, in the five parts of the upstream refactor (PR 10578): DecoderRunner, PromptProcessor, TokenGenerator,
//! KvManager, BufferAlloc.
//!
//! `session` is what callers see. A turn goes through `prompt_processor`, then through `token_generator` or
//! `lookahead`; all three drive a `stage` (one method with its buffers), sample with `sampler` and report through
//! `turn`. `model` loads the methods, `io` finds out what their tensors are for.

pub mod attention_mask;
pub mod buffer_alloc;
mod config;
mod error;
mod event;
pub mod kv_manager;
mod session;
mod stats;

pub use config::{EvalMode, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, RunnerOptions};
pub use error::RunnerError;
pub use event::{FinishReason, Generation, LogitsRow, TokenEvent};
pub use session::{Canceller, Runner};
pub use stats::Stats;
