//! A loaded model with its context: turns go in, tokens come out.

use super::config::{EvalMode, GenerationConfig, Prompt, RunnerOptions};
use super::error::RunnerError;
use super::event::{FinishReason, Generation, TokenEvent};
use super::family::{CacheMode, Family};
use super::load_progress::{LoadObserver, LoadProgress, LoadStage};
use super::loaded::Loaded;
use super::logits::LogitsFormat;
use super::memory::RunnerMemory;
use super::sampler::Sampler;
use super::stage::LastRow;
use super::stats::{Stats, now_ms};
use super::token_steps::ByHand;
use super::turn::Turn;
use crate::error::Result;
use crate::runtime::{Module, Profile};
use crate::tokenizer::{Specials, TokenId, Tokenizer};
use crate::{log_info, log_warning};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most tokens that a turn takes memory for before they come.
const MAX_EXPECTED: usize = 1 << 16;

/// Stops a runner from another thread: at the next token or prefill block.
#[derive(Debug, Clone, Default)]
pub struct Canceller(pub(super) Arc<AtomicBool>);

impl Canceller {
    /// Asks the running turn, if any, to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A model, its KV cache and its place in the context.
pub struct Runner {
    pub(super) loaded: Loaded,
    pub(super) sampler: Sampler,
    tokenizer: Arc<dyn Tokenizer>,
    eos_ids: Vec<TokenId>,
    pub(super) canceller: Canceller,
    /// A turn began and did not end well.
    pub(super) poisoned: bool,
    /// What calls token by token left behind.
    pub(super) by_hand: ByHand,
    load_ms: [i64; 2],
}

impl Runner {
    /// Loads the methods that the mode needs, resolves tensor roles and allocates every buffer.
    pub fn load(module: Box<dyn Module>, tokenizer: Arc<dyn Tokenizer>, options: RunnerOptions) -> Result<Self> {
        let mut nobody = |_: &LoadProgress<'_>| ControlFlow::Continue(());
        Self::load_observed(module, tokenizer, options, &mut LoadObserver::new(&mut nobody))
    }

    /// As [`load`](Self::load), and tells how far it has come. [`RunnerError::LoadCancelled`] when it was called off.
    pub fn load_observed(
        module: Box<dyn Module>,
        tokenizer: Arc<dyn Tokenizer>,
        options: RunnerOptions,
        observer: &mut LoadObserver<'_>,
    ) -> Result<Self> {
        let load_start_ms = options.load_started_ms.unwrap_or_else(now_ms);
        let family = Family::from_name(options.decoder_model_version.as_deref().unwrap_or("llama2"))?;
        let loaded = Loaded::load(module, &options, observer)?;
        if family.cache_mode == CacheMode::Hybrid && loaded.eval_mode().is_some() && !loaded.is_windowed() {
            log_warning!("{} models have a mask for windowed layers, this program has none", family.name);
        }
        let vocab = loaded.vocab();
        if let Some(&token) = options.extra_eos.iter().find(|&&token| token >= vocab as u64) {
            return Err(RunnerError::ExtraEosOutsideVocabulary { token, vocab }.into());
        }
        // Upstream runs such a pair too: what the tokenizer has more may never come up.
        if tokenizer.vocab_size() > vocab {
            let have = tokenizer.vocab_size();
            log_warning!(
                "the tokenizer has {have} tokens, the model knows {vocab}: is it this model's? Prompts with others are \
                 refused"
            );
        }
        let eos_ids = eos_ids(&*tokenizer, loaded.eos_ids(), family, &options.extra_eos);
        log_info!(
            "runner: {}, context {}, vocabulary {}, end tokens {eos_ids:?}",
            loaded.describe(),
            loaded.context_len(),
            vocab
        );
        let sampler = Sampler::new(loaded.logits());
        let load_ms = [load_start_ms, now_ms()];
        let canceller = Canceller::default();
        observer.stage(LoadStage::Done, "")?;
        let (poisoned, by_hand) = (false, ByHand::default());
        Ok(Self { loaded, sampler, tokenizer, eos_ids, canceller, poisoned, by_hand, load_ms })
    }

    /// Runs one turn. `on_token` is called for each token as it is made and may stop the turn. An empty prompt goes on
    /// from the logits that [`prefill_tokens`](Self::prefill_tokens) or [`step`](Self::step) left.
    ///
    /// A turn that is cancelled before its first token leaves the context as it was. After an error from the model the
    /// context is invalid until [`reset`](Self::reset); an error in the arguments leaves it as it was.
    pub fn generate(
        &mut self,
        prompt: Prompt<'_>,
        config: &GenerationConfig,
        on_token: &mut dyn FnMut(&TokenEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Generation> {
        if self.poisoned {
            return Err(RunnerError::Poisoned.into());
        }
        self.sampler.check(config)?;
        if config.max_new_tokens == Some(0) {
            return Err(RunnerError::NothingToGenerate.into());
        }
        let (prompt, last) = match (prompt, self.by_hand.last()) {
            (Prompt::Text("") | Prompt::Tokens([]), Some(last)) => (Vec::new(), Some(last)),
            _ => (self.prompt_tokens(prompt, config)?, None),
        };
        if let Some((index, token)) = self.stranger(&config.forced) {
            return Err(RunnerError::ForcedOutsideVocabulary { index, token, vocab: self.loaded.vocab() }.into());
        }
        let seq_len = self.seq_len(config);
        match last {
            Some(_) if self.position() < seq_len => {}
            Some(_) => {
                let (have, limit) = (self.position(), seq_len - 1);
                return Err(RunnerError::ContextExceeded { have, need: 0, limit }.into());
            }
            None => self.check_length(prompt.len(), seq_len)?,
        }

        self.by_hand = ByHand::default();
        self.canceller.0.store(false, Ordering::Release);
        // Stays so when an error or a panic in the callback leaves this function early.
        self.poisoned = true;
        let generation = self.run_turn(prompt, last, seq_len, config, on_token)?;
        self.poisoned = false;
        Ok(generation)
    }

    fn run_turn(
        &mut self,
        prompt: Vec<TokenId>,
        last: Option<LastRow>,
        seq_len: usize,
        config: &GenerationConfig,
        on_token: &mut dyn FnMut(&TokenEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Generation> {
        let inference_start_ms = now_ms();
        self.sampler.begin(config);
        self.loaded.decoder().take_execution_time();
        // Programs state their context length, so it is no measure of what to take at once.
        // As upstream: of a prompt that was processed before the turn, all that the context holds.
        let num_prompt_tokens = if last.is_some() { self.position() } else { prompt.len() } as i64;
        let expected = (seq_len - self.position() - prompt.len()).min(MAX_EXPECTED);
        let mut turn = Turn {
            config,
            prompt: &prompt,
            seq_len,
            context_len: self.loaded.context_len(),
            tokenizer: &*self.tokenizer,
            eos_ids: &self.eos_ids,
            sampler: &mut self.sampler,
            cancelled: &self.canceller.0,
            on_token,
            tokens: Vec::with_capacity(expected),
            sampling: Duration::ZERO,
        };
        let end = match last {
            Some(last) => self.loaded.resume(last, &mut turn)?,
            None => self.loaded.prefill(&mut turn)?,
        };
        let prompt_eval_end_ms = now_ms();
        let finish_reason = match end {
            Some(reason) => reason,
            None => self.loaded.generate(&mut turn)?,
        };
        let Turn { tokens, sampling, .. } = turn;
        let stats = Stats {
            model_load_start_ms: self.load_ms[0],
            model_load_end_ms: self.load_ms[1],
            inference_start_ms,
            prompt_eval_end_ms,
            first_token_ms: prompt_eval_end_ms,
            inference_end_ms: now_ms(),
            aggregate_sampling_time_ms: sampling.as_millis() as i64,
            aggregate_model_execution_time_ms: self.loaded.decoder().take_execution_time().as_millis() as i64,
            num_prompt_tokens,
            num_generated_tokens: tokens.len().saturating_sub(1) as i64,
        };
        if matches!(finish_reason, FinishReason::SeqLen | FinishReason::ContextFull) {
            log_warning!("the turn ended at {} tokens without an end token", self.position() + 1);
        }
        Ok(Generation { prompt_tokens: prompt, tokens, finish_reason, stats })
    }

    /// Forgets the context: position 0, empty cache.
    pub fn reset(&mut self) {
        self.loaded.reset();
        self.by_hand = ByHand::default();
        self.poisoned = false;
    }

    /// Tokens in the context. The last token of a turn is not among them.
    pub fn position(&self) -> usize {
        self.loaded.position()
    }

    /// Most tokens that the context can hold.
    pub fn context_len(&self) -> usize {
        self.loaded.context_len()
    }

    /// Size of a row of logits.
    pub fn vocab_size(&self) -> usize {
        self.loaded.vocab()
    }

    /// How the rows of logits that events show are stored.
    pub fn logits_format(&self) -> LogitsFormat {
        self.loaded.logits()
    }

    /// The mode of a static program, as asked or as chosen from its methods; `None` for a `forward(tokens, input_pos)`
    /// program, which has no modes.
    pub fn eval_mode(&self) -> Option<EvalMode> {
        self.loaded.eval_mode()
    }

    /// What was loaded, in one line: the mode, or the methods with their shapes.
    pub fn describe(&self) -> String {
        self.loaded.describe()
    }

    /// Begins or ends to record where the time of executions goes.
    pub fn set_profiling(&mut self, on: bool) {
        self.loaded.decoder().set_profiling(on);
    }

    /// What was recorded since the last call; `None` when nothing is recorded or the module cannot.
    pub fn take_profile(&mut self) -> Option<Profile> {
        self.loaded.decoder().take_profile()
    }

    /// Threads that compute what runs on the CPU; `None` when none were made, or the module does not say.
    pub fn cpu_threads(&self) -> Option<usize> {
        self.loaded.module().cpu_threads()
    }

    /// Memory that the runner holds.
    pub fn memory(&self) -> RunnerMemory {
        RunnerMemory::of(&self.loaded)
    }

    /// The tokens that end a generation.
    pub fn eos_ids(&self) -> &[TokenId] {
        &self.eos_ids
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<dyn Tokenizer> {
        &self.tokenizer
    }

    /// A handle that stops the running turn from another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    fn prompt_tokens(&self, prompt: Prompt<'_>, config: &GenerationConfig) -> Result<Vec<TokenId>> {
        let tokens = match prompt {
            Prompt::Text("") => return Err(RunnerError::EmptyPrompt.into()),
            Prompt::Text(text) => {
                let bos = if self.position() == 0 { config.num_bos } else { 0 };
                let tokens = self.tokenizer.encode(text, Specials { bos, eos: config.num_eos })?;
                if let (&[first, second, ..], Some(bos)) = (tokens.as_slice(), self.tokenizer.bos())
                    && (first, second) == (bos, bos)
                {
                    log_warning!("the prompt begins with two beginning-of-sequence tokens");
                }
                tokens
            }
            Prompt::Tokens(tokens) => tokens.to_vec(),
        };
        self.check_tokens(&tokens)?;
        Ok(tokens)
    }

    /// Fails for no token, and for one that the model does not know.
    pub(super) fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), RunnerError> {
        let vocab = self.loaded.vocab();
        match self.stranger(tokens) {
            _ if tokens.is_empty() => Err(RunnerError::EmptyPrompt),
            Some((index, token)) => Err(RunnerError::TokenOutsideVocabulary { index, token, vocab }),
            None => Ok(()),
        }
    }

    /// The first token outside the vocabulary, and where it is.
    fn stranger(&self, tokens: &[TokenId]) -> Option<(usize, TokenId)> {
        let vocab = self.loaded.vocab() as u64;
        tokens.iter().copied().enumerate().find(|&(_, token)| token >= vocab)
    }

    fn seq_len(&self, config: &GenerationConfig) -> usize {
        let context_len = self.context_len();
        if config.seq_len > context_len {
            log_warning!("seq_len {} is above the context length and clamped to {context_len}", config.seq_len);
        }
        match config.seq_len {
            0 => context_len,
            asked => asked.min(context_len),
        }
    }

    /// Whether `need` more tokens can be fed.
    pub(super) fn check_length(&self, need: usize, seq_len: usize) -> Result<(), RunnerError> {
        let have = self.position();
        if self.loaded.starts_only() && have > 0 {
            return Err(RunnerError::OnlyAtStart { position: have });
        }
        let limit = self.loaded.prompt_limit().min(seq_len - 1);
        if need > limit.saturating_sub(have) {
            return Err(RunnerError::ContextExceeded { have, need, limit });
        }
        Ok(())
    }
}

/// The tokenizer's end tokens, the program's, the family's and the caller's.
fn eos_ids(tokenizer: &dyn Tokenizer, stated: &[i64], family: &Family, extra: &[TokenId]) -> Vec<TokenId> {
    let mut ids = tokenizer.eos().to_vec();
    ids.extend(stated.iter().filter_map(|&id| TokenId::try_from(id).ok()));
    ids.extend(family.end_tokens.iter().filter_map(|piece| tokenizer.id_of(piece)));
    ids.extend_from_slice(extra);
    ids.sort_unstable();
    ids.dedup();
    ids
}
