//! The runner, in the five parts of the upstream refactor (PR 10578): DecoderRunner, PromptProcessor, TokenGenerator,
//! KvManager, BufferAlloc.

mod config;
mod event;
mod session;
mod stats;

pub use config::{EvalMode, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, RunnerOptions};
pub use event::{FinishReason, Generation, LogitsRow, TokenEvent};
pub use session::{Canceller, Runner};
pub use stats::Stats;
