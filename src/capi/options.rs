//! `llr_runner_options`: choices for the life of a runner, and those of them that are about files and threads.

use super::guard::{Options, guard_set, guard_value};
use super::handle::Handle;
use super::plan::{Plan, Settings, invalid};
use super::pointer::text;
use super::status::llr_status;
use crate::error::Result;
use std::ffi::c_char;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::ptr;

/// Choices for the life of a runner: made by llr_runner_options_new, freed by llr_runner_options_free. A runner copies
/// what it needs, so the options may be freed, changed or used again after llr_runner_create.
///
/// Functions: llr_runner_options_*. Setters leave the options as they were when they fail.
pub struct llr_runner_options(Handle<Settings>);

impl llr_runner_options {
    /// What the options come to; see [`Settings::plan`].
    pub(super) fn plan(&self) -> Result<Plan> {
        self.0.read(Settings::plan)
    }
}

impl Options for llr_runner_options {
    type Value = Settings;
    const PARAMETER: &'static str = "options";

    fn handle(&self) -> &Handle<Settings> {
        &self.0
    }
}

/// # Safety
/// `path` is NULL or points to `len` bytes.
pub(super) unsafe fn path_of(path: *const c_char, len: usize) -> Result<PathBuf> {
    // SAFETY: the caller's promise.
    match unsafe { text(path, len, "path") }? {
        path if path.is_empty() || path.contains('\0') => Err(invalid("`path` is empty or has a NUL in it".into())),
        path => Ok(PathBuf::from(path)),
    }
}

/// # Safety
/// `name` is NULL or points to `len` bytes.
pub(super) unsafe fn name_of(name: *const c_char, len: usize) -> Result<String> {
    // SAFETY: the caller's promise.
    match unsafe { text(name, len, "name") }? {
        "" => Err(invalid("`name` is empty".into())),
        name => Ok(name.to_owned()),
    }
}

/// New options with every default, to be freed by llr_runner_options_free. Never fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn llr_runner_options_new() -> *mut llr_runner_options {
    guard_value(ptr::null_mut(), || Box::into_raw(Box::new(llr_runner_options(Handle::default()))))
}

/// Frees the options; NULL is fine.
///
/// Threads: last.
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
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_model_path(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.model_path = Some(unsafe { path_of(path, path_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// The tokenizer file: llama2.c .bin, SentencePiece .model, tiktoken or tokenizer.json. Required with a
/// model path; the built-in model brings its own. UTF-8, `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_tokenizer_path(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.tokenizer_path = Some(unsafe { path_of(path, path_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// The directory with libQnnHtp.so and libQnnSystem.so, searched first. Default: the environment variable
/// LLR_QNN_LIB_DIR, then the system's own search. UTF-8, `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_qnn_lib_dir(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.program.qnn_lib_dir = Some(unsafe { path_of(path, path_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// libcdsprpc.so or its directory, for llr_runner_options_set_shared_buffer; when it is named, nothing else is tried.
/// Default: the environment variable LLR_RPCMEM_LIB, then the system's own search, then Android's vendor directory. UTF-8,
/// `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_rpcmem_library(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.runner.rpcmem_lib = Some(unsafe { path_of(path, path_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// One more external data file (.ptd) with tensors or weights that the program refers to by name. Default: none. UTF-8,
/// `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_add_data_path(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.program.data_paths.push(unsafe { path_of(path, path_len) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Threads that compute what runs on the CPU, at most 256. Default: 0, as many as the machine has fast cores. More than it
/// has cores slow each other, and a line of the log says so.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, negative).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_cpu_threads(
    options: *mut llr_runner_options,
    cpu_threads: i32,
) -> llr_status {
    let set = |settings: &mut Settings| {
        let threads = usize::try_from(cpu_threads);
        let negative = |_| invalid(format!("`cpu_threads` is {cpu_threads}; it must be at least 0"));
        settings.program.cpu_threads = NonZeroUsize::new(threads.map_err(negative)?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::decoding_options::*;
    use crate::capi::error::message_of_this_thread;
    use crate::runner::{EvalMode, KvUpdater, LookaheadConfig, SharedBuffer};

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
        unsafe { options.as_ref() }.unwrap().plan()
    }

    #[test]
    fn setters_reach_their_field() {
        with_files(|options| {
            // SAFETY: live.
            let set = unsafe {
                [
                    llr_runner_options_set_qnn_lib_dir(options, c"q".as_ptr(), 1),
                    llr_runner_options_set_rpcmem_library(options, c"cdsp".as_ptr(), 4),
                    llr_runner_options_set_decoder_model_version(options, c"qwen3".as_ptr(), 5),
                    llr_runner_options_set_eval_mode(options, llr_eval_mode::Lookahead as i32),
                    llr_runner_options_set_kv_updater(options, llr_kv_updater::ShiftPointer as i32),
                    llr_runner_options_add_extra_eos(options, 7),
                    llr_runner_options_add_extra_eos(options, 9),
                    llr_runner_options_set_shared_buffer(options, llr_shared_buffer::Require as i32),
                    llr_runner_options_set_ngram(options, 3),
                    llr_runner_options_set_window(options, 4),
                    llr_runner_options_set_gcap(options, 5),
                    llr_runner_options_add_data_path(options, c"a.ptd".as_ptr(), 5),
                    llr_runner_options_add_data_path(options, c"b.ptd".as_ptr(), 5),
                    llr_runner_options_set_cpu_threads(options, 3),
                    llr_runner_options_set_method_name(options, c"prefill".as_ptr(), 7),
                ]
            };
            assert_eq!(set, [llr_status::Ok; 15]);
            let plan = plan(options).unwrap();
            assert_eq!(plan.program.qnn_lib_dir, Some(PathBuf::from("q")));
            assert_eq!(plan.runner.rpcmem_lib, Some(PathBuf::from("cdsp")));
            assert_eq!(plan.runner.decoder_model_version.as_deref(), Some("qwen3"));
            assert_eq!(plan.runner.eval_mode, Some(EvalMode::Lookahead));
            assert_eq!(plan.runner.kv_updater, KvUpdater::ShiftPointer);
            assert_eq!(plan.runner.extra_eos, [7, 9]);
            assert_eq!(plan.runner.shared_buffer, SharedBuffer::Require);
            assert_eq!(plan.program.data_paths, [PathBuf::from("a.ptd"), PathBuf::from("b.ptd")]);
            assert_eq!(plan.program.cpu_threads, NonZeroUsize::new(3));
            assert_eq!(plan.runner.method_name.as_deref(), Some("prefill"));
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
                    llr_runner_options_set_cpu_threads(options, -1),
                    llr_runner_options_set_method_name(options, ptr::null(), 0),
                    llr_runner_options_add_data_path(options, ptr::null(), 3),
                ]
            };
            assert_eq!(refused, [llr_status::InvalidArgument; 9]);
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
