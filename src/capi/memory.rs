//! `llr_memory`: how much memory a runner holds, and for what.

use super::guard::{guard, guard_value};
use super::pointer::{Buffer, check_out};
use super::runner::{llr_runner, share};
use super::status::llr_status;
use crate::base::process::peak_memory;
use crate::runner::RunnerMemory;
use serde_json::json;
use std::ffi::c_char;

/// How much memory a runner holds, in bytes, at the time that this was made: by llr_memory_create, freed by
/// llr_memory_free.
///
/// Functions: llr_memory_*; each getter gives 0 for NULL and never fails.
pub struct llr_memory {
    held: RunnerMemory,
    peak: u64,
}

/// The memory that `runner` holds now, to be freed by llr_memory_free. Loads the runner first when that has not been done.
///
/// Errors, after which `*out_memory` is as before: LLR_STATUS_INVALID_ARGUMENT (NULL), LLR_STATUS_INVALID_STATE (in use),
/// LLR_STATUS_POISONED, those of llr_runner_load.
///
/// Threads: one at a time.
///
/// # Safety
/// `runner` is NULL or live; `out_memory` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_create(runner: *mut llr_runner, out_memory: *mut *mut llr_memory) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let runner = unsafe { share(runner) }?;
        check_out(out_memory, "out_memory")?;
        let held = runner.exclusive(|runner| Ok(runner.memory()))?;
        let memory = Box::new(llr_memory { held, peak: peak_memory().unwrap_or(0) });
        // SAFETY: not NULL, so it points to a pointer of the caller.
        unsafe { out_memory.write(Box::into_raw(memory)) };
        Ok(())
    })
}

/// Frees the object; NULL is fine.
///
/// Threads: last.
///
/// # Safety
/// `memory` is NULL or from llr_memory_create and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_free(memory: *mut llr_memory) {
    guard_value((), || {
        if !memory.is_null() {
            // SAFETY: from `Box::into_raw` above, and given back once, as the caller promises.
            drop(unsafe { Box::from_raw(memory) });
        }
    })
}

/// # Safety
/// `memory` is NULL or live.
unsafe fn field<T: Default>(memory: *const llr_memory, get: impl FnOnce(&llr_memory) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { memory.as_ref() }.map_or_else(T::default, get)
}

/// The program file, weights included.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_program_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.module.program) })
}

/// Whether the program is a mapped file: its pages come in as they are touched, and the system can drop them again.
/// False for NULL.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_is_program_mapped(memory: *const llr_memory) -> bool {
    // SAFETY: the caller's promise.
    guard_value(false, || unsafe { field(memory, |memory| memory.held.module.program_mapped) })
}

/// External data files, mapped.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_data_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.module.data) })
}

/// Planned memory of the program's methods.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_planned_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.module.planned) })
}

/// The arena of inputs, outputs and, for a static program, caches.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_io_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.io) })
}

/// Keys and values. Of a static program they are a part of llr_memory_io_bytes, of another a part of
/// llr_memory_planned_bytes; where such a program does not name its caches, all of its planned memory counts.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_kv_cache_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.kv_cache) })
}

/// Weights that were packed for the kernels, or copied to where they lie aligned.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_weight_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.module.weights) })
}

/// Intermediate values of compiled methods; grows with the longest prompt so far.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_scratch_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.module.scratch) })
}

/// All of these together, each counted once. What a vendor's library holds is not known and not in it.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_total_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.held.total()) })
}

/// Most memory that the whole process ever had; 0 where the system does not tell.
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_process_peak_bytes(memory: *const llr_memory) -> u64 {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { field(memory, |memory| memory.peak) })
}

/// The same as one JSON object: program_bytes, program_mapped, data_bytes, planned_bytes, io_bytes, kv_cache_bytes,
/// weight_bytes, scratch_bytes, total_bytes, process_peak_bytes.
///
/// Ask for the size with `buffer` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of bytes, a
/// NUL at the end included.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small).
///
/// Threads: shared.
///
/// # Safety
/// `memory` is NULL or live; `buffer` is NULL or has room for `capacity` bytes; `out_count` is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_memory_to_json(
    memory: *const llr_memory,
    buffer: *mut c_char,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { super::pointer::reference(memory, "memory") }?;
        let (held, module) = (&memory.held, &memory.held.module);
        let text = json!({
            "program_bytes": module.program,
            "program_mapped": module.program_mapped,
            "data_bytes": module.data,
            "planned_bytes": module.planned,
            "io_bytes": held.io,
            "kv_cache_bytes": held.kv_cache,
            "weight_bytes": module.weights,
            "scratch_bytes": module.scratch,
            "total_bytes": held.total(),
            "process_peak_bytes": memory.peak,
        });
        // SAFETY: the caller's promise.
        unsafe { Buffer { data: buffer, capacity, out_count }.fill_text(&text.to_string()) }
    })
}
