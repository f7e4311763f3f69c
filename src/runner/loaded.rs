//! A loaded program of either kind, static or `forward(tokens, input_pos)`, with what a session needs of it.

use super::config::{EvalMode, RunnerOptions};
use super::decoder_runner::DecoderRunner;
use super::error::RunnerError;
use super::event::{FinishReason, LogitsRow};
use super::load_progress::LoadObserver;
use super::logits::LogitsFormat;
use super::lookahead::Lookahead;
use super::model::{self, Model};
use super::prompt_processor::{feed_prompt, process_prompt};
use super::stage::{LastRow, Part};
use super::text::{self, TextModel};
use super::token_generator;
use super::turn::{Source, Turn};
use crate::error::{Context, Result};
use crate::runtime::Module;
use crate::tokenizer::TokenId;
use std::sync::atomic::AtomicBool;

/// The program's kind with its parts.
pub(crate) enum Loaded {
    /// Mask, keys and values go through the runner.
    Static { model: Box<Model>, lookahead: Option<Lookahead> },
    /// The program keeps keys and values to itself.
    Text(Box<TextModel>),
}

impl Loaded {
    /// Loads the methods that `options` ask for; what they leave open follows from the program.
    pub fn load(mut module: Box<dyn Module>, options: &RunnerOptions, observer: &mut LoadObserver<'_>) -> Result<Self> {
        if options.eval_mode == Some(EvalMode::Lookahead) && options.lookahead.is_none() {
            return Err(RunnerError::LookaheadUnset.into());
        }
        if is_text(&mut *module, options, observer)? {
            return Ok(Self::Text(Box::new(TextModel::load(module, options, observer)?)));
        }
        let model = Model::load(module, options, observer)?;
        let lookahead = match (model.mode, options.lookahead, &model.decode) {
            (EvalMode::Lookahead, Some(config), Some(decode)) => Some(Lookahead::new(config, decode.ar())?),
            (EvalMode::Lookahead, ..) => return Err(RunnerError::LookaheadNeedsCache.into()),
            _ => None,
        };
        Ok(Self::Static { model: Box::new(model), lookahead })
    }

    /// Processes the turn's prompt; says whether the turn ends already.
    pub fn prefill(&mut self, turn: &mut Turn<'_>) -> Result<Option<FinishReason>> {
        match self {
            Self::Static { model, .. } => process_prompt(model, turn),
            Self::Text(model) => text::prefill(model, turn),
        }
    }

    /// Takes the turn's first token from the logits of a prompt that was processed before; says whether the turn ends
    /// already.
    pub fn resume(&mut self, last: LastRow, turn: &mut Turn<'_>) -> Result<Option<FinishReason>> {
        let source = Source { position: self.position() - 1, row: last.row };
        turn.take(self.last_logits(last)?, source)
    }

    /// Decodes until the turn ends.
    pub fn generate(&mut self, turn: &mut Turn<'_>) -> Result<FinishReason> {
        match self {
            Self::Static { model, lookahead: Some(lookahead) } => lookahead.generate(model, turn),
            Self::Static { model, lookahead: None } => token_generator::generate(model, turn),
            Self::Text(model) => text::generate(model, turn),
        }
    }

    /// Takes prompt tokens, which must fit, into the context; see [`feed_prompt`].
    pub fn feed_prompt(&mut self, tokens: &[TokenId], cancelled: &AtomicBool) -> Result<Option<LastRow>> {
        match self {
            Self::Static { model, .. } => feed_prompt(model, tokens, cancelled),
            Self::Text(model) => {
                let by = text::feed_prompt(model, tokens, cancelled)?;
                Ok(by.map(|by| LastRow { by, row: 0 }))
            }
        }
    }

    /// Takes one token, which must fit, into the context, as decoding does.
    pub fn decode_one(&mut self, token: TokenId) -> Result<LastRow> {
        match self {
            Self::Static { model, .. } => model.decode_one(token),
            Self::Text(model) => {
                model.feed(Part::Decode, &[token])?;
                Ok(LastRow { by: Part::Decode, row: 0 })
            }
        }
    }

    /// The logits of the last token fed, until the next one.
    pub fn last_logits(&self, last: LastRow) -> Result<LogitsRow<'_>> {
        match self {
            Self::Static { model, .. } => Ok(model.logits(last)),
            Self::Text(model) => Ok(model.logits(last.by)?.1),
        }
    }

    /// Goes back to the first `position` tokens of the context.
    pub fn rewind(&mut self, position: usize) {
        match self {
            Self::Static { model, lookahead } => {
                model.kv.rewind(&mut model.decoder.arena, position);
                if let Some(lookahead) = lookahead {
                    lookahead.reset();
                }
            }
            Self::Text(model) => model.rewind(position),
        }
    }

    /// Forgets the context.
    pub fn reset(&mut self) {
        match self {
            Self::Static { model, lookahead } => {
                model.reset();
                if let Some(lookahead) = lookahead {
                    lookahead.reset();
                }
            }
            Self::Text(model) => model.rewind(0),
        }
    }

    /// Tokens in the context.
    pub fn position(&self) -> usize {
        match self {
            Self::Static { model, .. } => model.kv.len(),
            Self::Text(model) => model.position(),
        }
    }

    /// Most positions that prompts may fill.
    pub fn prompt_limit(&self) -> usize {
        match self {
            Self::Static { model, .. } => model.prompt_limit(),
            Self::Text(model) => model.context_len,
        }
    }

    /// Whether a prompt can only be processed at position 0.
    pub fn starts_only(&self) -> bool {
        matches!(self, Self::Static { model, .. } if model.decode.is_none())
    }

    /// The part that runs methods.
    pub fn decoder(&mut self) -> &mut DecoderRunner {
        match self {
            Self::Static { model, .. } => &mut model.decoder,
            Self::Text(model) => &mut model.decoder,
        }
    }

    /// The module that is run.
    pub fn module(&self) -> &dyn Module {
        match self {
            Self::Static { model, .. } => model.decoder.module(),
            Self::Text(model) => model.decoder.module(),
        }
    }

    pub fn context_len(&self) -> usize {
        match self {
            Self::Static { model, .. } => model.context_len,
            Self::Text(model) => model.context_len,
        }
    }

    pub fn vocab(&self) -> usize {
        match self {
            Self::Static { model, .. } => model.vocab,
            Self::Text(model) => model.vocab,
        }
    }

    pub fn logits(&self) -> LogitsFormat {
        match self {
            Self::Static { model, .. } => model.logits,
            Self::Text(model) => model.logits,
        }
    }

    /// End tokens that the program states.
    pub fn eos_ids(&self) -> &[i64] {
        match self {
            Self::Static { model, .. } => &model.eos_ids,
            Self::Text(model) => &model.eos_ids,
        }
    }

    /// `None` for programs that have no modes.
    pub fn eval_mode(&self) -> Option<EvalMode> {
        match self {
            Self::Static { model, .. } => Some(model.mode),
            Self::Text(_) => None,
        }
    }

    /// Whether some layers see a window only.
    pub fn is_windowed(&self) -> bool {
        matches!(self, Self::Static { model, .. } if model.is_windowed())
    }

    /// What was loaded, in one line.
    pub fn describe(&self) -> String {
        match self {
            Self::Static { model, .. } => {
                format!("{} mode, {} cache tensors", model.mode.name(), model.kv.tensor_count())
            }
            Self::Text(model) => model.signature.clone(),
        }
    }
}

/// Which kind of program is to be run: the one that the options speak of, else the one that the program is.
fn is_text(module: &mut dyn Module, options: &RunnerOptions, observer: &mut LoadObserver<'_>) -> Result<bool> {
    match (&options.method_name, options.eval_mode) {
        (Some(_), Some(_)) => return Err(RunnerError::MethodAndMode.into()),
        (Some(_), None) => return Ok(true),
        _ => {}
    }
    let names = module.method_names();
    if model::has_method(&names) {
        return Ok(false);
    }
    let text = if names.iter().any(|name| name == "forward") {
        observer.method("forward")?;
        let id = module.load_method("forward").with_context(|| "loading method forward")?;
        text::is_text(module.method_info(id)).then(|| text::describe(module.method_info(id)))
    } else {
        text::has_method(&names).then(|| model::present(&names))
    };
    match (text, options.eval_mode) {
        (Some(signature), Some(mode)) => Err(RunnerError::TextMethod { signature, mode }.into()),
        (text, _) => Ok(text.is_some()),
    }
}
