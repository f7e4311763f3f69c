//! A loaded model with its context: turns go in, tokens come out.

use super::config::{GenerationConfig, Prompt, RunnerOptions};
use super::event::{Generation, TokenEvent};
use crate::error::{Error, Result, Status};
use crate::runtime::Module;
use crate::tokenizer::{TokenId, Tokenizer};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a runner from another thread: at the next token or prefill block.
#[derive(Debug, Clone, Default)]
pub struct Canceller(Arc<AtomicBool>);

impl Canceller {
    /// Asks the running turn, if any, to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A model, its KV cache and its place in the context.
pub struct Runner {
    tokenizer: Arc<dyn Tokenizer>,
    canceller: Canceller,
}

impl Runner {
    /// Loads the methods that the mode needs, resolves tensor roles and allocates every buffer.
    pub fn load(_module: Box<dyn Module>, tokenizer: Arc<dyn Tokenizer>, _options: RunnerOptions) -> Result<Self> {
        Ok(Self { tokenizer, canceller: Canceller::default() })
    }

    /// Runs one turn. `on_token` is called for each token as it is made and may stop the turn.
    ///
    /// After an error from the model the context is invalid until [`reset`](Self::reset); an error in the arguments
    /// leaves it as it was.
    pub fn generate(
        &mut self,
        _prompt: Prompt<'_>,
        _config: &GenerationConfig,
        _on_token: &mut dyn FnMut(&TokenEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Generation> {
        Err(Error::new(Status::NotSupported, "generate"))
    }

    /// Forgets the context: position 0, empty cache.
    pub fn reset(&mut self) {}

    /// Tokens in the context.
    pub fn position(&self) -> usize {
        0
    }

    /// Most tokens that the context can hold.
    pub fn context_len(&self) -> usize {
        0
    }

    /// Size of a row of logits.
    pub fn vocab_size(&self) -> usize {
        0
    }

    /// The tokens that end a generation.
    pub fn eos_ids(&self) -> &[TokenId] {
        &[]
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    /// A handle that stops the running turn from another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }
}
