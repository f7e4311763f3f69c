//! A loaded program of this kind with its place in the context: methods chosen by name, checked against each other and
//! against what the program says of itself, and given their memory.

use super::decoder_runner::TextDecoderRunner;
use super::metadata::Metadata;
use super::signature::{TextIo, describe, is_text};
use crate::error::{Context, Result};
use crate::runner::buffer_alloc::BufferAlloc;
use crate::runner::config::RunnerOptions;
use crate::runner::decoder_runner::{DecoderRunner, logits_encoding};
use crate::runner::error::RunnerError;
use crate::runner::event::LogitsRow;
use crate::runner::io::IoError;
use crate::runner::load_progress::{LoadObserver, LoadStage};
use crate::runner::logits::LogitsFormat;
use crate::runner::model::present;
use crate::runner::stage::Part;
use crate::runtime::Module;
use crate::tokenizer::TokenId;

const FORWARD: &str = "forward";
/// Programs of two methods give the prompt to the first and everything after it to the second.
const PREFILL: &str = "prefill";
const DECODE: &str = "decode";

/// A loaded program.
pub(crate) struct TextModel {
    pub decoder: DecoderRunner,
    prefill: TextDecoderRunner,
    /// `None` when the prefill's method does both.
    decode: Option<TextDecoderRunner>,
    /// Tokens of the context so far.
    position: usize,
    /// These tokens, for a program without a cache.
    history: Option<Vec<TokenId>>,
    pub context_len: usize,
    pub vocab: usize,
    pub logits: LogitsFormat,
    /// What `get_eos_id` and `get_eos_ids` say.
    pub eos_ids: Vec<i64>,
    /// The methods with their shapes, for messages.
    pub signature: String,
}

/// Whether one of the names is that of a method of this kind and of no other.
pub(crate) fn has_method(names: &[String]) -> bool {
    names.iter().any(|name| name == PREFILL || name == DECODE)
}

impl TextModel {
    /// Loads the methods and allocates every buffer.
    pub fn load(mut module: Box<dyn Module>, options: &RunnerOptions, observer: &mut LoadObserver<'_>) -> Result<Self> {
        let plan = MethodPlan::choose(&module.method_names(), options.method_name.as_deref())?;
        let metadata = Metadata::read(&mut *module)?;
        let mut signature = String::new();
        observer.expect_methods(1 + usize::from(plan.decode.is_some()));
        let mut load = |name: &str| {
            observer.method(name)?;
            let id = module.load_method(name).with_context(|| format!("loading method {name}"))?;
            let described = describe(module.method_info(id));
            if !is_text(module.method_info(id)) {
                return Err(RunnerError::StaticMethod { signature: described }.into());
            }
            signature.push_str(if signature.is_empty() { "" } else { ", " });
            signature.push_str(&described);
            let mut io = TextIo::resolve(id, module.method_info(id))?;
            io.format = LogitsFormat { encoding: logits_encoding(&mut *module)?.or(io.format.encoding), ..io.format };
            Ok::<_, crate::Error>(io)
        };
        let prefill = load(&plan.prefill)?;
        let decode = plan.decode.map(load).transpose()?;
        if let Some(decode) = &decode {
            check_agreement(&prefill, decode)?;
        }
        let cached = check_cache(&prefill, decode.as_ref(), &metadata)?;
        let context_len = context_len(&prefill, cached, &metadata)?;
        let (vocab, logits) = (prefill.vocab, prefill.format);

        let mut buffers = BufferAlloc::default();
        let stated = chunk(cached, &metadata);
        let mut plan_runner = |io: TextIo| {
            let best = module.chunk(io.id).unwrap_or(usize::MAX);
            TextDecoderRunner::plan(io, stated.min(best), &mut buffers)
        };
        let (prefill, decode) = (plan_runner(prefill)?, decode.map(plan_runner).transpose()?);
        observer.stage(LoadStage::Memory, "")?;
        let arena = buffers.allocate_as(options)?;
        let mut decoder = DecoderRunner::new(module, arena);
        for runner in [&prefill].into_iter().chain(&decode) {
            runner.bind(&mut decoder)?;
        }
        let history = (!cached).then(Vec::new);
        let eos_ids = metadata.eos_ids;
        Ok(Self { decoder, prefill, decode, position: 0, history, context_len, vocab, logits, eos_ids, signature })
    }

    /// Tokens in the context.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Goes back to the first `position` tokens of the context. What the program holds beyond is overwritten before it
    /// is attended to.
    pub fn rewind(&mut self, position: usize) {
        self.position = position;
        if let Some(history) = &mut self.history {
            history.truncate(position);
        }
    }

    /// Whether the program has a cache.
    pub fn is_cached(&self) -> bool {
        self.history.is_none()
    }

    /// The tokens of the context, for a program without a cache.
    pub fn kept_tokens(&self) -> Option<&[TokenId]> {
        self.history.as_deref()
    }

    /// Goes on at `position` of a context that has been put into the program's cache, or, without one, after `tokens`.
    pub fn resume(&mut self, position: usize, tokens: Vec<TokenId>) {
        self.position = position;
        if let Some(history) = &mut self.history {
            *history = tokens;
        }
    }

    /// Which method the next of `rest` prompt tokens go to, and how many of them.
    pub(super) fn next_call(&self, rest: usize) -> (Part, usize) {
        if self.history.is_some() {
            return (Part::Prefill, rest);
        }
        match (self.prefill.takes_of(rest), &self.decode) {
            (0, Some(decode)) => (Part::Decode, decode.takes_of(rest)),
            (n, _) => (Part::Prefill, n),
        }
    }

    /// Takes `tokens` into the context.
    pub fn feed(&mut self, part: Part, tokens: &[TokenId]) -> Result<()> {
        let runner = match (part, &mut self.decode) {
            (Part::Decode, Some(decode)) => decode,
            _ => &mut self.prefill,
        };
        match &mut self.history {
            None => runner.step(&mut self.decoder, tokens, self.position)?,
            Some(history) => {
                history.extend_from_slice(tokens);
                runner.step(&mut self.decoder, history, 0)?;
            }
        }
        self.position += tokens.len();
        Ok(())
    }

    /// The logits of the last token fed, and their row; `part` is where it was fed to.
    pub fn logits(&self, part: Part) -> Result<(usize, LogitsRow<'_>)> {
        let runner = match (part, &self.decode) {
            (Part::Decode, Some(decode)) => decode,
            _ => &self.prefill,
        };
        runner.logits(&self.decoder)
    }
}

/// The methods' names.
#[derive(Debug, PartialEq)]
struct MethodPlan {
    prefill: String,
    decode: Option<&'static str>,
}

impl MethodPlan {
    /// The method that was asked for, which is `forward` unless somebody asks for another; a program without `forward`
    /// may have `prefill`. With `decode` beside it, that one continues.
    fn choose(names: &[String], asked: Option<&str>) -> Result<Self, RunnerError> {
        let has = |name: &str| names.iter().any(|other| other == name);
        let asked = asked.unwrap_or(FORWARD);
        let prefill = match has(asked) {
            true => asked,
            false if asked == FORWARD && has(PREFILL) => PREFILL,
            false => {
                let is_static = ["kv_forward", "prefill_forward"].into_iter().any(has);
                let hint = if is_static { ": a static llama program, which an eval_mode runs" } else { "" };
                return Err(RunnerError::NoSuchMethod { asked: asked.to_owned(), present: present(names), hint });
            }
        };
        let decode = (has(DECODE) && prefill != DECODE).then_some(DECODE);
        Ok(Self { prefill: prefill.to_owned(), decode })
    }
}

fn check_agreement(prefill: &TextIo, decode: &TextIo) -> Result<(), IoError> {
    let cache = |io: &TextIo| if io.positions.is_some() { "input_pos" } else { "no input_pos" };
    let what = if prefill.vocab != decode.vocab {
        format!("vocabulary: {} and {}", prefill.vocab, decode.vocab)
    } else if prefill.format != decode.format {
        format!("type of the logits: {} and {}", prefill.format.dtype, decode.format.dtype)
    } else if prefill.positions.is_some() != decode.positions.is_some() {
        format!("what they take: {} and {}", cache(prefill), cache(decode))
    } else {
        return Ok(());
    };
    Err(IoError::Disagree { first: prefill.name.clone(), second: decode.name.clone(), what })
}

/// Whether the program has a cache, and whether its methods can do what each kind of program must.
fn check_cache(prefill: &TextIo, decode: Option<&TextIo>, metadata: &Metadata) -> Result<bool> {
    let method = || prefill.name.clone();
    match (&prefill.positions, metadata.use_kv_cache) {
        (None, Some(true)) => {
            let wanted = "which a program with a cache (use_kv_cache) takes: i64 or i32 [1]".to_owned();
            Err(IoError::Missing { method: method(), role: "input_pos", wanted }.into())
        }
        // A call of a fixed number is filled up, so the row of the last real token must be among the logits.
        (None, _) | (_, Some(false)) if !prefill.dynamic && !prefill.every_row => {
            Err(RunnerError::WholeContextRow { method: method(), tokens: prefill.most }.into())
        }
        (None, _) | (_, Some(false)) => Ok(false),
        (Some(_), _) => {
            let last = decode.unwrap_or(prefill);
            match last.takes(1) {
                true => Ok(true),
                false => Err(RunnerError::NoSingleToken { method: last.name.clone(), tokens: last.most }.into()),
            }
        }
    }
}

/// Positions of the context.
fn context_len(io: &TextIo, cached: bool, metadata: &Metadata) -> Result<usize, RunnerError> {
    let stated = metadata.max_context_len.or(metadata.max_seq_len);
    match (stated, cached) {
        (Some(stated), true) => Ok(stated),
        // The last token of a context is never fed.
        (stated, false) => Ok(stated.unwrap_or(usize::MAX).min(io.most + 1)),
        (None, true) => Err(RunnerError::NoContextLength),
    }
}

/// Most prompt tokens of a call, as far as the program says.
fn chunk(cached: bool, metadata: &Metadata) -> usize {
    if cached && metadata.enable_dynamic_shape == Some(false) {
        return 1;
    }
    let limits = [metadata.max_seq_len, metadata.max_prefill_chunk];
    limits.into_iter().flatten().min().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(names: &str, asked: Option<&str>) -> Result<(String, Option<&'static str>), String> {
        let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        let plan = MethodPlan::choose(&names, asked).map_err(|error| error.to_string())?;
        Ok((plan.prefill, plan.decode))
    }

    #[test]
    fn methods_are_found_by_name() {
        let plan = |prefill: &str, decode| Ok((prefill.to_owned(), decode));
        assert_eq!(choose("forward get_eos_ids", None), plan("forward", None));
        assert_eq!(choose("forward lora_forward", Some("lora_forward")), plan("lora_forward", None));
        for asked in [None, Some("forward"), Some("prefill")] {
            assert_eq!(choose("prefill decode", asked), plan("prefill", Some("decode")));
        }
        assert_eq!(choose("forward decode", None), plan("forward", Some("decode")));
        assert_eq!(choose("prefill decode", Some("decode")), plan("decode", None));
    }

    #[test]
    fn a_missing_method_is_named_with_what_the_file_has() {
        assert_eq!(
            choose("forward get_eos_ids", Some("fwd")).unwrap_err(),
            "the file has no method fwd; it has: forward"
        );
        assert_eq!(
            choose("kv_forward prefill_forward get_dim", Some("forward")).unwrap_err(),
            "the file has no method forward; it has: kv_forward, prefill_forward: a static llama program, which an \
             eval_mode runs"
        );
        assert!(choose("prefill decode", Some("fwd")).is_err(), "a name that is wrong is not replaced");
    }

    #[test]
    fn calls_are_as_long_as_the_program_says() {
        let metadata = Metadata { max_seq_len: Some(128), ..Metadata::default() };
        assert_eq!(chunk(true, &Metadata::default()), usize::MAX);
        assert_eq!(chunk(true, &metadata), 128);
        assert_eq!(chunk(true, &Metadata { max_prefill_chunk: Some(16), ..metadata.clone() }), 16);
        assert_eq!(chunk(true, &Metadata { enable_dynamic_shape: Some(false), ..metadata.clone() }), 1);
        assert_eq!(chunk(true, &Metadata { enable_dynamic_shape: Some(true), ..metadata }), 128);
    }
}
