//! `llr_runner_options`: choices for the life of a runner.

use super::guard::{guard, guard_value};
use super::handle::Handle;
use super::plan::{Plan, Settings, invalid};
use super::pointer::{reference, text};
use super::status::llr_status;
use crate::error::Result;
use crate::runner::{EvalMode, KvUpdater};
use std::ffi::c_char;
use std::path::PathBuf;
use std::ptr;

/// Choices for the life of a runner: made by llr_runner_options_new, freed by llr_runner_options_free. A runner copies
/// what it needs, so the options may be freed, changed or used again after llr_runner_create.
///
/// Functions: llr_runner_options_*. Setters leave the options as they were when they fail.
pub struct llr_runner_options(Handle<Settings>);

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

const AUTO: i32 = llr_eval_mode::Auto as i32;
const SMART_MASK: i32 = llr_kv_updater::SmartMask as i32;
const SHIFT_POINTER: i32 = llr_kv_updater::ShiftPointer as i32;

impl llr_runner_options {
    /// What the options come to; see [`Settings::plan`].
    pub(super) fn plan(&self) -> Result<Plan> {
        self.0.read(Settings::plan)
    }
}

fn path_of(text: &str, parameter: &str) -> Result<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err(invalid(format!("`{parameter}` is empty or has a NUL in it")));
    }
    Ok(PathBuf::from(text))
}

/// New options with every default, to be freed by llr_runner_options_free. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn llr_runner_options_new() -> *mut llr_runner_options {
    guard_value(ptr::null_mut(), || Box::into_raw(Box::new(llr_runner_options(Handle::default()))))
}

/// Frees the options; NULL is fine.
///
/// # Safety
/// `options` is NULL or from llr_runner_options_new, not freed, and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_free(options: *mut llr_runner_options) {
    guard_value((), || {
        if !options.is_null() {
            // SAFETY: from `Box::into_raw` above, and given back once, as the caller promises.
            drop(unsafe { Box::from_raw(options) });
        }
    })
}

/// The .pte file. Default: a small story-telling model that is part of this library, with its own tokenizer. UTF-8,
/// `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_model_path(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, path) = unsafe { (reference(options, "options")?, text(path, path_len, "path")?) };
        let path = path_of(path, "path")?;
        options.0.write(|settings| {
            settings.model_path = Some(path);
            Ok(())
        })
    })
}

/// The tokenizer file: llama2.c .bin, SentencePiece .model, tiktoken or tokenizer.json. Required with a
/// model path; the built-in model brings its own. UTF-8, `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_tokenizer_path(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, path) = unsafe { (reference(options, "options")?, text(path, path_len, "path")?) };
        let path = path_of(path, "path")?;
        options.0.write(|settings| {
            settings.tokenizer_path = Some(path);
            Ok(())
        })
    })
}

/// The directory with libQnnHtp.so and libQnnSystem.so, searched first. Default: the environment variable
/// LLR_QNN_LIB_DIR, then the system's own search. UTF-8, `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_qnn_lib_dir(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, path) = unsafe { (reference(options, "options")?, text(path, path_len, "path")?) };
        let path = path_of(path, "path")?;
        options.0.write(|settings| {
            settings.program.qnn_lib_dir = Some(path);
            Ok(())
        })
    })
}

/// The model family, as ExecuTorch's --decoder_model_version names it ("llama2", "llama3", "qwen3"): end tokens and chat
/// template. Default: "llama2". An unknown name is an error of llr_runner_load. UTF-8, `name_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, no UTF-8).
///
/// # Safety
/// `options` is NULL or live; `name` is NULL or points to `name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_decoder_model_version(
    options: *mut llr_runner_options,
    name: *const c_char,
    name_len: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (options, name) = unsafe { (reference(options, "options")?, text(name, name_len, "name")?) };
        if name.is_empty() {
            return Err(invalid("`name` is empty".into()));
        }
        options.0.write(|settings| {
            settings.runner.decoder_model_version = Some(name.to_owned());
            Ok(())
        })
    })
}

/// Which methods do the work, an llr_eval_mode. Default: LLR_EVAL_MODE_AUTO. A mode that the program has no methods for
/// is an error of llr_runner_load.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, unknown number).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_eval_mode(
    options: *mut llr_runner_options,
    eval_mode: i32,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        let mode = match eval_mode {
            AUTO => None,
            number => Some(EvalMode::from_number(number.into())?),
        };
        options.0.write(|settings| {
            settings.runner.eval_mode = mode;
            Ok(())
        })
    })
}

/// How the cache is updated, an llr_kv_updater. Default: LLR_KV_UPDATER_SMART_MASK.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, unknown number).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_kv_updater(
    options: *mut llr_runner_options,
    kv_updater: i32,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        let updater = match kv_updater {
            SMART_MASK => KvUpdater::SmartMask,
            SHIFT_POINTER => KvUpdater::ShiftPointer,
            number => {
                let message = format!("kv_updater {number} is neither 0 (SmartMask) nor 1 (ShiftPointer)");
                return Err(invalid(message));
            }
        };
        options.0.write(|settings| {
            settings.runner.kv_updater = updater;
            Ok(())
        })
    })
}

/// One more token that ends a generation, beside those of the model and the tokenizer. Default: none. A token outside
/// the vocabulary is an error of llr_runner_load.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_add_extra_eos(options: *mut llr_runner_options, token: u64) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        options.0.write(|settings| {
            settings.runner.extra_eos.push(token);
            Ok(())
        })
    })
}

/// Puts the model's inputs and outputs into memory shared with the DSP. Default: false.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_shared_buffer(
    options: *mut llr_runner_options,
    shared_buffer: bool,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        options.0.write(|settings| {
            settings.runner.shared_buffer = shared_buffer;
            Ok(())
        })
    })
}

/// Lookahead decoding: length of a guessed n-gram. Default: none; LLR_EVAL_MODE_LOOKAHEAD needs it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_ngram(options: *mut llr_runner_options, ngram: i32) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        let ngram = at_least_one(ngram, "ngram")?;
        options.0.write(|settings| {
            settings.ngram = Some(ngram);
            Ok(())
        })
    })
}

/// Lookahead decoding: number of lookahead branches. Default: none; LLR_EVAL_MODE_LOOKAHEAD needs it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_window(options: *mut llr_runner_options, window: i32) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        let window = at_least_one(window, "window")?;
        options.0.write(|settings| {
            settings.window = Some(window);
            Ok(())
        })
    })
}

/// Lookahead decoding: n-grams verified in a step. Default: none; LLR_EVAL_MODE_LOOKAHEAD needs it.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, less than 1).
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_gcap(options: *mut llr_runner_options, gcap: i32) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { reference(options, "options") }?;
        let gcap = at_least_one(gcap, "gcap")?;
        options.0.write(|settings| {
            settings.gcap = Some(gcap);
            Ok(())
        })
    })
}

fn at_least_one(number: i32, parameter: &str) -> Result<usize> {
    usize::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| invalid(format!("`{parameter}` is {number}; it must be at least 1")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::error::message_of_this_thread;
    use crate::runner::LookaheadConfig;

    /// Options whose two files exist, and the files.
    fn with_files(test: impl FnOnce(*mut llr_runner_options)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let options = llr_runner_options_new();
        // SAFETY: live options and a live text.
        unsafe {
            for set in [llr_runner_options_set_model_path, llr_runner_options_set_tokenizer_path] {
                assert_eq!(set(options, path.as_ptr().cast(), path.len()), llr_status::Ok);
            }
            test(options);
            llr_runner_options_free(options);
        }
    }

    fn plan(options: *mut llr_runner_options) -> Result<Plan> {
        // SAFETY: live in `with_files`.
        unsafe { reference(options, "options") }.unwrap().plan()
    }

    #[test]
    fn setters_reach_their_field() {
        with_files(|options| {
            // SAFETY: live.
            let set = unsafe {
                [
                    llr_runner_options_set_qnn_lib_dir(options, c"q".as_ptr(), 1),
                    llr_runner_options_set_decoder_model_version(options, c"qwen3".as_ptr(), 5),
                    llr_runner_options_set_eval_mode(options, llr_eval_mode::Lookahead as i32),
                    llr_runner_options_set_kv_updater(options, llr_kv_updater::ShiftPointer as i32),
                    llr_runner_options_add_extra_eos(options, 7),
                    llr_runner_options_add_extra_eos(options, 9),
                    llr_runner_options_set_shared_buffer(options, true),
                    llr_runner_options_set_ngram(options, 3),
                    llr_runner_options_set_window(options, 4),
                    llr_runner_options_set_gcap(options, 5),
                ]
            };
            assert_eq!(set, [llr_status::Ok; 10]);
            let plan = plan(options).unwrap();
            assert_eq!(plan.program.qnn_lib_dir, Some(PathBuf::from("q")));
            assert_eq!(plan.runner.decoder_model_version.as_deref(), Some("qwen3"));
            assert_eq!(plan.runner.eval_mode, Some(EvalMode::Lookahead));
            assert_eq!(plan.runner.kv_updater, KvUpdater::ShiftPointer);
            assert_eq!(plan.runner.extra_eos, [7, 9]);
            assert!(plan.runner.shared_buffer);
            assert_eq!(plan.runner.lookahead, Some(LookaheadConfig { ngram: 3, window: 4, gcap: 5 }));
        });
    }

    #[test]
    fn every_mode_number_is_that_of_the_runner_and_auto_is_none() {
        with_files(|options| {
            for (mode, want) in [
                (llr_eval_mode::Kv, Some(EvalMode::Kv)),
                (llr_eval_mode::Hybrid, Some(EvalMode::Hybrid)),
                (llr_eval_mode::Auto, None),
            ] {
                // SAFETY: live.
                assert_eq!(unsafe { llr_runner_options_set_eval_mode(options, mode as i32) }, llr_status::Ok);
                assert_eq!(plan(options).unwrap().runner.eval_mode, want);
            }
        });
    }

    #[test]
    fn unknown_numbers_are_refused_and_change_nothing() {
        with_files(|options| {
            // SAFETY: live.
            let refused = unsafe {
                llr_runner_options_set_eval_mode(options, 0);
                [
                    llr_runner_options_set_eval_mode(options, 9),
                    llr_runner_options_set_eval_mode(options, -2),
                    llr_runner_options_set_kv_updater(options, 2),
                    llr_runner_options_set_ngram(options, 0),
                    llr_runner_options_set_window(options, -1),
                    llr_runner_options_set_gcap(options, i32::MIN),
                ]
            };
            assert_eq!(refused, [llr_status::InvalidArgument; 6]);
            let plan = plan(options).unwrap();
            assert_eq!((plan.runner.eval_mode, plan.runner.lookahead), (Some(EvalMode::Kv), None));
        });
    }

    #[test]
    fn bad_text_is_refused() {
        let options = llr_runner_options_new();
        for text in [&b""[..], b"a\0b", b"\xff"] {
            // SAFETY: live options and a live text.
            let status = unsafe { llr_runner_options_set_model_path(options, text.as_ptr().cast(), text.len()) };
            assert_eq!(status, llr_status::InvalidArgument, "{text:?}");
        }
        // SAFETY: live.
        unsafe { llr_runner_options_free(options) };
    }

    #[test]
    fn null_is_refused_or_ignored() {
        // SAFETY: NULL is allowed.
        unsafe {
            assert_eq!(llr_runner_options_set_ngram(ptr::null_mut(), 3), llr_status::InvalidArgument);
            assert_eq!(message_of_this_thread().unwrap(), "`options` is NULL");
            llr_runner_options_free(ptr::null_mut());
        }
    }
}
