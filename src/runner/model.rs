//! A program's methods as the runner uses them, with the cache between them: chosen by mode, checked against each
//! other, and given their memory.

use super::buffer_alloc::BufferAlloc;
use super::config::{EvalMode, RunnerOptions};
use super::decoder_runner::{DecoderRunner, constant_ints, load_method};
use super::error::RunnerError;
use super::event::LogitsRow;
use super::io::{IoError, MethodIo};
use super::kv_manager::{CacheLimits, CacheShape, KvManager};
use super::load_progress::{LoadObserver, LoadStage};
use super::logits::LogitsFormat;
use super::stage::{LastRow, Part, Stage};
use crate::error::Result;
use crate::log_warning;
use crate::runtime::Module;
use crate::tokenizer::TokenId;
use std::num::NonZeroUsize;

/// The decode methods, newest name first.
const DECODE: [&str; 2] = ["kv_forward", "forward"];
const PREFILL: &str = "prefill_forward";

/// A loaded program.
pub(crate) struct Model {
    pub decoder: DecoderRunner,
    pub kv: KvManager,
    /// Processes prompts in blocks, or the whole context at once.
    pub prefill: Option<Stage>,
    /// Continues from the cache. Absent from programs that only read whole contexts.
    pub decode: Option<Stage>,
    pub context_len: usize,
    pub vocab: usize,
    pub logits: LogitsFormat,
    /// What `get_eos_id` and `get_eos_ids` say.
    pub eos_ids: Vec<i64>,
    pub mode: EvalMode,
}

impl Model {
    /// Loads the methods that the mode needs and allocates every buffer.
    pub fn load(mut module: Box<dyn Module>, options: &RunnerOptions, observer: &mut LoadObserver<'_>) -> Result<Self> {
        let plan = MethodPlan::choose(&module.method_names(), options.eval_mode)?;
        observer.expect_methods(plan.prefill.iter().chain(&plan.decode).count());
        let mut load = |name: Option<&str>| {
            let Some(name) = name else { return Ok(None) };
            observer.method(name)?;
            load_method(&mut *module, name, plan.mode).map(Some)
        };
        let (mut prefill, mut decode) = (load(plan.prefill)?, load(plan.decode)?);
        if decode.as_ref().is_some_and(|io| io.cache_len().is_none()) {
            // A method that reads the whole context cannot continue: it makes the first token, like a prefill.
            prefill = prefill.or(decode.take());
        }
        if let (Some(first), Some(second)) = (&prefill, &decode) {
            if first.caches.is_empty() {
                log_warning!("{} gives no keys and values: prompts go through {}", first.name, second.name);
                prefill = None;
            } else {
                first.check_agreement(second)?;
            }
        }
        if let (Some(PREFILL), Some(io), None) = (plan.prefill, &prefill, &decode)
            && io.cache_len().is_some()
        {
            return Err(missing(&module.method_names(), plan.mode, DECODE[0], "").into());
        }
        let main = decode.as_ref().or(prefill.as_ref()).expect("choose names at least one method");
        check_layers(&mut *module, main)?;
        let window = sliding_window(&mut *module)?;
        let mut eos_ids = constant_ints(&mut *module, "get_eos_id")?;
        eos_ids.extend(constant_ints(&mut *module, "get_eos_ids")?);
        let (context_len, vocab, logits) = (main.context_len, main.vocab, main.format);

        let mut buffers = BufferAlloc::default();
        let both = || prefill.iter().chain(&decode);
        let shapes: Vec<CacheShape> = main.caches.iter().map(|cache| cache.shape).collect();
        let limits = CacheLimits {
            cache_len: both().filter_map(MethodIo::cache_len).max().unwrap_or(context_len),
            ar: both().map(|io| io.ar).max().unwrap_or(1),
        };
        let kv = KvManager::plan(&mut buffers, options.kv_updater, &shapes, limits)?;
        let mut plan_stage =
            |io: Option<MethodIo>| io.map(|io| Stage::plan(io, &mut buffers, options.kv_updater, window)).transpose();
        let (prefill, decode) = (plan_stage(prefill)?, plan_stage(decode)?);
        observer.stage(LoadStage::Memory, "")?;
        let arena = buffers.allocate_as(options)?;
        let mut decoder = DecoderRunner::new(module, arena);
        for stage in prefill.iter().chain(&decode) {
            stage.bind(&mut decoder)?;
        }
        Ok(Self { decoder, kv, prefill, decode, context_len, vocab, logits, eos_ids, mode: plan.mode })
    }

    /// Most positions that prompts may fill.
    pub fn prompt_limit(&self) -> usize {
        let reach = |stage: &Stage| stage.reach(self.kv.len());
        self.decode.as_ref().or(self.prefill.as_ref()).map_or(0, reach)
    }

    /// The logits of a token that was fed, until the next step.
    pub fn logits(&self, last: LastRow) -> LogitsRow<'_> {
        let stage = match last.by {
            Part::Prefill => &self.prefill,
            Part::Decode => &self.decode,
        };
        stage.as_ref().expect("it has made the row").logits(&self.decoder.arena, last.row)
    }

    /// Takes one token into the cache by the decode method, as a generation does. It must fit [`Self::prompt_limit`].
    pub fn decode_one(&mut self, token: TokenId) -> Result<LastRow> {
        let Self { decoder, kv, decode, .. } = self;
        let stage = decode.as_mut().ok_or(RunnerError::NothingContinues)?;
        stage.begin(&mut decoder.arena, kv);
        stage.feed(&mut decoder.arena, &[token], kv.len());
        stage.step(decoder, kv)?;
        stage.append(&mut decoder.arena, kv, 1);
        Ok(LastRow { by: Part::Decode, row: 0 })
    }

    /// Positions that the cache holds at most, however it is arranged.
    pub fn cache_limit(&self) -> usize {
        let lens = self.prefill.iter().chain(&self.decode).filter_map(Stage::cache_len);
        lens.max().unwrap_or(self.context_len)
    }

    /// Arranges the cache so that it holds the most.
    pub fn arrange_widest(&mut self) {
        let widest = self.prefill.iter().chain(&self.decode).max_by_key(|stage| stage.cache_len());
        if let Some(stage) = widest {
            self.kv.arrange(&mut self.decoder.arena, stage.ar(), stage.cache_len());
        }
    }

    /// Whether some layers see a window only.
    pub fn is_windowed(&self) -> bool {
        self.prefill.iter().chain(&self.decode).any(Stage::is_windowed)
    }

    /// Forgets the context.
    pub fn reset(&mut self) {
        self.kv.reset(&mut self.decoder.arena);
        for stage in self.prefill.iter().chain(&self.decode) {
            stage.reset(&mut self.decoder.arena);
        }
    }
}

/// Whether one of the names is that of a static program's method and of no other.
pub(crate) fn has_method(names: &[String]) -> bool {
    names.iter().any(|name| name == DECODE[0] || name == PREFILL)
}

/// Which methods a mode uses.
#[derive(Debug, PartialEq)]
pub(super) struct MethodPlan {
    mode: EvalMode,
    prefill: Option<&'static str>,
    pub(super) decode: Option<&'static str>,
}

impl MethodPlan {
    pub(super) fn choose(names: &[String], asked: Option<EvalMode>) -> Result<Self, RunnerError> {
        let has = |name: &&str| names.iter().any(|other| other == name);
        let (prefill, decode) = (Some(PREFILL).filter(has), DECODE.into_iter().find(has));
        if (prefill, decode) == (None, None) {
            return Err(RunnerError::NoMethod { present: present(names) });
        }
        let mode = asked.unwrap_or(if prefill.is_some() { EvalMode::Hybrid } else { EvalMode::Kv });
        let missing = |needs, hint| missing(names, mode, needs, hint);
        match (mode, prefill, decode) {
            (EvalMode::Kv, _, None) => Err(missing(DECODE[0], "")),
            (EvalMode::Kv, _, Some(_)) => Ok(Self { mode, prefill: None, decode }),
            (_, None, _) => Err(missing(PREFILL, " (use eval_mode 0)")),
            (EvalMode::Lookahead, _, None) => Err(missing(DECODE[0], "")),
            (_, Some(_), _) => Ok(Self { mode, prefill, decode }),
        }
    }
}

fn missing(names: &[String], mode: EvalMode, needs: &'static str, hint: &'static str) -> RunnerError {
    RunnerError::MethodMissing { mode, needs, present: present(names), hint }
}

/// The methods of a program without its constants, which would bury the ones that matter.
pub(crate) fn present(names: &[String]) -> String {
    let metadata = |name: &&String| ["get_", "use_", "enable_"].iter().any(|prefix| name.starts_with(prefix));
    let methods: Vec<&str> = names.iter().filter(|name| !metadata(name)).map(String::as_str).collect();
    if methods.is_empty() { "no method".to_owned() } else { methods.join(", ") }
}

/// Compares the number of layers that the program states, if it does, with the number of keys.
fn check_layers(module: &mut dyn Module, io: &MethodIo) -> Result<()> {
    let keys = io.caches.len() / 2;
    // Programs whose upper layers share keys and values state how many have their own.
    let mut stated = constant_ints(module, "get_n_self_layers")?;
    if stated.is_empty() {
        stated = constant_ints(module, "get_n_layers")?;
    }
    match stated.first() {
        Some(&layers) if keys > 0 && (layers <= 0 || keys as i64 % layers != 0) => Err(IoError::Disagree {
            first: io.name.clone(),
            second: "get_n_layers".to_owned(),
            what: format!("layers: {keys} keys for {layers} layers"),
        }
        .into()),
        _ => Ok(()),
    }
}

/// What `get_sliding_window` says: positions that windowed layers see.
fn sliding_window(module: &mut dyn Module) -> Result<Option<NonZeroUsize>> {
    let window = constant_ints(module, "get_sliding_window")?;
    Ok(window.first().and_then(|&window| usize::try_from(window).ok()).and_then(NonZeroUsize::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(names: &str, mode: Option<EvalMode>) -> Result<MethodPlan, String> {
        let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        MethodPlan::choose(&names, mode).map_err(|error| error.to_string())
    }

    #[test]
    fn modes_use_what_the_file_has() {
        let plan = |mode, prefill, decode| Ok(MethodPlan { mode, prefill, decode });
        let (kv, hybrid) = (EvalMode::Kv, EvalMode::Hybrid);
        let both = "prefill_forward kv_forward get_n_layers";
        assert_eq!(choose(both, None), plan(hybrid, Some(PREFILL), Some("kv_forward")));
        assert_eq!(choose(both, Some(kv)), plan(kv, None, Some("kv_forward")));
        assert_eq!(choose("forward", None), plan(kv, None, Some("forward")));
        assert_eq!(choose("prefill_forward", None), plan(hybrid, Some(PREFILL), None));
    }

    #[test]
    fn o2_a_missing_method_is_named_with_what_the_file_has() {
        assert_eq!(
            choose("kv_forward get_n_layers", Some(EvalMode::Hybrid)).unwrap_err(),
            "eval_mode 1 (hybrid) needs method prefill_forward; the file has: kv_forward (use eval_mode 0)"
        );
        assert!(choose("kv_forward", Some(EvalMode::Lookahead)).unwrap_err().contains("eval_mode 2 (lookahead)"));
        assert_eq!(
            choose("prefill_forward", Some(EvalMode::Kv)).unwrap_err(),
            "eval_mode 0 (kv) needs method kv_forward; the file has: prefill_forward"
        );
        assert!(choose("prefill_forward", Some(EvalMode::Lookahead)).unwrap_err().contains("kv_forward"));
        assert!(choose("encoder get_n_layers", None).unwrap_err().contains("it has: encoder"));
        assert!(choose("get_n_layers", None).unwrap_err().contains("it has: no method"));
    }
}
