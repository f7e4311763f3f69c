//! The C functions on a real model: the stream, its ends, and what a host may and may not do from a callback.

mod common;

use llama_runner::capi::chunk::*;
use llama_runner::capi::error::*;
use llama_runner::capi::generation_config::*;
use llama_runner::capi::options::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::stats::*;
use llama_runner::capi::status::llr_status;
use llama_runner::capi::stream::llr_stream_answer;
use std::ffi::c_void;
use std::ptr;

const CONTINUE: i32 = llr_stream_answer::Continue as i32;
const STOP: i32 = llr_stream_answer::Stop as i32;
const PROMPT: &str = "Once upon a time";
/// [`PROMPT`] with its beginning-of-sequence token.
const PROMPT_TOKENS: [u64; 5] = [1, 403, 407, 261, 378];

/// A runner on a recorded model. Every method is one C call; the tests keep to the header's rules.
struct Host(*mut llr_runner);

/// What a turn gave.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    tokens: Vec<u64>,
    text: String,
    bytes: Vec<u8>,
    finals: Vec<i32>,
    prompt_and_generated: Option<(i64, i64)>,
}

/// What one turn is started with.
struct Turn<'a> {
    seq_len: i64,
    max_new_tokens: i64,
    /// Asked after each chunk with a token: the runner, the tokens so far.
    answer: &'a mut dyn FnMut(*mut llr_runner, usize) -> i32,
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
    fn without_model() -> Self {
        let mut runner = ptr::null_mut();
        // SAFETY: live options, a pointer to write to.
        unsafe {
            let options = llr_runner_options_new();
            assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok, "{}", message());
            llr_runner_options_free(options);
        }
        Self(runner)
    }

    fn new() -> Self {
        let mut runner = ptr::null_mut();
        let (model, tokenizer) = (common::model("qnn/ec8f0994ff.pte"), common::model("tok512.et.bin"));
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

    fn run(&self, prompt: Result<&str, &[u64]>, mut turn: Turn<'_>) -> (llr_status, Seen) {
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
    fn tokens(&self, count: i64) -> Seen {
        let answer = &mut |_, _| CONTINUE;
        let (status, seen) = self.run(Ok(PROMPT), Turn { seq_len: 0, max_new_tokens: count, answer });
        assert_eq!(status, llr_status::Ok, "{}", message());
        seen
    }

    /// A turn whose callback asks `answer`.
    fn with_answer(&self, answer: &mut dyn FnMut(*mut llr_runner, usize) -> i32) -> (llr_status, Seen) {
        self.run(Ok(PROMPT), Turn { seq_len: 0, max_new_tokens: 20, answer })
    }

    fn position(&self) -> usize {
        // SAFETY: live.
        unsafe { llr_runner_position(self.0) }
    }

    fn finish_reason(&self) -> llr_finish_reason {
        // SAFETY: live.
        unsafe { llr_runner_finish_reason(self.0) }
    }

    fn reset(&self) {
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

fn message() -> String {
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

#[test]
fn without_a_model_the_built_in_one_tells_a_story() {
    let seen = Host::without_model().tokens(12);
    assert!(seen.text.starts_with(", there was a shy girl"), "{}", seen.text);
}

/// The recorded answer to [`PROMPT`] with seq_len 128: ids, text.
fn recorded() -> (Vec<u64>, String) {
    let path = common::shared().join("goldens/runner/cff6f4dd-m1-once-128.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let ids = json["generated_tokens"][0].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    (ids, json["text"].as_str().unwrap().strip_prefix(PROMPT).unwrap().to_owned())
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o15_default_limits_run_to_the_end_of_the_context_and_stream_the_recorded_text() {
    let host = Host::new();
    let seen = host.tokens(LLR_NO_LIMIT);
    let (ids, text) = recorded();
    assert_eq!((&seen.tokens, &seen.text), (&ids, &text));
    assert_eq!(String::from_utf8_lossy(&seen.bytes), text);
    assert_eq!(seen.finals, [host.finish_reason() as i32]);
    assert_ne!(host.finish_reason(), llr_finish_reason::None);
    assert_eq!(seen.prompt_and_generated, Some((5, ids.len() as i64 - 1)));
    // SAFETY: live.
    assert_eq!(unsafe { llr_runner_context_length(host.0) }, 128);
    assert!(unsafe { llr_runner_is_loaded(host.0) });
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o16_seq_len_is_told_from_a_natural_end() {
    let host = Host::new();
    let (status, seen) =
        host.run(Ok(PROMPT), Turn { seq_len: 5 + 3, max_new_tokens: LLR_NO_LIMIT, answer: &mut |_, _| CONTINUE });
    assert_eq!((status, host.finish_reason()), (llr_status::Ok, llr_finish_reason::SeqLen));
    assert_eq!(seen.tokens, recorded().0[..3]);
    assert_eq!(seen.finals, [llr_finish_reason::SeqLen as i32]);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o17_seq_len_beyond_the_context_is_the_context() {
    let host = Host::new();
    let (_, seen) = host.run(
        Err(&PROMPT_TOKENS),
        Turn { seq_len: 100_000, max_new_tokens: LLR_NO_LIMIT, answer: &mut |_, _| CONTINUE },
    );
    assert_eq!(seen.tokens, recorded().0);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn turns_follow_each_other_until_reset() {
    let host = Host::new();
    let first = host.tokens(6);
    assert_eq!(first.tokens, recorded().0[..6]);
    assert_eq!(host.finish_reason(), llr_finish_reason::Length);
    // The last token of a turn is never fed back.
    assert_eq!(host.position(), 5 + 5);
    host.tokens(2);
    // No beginning-of-sequence token in later turns.
    assert_eq!(host.position(), 10 + 4 + 1);
    host.reset();
    assert_eq!((host.position(), host.finish_reason()), (0, llr_finish_reason::None));
    assert_eq!(host.tokens(6), first);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn callback_stops_the_turn_and_only_the_final_chunk_follows() {
    let host = Host::new();
    let (status, seen) = host.with_answer(&mut |_, count| if count == 3 { STOP } else { CONTINUE });
    assert_eq!((status, seen.tokens.len()), (llr_status::Ok, 3));
    assert_eq!(seen.finals, [llr_finish_reason::Cancelled as i32]);
    assert_eq!(host.finish_reason(), llr_finish_reason::Cancelled);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn another_thread_cancels() {
    let host = Host::new();
    let (status, seen) = host.with_answer(&mut |runner, count| {
        if count == 2 {
            let address = runner as usize;
            // SAFETY: live; cancelling is allowed from every thread while the turn runs.
            let cancelled = std::thread::spawn(move || unsafe { llr_runner_cancel(address as *const llr_runner) });
            if cancelled.join().is_ok_and(|status| status != llr_status::Ok) {
                return 77;
            }
        }
        CONTINUE
    });
    assert_eq!((status, host.finish_reason()), (llr_status::Ok, llr_finish_reason::Cancelled), "{}", message());
    assert!((2..=3).contains(&seen.tokens.len()), "{} tokens", seen.tokens.len());
    host.reset();
    assert_eq!(host.tokens(4).tokens, recorded().0[..4], "a cancelled runner works again");
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn calls_from_the_callback_are_refused_and_do_not_wait() {
    let host = Host::new();
    let mut inner = Vec::new();
    let (status, seen) = host.with_answer(&mut |runner, count| {
        if count == 1 {
            // SAFETY: live; the header allows these calls and says that they fail.
            unsafe {
                inner.push(llr_runner_generate(runner, ptr::null(), 0, ptr::null(), None, None, ptr::null_mut()));
                inner.push(llr_runner_reset(runner));
                inner.push(llr_runner_load(runner));
            }
        }
        CONTINUE
    });
    assert_eq!(inner, [llr_status::InvalidState; 3]);
    assert_eq!((status, llr_last_error_code()), (llr_status::Ok, llr_status::Ok));
    assert_eq!(seen.tokens, recorded().0[..20]);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn callback_frees_the_runner() {
    let mut host = Host::new();
    let (status, seen) = host.with_answer(&mut |runner, count| {
        if count == 2 {
            // SAFETY: the one free; the header allows it here.
            unsafe { llr_runner_free(runner) };
        }
        CONTINUE
    });
    host.0 = ptr::null_mut();
    assert_eq!(status, llr_status::Ok, "{}", message());
    assert!((2..=3).contains(&seen.tokens.len()), "{} tokens", seen.tokens.len());
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn unknown_answer_is_refused_and_the_runner_goes_on_after_reset() {
    let host = Host::new();
    let (status, seen) = host.with_answer(&mut |_, _| 9);
    assert_eq!((status, seen.tokens.len(), seen.finals.len()), (llr_status::InvalidArgument, 1, 0));
    assert!(message().contains("answered 9"), "{}", message());
    assert_eq!(host.finish_reason(), llr_finish_reason::None);
    host.reset();
    assert_eq!(host.tokens(4).tokens, recorded().0[..4]);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn token_outside_the_vocabulary_is_refused_and_changes_nothing() {
    let host = Host::new();
    for bad in [512, u64::from(u32::MAX), u64::MAX] {
        let (status, seen) =
            host.run(Err(&[1, bad]), Turn { seq_len: 0, max_new_tokens: LLR_NO_LIMIT, answer: &mut |_, _| CONTINUE });
        assert_eq!((status, seen), (llr_status::InvalidArgument, Seen::default()), "{bad}");
        assert!(message().contains(&bad.to_string()), "{}", message());
    }
    assert_eq!((host.position(), host.finish_reason()), (0, llr_finish_reason::None));
    assert_eq!(host.tokens(4).tokens, recorded().0[..4]);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn two_runners_live_side_by_side() {
    let (first, second) = (Host::new(), Host::new());
    let from_second = second.tokens(4).tokens;
    assert_eq!(first.tokens(4).tokens, from_second);
    drop(first);
    second.reset();
    assert_eq!(second.tokens(4).tokens, from_second);
}
