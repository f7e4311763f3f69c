//! A turn made by hand: text to tokens, tokens into the context, logits and tokens out of it.

use crate::host::*;
use llama_runner::capi::generation_config::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::runner_facts::*;
use llama_runner::capi::status::llr_status;
use llama_runner::capi::text_stream::*;
use llama_runner::capi::tokens::*;
use std::ffi::CStr;
use std::ptr;

/// Asks for the number, then fills.
pub fn filled<T: Clone + Default>(mut call: impl FnMut(*mut T, usize, *mut usize) -> llr_status) -> Vec<T> {
    let mut count = 0;
    assert_eq!(call(ptr::null_mut(), 0, &mut count), llr_status::Ok, "{}", message());
    let mut items = vec![T::default(); count];
    if count > 1 {
        let mut untouched = 77;
        assert_eq!(call(items.as_mut_ptr(), count - 1, &mut untouched), llr_status::InvalidArgument);
        assert_eq!(untouched, 77, "written only on success");
    }
    assert_eq!(call(items.as_mut_ptr(), count, ptr::null_mut()), llr_status::Ok, "{}", message());
    items
}

impl Host {
    pub fn load(&self) {
        // SAFETY: live.
        assert_eq!(unsafe { llr_runner_load(self.0) }, llr_status::Ok, "{}", message());
    }

    pub fn encode(&self, text: &str) -> Vec<u64> {
        // SAFETY: live, and room as said.
        filled(|tokens, capacity, count| unsafe {
            llr_runner_encode(self.0, text.as_ptr().cast(), text.len(), ptr::null(), tokens, capacity, count)
        })
    }

    pub fn prefill(&self, tokens: &[u64]) -> llr_status {
        // SAFETY: live.
        unsafe { llr_runner_prefill_tokens(self.0, tokens.as_ptr(), tokens.len()) }
    }

    pub fn step(&self, token: u64) -> llr_status {
        // SAFETY: live.
        unsafe { llr_runner_step(self.0, token) }
    }

    pub fn sample(&self, config: *const llr_generation_config) -> u64 {
        let mut token = u64::MAX;
        // SAFETY: live, and a token to write.
        assert_eq!(unsafe { llr_runner_sample(self.0, config, &mut token) }, llr_status::Ok, "{}", message());
        token
    }

    pub fn logits(&self) -> Vec<f32> {
        // SAFETY: live, and room as said.
        filled(|buffer, capacity, count| unsafe { llr_runner_logits(self.0, buffer, capacity, count) })
    }

    /// `count` tokens after `prompt`, made by hand, with their text.
    pub fn by_hand(&self, prompt: &[u64], count: usize, config: *const llr_generation_config) -> (Vec<u64>, String) {
        assert_eq!(self.prefill(prompt), llr_status::Ok, "{}", message());
        let (mut tokens, mut text, mut stream) = (Vec::new(), String::new(), ptr::null_mut());
        // SAFETY: live until freed below; texts are read before the next call on the stream.
        unsafe {
            let previous = *prompt.last().unwrap() as i64;
            assert_eq!(llr_text_stream_create(self.0, previous, &mut stream), llr_status::Ok, "{}", message());
            while tokens.len() < count {
                if let Some(&last) = tokens.last() {
                    assert_eq!(self.step(last), llr_status::Ok, "{}", message());
                }
                tokens.push(self.sample(config));
                assert_eq!(llr_text_stream_push(stream, tokens[tokens.len() - 1]), llr_status::Ok);
                text += CStr::from_ptr(llr_text_stream_text(stream, ptr::null_mut())).to_str().unwrap();
            }
            assert_eq!(llr_text_stream_finish(stream), llr_status::Ok);
            text += CStr::from_ptr(llr_text_stream_text(stream, ptr::null_mut())).to_str().unwrap();
            llr_text_stream_free(stream);
        }
        (tokens, text)
    }
}

#[test]
fn the_built_in_story_by_hand_is_the_story() {
    let host = Host::without_model();
    let seen = host.tokens(12);
    host.reset();
    let prompt = host.encode(PROMPT);
    assert_eq!(host.by_hand(&prompt, 12, ptr::null()), (seen.tokens.clone(), seen.text));
    assert_eq!(host.position(), prompt.len() + 11);

    // Log-probabilities are those of the logits.
    host.reset();
    assert_eq!(host.prefill(&prompt), llr_status::Ok);
    let logits = host.logits();
    let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    let want = f64::from(logits[seen.tokens[0] as usize]) - total.ln();
    assert!((want - seen.log_probabilities[0]).abs() < 1e-6, "{want} {}", seen.log_probabilities[0]);
    assert!(seen.log_probabilities.iter().all(|&log| log <= 0.0));
    // SAFETY: live.
    assert_eq!(logits.len(), unsafe { llr_runner_vocabulary_size(host.0) });
}

#[test]
fn drawing_by_hand_draws_the_same_tokens() {
    let host = Host::without_model();
    // SAFETY: live until the end.
    unsafe {
        let config = llr_generation_config_new();
        for set in [
            llr_generation_config_set_temperature(config, 0.9),
            llr_generation_config_set_top_p(config, 0.95),
            llr_generation_config_set_seed(config, 11),
            llr_generation_config_set_max_new_tokens(config, 9),
        ] {
            assert_eq!(set, llr_status::Ok);
        }
        let (at, len) = (PROMPT.as_ptr().cast(), PROMPT.len());
        assert_eq!(llr_runner_generate(host.0, at, len, config, None, None, ptr::null_mut()), llr_status::Ok);
        let after_turn = host.position();
        host.reset();
        let drawn = host.by_hand(&host.encode(PROMPT), 9, config);
        assert_eq!(host.position(), after_turn);
        host.reset();
        let answer = &mut |_, _| CONTINUE;
        let greedy = host.run(Ok(PROMPT), Turn { seq_len: 0, max_new_tokens: 9, answer }).1.tokens;
        host.reset();
        assert_ne!(drawn.0, greedy, "this seed draws something else");
        assert_eq!(host.by_hand(&host.encode(PROMPT), 9, config), drawn, "the seed begins anew");
        llr_generation_config_free(config);
    }
}

#[test]
fn text_and_tokens_go_back_and_forth() {
    let host = Host::without_model();
    let mut count = 5;
    // SAFETY: live; NULL asks for the number.
    let early = unsafe { llr_runner_encode(host.0, c"a".as_ptr(), 1, ptr::null(), ptr::null_mut(), 0, &mut count) };
    assert_eq!((early, count), (llr_status::InvalidState, 5), "not loaded");
    host.load();
    let ids = host.encode("Once upon a time, there was a café.");
    let (mut text, mut previous) = (Vec::new(), -1);
    // SAFETY: live, and room as said.
    unsafe {
        assert_eq!(ids[0] as i64, llr_runner_bos_token(host.0));
        for &id in &ids[1..] {
            let piece =
                filled(|buffer, capacity, count| llr_runner_decode(host.0, previous, id, buffer, capacity, count));
            text.extend(piece);
            previous = id as i64;
        }
        assert_eq!(String::from_utf8(text).unwrap(), "Once upon a time, there was a café.");
        let mut len = 0;
        assert_eq!(llr_runner_decode(host.0, -1, 1 << 40, ptr::null_mut(), 0, &mut len), llr_status::TokenizerFailed);
        assert_eq!(llr_runner_decode(host.0, -2, 5, ptr::null_mut(), 0, &mut len), llr_status::InvalidArgument);
        let ends = filled(|tokens, capacity, count| llr_runner_eos_tokens(host.0, tokens, capacity, count));
        assert!(!ends.is_empty() && ends.iter().all(|&end| llr_runner_is_eos_token(host.0, end)));
        assert!(!llr_runner_is_eos_token(host.0, ids[1]));
    }
}

#[test]
fn going_back_is_as_if_it_had_never_been() {
    let host = Host::without_model();
    let prompt = host.tokens(1).tokens;
    host.reset();
    let first = host.tokens(6);
    let here = host.position();
    let second = host.tokens(5);
    // SAFETY: live.
    let rewind = |position| unsafe { llr_runner_rewind(host.0, position) };
    assert_eq!(rewind(host.position() + 1), llr_status::InvalidArgument);
    assert!(message().contains("cannot go back to"), "{}", message());
    assert_eq!(rewind(here), llr_status::Ok);
    assert_eq!(host.position(), here);
    assert_eq!(host.tokens(5), second);
    assert_eq!(rewind(0), llr_status::Ok);
    assert_eq!(host.tokens(6), first);
    assert_eq!(first.tokens[0], prompt[0]);
    let mut count = 0;
    // SAFETY: live; NULL asks for the number.
    assert_eq!(unsafe { llr_runner_logits(host.0, ptr::null_mut(), 0, &mut count) }, llr_status::InvalidState);
}

#[test]
fn null_is_refused_by_every_call_and_gives_defaults_elsewhere() {
    let (mut count, mut token, mut stream) = (0, 0, ptr::null_mut());
    // SAFETY: NULL is allowed everywhere here.
    unsafe {
        let none = ptr::null_mut();
        for status in [
            llr_runner_encode(none, c"".as_ptr(), 0, ptr::null(), ptr::null_mut(), 0, &mut count),
            llr_runner_decode(none, -1, 0, ptr::null_mut(), 0, &mut count),
            llr_runner_eos_tokens(none, ptr::null_mut(), 0, &mut count),
            llr_runner_prefill_tokens(none, ptr::null(), 0),
            llr_runner_step(none, 0),
            llr_runner_logits(none, ptr::null_mut(), 0, &mut count),
            llr_runner_sample(none, ptr::null(), &mut token),
            llr_runner_rewind(none, 0),
            llr_text_stream_create(none, -1, &mut stream),
            llr_text_stream_push(ptr::null_mut(), 1),
            llr_text_stream_finish(ptr::null_mut()),
        ] {
            assert_eq!(status, llr_status::InvalidArgument);
        }
        assert_eq!((llr_runner_bos_token(none), llr_runner_is_eos_token(none, 2)), (-1, false));
        assert_eq!((llr_runner_vocabulary_size(none), llr_runner_cpu_threads(none)), (0, 0));
        assert_eq!(llr_runner_eval_mode(none), -1);
        let mut len = 9;
        assert!(llr_text_stream_text(ptr::null(), &mut len).is_null());
        assert_eq!(len, 0);
        assert!(llr_text_stream_bytes(ptr::null(), ptr::null_mut()).is_null());
        llr_text_stream_free(ptr::null_mut());
        let host = Host::without_model();
        assert_eq!(llr_runner_sample(host.0, ptr::null(), ptr::null_mut()), llr_status::InvalidArgument);
        assert_eq!(llr_text_stream_create(host.0, -1, ptr::null_mut()), llr_status::InvalidArgument);
        assert_eq!(llr_text_stream_create(host.0, -1, &mut stream), llr_status::InvalidState, "not loaded");
        assert!(stream.is_null());
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn a_static_program_by_hand_gives_the_recorded_tokens() {
    let host = Host::new();
    host.load();
    // SAFETY: live.
    assert_eq!(unsafe { llr_runner_eval_mode(host.0) }, 1, "hybrid is chosen");
    assert_eq!(host.encode(PROMPT), PROMPT_TOKENS);
    let (tokens, text) = host.by_hand(&PROMPT_TOKENS, 8, ptr::null());
    let (ids, all) = recorded();
    assert_eq!(tokens, ids[..8]);
    assert!(all.starts_with(&text) && !text.is_empty(), "{text}");
    assert_eq!(host.logits().len(), 512);
}
