//! `llr_generation_config`: choices for one turn.

use super::guard::{Options, guard_set, guard_value};
use super::handle::Handle;
use super::status::llr_status;
use crate::error::{Error, Result, Status};
use crate::runner::GenerationConfig;
use std::ptr;

/// Stands for "no limit" in llr_generation_config_set_max_new_tokens and llr_generation_config_set_max_decode_steps.
pub const LLR_NO_LIMIT: i64 = -1;

/// Choices for one turn: made by llr_generation_config_new, freed by llr_generation_config_free. It may be used for any
/// number of turns and runners; a turn copies it when it begins.
///
/// Functions: llr_generation_config_*. Setters leave the object as it was when they fail.
pub struct llr_generation_config(Handle<GenerationConfig>);

impl Options for llr_generation_config {
    type Value = GenerationConfig;
    const PARAMETER: &'static str = "config";

    fn handle(&self) -> &Handle<GenerationConfig> {
        &self.0
    }
}

impl llr_generation_config {
    pub(super) fn copy(&self) -> Result<GenerationConfig> {
        self.0.read(|config| Ok(config.clone()))
    }
}

fn refuse<T>(message: String) -> Result<T> {
    Err(Error::new(Status::InvalidArgument, message))
}

fn limit(number: i64, least: i64, parameter: &str) -> Result<Option<usize>> {
    match usize::try_from(number) {
        _ if number == LLR_NO_LIMIT => Ok(None),
        Ok(limit) if number >= least => Ok(Some(limit)),
        _ => refuse(format!("`{parameter}` is {number}; it must be at least {least}, or -1 for no limit")),
    }
}

fn count(number: i32, parameter: &str) -> Result<usize> {
    usize::try_from(number).or_else(|_| refuse(format!("`{parameter}` is {number}; it must be at least 0")))
}

/// A new object with every default, to be freed by llr_generation_config_free. Never fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_generation_config_new() -> *mut llr_generation_config {
    guard_value(ptr::null_mut(), || Box::into_raw(Box::new(llr_generation_config(Handle::default()))))
}

/// Frees the object; NULL is fine.
///
/// Threads: last.
///
/// # Safety
/// `config` is NULL or from llr_generation_config_new, not freed, and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_free(config: *mut llr_generation_config) {
    guard_value((), || {
        if !config.is_null() {
            // SAFETY: from `Box::into_raw` above, and given back once, as the caller promises.
            drop(unsafe { Box::from_raw(config) });
        }
    })
}

/// Length of the context, prompt and earlier turns included, at which the turn ends. Default: 0, the model's context
/// length; more than that is clamped to it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, negative).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_seq_len(
    config: *mut llr_generation_config,
    seq_len: i64,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        let Ok(length) = usize::try_from(seq_len) else {
            let meaning = "it must be at least 0, and 0 means the model's context length";
            return refuse(format!("`seq_len` is {seq_len}; {meaning}"));
        };
        config.seq_len = length;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// Most tokens to make in the turn, the one that the prompt's processing makes included. Default: LLR_NO_LIMIT.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1 and not LLR_NO_LIMIT).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_max_new_tokens(
    config: *mut llr_generation_config,
    max_new_tokens: i64,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        config.max_new_tokens = limit(max_new_tokens, 1, "max_new_tokens")?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// Most decode steps in the turn; 0 stops after the token that the prompt's processing makes. Default: LLR_NO_LIMIT.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, negative and not LLR_NO_LIMIT).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_max_decode_steps(
    config: *mut llr_generation_config,
    max_decode_steps: i64,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        config.max_decode_steps = limit(max_decode_steps, 0, "max_decode_steps")?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// 0 takes the likeliest token, above 0 samples. Default: 0.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, negative, not finite).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_temperature(
    config: *mut llr_generation_config,
    temperature: f32,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        if !temperature.is_finite() || temperature < 0.0 {
            return refuse(format!("`temperature` is {temperature}; it must be finite and at least 0"));
        }
        config.temperature = temperature;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// Sampling takes the likeliest tokens whose probabilities reach this. Default: 0.9.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, not above 0 and at most 1).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_top_p(config: *mut llr_generation_config, top_p: f32) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        if !(top_p > 0.0 && top_p <= 1.0) {
            return refuse(format!("`top_p` is {top_p}; it must be above 0 and at most 1"));
        }
        config.top_p = top_p;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// Seed of the sampler; the same seed gives the same tokens. Default: 0.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_seed(config: *mut llr_generation_config, seed: u64) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        config.seed = seed;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// Goes on after an end-of-sequence token. Default: false.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_ignore_eos(
    config: *mut llr_generation_config,
    ignore_eos: bool,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        config.ignore_eos = ignore_eos;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// Beginning-of-sequence tokens in front of a text prompt when the context is empty; later turns get none. Default: 1. More
/// than 65 536 make the turn fail with LLR_STATUS_TOKENIZER_FAILED.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, negative).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_num_bos(
    config: *mut llr_generation_config,
    num_bos: i32,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        config.num_bos = count(num_bos, "num_bos")?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

/// End-of-sequence tokens behind a text prompt. Default: 0.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, negative).
///
/// Threads: one at a time.
///
/// # Safety
/// `config` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_generation_config_set_num_eos(
    config: *mut llr_generation_config,
    num_eos: i32,
) -> llr_status {
    let set = |config: &mut GenerationConfig| {
        config.num_eos = count(num_eos, "num_eos")?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(config, set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_config(test: impl FnOnce(*mut llr_generation_config)) {
        let config = llr_generation_config_new();
        test(config);
        // SAFETY: just made.
        unsafe { llr_generation_config_free(config) };
    }

    fn get(config: *mut llr_generation_config) -> GenerationConfig {
        // SAFETY: live in `with_config`.
        unsafe { config.as_ref() }.unwrap().copy().unwrap()
    }

    #[test]
    fn o15_default_is_the_context_of_the_model() {
        with_config(|config| {
            let default = get(config);
            assert_eq!((default.seq_len, default.max_new_tokens, default.max_decode_steps), (0, None, None));
        });
    }

    #[test]
    fn o17_negative_seq_len_is_refused_and_zero_is_the_context() {
        with_config(|config| {
            // SAFETY: live.
            unsafe {
                assert_eq!(llr_generation_config_set_seq_len(config, 100_000), llr_status::Ok);
                assert_eq!(llr_generation_config_set_seq_len(config, -5), llr_status::InvalidArgument);
                assert_eq!(get(config).seq_len, 100_000, "a refused setter changed something");
                assert_eq!(llr_generation_config_set_seq_len(config, 0), llr_status::Ok);
            }
            assert_eq!(get(config).seq_len, 0);
        });
    }

    #[test]
    fn setters_reach_their_field() {
        with_config(|config| {
            // SAFETY: live.
            let set = unsafe {
                [
                    llr_generation_config_set_seq_len(config, 64),
                    llr_generation_config_set_max_new_tokens(config, 3),
                    llr_generation_config_set_max_decode_steps(config, 0),
                    llr_generation_config_set_temperature(config, 0.5),
                    llr_generation_config_set_top_p(config, 1.0),
                    llr_generation_config_set_seed(config, 42),
                    llr_generation_config_set_ignore_eos(config, true),
                    llr_generation_config_set_num_bos(config, 0),
                    llr_generation_config_set_num_eos(config, 2),
                ]
            };
            assert_eq!(set, [llr_status::Ok; 9]);
            let want = GenerationConfig {
                seq_len: 64,
                max_new_tokens: Some(3),
                max_decode_steps: Some(0),
                temperature: 0.5,
                top_p: 1.0,
                seed: 42,
                ignore_eos: true,
                num_bos: 0,
                num_eos: 2,
                ..GenerationConfig::default()
            };
            assert_eq!(get(config), want);
            // SAFETY: live.
            unsafe { llr_generation_config_set_max_new_tokens(config, LLR_NO_LIMIT) };
            assert_eq!(get(config).max_new_tokens, None);
        });
    }

    #[test]
    fn values_out_of_range_are_refused_and_change_nothing() {
        with_config(|config| {
            // SAFETY: live.
            let refused = unsafe {
                [
                    llr_generation_config_set_max_new_tokens(config, 0),
                    llr_generation_config_set_max_new_tokens(config, -2),
                    llr_generation_config_set_max_decode_steps(config, -2),
                    llr_generation_config_set_temperature(config, -1.0),
                    llr_generation_config_set_temperature(config, f32::NAN),
                    llr_generation_config_set_temperature(config, f32::INFINITY),
                    llr_generation_config_set_top_p(config, 0.0),
                    llr_generation_config_set_top_p(config, 1.5),
                    llr_generation_config_set_top_p(config, f32::NAN),
                    llr_generation_config_set_num_bos(config, -1),
                    llr_generation_config_set_num_eos(config, i32::MIN),
                ]
            };
            assert_eq!(refused, [llr_status::InvalidArgument; 11]);
            assert_eq!(get(config), GenerationConfig::default());
        });
    }

    #[test]
    fn null_is_refused_or_ignored() {
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(llr_generation_config_set_seed(ptr::null_mut(), 1), llr_status::InvalidArgument);
            llr_generation_config_free(ptr::null_mut());
        }
    }
}
