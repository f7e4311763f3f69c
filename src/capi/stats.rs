//! `llr_stats`: times and counts of a turn, with the names of ExecuTorch's `stats.h`.

use super::guard::{guard, guard_value};
use super::pointer::{Buffer, check_out, reference};
use super::runner::llr_runner;
use super::status::llr_status;
use crate::error::{Error, Status};
use crate::runner::Stats;
use std::ffi::{c_char, c_void};

/// Times and counts of one turn. Lent to the stats callback: valid until it returns, freed by the library. Or made by
/// llr_stats_create, and then freed by llr_stats_free.
///
/// Functions: llr_stats_*; each getter gives 0 for NULL and never fails.
pub struct llr_stats(Stats);

impl From<Stats> for llr_stats {
    fn from(stats: Stats) -> Self {
        Self(stats)
    }
}

/// Called once, on the thread that runs the turn, after the final chunk of a turn that ended without an error. The
/// rules of llr_token_callback hold.
pub type llr_stats_callback = Option<unsafe extern "C" fn(stats: *const llr_stats, user_data: *mut c_void)>;

/// The statistics of the last turn that ended without an error, to be freed by llr_stats_free.
///
/// Errors, after which `*out_stats` is as before: LLR_STATUS_INVALID_ARGUMENT (NULL), LLR_STATUS_INVALID_STATE (no turn
/// has ended yet).
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live; `out_stats` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_create(runner: *const llr_runner, out_stats: *mut *mut llr_stats) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { reference(runner, "runner") }?;
        check_out(out_stats, "out_stats")?;
        let none = || Error::new(Status::InvalidState, "no turn of this runner has ended yet");
        let stats = Box::new(llr_stats(runner.last_stats().ok_or_else(none)?));
        // SAFETY: not NULL, so it points to a pointer of the caller.
        unsafe { out_stats.write(Box::into_raw(stats)) };
        Ok(())
    })
}

/// Frees what llr_stats_create made; NULL is fine. Not for statistics that were lent to a callback.
///
/// Threads: last.
///
/// # Safety
/// `stats` is NULL or from llr_stats_create and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_free(stats: *mut llr_stats) {
    guard_value((), || {
        if !stats.is_null() {
            // SAFETY: from `Box::into_raw` above, and given back once, as the caller promises.
            drop(unsafe { Box::from_raw(stats) });
        }
    })
}

/// The statistics as one JSON object, with the keys that ExecuTorch's runners report after "PyTorchObserver":
/// prefill_token_per_sec and decode_token_per_sec (each only where its time is a millisecond at least), prompt_tokens,
/// generated_tokens, model_load_start_ms and so on.
///
/// Ask for the size with `buffer` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of bytes, a
/// NUL at the end included.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small).
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live; `buffer` is NULL or has room for `capacity` bytes; `out_count` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_to_json(
    stats: *const llr_stats,
    buffer: *mut c_char,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let stats = unsafe { reference(stats, "stats") }?;
        // SAFETY: the caller's promise.
        unsafe { Buffer { data: buffer, capacity, out_count }.fill_text(&stats.0.report_json()) }
    })
}

/// # Safety
/// `stats` is NULL or live.
unsafe fn field(stats: *const llr_stats, get: impl FnOnce(&Stats) -> i64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { stats.as_ref() }.map_or(0, |stats| get(&stats.0))
}

/// When loading began, in milliseconds since the Unix epoch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_model_load_start_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.model_load_start_ms) })
}

/// When loading ended, in milliseconds since the Unix epoch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_model_load_end_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.model_load_end_ms) })
}

/// When the turn began, in milliseconds since the Unix epoch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_inference_start_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.inference_start_ms) })
}

/// When the prompt was processed, in milliseconds since the Unix epoch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_prompt_eval_end_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.prompt_eval_end_ms) })
}

/// When the first token was there, in milliseconds since the Unix epoch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_first_token_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.first_token_ms) })
}

/// When the turn ended, in milliseconds since the Unix epoch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_inference_end_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.inference_end_ms) })
}

/// Milliseconds spent choosing tokens.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_aggregate_sampling_time_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.aggregate_sampling_time_ms) })
}

/// Milliseconds spent inside the model.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_aggregate_model_execution_time_ms(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.aggregate_model_execution_time_ms) })
}

/// Prompt tokens of the turn.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_num_prompt_tokens(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.num_prompt_tokens) })
}

/// Tokens made by decode steps. The one that the prompt's processing makes is not counted, as in ExecuTorch.
///
/// Threads: shared.
///
/// # Safety
/// `stats` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_stats_num_generated_tokens(stats: *const llr_stats) -> i64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(stats, |stats| stats.num_generated_tokens) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_getter_gives_its_own_field_and_null_gives_zero() {
        let stats = llr_stats(Stats {
            model_load_start_ms: 1,
            model_load_end_ms: 2,
            inference_start_ms: 3,
            prompt_eval_end_ms: 4,
            first_token_ms: 5,
            inference_end_ms: 6,
            aggregate_sampling_time_ms: 7,
            aggregate_model_execution_time_ms: 8,
            num_prompt_tokens: 9,
            num_generated_tokens: 10,
        });
        let getters = [
            llr_stats_model_load_start_ms,
            llr_stats_model_load_end_ms,
            llr_stats_inference_start_ms,
            llr_stats_prompt_eval_end_ms,
            llr_stats_first_token_ms,
            llr_stats_inference_end_ms,
            llr_stats_aggregate_sampling_time_ms,
            llr_stats_aggregate_model_execution_time_ms,
            llr_stats_num_prompt_tokens,
            llr_stats_num_generated_tokens,
        ];
        for (getter, want) in getters.into_iter().zip(1..) {
            // SAFETY: a live object, and NULL.
            assert_eq!(unsafe { (getter(&stats), getter(std::ptr::null())) }, (want, 0));
        }
    }
}
