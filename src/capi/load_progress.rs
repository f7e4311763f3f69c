//! Loading with a callback that is told how far it has come, and may call it off.

use super::guard::{guard, guard_value};
use super::runner::{llr_runner, share};
use super::status::llr_status;
use super::stream::llr_stream_answer;
use crate::error::{Error, Result, Status};
use crate::runner::{LoadProgress, LoadStage};
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::ptr;

/// What loading is at. Later versions may add stages between these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_load_stage {
    /// None: there is no progress to tell of.
    None = 0,
    /// Opens the program.
    Program = 1,
    /// Reads the tokenizer.
    Tokenizer = 2,
    /// Loads a method: prepares its delegates, packs its weights. Takes the longest.
    Method = 3,
    /// Takes memory for inputs, outputs and caches.
    Memory = 4,
    /// Is done.
    Done = 5,
}

impl From<LoadStage> for llr_load_stage {
    fn from(stage: LoadStage) -> Self {
        match stage {
            LoadStage::Program => Self::Program,
            LoadStage::Tokenizer => Self::Tokenizer,
            LoadStage::Method => Self::Method,
            LoadStage::Memory => Self::Memory,
            LoadStage::Done => Self::Done,
        }
    }
}

/// One step of loading, as it begins. Lent to the callback: it and its detail are valid until that callback returns.
///
/// Functions: llr_load_progress_stage, llr_load_progress_fraction, llr_load_progress_detail.
pub struct llr_load_progress {
    stage: llr_load_stage,
    fraction: f32,
    /// With one NUL behind.
    detail: String,
}

impl From<&LoadProgress<'_>> for llr_load_progress {
    fn from(progress: &LoadProgress<'_>) -> Self {
        let LoadProgress { stage, fraction, detail } = *progress;
        Self { stage: stage.into(), fraction, detail: format!("{}\0", detail.replace('\0', " ")) }
    }
}

/// Called on the thread that loads, as each step begins, and once more when all is done. Returns an llr_stream_answer:
/// LLR_STREAM_ANSWER_STOP calls loading off, and the call fails with LLR_STATUS_CANCELLED; any other number but
/// LLR_STREAM_ANSWER_CONTINUE does so with LLR_STATUS_INVALID_ARGUMENT. What llr_token_callback may do with the runner,
/// this one may.
pub type llr_load_callback =
    Option<unsafe extern "C" fn(progress: *const llr_load_progress, user_data: *mut c_void) -> i32>;

/// As llr_runner_load, and tells `callback` (may be NULL) how far it has come. When the runner is loaded already nothing
/// is called.
///
/// Errors: those of llr_runner_load; LLR_STATUS_CANCELLED and LLR_STATUS_INVALID_ARGUMENT by the callback's answer. The
/// runner is not loaded then, and loading may be tried again.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; the callback may be called with `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_load_with_progress(
    runner: *mut llr_runner,
    callback: llr_load_callback,
    user_data: *mut c_void,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        let mut unknown = None;
        let outcome = runner.load(&mut |progress| {
            let Some(callback) = callback else { return ControlFlow::Continue(()) };
            // SAFETY: the caller's promise; the progress outlives the call.
            let answer = unsafe { callback(&llr_load_progress::from(progress), user_data) };
            if answer == llr_stream_answer::Continue as i32 {
                return ControlFlow::Continue(());
            }
            unknown = (answer != llr_stream_answer::Stop as i32).then_some(answer);
            ControlFlow::Break(())
        });
        explain(unknown, outcome)
    })
}

fn explain(unknown: Option<i32>, outcome: Result<()>) -> Result<()> {
    match unknown {
        None => outcome,
        Some(answer) => Err(Error::new(
            Status::InvalidArgument,
            format!("the progress callback answered {answer}, which is neither 0 (continue) nor 1 (stop)"),
        )),
    }
}

/// What begins; LLR_LOAD_STAGE_NONE for NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `progress` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_load_progress_stage(progress: *const llr_load_progress) -> llr_load_stage {
    guard_value(llr_load_stage::None, || {
        // SAFETY: the caller's promise.
        unsafe { progress.as_ref() }.map_or(llr_load_stage::None, |progress| progress.stage)
    })
}

/// How much of the whole is done, 0 to 1, and never less than before: an estimate by steps, not by time. 0 for NULL.
/// Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `progress` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_load_progress_fraction(progress: *const llr_load_progress) -> f32 {
    guard_value(0.0, || {
        // SAFETY: the caller's promise.
        unsafe { progress.as_ref() }.map_or(0.0, |progress| progress.fraction)
    })
}

/// Which file or method, UTF-8 with a NUL behind; empty where there is none. NULL for NULL. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `progress` is NULL or the one given to the running callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_load_progress_detail(progress: *const llr_load_progress) -> *const c_char {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe { progress.as_ref() }.map_or(ptr::null(), |progress| progress.detail.as_ptr().cast())
    })
}
