//! What a runner tells of itself without being taken: the getters, which may be called while a turn runs.

use super::chunk::llr_finish_reason;
use super::decoding_options::llr_eval_mode;
use super::guard::guard_value;
use super::runner::llr_runner;
use crate::runner::{Canceller, EvalMode, Runner, Stats};
use crate::tokenizer::{TokenId, Tokenizer};
use std::sync::Arc;

/// What does not change any more once the runner is loaded.
pub(super) struct Facts {
    pub(super) canceller: Canceller,
    pub(super) tokenizer: Arc<dyn Tokenizer>,
    pub(super) eos_ids: Vec<TokenId>,
    pub(super) vocab_size: usize,
    context_len: usize,
    eval_mode: Option<EvalMode>,
    cpu_threads: Option<usize>,
}

impl Facts {
    pub(super) fn of(runner: &Runner) -> Self {
        Self {
            canceller: runner.canceller(),
            tokenizer: Arc::clone(runner.tokenizer()),
            eos_ids: runner.eos_ids().to_vec(),
            vocab_size: runner.vocab_size(),
            context_len: runner.context_len(),
            eval_mode: runner.eval_mode(),
            cpu_threads: runner.cpu_threads(),
        }
    }
}

/// What the const functions tell. The lock is held only to copy, never while anything else runs.
pub(super) struct Observed {
    pub(super) position: usize,
    pub(super) finish_reason: llr_finish_reason,
    pub(super) stats: Option<Stats>,
}

/// True when the runner is loaded and can be used; false for NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_is_loaded(runner: *const llr_runner) -> bool {
    // SAFETY: the caller's promise.
    guard_value(false, || unsafe { known(runner, false, |_| true) })
}

/// Tokens in the context as of the last finished call; 0 for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_position(runner: *const llr_runner) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { observe(runner, 0, |seen| seen.position) })
}

/// Most tokens that the context can hold; 0 for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_context_length(runner: *const llr_runner) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { known(runner, 0, |facts| facts.context_len) })
}

/// Why the last turn ended; LLR_FINISH_REASON_NONE for NULL, while a turn runs, after one that failed, after
/// llr_runner_reset, and before the first. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_finish_reason(runner: *const llr_runner) -> llr_finish_reason {
    let none = llr_finish_reason::None;
    // SAFETY: the caller's promise.
    guard_value(none, || unsafe { observe(runner, none, |seen| seen.finish_reason) })
}

/// Tokens of the vocabulary, as the rows of logits have them; 0 for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_vocabulary_size(runner: *const llr_runner) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { known(runner, 0, |facts| facts.vocab_size) })
}

/// The mode that a static program runs in, an llr_eval_mode: as asked for or as chosen. LLR_EVAL_MODE_AUTO for a
/// program of the other kind, forward(tokens, input_pos), which has no modes, for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_eval_mode(runner: *const llr_runner) -> i32 {
    let auto = llr_eval_mode::Auto as i32;
    let mode = |facts: &Facts| facts.eval_mode.map_or(auto, |mode| mode as i32);
    // SAFETY: the caller's promise.
    guard_value(auto, || unsafe { known(runner, auto, mode) })
}

/// Threads that compute what runs on the CPU. They are chosen before loading, by llr_runner_options_set_cpu_threads; 0
/// when nothing of the program is computed by threads, for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_cpu_threads(runner: *const llr_runner) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { known(runner, 0, |facts| facts.cpu_threads.unwrap_or(0)) })
}

/// # Safety
/// `runner` is NULL or live.
pub(super) unsafe fn known<T>(runner: *const llr_runner, default: T, get: impl FnOnce(&Facts) -> T) -> T {
    // SAFETY: the caller's promise.
    match unsafe { runner.as_ref() } {
        Some(runner) if !runner.engine.is_poisoned() => runner.loaded.get().map_or(default, get),
        _ => default,
    }
}

/// # Safety
/// `runner` is NULL or live.
unsafe fn observe<T>(runner: *const llr_runner, default: T, get: impl FnOnce(&Observed) -> T) -> T {
    // SAFETY: the caller's promise.
    match unsafe { runner.as_ref() } {
        Some(runner) if !runner.engine.is_poisoned() => get(&runner.observed.lock()),
        _ => default,
    }
}
