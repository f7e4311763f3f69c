//! Setters of `llr_runner_options` that say whose runtime runs the program: the host's own, through a table of callbacks, or
//! that of an adapter library. The table itself is declared in `runtime/host_module/table.rs`.

use super::guard::guard_set;
use super::options::{llr_runner_options, path_of};
use super::plan::Settings;
use super::status::llr_status;
use crate::builtin::Runtime;
use crate::runtime::{Host, HostTable};
use std::ffi::{c_char, c_void};

/// Lets the host run the program: every method is loaded and executed by the callbacks of `table`, which is copied, on
/// `module`. No model path is needed then, and none may be set; a tokenizer is. On success the module belongs to the
/// options and to the runners made of them, and the table's `release` is called when the last of them is freed, or when
/// another module is set and no runner has this one. One loaded runner at a time can use it: to load a second one is
/// LLR_STATUS_INVALID_STATE until the first is freed. llama_runner_executorch.hpp makes a table of an ExecuTorch Module.
///
/// Errors, after which the module is still the caller's: LLR_STATUS_INVALID_ARGUMENT (NULL, a struct_size that is too
/// small, a callback that is missing; `module` may be NULL), LLR_STATUS_NOT_SUPPORTED (a table of another version).
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `table` is NULL or points to as many bytes as it says; its callbacks do what
/// llr_module_table says and may be called with `module` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_host_module(
    options: *mut llr_runner_options,
    table: *const HostTable,
    module: *mut c_void,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.host = Some(unsafe { Host::new(table, module) }?);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}

/// Lets ExecuTorch run the program, through the adapter library at `path` (a file, or the directory of
/// libllr_module_executorch.so): every backend and kernel that the adapter is linked with works. Needs a model path.
/// Default: this library's own runtime. UTF-8, `path_len` bytes.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL, empty, a NUL inside, no UTF-8). That the library is missing is an error of
/// llr_runner_load, LLR_STATUS_LIBRARY_UNAVAILABLE.
///
/// Threads: one at a time.
///
/// # Safety
/// `options` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_options_set_module_library(
    options: *mut llr_runner_options,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    let set = |settings: &mut Settings| {
        // SAFETY: the caller's promise.
        settings.program.runtime = Runtime::Executorch { library: Some(unsafe { path_of(path, path_len) }?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { guard_set(options, set) }
}
