//! The runner token by token: text to ids, ids into the context, logits and tokens out of it, and back to an earlier
//! place.

use super::generation_config::llr_generation_config;
use super::guard::{guard, guard_value};
use super::pointer::{Buffer, check_out, reference, slice, text};
use super::runner::{config_or_default, llr_runner, share};
use super::runner_facts::known;
use super::status::llr_status;
use crate::tokenizer::Specials;
use std::ffi::c_char;

/// Encodes a text, `text_len` bytes of UTF-8, with the num_bos beginning- and num_eos end-of-sequence tokens of `config`
/// around it, whatever the position is; NULL means the defaults, one and none. The other values of `config` are not
/// looked at.
///
/// Ask for the number with `tokens` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of ids.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, no UTF-8, a capacity that is too small),
/// LLR_STATUS_INVALID_STATE (not loaded), LLR_STATUS_TOKENIZER_FAILED.
///
/// Threads: shared.
///
/// # Safety
/// `runner` and `config` are NULL or live; `text` is NULL or points to `text_len` bytes; `tokens` is NULL or has room
/// for `capacity` ids; `out_count` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_encode(
    runner: *const llr_runner,
    text: *const c_char,
    text_len: usize,
    config: *const llr_generation_config,
    tokens: *mut u64,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, text) = unsafe { (reference(runner, "runner")?, self::text(text, text_len, "text")?) };
        // SAFETY: the caller's promise.
        let config = unsafe { config_or_default(config) }?;
        let buffer = Buffer { data: tokens, capacity, out_count };
        buffer.check()?;
        let specials = Specials { bos: config.num_bos, eos: config.num_eos };
        let ids = runner.facts()?.tokenizer.encode(text, specials)?;
        // SAFETY: the caller's promise.
        unsafe { buffer.fill(&ids) }
    })
}

/// The bytes that `token` adds to the text after token `previous`, or, with -1, at its beginning: possibly a part of a
/// character. llr_text_stream makes whole characters of them.
///
/// Ask for the number with `buffer` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of bytes.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, `previous` below -1, a capacity that is
/// too small), LLR_STATUS_INVALID_STATE (not loaded), LLR_STATUS_TOKENIZER_FAILED (an id that the tokenizer does not
/// know).
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live; `buffer` is NULL or has room for `capacity` bytes; `out_count` is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_decode(
    runner: *const llr_runner,
    previous: i64,
    token: u64,
    buffer: *mut u8,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { reference(runner, "runner") }?;
        let previous = previous_token(previous)?;
        let piece = runner.facts()?.tokenizer.decode(previous, token)?;
        // SAFETY: the caller's promise.
        unsafe { Buffer { data: buffer, capacity, out_count }.fill(&piece) }
    })
}

/// A token, or -1 for none.
pub(super) fn previous_token(previous: i64) -> crate::Result<Option<u64>> {
    match u64::try_from(previous) {
        Ok(token) => Ok(Some(token)),
        Err(_) if previous == -1 => Ok(None),
        Err(_) => Err(super::plan::invalid(format!("`previous` is {previous}, which is neither a token nor -1"))),
    }
}

/// The beginning-of-sequence token; -1 when the tokenizer has none, for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_bos_token(runner: *const llr_runner) -> i64 {
    let get = |bos: Option<u64>| bos.and_then(|bos| i64::try_from(bos).ok()).unwrap_or(-1);
    // SAFETY: the caller's promise.
    guard_value(-1, || unsafe { known(runner, -1, |facts| get(facts.tokenizer.bos())) })
}

/// Whether `token` ends a generation: it is one of the tokenizer's, the program's, the model family's or the options'
/// end tokens. False for NULL and before loading. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_is_eos_token(runner: *const llr_runner, token: u64) -> bool {
    // SAFETY: the caller's promise.
    guard_value(false, || unsafe { known(runner, false, |facts| facts.eos_ids.contains(&token)) })
}

/// Every token that ends a generation, in ascending order.
///
/// Ask for the number with `tokens` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of ids.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small),
/// LLR_STATUS_INVALID_STATE (not loaded).
///
/// Threads: shared.
///
/// # Safety
/// `runner` is NULL or live; `tokens` is NULL or has room for `capacity` ids; `out_count` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_eos_tokens(
    runner: *const llr_runner,
    tokens: *mut u64,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { reference(runner, "runner") }?;
        // SAFETY: the caller's promise.
        unsafe { Buffer { data: tokens, capacity, out_count }.fill(&runner.facts()?.eos_ids) }
    })
}

/// Takes `token_count` tokens into the context, as llr_runner_generate_tokens takes a prompt: in blocks, where the
/// program has a method for that. Afterwards the logits of the last one are there for llr_runner_logits and
/// llr_runner_sample, whose random numbers begin anew. Loads the runner first when that has not been done.
///
/// A turn made of llr_runner_prefill_tokens and then, until it has lasted long enough, of llr_runner_sample and
/// llr_runner_step in turns has the tokens of llr_runner_generate.
///
/// Errors that leave the context as it was: LLR_STATUS_INVALID_ARGUMENT (NULL, no token, one outside the vocabulary),
/// LLR_STATUS_CONTEXT_EXCEEDED (they do not fit), LLR_STATUS_CANCELLED (llr_runner_cancel), LLR_STATUS_INVALID_STATE (in
/// use, or an earlier turn failed and llr_runner_reset was not called), LLR_STATUS_POISONED, those of llr_runner_load.
/// After an error of the model call llr_runner_reset.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `tokens` is NULL or points to `token_count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_prefill_tokens(
    runner: *mut llr_runner,
    tokens: *const u64,
    token_count: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, tokens) = unsafe { (share(runner)?, slice(tokens, token_count, "tokens")?) };
        runner.exclusive(|runner| runner.prefill_tokens(tokens))
    })
}

/// Takes one token into the context, as the decode steps of llr_runner_generate do. Afterwards its logits are there for
/// llr_runner_logits and llr_runner_sample. Loads the runner first when that has not been done.
///
/// Errors: as llr_runner_prefill_tokens; LLR_STATUS_NOT_SUPPORTED, with the context as it was, for a program that only
/// reads whole prompts.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_step(runner: *mut llr_runner, token: u64) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        runner.exclusive(|runner| runner.step(token))
    })
}

/// The logits of the last token that llr_runner_prefill_tokens or llr_runner_step took: real numbers, one for each token
/// of the vocabulary, whatever type the program gives them in.
///
/// Ask for the number with `buffer` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of
/// logits, which is llr_runner_vocabulary_size.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small),
/// LLR_STATUS_INVALID_STATE (none are there, because nothing was taken since the last turn, llr_runner_reset,
/// llr_runner_rewind or llr_runner_restore_state; in use), LLR_STATUS_NOT_SUPPORTED (the program does not say which reals
/// its integers stand for), LLR_STATUS_POISONED, those of llr_runner_load.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `buffer` is NULL or has room for `capacity` floats; `out_count` is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_logits(
    runner: *mut llr_runner,
    buffer: *mut f32,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        let buffer = Buffer { data: buffer, capacity, out_count };
        buffer.check()?;
        let mut reals = Vec::new();
        runner.exclusive(|runner| runner.logits(&mut reals))?;
        // SAFETY: the caller's promise.
        unsafe { buffer.fill(&reals) }
    })
}

/// Chooses a token from these logits by the temperature, top_p and seed of `config`; NULL means the defaults, which take
/// the likeliest. Its other values are not looked at. The random numbers begin at the seed with the first call after
/// llr_runner_prefill_tokens, and go on from call to call. The token is not taken into the context: llr_runner_step does
/// that.
///
/// Errors: LLR_STATUS_INVALID_ARGUMENT (NULL), LLR_STATUS_INVALID_STATE (no logits, as llr_runner_logits says; in use),
/// LLR_STATUS_NOT_SUPPORTED (a temperature above 0, and the program does not say which reals its integers stand for),
/// LLR_STATUS_INVALID_PROGRAM (logits that are NaN), LLR_STATUS_POISONED, those of llr_runner_load.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` and `config` are NULL or live; `out_token` is NULL or points to a token.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_sample(
    runner: *mut llr_runner,
    config: *const llr_generation_config,
    out_token: *mut u64,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, config) = unsafe { (share(runner)?, config_or_default(config)?) };
        check_out(out_token, "out_token")?;
        let token = runner.exclusive(|runner| runner.sample(&config))?;
        // SAFETY: not NULL, so it points to a token of the caller.
        unsafe { out_token.write(token) };
        Ok(())
    })
}

/// Goes back to the first `position` tokens of the context: what came behind them is forgotten, and generations go on as
/// if it had never been there. Going back to where the runner is changes nothing. Loads the runner first when that has
/// not been done.
///
/// Errors, after which the context is as it was: LLR_STATUS_INVALID_ARGUMENT (NULL, a position that has not been
/// reached), LLR_STATUS_INVALID_STATE (in use, or an earlier turn failed and llr_runner_reset was not called),
/// LLR_STATUS_POISONED, those of llr_runner_load.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_rewind(runner: *mut llr_runner, position: usize) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        runner.exclusive(|runner| runner.rewind(position))
    })
}
