//! Turns on a real model: the stream, its ends, and what a host may and may not do from a callback.

use crate::host::*;
use llama_runner::capi::chunk::llr_finish_reason;
use llama_runner::capi::error::llr_last_error_code;
use llama_runner::capi::generation_config::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::runner_facts::*;
use llama_runner::capi::status::llr_status;
use std::ptr;

#[test]
fn without_a_model_the_built_in_one_tells_a_story() {
    let seen = Host::without_model().tokens(12);
    assert!(seen.text.starts_with(", there was a cheerful girl"), "{}", seen.text);
}

#[test]
fn o15_default_limits_run_to_the_end_of_the_context() {
    let host = Host::without_model();
    // SAFETY: live until freed.
    unsafe {
        let config = llr_generation_config_new();
        assert_eq!(llr_generation_config_set_ignore_eos(config, true), llr_status::Ok);
        let (at, len) = (PROMPT.as_ptr().cast(), PROMPT.len());
        assert_eq!(llr_runner_generate(host.0, at, len, config, None, None, ptr::null_mut()), llr_status::Ok);
        assert_eq!(host.finish_reason(), llr_finish_reason::ContextFull);
        assert_eq!(host.position(), llr_runner_context_length(host.0) - 1);
        // O17: more than the context is the context.
        host.reset();
        assert_eq!(llr_generation_config_set_seq_len(config, 100_000), llr_status::Ok);
        assert_eq!(llr_runner_generate(host.0, at, len, config, None, None, ptr::null_mut()), llr_status::Ok);
        assert_eq!(host.finish_reason(), llr_finish_reason::ContextFull);
        assert_eq!(host.position(), llr_runner_context_length(host.0) - 1);
        llr_generation_config_free(config);
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn the_recorded_text_is_streamed() {
    let host = Host::new();
    let seen = host.tokens(24);
    let (ids, text) = recorded();
    assert_eq!(seen.tokens, ids[..24]);
    assert!(text.starts_with(&seen.text) && seen.text.len() > 20, "{}", seen.text);
    assert_eq!(String::from_utf8_lossy(&seen.bytes), seen.text);
    assert!(seen.log_probabilities.iter().all(|log| (-30.0..=0.0).contains(log)), "{:?}", seen.log_probabilities);
    assert_eq!(seen.finals, [llr_finish_reason::Length as i32]);
    assert_eq!(seen.prompt_and_generated, Some((5, 23)));
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
fn o21_another_thread_cancels_and_the_next_turn_is_as_ever() {
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
