//! A turn by hand, and going back.

use crate::fake_module::{FakeModel, Probe};
use crate::fake_text::FakeText;
use crate::{by_hand, error_of, load, prompt, runners, tokens, turn};
use llama_runner::Status;
use llama_runner::runner::{GenerationConfig, Prompt, Runner, RunnerError, RunnerOptions};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_turn_by_hand_equals_a_turn() {
    for (name, mut runner) in runners() {
        for config in [tokens(12), GenerationConfig { temperature: 0.9, seed: 5, top_p: 0.95, ..tokens(12) }] {
            if config.temperature > 0.0 && name.contains("Lookahead") {
                continue;
            }
            let first = turn(&mut runner, &prompt(21), &config);
            let second = turn(&mut runner, &prompt(3), &config);
            let position = runner.position();
            runner.reset();
            assert_eq!(by_hand(&mut runner, &prompt(21), &config).unwrap(), first, "{name}");
            assert_eq!(by_hand(&mut runner, &prompt(3), &config).unwrap(), second, "{name}: the second turn");
            assert_eq!(runner.position(), position, "{name}");
            runner.reset();
            for (len, want) in [(21, &first), (3, &second)] {
                runner.prefill_tokens(&prompt(len)).unwrap();
                assert_eq!(&turn(&mut runner, &[], &config), want, "{name}: a turn without a prompt");
            }
            assert_eq!(runner.position(), position, "{name}");
            runner.reset();
        }
    }
}

#[test]
fn a_turn_without_a_prompt_needs_logits_and_room() {
    for (name, mut runner) in runners() {
        let empty = |runner: &mut Runner, config: &GenerationConfig| {
            runner.generate(Prompt::Text(""), config, &mut |_| ControlFlow::Continue(()))
        };
        assert_eq!(error_of(empty(&mut runner, &tokens(2))), RunnerError::EmptyPrompt, "{name}");
        let all = turn(&mut runner, &prompt(9), &tokens(4));
        assert_eq!(
            error_of(empty(&mut runner, &tokens(2))),
            RunnerError::EmptyPrompt,
            "{name}: its last token is not fed"
        );
        runner.step(all[3]).unwrap();
        let narrow = GenerationConfig { seq_len: runner.position(), ..tokens(2) };
        let (have, limit) = (narrow.seq_len, narrow.seq_len - 1);
        let error = error_of(empty(&mut runner, &narrow));
        assert_eq!(error, RunnerError::ContextExceeded { have, need: 0, limit }, "{name}");
        let going_on = empty(&mut runner, &tokens(2)).unwrap();
        assert_eq!((going_on.stats.num_prompt_tokens, going_on.tokens.len()), (have as i64, 2), "{name}");
        runner.reset();
        assert_eq!(turn(&mut runner, &prompt(9), &tokens(6))[4..], going_on.tokens, "{name}");
        runner.reset();
        runner.prefill_tokens(&prompt(9)).unwrap();
        runner.rewind(4).unwrap();
        assert_eq!(error_of(empty(&mut runner, &tokens(2))), RunnerError::EmptyPrompt, "{name}: went back");
    }
}

#[test]
fn logits_are_those_that_the_likeliest_token_has_and_come_in_reals() {
    for (name, mut runner) in runners() {
        assert_eq!(error_of(runner.logits(&mut Vec::new())), RunnerError::NoLogits, "{name}");
        runner.prefill_tokens(&prompt(5)).unwrap();
        let mut row = Vec::new();
        for _ in 0..3 {
            runner.logits(&mut row).unwrap();
            assert_eq!(row.len(), runner.vocab_size());
            let best = (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
            assert_eq!(runner.sample(&tokens(1)).unwrap(), best as TokenId, "{name}");
            runner.step(best as TokenId).unwrap();
        }
        // What takes the context elsewhere takes them away.
        runner.rewind(4).unwrap();
        assert_eq!(error_of(runner.sample(&tokens(1))), RunnerError::NoLogits, "{name}");
        turn(&mut runner, &prompt(2), &tokens(2));
        assert_eq!(error_of(runner.logits(&mut row)), RunnerError::NoLogits, "{name}");
    }
}

#[test]
fn integers_without_a_scale_are_no_reals() {
    let model = FakeText { logits: DType::U16, ..FakeText::default() };
    let mut runner = load(model.module().0, RunnerOptions::default());
    runner.prefill_tokens(&prompt(5)).unwrap();
    assert_eq!(error_of(runner.logits(&mut Vec::new())), RunnerError::NoLogitsScale);
    assert!(runner.sample(&tokens(1)).is_ok(), "the likeliest needs none");
    let warm = GenerationConfig { temperature: 1.0, ..tokens(1) };
    assert_eq!(error_of(runner.sample(&warm)), RunnerError::NoLogitsScale);
}

#[test]
fn going_back_and_on_again_equals_going_on() {
    for (name, mut runner) in runners() {
        let first = turn(&mut runner, &prompt(9), &tokens(5));
        let here = runner.position();
        let second = turn(&mut runner, &prompt(4), &tokens(6));
        let end = runner.position();
        assert_eq!(error_of(runner.rewind(end + 1)), RunnerError::RewindBeyond { have: end, asked: end + 1 });
        runner.rewind(end).unwrap();
        runner.rewind(here).unwrap();
        assert_eq!(turn(&mut runner, &prompt(4), &tokens(6)), second, "{name}");
        runner.rewind(0).unwrap();
        assert_eq!(turn(&mut runner, &prompt(9), &tokens(5)), first, "{name}: from the start");
        assert_eq!(runner.position(), here);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    for (name, mut runner) in runners() {
        let config = tokens(3);
        let want = turn(&mut runner, &prompt(6), &config);
        runner.rewind(0).unwrap();
        for (fed, status) in [
            (vec![], Status::InvalidArgument),
            (vec![1, 97], Status::InvalidArgument),
            (prompt(64), Status::ContextExceeded),
        ] {
            assert_eq!(runner.prefill_tokens(&fed).unwrap_err().status(), status, "{name}");
        }
        assert_eq!(runner.step(97).unwrap_err().status(), Status::InvalidArgument);
        assert_eq!((runner.position(), by_hand(&mut runner, &prompt(6), &config).unwrap()), (0, want), "{name}");
        // Up to the end of the context, and no further.
        while runner.step(1).is_ok() {}
        assert_eq!(runner.step(1).unwrap_err().status(), Status::ContextExceeded, "{name}");
        assert!(runner.position() >= 55 && runner.position() < 64, "{name}: {}", runner.position());
    }
}

#[test]
fn a_program_that_only_reads_whole_prompts_takes_no_single_token() {
    let methods = vec![("prefill_forward", 64)];
    let model = FakeModel { methods, whole_gives_cache: false, ..Default::default() };
    let mut runner = load(model.module().0, RunnerOptions::default());
    runner.prefill_tokens(&prompt(7)).unwrap();
    assert_eq!(runner.sample(&tokens(1)).unwrap(), model.next(&prompt(7)));
    assert_eq!(error_of(runner.step(1)), RunnerError::NothingContinues);
    assert_eq!(error_of(runner.prefill_tokens(&[1])), RunnerError::OnlyAtStart { position: 7 });
    runner.rewind(0).unwrap();
    assert!(runner.prefill_tokens(&prompt(5)).is_ok());
}

/// A runner that can be made to fail and to be cancelled during a prompt.
fn probed() -> Vec<(&'static str, Runner, Arc<Probe>)> {
    let (module, probe) = FakeModel::default().module();
    let fixed = ("static", load(module, RunnerOptions::default()), probe);
    let (module, probe, _) = FakeText { chunk: Some(16), ..FakeText::default() }.module();
    vec![fixed, ("forward", load(module, RunnerOptions::default()), probe)]
}

#[test]
fn a_cancelled_prompt_leaves_the_context_as_it_was() {
    for (name, mut runner, probe) in probed() {
        runner.prefill_tokens(&prompt(3)).unwrap();
        let (canceller, calls) = (runner.canceller(), AtomicUsize::new(0));
        *probe.hook.lock() = Some(Box::new(move || {
            if calls.fetch_add(1, Ordering::SeqCst) == 1 {
                canceller.cancel();
            }
        }));
        let error = runner.prefill_tokens(&prompt(44)).unwrap_err();
        assert_eq!((error.status(), runner.position()), (Status::Cancelled, 3), "{name}");
        *probe.hook.lock() = None;
        let made = by_hand(&mut runner, &prompt(40), &tokens(3)).unwrap();
        runner.reset();
        runner.prefill_tokens(&prompt(3)).unwrap();
        assert_eq!(by_hand(&mut runner, &prompt(40), &tokens(3)).unwrap(), made, "{name}");
    }
}

#[test]
fn logits_that_are_no_numbers_are_an_error_and_not_a_token() {
    let model = FakeModel { logits: DType::F32, ..Default::default() };
    let (module, probe) = model.module();
    let mut runner = load(module, RunnerOptions::default());
    let want = turn(&mut runner, &prompt(8), &tokens(4));
    runner.reset();
    for config in [tokens(4), GenerationConfig { temperature: 0.8, ..tokens(4) }] {
        let (nan, calls) = (probe.clone(), AtomicUsize::new(0));
        *probe.hook.lock() =
            Some(Box::new(move || nan.nan.store(calls.fetch_add(1, Ordering::SeqCst) == 2, Ordering::SeqCst)));
        let error = runner.generate(Prompt::Tokens(&prompt(8)), &config, &mut |_| ControlFlow::Continue(()));
        let error = error.unwrap_err();
        assert_eq!((error.status(), error.find()), (Status::InvalidProgram, Some(&RunnerError::NanLogits)));
        assert!(error.chain().starts_with("choosing the token behind position 9: "), "{}", error.chain());
        *probe.hook.lock() = None;
        assert_eq!(error_of(runner.sample(&config)), RunnerError::NoLogits);
        runner.reset();
    }
    probe.nan.store(true, Ordering::SeqCst);
    runner.prefill_tokens(&prompt(8)).unwrap();
    assert_eq!(error_of(runner.sample(&tokens(1))), RunnerError::NanLogits);
    probe.nan.store(false, Ordering::SeqCst);
    runner.reset();
    assert_eq!(turn(&mut runner, &prompt(8), &tokens(4)), want);
}

#[test]
fn after_a_failed_step_only_reset_and_restore_go_on() {
    for (name, mut runner, probe) in probed() {
        let want = by_hand(&mut runner, &prompt(8), &tokens(4)).unwrap();
        let saved = runner.save_state().unwrap();
        probe.fail_after(0);
        assert!(runner.step(want[3]).unwrap_err().chain().contains("the fake device is gone"), "{name}");
        assert_eq!(error_of(runner.step(1)), RunnerError::Poisoned, "{name}");
        assert_eq!(error_of(runner.rewind(1)), RunnerError::Poisoned);
        assert_eq!(error_of(runner.save_state()), RunnerError::Poisoned);
        runner.restore_state(&saved).unwrap();
        runner.step(want[3]).unwrap();
        let next = runner.sample(&tokens(1)).unwrap();
        probe.fail_after(0);
        assert!(runner.prefill_tokens(&prompt(3)).is_err());
        runner.reset();
        assert_eq!(by_hand(&mut runner, &prompt(8), &tokens(4)).unwrap(), want, "{name}");
        runner.step(want[3]).unwrap();
        assert_eq!(runner.sample(&tokens(1)).unwrap(), next, "{name}");
    }
}
