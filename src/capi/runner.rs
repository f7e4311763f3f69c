//! `llr_runner`: a model with its context. Turns go in, a stream of chunks comes out.

use super::chunk::llr_finish_reason;
use super::generation_config::llr_generation_config;
use super::guard::{guard, guard_value};
use super::handle::Handle;
use super::options::llr_runner_options;
use super::plan::Plan;
use super::pointer::{check_out, reference, slice, text};
use super::runner_facts::{Facts, Observed};
use super::stats::{llr_stats, llr_stats_callback};
use super::status::llr_status;
use super::stream::{Stream, llr_token_callback};
use crate::builtin::{self, default_model};
use crate::error::{Error, Result, Status};
use crate::runner::{GenerationConfig, LoadObserver, LoadProgress, LoadStage, OnProgress, Prompt, Runner, Stats};
use crate::runtime::HostModule;
use crate::tokenizer;
use parking_lot::Mutex;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a program that the host runs is called, for it has no path.
const HOST_NAME: &str = "host module";

/// A model with its KV cache and its place in the context: made by llr_runner_create, freed by llr_runner_free.
///
/// Functions: llr_runner_*. Those that take a const llr_runner* may be called from any thread at any time, also while a
/// turn runs and from its callbacks. The others take turns: while one is at work, a second one, on whatever thread,
/// fails with LLR_STATUS_INVALID_STATE and does not wait. After LLR_STATUS_PANIC, a fault of this library, they fail
/// with LLR_STATUS_POISONED, the getters give what they give for NULL, and all that is left is llr_runner_free.
pub struct llr_runner {
    plan: Plan,
    /// The mutex is never locked, only entered by `&mut`: it makes a runner, which is not `Sync`, shareable.
    pub(super) engine: Handle<Mutex<Option<Runner>>>,
    pub(super) loaded: OnceLock<Facts>,
    /// Somebody wants the loading that is going on to end.
    stop_loading: AtomicBool,
    pub(super) observed: Mutex<Observed>,
}

/// Where a turn's output goes.
struct Sinks {
    token: llr_token_callback,
    stats: llr_stats_callback,
    user_data: *mut c_void,
}

impl llr_runner {
    fn new(plan: Plan) -> Self {
        let observed = Observed { position: 0, finish_reason: llr_finish_reason::None, stats: None };
        Self {
            plan,
            engine: Handle::new(Mutex::new(None)),
            loaded: OnceLock::new(),
            stop_loading: AtomicBool::new(false),
            observed: Mutex::new(observed),
        }
    }

    /// What a loaded runner has told of itself.
    pub(super) fn facts(&self) -> Result<&Facts> {
        self.loaded.get().ok_or_else(|| Error::new(Status::InvalidState, "the runner is not loaded: llr_runner_load"))
    }

    /// Ends what is going on: a turn at its next token or block, loading at its next step.
    fn stop(&self) {
        match self.loaded.get() {
            Some(facts) => facts.canceller.cancel(),
            None => self.stop_loading.store(true, Ordering::Release),
        }
    }

    /// The statistics of the last turn that ended without an error.
    pub(super) fn last_stats(&self) -> Option<Stats> {
        self.observed.lock().stats
    }

    /// Runs a call that needs the runner for itself, and loads it first when that has not been done.
    pub(super) fn exclusive<R>(&self, body: impl FnOnce(&mut Runner) -> Result<R>) -> Result<R> {
        self.engine.write(|engine| {
            let runner = self.loaded(engine.get_mut(), &mut |_| ControlFlow::Continue(()))?;
            let outcome = body(runner);
            self.observed.lock().position = runner.position();
            outcome
        })
    }

    /// Loads the runner unless it is loaded, and tells `on_progress` of each step.
    pub(super) fn load(&self, on_progress: &mut OnProgress<'_>) -> Result<()> {
        self.engine.write(|engine| self.loaded(engine.get_mut(), on_progress).map(|_| ()))
    }

    fn loaded<'a>(&self, engine: &'a mut Option<Runner>, on_progress: &mut OnProgress<'_>) -> Result<&'a mut Runner> {
        if engine.is_none() {
            self.stop_loading.store(false, Ordering::Release);
            let mut progress = |progress: &LoadProgress<'_>| {
                on_progress(progress)?;
                match self.stop_loading.load(Ordering::Acquire) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            let mut observer = LoadObserver::new(&mut progress);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let mut options = self.plan.runner.clone();
            options.load_started_ms = i64::try_from(now).ok();
            let name = |path: &Option<PathBuf>| {
                path.as_ref().map_or_else(|| default_model::NAME.to_owned(), |path| path.display().to_string())
            };
            let (host, path) = (&self.plan.host, &self.plan.model_path);
            observer.stage(LoadStage::Program, &host.as_ref().map_or_else(|| name(path), |_| HOST_NAME.to_owned()))?;
            let program = match (host, path) {
                (Some(host), _) => Box::new(HostModule::open(host)?),
                (None, Some(path)) => builtin::open_program(path, &self.plan.program)?,
                (None, None) => builtin::open_default_program(&self.plan.program)?,
            };
            observer.stage(LoadStage::Tokenizer, &name(&self.plan.tokenizer_path))?;
            let tokenizer = match &self.plan.tokenizer_path {
                Some(path) => tokenizer::load(path),
                None => tokenizer::from_bytes(default_model::TOKENIZER, Path::new(default_model::NAME)),
            }?;
            let runner = engine.insert(Runner::load_observed(program, tokenizer, options, &mut observer)?);
            self.loaded.get_or_init(|| Facts::of(runner));
        }
        Ok(engine.as_mut().expect("just loaded"))
    }

    /// # Safety
    /// The callbacks may be called with their user data until this returns.
    unsafe fn turn(&self, prompt: Prompt<'_>, config: &GenerationConfig, sinks: &Sinks) -> Result<()> {
        self.engine.write(|engine| {
            self.observed.lock().finish_reason = llr_finish_reason::None;
            let runner = self.loaded(engine.get_mut(), &mut |_| ControlFlow::Continue(()))?;
            // SAFETY: the stream is gone before this function returns.
            let mut stream = unsafe { Stream::new(sinks.token, sinks.user_data) };
            let outcome = runner.generate(prompt, config, &mut |event| stream.token(event));
            self.observed.lock().position = runner.position();
            let generation = outcome?;
            stream.check_answers()?;
            let reason = generation.finish_reason.into();
            {
                let mut observed = self.observed.lock();
                (observed.finish_reason, observed.stats) = (reason, Some(generation.stats));
            }
            stream.finish(reason);
            if let Some(callback) = sinks.stats {
                // SAFETY: the caller's promise; the statistics outlive the call.
                unsafe { callback(&llr_stats::from(generation.stats), sinks.user_data) };
            }
            Ok(())
        })
    }
}

/// A share in the runner for the length of a call, so that a callback may free it.
///
/// # Safety
/// `runner` is NULL or from llr_runner_create and not freed.
pub(super) unsafe fn share(runner: *mut llr_runner) -> Result<Arc<llr_runner>> {
    // SAFETY: the caller's promise.
    unsafe { reference(runner, "runner") }?;
    // SAFETY: every llr_runner is from `Arc::into_raw`, and its owner holds one count while this one is added.
    Ok(unsafe {
        Arc::increment_strong_count(runner);
        Arc::from_raw(runner)
    })
}

/// # Safety
/// `config` is NULL or live.
pub(super) unsafe fn config_or_default(config: *const llr_generation_config) -> Result<GenerationConfig> {
    // SAFETY: the caller's promise.
    unsafe { config.as_ref() }.map_or_else(|| Ok(GenerationConfig::default()), llr_generation_config::copy)
}

/// Makes a runner from options, to be freed by llr_runner_free. Checks the options and that the model and tokenizer
/// files can be opened; reads neither (llr_runner_load does).
///
/// Errors, after which `*out_runner` is as before: LLR_STATUS_INVALID_ARGUMENT (NULL, a model without a tokenizer, incomplete
/// lookahead sizes), LLR_STATUS_ACCESS_FAILED (a file missing, unreadable, or a directory).
///
/// Threads: shared.
///
/// # Safety
/// `options` is NULL or live; `out_runner` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_create(
    options: *const llr_runner_options,
    out_runner: *mut *mut llr_runner,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        check_out(out_runner, "out_runner")?;
        let runner = Arc::new(llr_runner::new(options.plan()?));
        // SAFETY: not NULL, so it points to a pointer of the caller.
        unsafe { out_runner.write(Arc::into_raw(runner).cast_mut()) };
        Ok(())
    })
}

/// Frees the runner and everything it holds; NULL is fine. Called from a callback of a turn or of the loading of this very
/// runner, it stops that, and the memory goes when it is over.
///
/// Threads: last.
///
/// # Safety
/// `runner` is NULL or from llr_runner_create, not freed, and not in use on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_free(runner: *mut llr_runner) {
    guard_value((), || {
        if !runner.is_null() {
            // SAFETY: from `Arc::into_raw`; this takes back the count that belongs to the caller.
            let runner = unsafe { Arc::from_raw(runner) };
            runner.stop();
        }
    })
}

/// Opens the program and the tokenizer, loads the methods and allocates every buffer. Without effect when that was done
/// before.
///
/// Errors, after which the runner is not loaded and loading may be tried again: LLR_STATUS_INVALID_PROGRAM (not a .pte,
/// damaged), LLR_STATUS_TOKENIZER_FAILED, LLR_STATUS_NOT_SUPPORTED, LLR_STATUS_OPERATOR_MISSING,
/// LLR_STATUS_BACKEND_MISSING, LLR_STATUS_LIBRARY_UNAVAILABLE (no QNN library; the message says where it was looked
/// for), LLR_STATUS_DELEGATE_INVALID_COMPATIBILITY, LLR_STATUS_BACKEND_FAILED, LLR_STATUS_MEMORY_ALLOCATION_FAILED and
/// others of llr_status; LLR_STATUS_CANCELLED (llr_runner_cancel), LLR_STATUS_INVALID_STATE (in use), LLR_STATUS_POISONED.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_load(runner: *mut llr_runner) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        runner.load(&mut |_| ControlFlow::Continue(()))
    })
}

/// Runs one turn: processes the prompt behind what is in the context already, then makes tokens until one of the limits
/// of `config` is reached. Loads the runner first when that has not been done. Blocks until the turn is over.
///
/// `prompt` is UTF-8, `prompt_len` bytes, taken as it is: no chat template is put around it. An empty one goes on from
/// the logits that llr_runner_prefill_tokens or llr_runner_step left. `config` NULL means every default.
/// `token_callback` and `stats_callback` may be NULL; both get `user_data`, run on the calling thread, and are not called
/// any more when this returns. That a turn was stopped or cut off is no error: llr_runner_finish_reason tells it.
///
/// Errors that leave the context as it was: LLR_STATUS_INVALID_ARGUMENT (NULL, no UTF-8, empty without such logits),
/// LLR_STATUS_CONTEXT_EXCEEDED (the prompt does not fit), LLR_STATUS_INVALID_STATE (in use, or an earlier turn failed
/// and llr_runner_reset was not called), LLR_STATUS_POISONED, those of llr_runner_load. Errors of the model while the
/// turn runs (LLR_STATUS_BACKEND_FAILED, LLR_STATUS_DELEGATE_INVALID_HANDLE; LLR_STATUS_INVALID_PROGRAM for logits that
/// are NaN) end it without a final chunk; call llr_runner_reset then. A callback's unknown answer, LLR_STATUS_INVALID_ARGUMENT, ends it likewise, and what was made
/// until then stays in the context.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` and `config` are NULL or live; `prompt` is NULL or points to `prompt_len` bytes; the callbacks may be called
/// with `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_generate(
    runner: *mut llr_runner,
    prompt: *const c_char,
    prompt_len: usize,
    config: *const llr_generation_config,
    token_callback: llr_token_callback,
    stats_callback: llr_stats_callback,
    user_data: *mut c_void,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, prompt) = unsafe { (share(runner)?, text(prompt, prompt_len, "prompt")?) };
        // SAFETY: the caller's promise.
        let config = unsafe { config_or_default(config) }?;
        let sinks = Sinks { token: token_callback, stats: stats_callback, user_data };
        // SAFETY: the caller's promise.
        unsafe { runner.turn(Prompt::Text(prompt), &config, &sinks) }
    })
}

/// As llr_runner_generate, with a prompt of `token_count` token ids that are used as they are: nothing is put in front
/// of them.
///
/// Errors: as llr_runner_generate; LLR_STATUS_INVALID_ARGUMENT also for an id outside the vocabulary.
///
/// Threads: one at a time.
///
/// # Safety
/// As llr_runner_generate; `tokens` is NULL or points to `token_count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_generate_tokens(
    runner: *mut llr_runner,
    tokens: *const u64,
    token_count: usize,
    config: *const llr_generation_config,
    token_callback: llr_token_callback,
    stats_callback: llr_stats_callback,
    user_data: *mut c_void,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, tokens) = unsafe { (share(runner)?, slice(tokens, token_count, "tokens")?) };
        // SAFETY: the caller's promise.
        let config = unsafe { config_or_default(config) }?;
        let sinks = Sinks { token: token_callback, stats: stats_callback, user_data };
        // SAFETY: the caller's promise.
        unsafe { runner.turn(Prompt::Tokens(tokens), &config, &sinks) }
    })
}

/// Empties the context: the next turn starts at position 0. Also the way on after a turn that the model failed. Without
/// effect on a runner that is not loaded.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL), LLR_STATUS_INVALID_STATE (in use), LLR_STATUS_POISONED.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_reset(runner: *mut llr_runner) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        runner.engine.write(|engine| {
            if let Some(engine) = engine.get_mut() {
                engine.reset();
                let mut observed = runner.observed.lock();
                observed.position = engine.position();
                observed.finish_reason = llr_finish_reason::None;
            }
            Ok(())
        })
    })
}

/// Stops the running turn at its next token or block of the prompt; the turn then ends with
/// LLR_FINISH_REASON_CANCELLED. Where it is still loading, also for a turn, loading ends at its next step and the call
/// fails with LLR_STATUS_CANCELLED. Without effect when neither is going on. From any thread, at any time before
/// llr_runner_free.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_cancel(runner: *const llr_runner) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { reference(runner, "runner") }?.stop();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::options::llr_runner_options_new;
    use crate::capi::runner_facts::*;
    use crate::runner::RunnerOptions;
    use std::ptr;

    /// A runner of files that are not there: `create` would refuse it, and every later call can be tried on it.
    fn runner_of_nothing() -> *mut llr_runner {
        let nowhere = PathBuf::from("nowhere");
        let plan = Plan {
            host: None,
            model_path: Some(nowhere.join("model.pte")),
            tokenizer_path: Some(nowhere.join("tokenizer.bin")),
            program: Default::default(),
            runner: RunnerOptions::default(),
        };
        Arc::into_raw(Arc::new(llr_runner::new(plan))).cast_mut()
    }

    unsafe fn generate(runner: *mut llr_runner) -> llr_status {
        // SAFETY: the caller gives a live runner; an empty prompt may be NULL.
        unsafe { llr_runner_generate(runner, ptr::null(), 0, ptr::null(), None, None, ptr::null_mut()) }
    }

    #[test]
    fn after_a_panic_only_free_is_left() {
        let runner = runner_of_nothing();
        // SAFETY: live until freed at the end.
        unsafe {
            (*runner).observed.lock().position = 7;
            assert_eq!(llr_runner_position(runner), 7);
            assert_eq!(guard(|| (*runner).engine.write(|_| panic!("in the middle"))), llr_status::Panic);
            assert_eq!(llr_runner_load(runner), llr_status::Poisoned);
            assert_eq!(llr_runner_reset(runner), llr_status::Poisoned);
            assert_eq!(generate(runner), llr_status::Poisoned);
            assert!(!llr_runner_is_loaded(runner));
            assert_eq!(llr_runner_position(runner), 0);
            assert_eq!(llr_runner_cancel(runner), llr_status::Ok);
            llr_runner_free(runner);
        }
    }

    #[test]
    fn calls_during_a_call_are_refused_and_const_ones_are_not() {
        let runner = runner_of_nothing();
        // SAFETY: live until freed at the end.
        unsafe {
            let during = (*runner).engine.write(|_| {
                let refused = [llr_runner_load(runner), llr_runner_reset(runner), generate(runner)];
                assert_eq!(llr_runner_position(runner), 0);
                assert_eq!(llr_runner_finish_reason(runner), llr_finish_reason::None);
                assert_eq!(llr_runner_cancel(runner), llr_status::Ok);
                Ok(refused)
            });
            assert_eq!(during.unwrap(), [llr_status::InvalidState; 3]);
            llr_runner_free(runner);
        }
    }

    #[test]
    fn free_during_a_call_stops_it_and_leaves_the_memory_to_it() {
        let runner = runner_of_nothing();
        // SAFETY: live; the shares stand for running calls.
        let (call, weak) = unsafe {
            let call = share(runner).unwrap();
            let weak = Arc::downgrade(&call);
            llr_runner_free(runner);
            (call, weak)
        };
        assert!(weak.upgrade().is_some() && call.engine.write(|_| Ok(())).is_ok());
        drop(call);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn failed_load_can_be_tried_again() {
        let runner = runner_of_nothing();
        // SAFETY: live until freed at the end.
        unsafe {
            let first = llr_runner_load(runner);
            assert!(!matches!(first, llr_status::Ok | llr_status::Panic | llr_status::Poisoned), "{first:?}");
            assert_eq!(llr_runner_load(runner), first);
            assert_eq!(generate(runner), first, "generate loads first");
            assert!(!llr_runner_is_loaded(runner));
            assert_eq!(llr_runner_reset(runner), llr_status::Ok);
            llr_runner_free(runner);
        }
    }

    #[test]
    fn create_leaves_the_out_parameter_alone_when_it_fails() {
        let options = llr_runner_options_new();
        let mark = ptr::without_provenance_mut(0x10);
        let mut out = mark;
        // SAFETY: live options, a pointer to write to.
        unsafe {
            crate::capi::decoding_options::llr_runner_options_set_ngram(options, 3);
            assert_eq!(llr_runner_create(options, &mut out), llr_status::InvalidArgument, "ngram alone");
            crate::capi::options::llr_runner_options_free(options);
        }
        assert_eq!(out, mark);
    }
}
