//! The log of the process, heard through the C callback by one test at a time.

use crate::common;
use crate::host::*;
use llama_runner::capi::log::*;
use llama_runner::capi::options::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::status::llr_status;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LISTENER: Mutex<()> = Mutex::new(());

unsafe extern "C" fn on_line(_: i32, line: *const c_char, line_len: usize, _: *mut c_void) {
    // SAFETY: the library lends a text of this length.
    let line = unsafe { std::slice::from_raw_parts(line.cast(), line_len) };
    LINES.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
}

/// Warnings and errors, until it goes.
pub struct Lines(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Lines {
    pub fn listen() -> Self {
        let turn = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the callback takes what it is given.
        let set = unsafe { llr_set_log_callback(llr_log_level::Warning as i32, Some(on_line), ptr::null_mut()) };
        assert_eq!(set, llr_status::Ok);
        Self(turn)
    }

    pub fn clear(&self) {
        LINES.lock().unwrap().clear();
    }

    /// Whether a line has these words in it.
    pub fn have(&self, words: &str) -> bool {
        LINES.lock().unwrap().iter().any(|line| line.contains(words))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: no callback is allowed.
        unsafe { llr_set_log_callback(llr_log_level::Warning as i32, None, ptr::null_mut()) };
        self.clear();
    }
}

/// Loads with options that `choose` makes.
fn load(choose: impl FnOnce(*mut llr_runner_options)) -> Host {
    let mut runner = ptr::null_mut();
    // SAFETY: live options, a pointer to write to.
    unsafe {
        let options = llr_runner_options_new();
        choose(options);
        assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok, "{}", message());
        llr_runner_options_free(options);
        assert_eq!(llr_runner_load(runner), llr_status::Ok, "{}", message());
    }
    Host(runner)
}

#[test]
fn more_threads_than_cores_run_and_are_warned_of() {
    let lines = Lines::listen();
    // SAFETY: live options.
    let host = load(|options| unsafe {
        assert_eq!(llr_runner_options_set_cpu_threads(options, 1000), llr_status::Ok);
    });
    assert!(lines.have("cpu_threads is 1000, this machine has "));
    assert!(!host.tokens(2).tokens.is_empty());
    lines.clear();
    drop(load(|_| {}));
    assert!(!lines.have("cpu_threads"));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_tokenizer_with_more_tokens_than_the_model_runs_and_is_warned_of() {
    let lines = Lines::listen();
    let with_tokenizer = |tokenizer: &str| {
        let set = |options, setter: unsafe extern "C" fn(_, *const c_char, usize) -> llr_status, file: &str| {
            let path = common::model(file);
            let path = path.to_str().unwrap();
            // SAFETY: live options and a live text.
            assert_eq!(unsafe { setter(options, path.as_ptr().cast(), path.len()) }, llr_status::Ok);
        };
        drop(load(|options| {
            set(options, llr_runner_options_set_model_path, "portable/portable_s260k_fp32_kv.pte");
            set(options, llr_runner_options_set_tokenizer_path, tokenizer);
        }));
    };
    with_tokenizer("tok512.et.bin");
    assert!(!lines.have("the tokenizer has"));
    with_tokenizer("story/tokenizer.json");
    assert!(lines.have("the tokenizer has 979 tokens, the model knows 512"));
}
