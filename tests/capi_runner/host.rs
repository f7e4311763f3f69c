//! A host for the tests: every method is one C call, and keeps to the header's rules.

use crate::common;
use llama_runner::capi::chunk::*;
use llama_runner::capi::error::*;
use llama_runner::capi::generation_config::*;
use llama_runner::capi::options::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::runner_facts::*;
use llama_runner::capi::stats::*;
use llama_runner::capi::status::llr_status;
use llama_runner::capi::stream::llr_stream_answer;
use std::ffi::c_void;
use std::ptr;

pub const CONTINUE: i32 = llr_stream_answer::Continue as i32;
pub const STOP: i32 = llr_stream_answer::Stop as i32;
pub const PROMPT: &str = "Once upon a time";
/// [`PROMPT`] with its beginning-of-sequence token.
pub const PROMPT_TOKENS: [u64; 5] = [1, 403, 407, 261, 378];

/// A runner on a recorded model. Every method is one C call; the tests keep to the header's rules.
pub struct Host(pub *mut llr_runner);

/// What a turn gave.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    pub tokens: Vec<u64>,
    pub text: String,
    pub bytes: Vec<u8>,
    pub log_probabilities: Vec<f64>,
    pub finals: Vec<i32>,
    pub prompt_and_generated: Option<(i64, i64)>,
}

/// What one turn is started with.
pub struct Turn<'a> {
    pub seq_len: i64,
    pub max_new_tokens: i64,
    /// Asked after each chunk with a token: the runner, the tokens so far.
    pub answer: &'a mut dyn FnMut(*mut llr_runner, usize) -> i32,
}

struct UserData<'a, 'b> {
    runner: *mut llr_runner,
    seen: Seen,
    turn: &'a mut Turn<'b>,
}

unsafe extern "C" fn on_chunk(chunk: *const llr_chunk, user_data: *mut c_void) -> i32 {
    let (mut text_len, mut byte_len) = (0, 0);
    // SAFETY: the library hands back the `UserData` of `Host::run` and a live chunk.
    unsafe {
        let data = &mut *user_data.cast::<UserData<'_, '_>>();
        let text = std::slice::from_raw_parts(llr_chunk_text(chunk, &mut text_len).cast::<u8>(), text_len);
        data.seen.text += std::str::from_utf8(text).unwrap_or("<no UTF-8>");
        let bytes = llr_chunk_bytes(chunk, &mut byte_len);
        data.seen.bytes.extend_from_slice(std::slice::from_raw_parts(bytes, byte_len));
        if llr_chunk_is_final(chunk) {
            data.seen.finals.push(llr_chunk_finish_reason(chunk) as i32);
            return CONTINUE;
        }
        data.seen.log_probabilities.push(llr_chunk_log_probability(chunk));
        data.seen.tokens.push(llr_chunk_token_id(chunk).try_into().unwrap_or(u64::MAX));
        (data.turn.answer)(data.runner, data.seen.tokens.len())
    }
}

unsafe extern "C" fn on_stats(stats: *const llr_stats, user_data: *mut c_void) {
    // SAFETY: the library hands back the `UserData` of `Host::run` and live statistics.
    unsafe {
        let data = &mut *user_data.cast::<UserData<'_, '_>>();
        data.seen.prompt_and_generated =
            Some((llr_stats_num_prompt_tokens(stats), llr_stats_num_generated_tokens(stats)));
    }
}

impl Host {
    /// Without a word about a model.
    pub fn without_model() -> Self {
        let mut runner = ptr::null_mut();
        // SAFETY: live options, a pointer to write to.
        unsafe {
            let options = llr_runner_options_new();
            assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok, "{}", message());
            llr_runner_options_free(options);
        }
        Self(runner)
    }

    pub fn new() -> Self {
        Self::of("qnn/ec8f0994ff.pte")
    }

    /// Of a program of the small story model.
    pub fn of(program: &str) -> Self {
        let mut runner = ptr::null_mut();
        let (model, tokenizer) = (common::model(program), common::model("tok512.et.bin"));
        let (model, tokenizer) = (model.to_str().unwrap(), tokenizer.to_str().unwrap());
        // SAFETY: live options and texts, a pointer to write to.
        unsafe {
            let options = llr_runner_options_new();
            llr_runner_options_set_model_path(options, model.as_ptr().cast(), model.len());
            llr_runner_options_set_tokenizer_path(options, tokenizer.as_ptr().cast(), tokenizer.len());
            assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok, "{}", message());
            llr_runner_options_free(options);
        }
        Self(runner)
    }

    pub fn run(&self, prompt: Result<&str, &[u64]>, mut turn: Turn<'_>) -> (llr_status, Seen) {
        // SAFETY: everything is live until the call returns; the callbacks get the `UserData` they expect.
        unsafe {
            let config = llr_generation_config_new();
            assert_eq!(llr_generation_config_set_seq_len(config, turn.seq_len), llr_status::Ok);
            assert_eq!(llr_generation_config_set_max_new_tokens(config, turn.max_new_tokens), llr_status::Ok);
            let mut data = UserData { runner: self.0, seen: Seen::default(), turn: &mut turn };
            let user_data = ptr::from_mut(&mut data).cast();
            let status = match prompt {
                Ok(text) => {
                    let (at, len) = (text.as_ptr().cast(), text.len());
                    llr_runner_generate(self.0, at, len, config, Some(on_chunk), Some(on_stats), user_data)
                }
                Err(ids) => {
                    let (at, len) = (ids.as_ptr(), ids.len());
                    llr_runner_generate_tokens(self.0, at, len, config, Some(on_chunk), Some(on_stats), user_data)
                }
            };
            llr_generation_config_free(config);
            (status, data.seen)
        }
    }

    /// A turn of at most `count` tokens that nobody stops.
    pub fn tokens(&self, count: i64) -> Seen {
        let answer = &mut |_, _| CONTINUE;
        let (status, seen) = self.run(Ok(PROMPT), Turn { seq_len: 0, max_new_tokens: count, answer });
        assert_eq!(status, llr_status::Ok, "{}", message());
        seen
    }

    /// A turn whose callback asks `answer`.
    pub fn with_answer(&self, answer: &mut dyn FnMut(*mut llr_runner, usize) -> i32) -> (llr_status, Seen) {
        self.run(Ok(PROMPT), Turn { seq_len: 0, max_new_tokens: 20, answer })
    }

    pub fn position(&self) -> usize {
        // SAFETY: live.
        unsafe { llr_runner_position(self.0) }
    }

    pub fn finish_reason(&self) -> llr_finish_reason {
        // SAFETY: live.
        unsafe { llr_runner_finish_reason(self.0) }
    }

    pub fn reset(&self) {
        // SAFETY: live.
        assert_eq!(unsafe { llr_runner_reset(self.0) }, llr_status::Ok);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: the one free of this runner; a test that frees it itself puts NULL here.
        unsafe { llr_runner_free(self.0) }
    }
}

pub fn message() -> String {
    let mut needed = 0;
    // SAFETY: asks for the size, then gives a buffer of that size.
    unsafe {
        llr_last_error_message(ptr::null_mut(), 0, &mut needed);
        let mut buffer = vec![0_u8; needed];
        llr_last_error_message(buffer.as_mut_ptr().cast(), buffer.len(), ptr::null_mut());
        buffer.pop();
        String::from_utf8(buffer).unwrap()
    }
}

/// The recorded answer to [`PROMPT`] with seq_len 128: ids, text.
pub fn recorded() -> (Vec<u64>, String) {
    let path = common::shared().join("goldens/runner/cff6f4dd-m1-once-128.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let ids = json["generated_tokens"][0].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    (ids, json["text"].as_str().unwrap().strip_prefix(PROMPT).unwrap().to_owned())
}
