//! The context as bytes or as a file: saved, and restored into this runner or another one of the same program.

use super::guard::guard;
use super::options::path_of;
use super::pointer::{Buffer, reference, slice};
use super::runner::{llr_runner, share};
use super::status::llr_status;
use crate::error::{Error, Result, Status};
use std::ffi::c_char;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Copies the context – position, keys and values – to `buffer`: the same bytes whichever way the cache is updated, for
/// llr_runner_restore_state. Logits and random numbers are no part of it. Loads the runner first when that has not been
/// done.
///
/// Ask for the size with `buffer` NULL and `capacity` 0, then fill; the size grows with the position. `out_count` (may be
/// NULL) gets the number of bytes.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small),
/// LLR_STATUS_INVALID_STATE (in use, or an earlier turn failed and llr_runner_reset was not called),
/// LLR_STATUS_NOT_SUPPORTED (a forward(tokens, input_pos) program in a module of the host: its context lies in the host
/// runtime's planned memory and delegates, which llr_module_table does not reach), LLR_STATUS_MEMORY_ALLOCATION_FAILED,
/// LLR_STATUS_POISONED, those of llr_runner_load.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `buffer` is NULL or has room for `capacity` bytes; `out_count` is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_save_state(
    runner: *mut llr_runner,
    buffer: *mut u8,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        let buffer = Buffer { data: buffer, capacity, out_count };
        buffer.check()?;
        if buffer.asks() {
            let len = runner.exclusive(|runner| runner.state_len())?;
            // SAFETY: the caller's promise.
            unsafe { buffer.count(len) };
            return Ok(());
        }
        let saved = runner.exclusive(|runner| runner.save_state())?;
        // SAFETY: the caller's promise.
        unsafe { buffer.fill(&saved) }
    })
}

/// Replaces the context by one that llr_runner_save_state gave, in this process or another, from a runner of the same
/// program. Kind, sizes and types must be the same, and so must the program's files: their lengths and up to 1 MiB of
/// each, evenly spaced, are compared by a hash, which tells other weights but not a change that lies between. (A module
/// that the host passed does not say what its files are: of those, and of contexts saved with one, only kind, sizes and
/// types are compared.) Turns continue bit for bit as they would have there. Also ends what a failed turn left, as llr_runner_reset does. Loads the runner
/// first when that has not been done.
///
/// Errors, after which the context is as it was: LLR_STATUS_INVALID_ARGUMENT (NULL; of another model, and the message
/// says what differs), LLR_STATUS_INVALID_EXTERNAL_DATA (no saved context, another version, cut off, damaged),
/// LLR_STATUS_NOT_SUPPORTED (as llr_runner_save_state), LLR_STATUS_INVALID_STATE (in use), LLR_STATUS_POISONED, those of
/// llr_runner_load.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `bytes` is NULL or points to `byte_count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_restore_state(
    runner: *mut llr_runner,
    bytes: *const u8,
    byte_count: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, _) = unsafe { (share(runner)?, reference(bytes, "bytes")?) };
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice(bytes, byte_count, "bytes") }?;
        runner.exclusive(|runner| runner.restore_state(bytes))
    })
}

/// As llr_runner_save_state, to a file, `path_len` bytes of UTF-8. It is written beside its place and renamed, so a file
/// of that name, or that a link of that name leads to, is replaced whole or not at all; a device is written to.
///
/// Errors: those of llr_runner_save_state; LLR_STATUS_INVALID_ARGUMENT also for a path that is empty or has a NUL in it,
/// LLR_STATUS_ACCESS_FAILED (it cannot be written).
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_save_state_file(
    runner: *mut llr_runner,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, path) = unsafe { (share(runner)?, path_of(path, path_len)?) };
        write(&path, &runner.exclusive(|runner| runner.save_state())?)
    })
}

/// As llr_runner_restore_state, from a file, `path_len` bytes of UTF-8. No more of it is read than this model's context
/// can have.
///
/// Errors: those of llr_runner_restore_state; LLR_STATUS_INVALID_ARGUMENT also for a path that is empty or has a NUL in
/// it, LLR_STATUS_ACCESS_FAILED (a file missing, unreadable, or a directory).
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `path` is NULL or points to `path_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_runner_restore_state_file(
    runner: *mut llr_runner,
    path: *const c_char,
    path_len: usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (runner, path) = unsafe { (share(runner)?, path_of(path, path_len)?) };
        runner.exclusive(|runner| {
            let saved = read(&path, runner.max_state_len()?)?;
            runner.restore_state(&saved).map_err(|error| error.context(path.display().to_string()))
        })
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::new(Status::AccessFailed, format!("cannot write {}: {error}", path.display()));
    // What a link names is replaced, not the link; a device or pipe is written to.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
        return File::options().write(true).open(&target).and_then(|mut file| file.write_all(bytes)).map_err(failed);
    }
    let mut partial = target.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = Path::new(&partial);
    let written = File::create(partial).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(partial, &target)
    });
    written.map_err(|error| {
        // Nothing to do when there is none, or when it cannot be removed either.
        let _ = std::fs::remove_file(partial);
        failed(error)
    })
}

/// The file, or what tells that it is none of this model's: one byte more than `most`.
fn read(path: &Path, most: usize) -> Result<Vec<u8>> {
    let path = super::plan::chosen_file(path, "state")?;
    let failed = |error| Error::new(Status::AccessFailed, format!("cannot read {}: {error}", path.display()));
    let file = File::open(&path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
