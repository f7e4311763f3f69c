//! Setters of `llr_runner_options` that say how a program is used: its methods, its cache, what ends a generation.

use super::guard::guard_set;
use super::options::{llr_runner_options, name_of};
use super::plan::{Settings, invalid};
use super::status::llr_status;
use crate::error::Result;
use crate::runner::{EvalMode, KvUpdater, SharedBuffer};
use std::ffi::c_char;

/// Which of the program's methods do the work. The numbers are ExecuTorch's --eval_mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_eval_mode {
    /// Hybrid when the program has prefill_forward, else kv. The default.
    Auto = -1,
    /// Prompt and answer go through kv_forward (in older files, forward).
    Kv = 0,
    /// The prompt goes through prefill_forward in blocks, the answer through kv_forward.
    Hybrid = 1,
    /// As hybrid, with guessed n-grams that kv_forward verifies several at a time; needs ngram, window and gcap.
    Lookahead = 2,
}

/// How new keys and values enter the cache; files of the newer kind always use SmartMask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_kv_updater {
    /// They are copied to their place, and the mask uncovers it. The default.
    SmartMask = 0,
    /// The start of the cache tensors moves.
    ShiftPointer = 1,
}

/// Whether the model's inputs, outputs and cache lie in memory shared with the DSP (libcdsprpc.so), so that nothing is
/// copied to it and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_shared_buffer {
    /// They lie on the heap. The default.
    Off = 0,
    /// They do where libcdsprpc.so and QNN allow it, else they are copied, and a line of the log says why.
    Prefer = 1,
    /// They do, or it is an error.
    Require = 2,
}

const SHARED_OFF: i32 = llr_shared_buffer::Off as i32;
const SHARED_PREFER: i32 = llr_shared_buffer::Prefer as i32;
const SHARED_REQUIRE: i32 = llr_shared_buffer::Require as i32;
const AUTO: i32 = llr_eval_mode::Auto as i32;
const SMART_MASK: i32 = llr_kv_updater::SmartMask as i32;
const SHIFT_POINTER: i32 = llr_kv_updater::ShiftPointer as i32;

/// The method of a forward(tokens, input_pos) program that processes prompts, and decodes where the program has no method
/// decode. Setting it says that the program is of this kind, as an eval_mode says that it is not. Default: forward, or
/// prefill in programs with methods prefill and decode. A name that no method has is an error of llr_runner_load. UTF-8,
/// `name_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, no UTF-8).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `name` is NULL or points to `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_method_name(
    options: *mut llr_runner_options,
    name: *const c_char,
    name_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.runner.method_name = Some(unsafe { name_of(name, name_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// The model family, as ExecuTorch's --decoder_model_version names it ("llama2", "llama3", "qwen3"): end tokens and chat
/// template. Default: "llama2". An unknown name is an error of llr_runner_load. UTF-8, `name_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, no UTF-8).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `name` is NULL or points to `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_decoder_model_version(
    options: *mut llr_runner_options,
    name: *const c_char,
    name_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.runner.decoder_model_version = Some(unsafe { name_of(name, name_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Which methods do the work, an llr_eval_mode. Default: LLR_EVAL_MODE_AUTO. A mode that the program has no methods for
/// is an error of llr_runner_load.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, unknown number).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_eval_mode(
    options: *mut llr_runner_options,
    eval_mode: i32,
) -> llr_status {
    let set = |settings: &mut Settings| {
        let mode = match eval_mode {
            AUTO => None,
            number => Some(EvalMode::from_number(number.into()).map_err(|_| {
                invalid(format!(
                    "`eval_mode` is {number}, no llr_eval_mode: -1 (auto), 0 (kv), 1 (hybrid), 2 (lookahead)"
                ))
            })?),
        };
        settings.runner.eval_mode = mode;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// How the cache is updated, an llr_kv_updater. Default: LLR_KV_UPDATER_SMART_MASK.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, unknown number).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_kv_updater(
    options: *mut llr_runner_options,
    kv_updater: i32,
) -> llr_status {
    let set = |settings: &mut Settings| {
        let updater = match kv_updater {
            SMART_MASK => KvUpdater::SmartMask,
            SHIFT_POINTER => KvUpdater::ShiftPointer,
            number => {
                let message = format!("kv_updater {number} is neither 0 (SmartMask) nor 1 (ShiftPointer)");
                return Err(invalid(message));
            }
        };
        settings.runner.kv_updater = updater;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// One more token that ends a generation, beside those of the model and the tokenizer. Default: none. A token outside
/// the vocabulary is an error of llr_runner_load.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_add_extra_eos(options: *mut llr_runner_options, token: u64) -> llr_status {
    let set = |settings: &mut Settings| {
        settings.runner.extra_eos.push(token);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Whether the model's inputs and outputs lie in memory shared with the DSP, an llr_shared_buffer; see
/// llr_runner_options_set_rpcmem_library for where libcdsprpc.so is looked for. Default: LLR_SHARED_BUFFER_OFF. With LLR_SHARED_BUFFER_REQUIRE,
/// llr_runner_load fails when there is no such memory, and the first step when QNN does not take a tensor in it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, unknown number).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_shared_buffer(
    options: *mut llr_runner_options,
    shared_buffer: i32,
) -> llr_status {
    let set = |settings: &mut Settings| {
        settings.runner.shared_buffer = match shared_buffer {
            SHARED_OFF => SharedBuffer::Off,
            SHARED_PREFER => SharedBuffer::Prefer,
            SHARED_REQUIRE => SharedBuffer::Require,
            number => {
                return Err(invalid(format!("shared_buffer {number} is none of 0 (off), 1 (prefer), 2 (require)")));
            }
        };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Lookahead decoding: length of a guessed n-gram. Default: none; LLR_EVAL_MODE_LOOKAHEAD needs it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_ngram(options: *mut llr_runner_options, ngram: i32) -> llr_status {
    let set = |settings: &mut Settings| {
        settings.ngram = Some(at_least_one(ngram, "ngram")?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Lookahead decoding: number of lookahead branches. Default: none; LLR_EVAL_MODE_LOOKAHEAD needs it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_window(options: *mut llr_runner_options, window: i32) -> llr_status {
    let set = |settings: &mut Settings| {
        settings.window = Some(at_least_one(window, "window")?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Lookahead decoding: n-grams verified in a step. Default: none; LLR_EVAL_MODE_LOOKAHEAD needs it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_gcap(options: *mut llr_runner_options, gcap: i32) -> llr_status {
    let set = |settings: &mut Settings| {
        settings.gcap = Some(at_least_one(gcap, "gcap")?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

fn at_least_one(number: i32, parameter: &str) -> Result<usize> {
    usize::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| invalid(format!("`{parameter}` is {number}; it must be at least 1")))
}
