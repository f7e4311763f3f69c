//! `llr_program`: what is in a program, told without running it.

use super::chunk::write_len;
use super::guard::{guard, guard_value};
use super::options::path_of;
use super::plan::{chosen_file, invalid};
use super::pointer::{Buffer, check_out, reference, text};
use super::status::llr_status;
use crate::builtin::default_model;
use crate::builtin::inspect::{self, Constant, Io, Report};
use crate::error::{Error, Result, Status};
use crate::pte::Program;
use crate::runner::{EvalMode, ProgramFacts, ProgramKind, ProgramSummary};
use crate::runtime::{MethodInfo, TensorInfo};
use crate::tensor::DType;
use serde_json::json;
use std::ffi::c_char;
use std::path::Path;
use std::ptr;

/// A program that was read, not loaded: made by llr_program_create, freed by llr_program_free. It never changes, so every
/// function may be called from any thread at any time.
///
/// Functions: llr_program_*. Getters give 0, false or NULL for NULL and for an index that is none.
pub struct llr_program {
    report: Report,
    summary: ProgramSummary,
}

/// What kind of language model a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_model_kind {
    /// None that this library runs.
    Unknown = 0,
    /// Mask, keys and values go through the runner: kv_forward, prefill_forward.
    Static = 1,
    /// It keeps keys and values to itself: forward(tokens, input_pos).
    Forward = 2,
}

/// A side of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum llr_side {
    /// What it takes.
    Input = 0,
    /// What it gives.
    Output = 1,
}

impl llr_program {
    fn new(path: &Path, program: &Program) -> Self {
        let report = Report::new(path, program, &inspect::qnn_options);
        let methods: Vec<MethodInfo> = report.methods.iter().map(method_info).collect();
        let states: Vec<DType> = report.states.iter().map(|(_, dtype, _)| *dtype).collect();
        let summary = ProgramSummary::of(&ProgramFacts {
            methods: &methods,
            constant: &|name| match report.constant(name)?.first()? {
                Constant::Int(number) => Some(*number),
                Constant::Ints(numbers) => numbers.first().copied(),
                _ => None,
            },
            states: &states,
            retyped: report.backends().contains(&"QnnBackend"),
        });
        Self { report, summary }
    }

    fn tensors(&self, method: usize, side: i32) -> Option<&[Io]> {
        let method = self.report.methods.get(method)?;
        match side {
            side if side == llr_side::Input as i32 => Some(&method.inputs),
            side if side == llr_side::Output as i32 => Some(&method.outputs),
            _ => None,
        }
    }

    fn json(&self) -> serde_json::Value {
        let ProgramSummary { kind, context_len, vocab_size, layers, kv_bits, prefill_tokens, eval_modes } =
            &self.summary;
        let mut value = inspect::json(&self.report);
        value["backends"] = json!(self.report.backends());
        value["summary"] = json!({
            "kind": match kind {
                ProgramKind::Unknown => "unknown",
                ProgramKind::Static => "static",
                ProgramKind::Forward => "forward",
            },
            "context_length": context_len,
            "vocabulary_size": vocab_size,
            "layers": layers,
            "kv_bits": kv_bits,
            "prefill_tokens": prefill_tokens,
            "eval_modes": eval_modes.iter().map(|mode| mode.name()).collect::<Vec<_>>(),
        });
        value
    }
}

fn method_info(method: &inspect::Method) -> MethodInfo {
    let tensor = |io: &Io| match io {
        Io::Tensor { dtype, dims, dynamic, planned } => {
            let (dims, encoding) = (dims.clone(), None);
            Some(TensorInfo { dtype: *dtype, dims, dynamic: *dynamic, planned: *planned, encoding })
        }
        Io::Other(_) => None,
    };
    let tensors = |ios: &[Io]| ios.iter().map(tensor).collect();
    MethodInfo { name: method.name.clone(), inputs: tensors(&method.inputs), outputs: tensors(&method.outputs) }
}

/// Reads a program's tables, to be freed by llr_program_free: the .pte at `path`, `path_len` bytes of UTF-8, or, with
/// NULL and 0, the model that is part of this library. No backend is loaded and no weight is touched.
///
/// Errors, after which `*out_program` is as before: LLR_STATUS_INVALID_ARGUMENT (NULL, an empty path, no UTF-8),
/// LLR_STATUS_ACCESS_FAILED (missing, unreadable, a directory), LLR_STATUS_INVALID_PROGRAM (not a .pte, damaged, empty).
///
/// Threads: any.
///
/// # Safety
/// `path` is NULL or points to `path_len` bytes; `out_program` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_create(
    path: *const c_char,
    path_len: usize,
    out_program: *mut *mut llr_program,
) -> llr_status {
    guard(|| {
        check_out(out_program, "out_program")?;
        let program = if path.is_null() && path_len == 0 {
            let program = Program::from_storage(default_model::program())?;
            llr_program::new(Path::new("story.pte"), &program)
        } else {
            // SAFETY: the caller's promise.
            let path = chosen_file(&unsafe { path_of(path, path_len) }?, "model")?;
            llr_program::new(&path, &Program::open(&path)?)
        };
        // SAFETY: not NULL, so it points to a pointer of the caller.
        unsafe { out_program.write(Box::into_raw(Box::new(program))) };
        Ok(())
    })
}

/// Frees the program; NULL is fine.
///
/// Threads: last.
///
/// # Safety
/// `program` is NULL or from llr_program_create, not freed, and not in use by another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_free(program: *mut llr_program) {
    guard_value((), || {
        if !program.is_null() {
            // SAFETY: from `Box::into_raw` above, and given back once, as the caller promises.
            drop(unsafe { Box::from_raw(program) });
        }
    })
}

/// # Safety
/// `program` is NULL or live.
unsafe fn count(program: *const llr_program, get: impl FnOnce(&llr_program) -> Option<usize>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { program.as_ref() }.and_then(get).unwrap_or(0)
}

/// # Safety
/// `program` is NULL or lives for `'a`; `out_len` is NULL or points to a size_t.
unsafe fn name<'a>(
    program: *const llr_program,
    out_len: *mut usize,
    get: impl FnOnce(&'a llr_program) -> Option<&'a str>,
) -> *const c_char {
    // SAFETY: the caller's promise.
    let found = unsafe { program.as_ref() }.and_then(get);
    // SAFETY: the caller's promise.
    unsafe { write_len(out_len, found.map_or(0, str::len)) };
    found.map_or(ptr::null(), |name| name.as_ptr().cast())
}

/// What kind of language model it is. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_kind(program: *const llr_program) -> llr_model_kind {
    guard_value(llr_model_kind::Unknown, || {
        // SAFETY: the caller's promise.
        match unsafe { program.as_ref() }.map(|program| program.summary.kind) {
            Some(ProgramKind::Static) => llr_model_kind::Static,
            Some(ProgramKind::Forward) => llr_model_kind::Forward,
            Some(ProgramKind::Unknown) | None => llr_model_kind::Unknown,
        }
    })
}

/// Most tokens that the context can hold; 0 when the program does not say. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_context_length(program: *const llr_program) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| program.summary.context_len) })
}

/// Tokens of the vocabulary; 0 when the program does not say. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_vocabulary_size(program: *const llr_program) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| program.summary.vocab_size) })
}

/// Layers of the model; 0 when the program does not say. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_layer_count(program: *const llr_program) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| program.summary.layers) })
}

/// Bits of an element of the keys and values; 0 when the program does not say. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_kv_bits(program: *const llr_program) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| program.summary.kv_bits) })
}

/// Whether the methods allow a mode, an llr_eval_mode other than LLR_EVAL_MODE_AUTO. False for a program without modes.
/// Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_allows_eval_mode(program: *const llr_program, eval_mode: i32) -> bool {
    guard_value(false, || {
        let allows = |program: &llr_program| {
            EvalMode::from_number(eval_mode.into()).is_ok_and(|mode| program.summary.eval_modes.contains(&mode))
        };
        // SAFETY: the caller's promise.
        unsafe { program.as_ref() }.is_some_and(allows)
    })
}

/// Number of methods that do something; those that only give constants are not among them. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_method_count(program: *const llr_program) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| Some(program.report.methods.len())) })
}

/// The name of a method, in the program's order: UTF-8, `*out_len` bytes (`out_len` may be NULL only where the length is
/// not needed), without a NUL; as long as the program lives. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_method_name(
    program: *const llr_program,
    method: usize,
    out_len: *mut usize,
) -> *const c_char {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe { name(program, out_len, |program| Some(program.report.methods.get(method)?.name.as_str())) }
    })
}

/// Number of inputs or outputs of a method; `side` is an llr_side. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_tensor_count(program: *const llr_program, method: usize, side: i32) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| program.tensors(method, side).map(<[Io]>::len)) })
}

/// The element type of an input or output, as the program says it, "f32" or "u16" for instance: `*out_len` bytes, without
/// a NUL; a static string, never freed. NULL and 0 for one that is no tensor. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_tensor_dtype(
    program: *const llr_program,
    method: usize,
    side: i32,
    index: usize,
    out_len: *mut usize,
) -> *const c_char {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe {
            name(program, out_len, |program| match program.tensors(method, side)?.get(index)? {
                Io::Tensor { dtype, .. } => Some(dtype.name()),
                Io::Other(_) => None,
            })
        }
    })
}

/// The sizes of an input or output, outermost first; upper bounds where they may change.
///
/// Ask for the number with `dims` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of sizes.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small, an unknown
/// side), LLR_STATUS_NOT_FOUND (no such input or output, or it is no tensor).
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live; `dims` is NULL or has room for `capacity` sizes; `out_count` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_tensor_dims(
    program: *const llr_program,
    method: usize,
    side: i32,
    index: usize,
    dims: *mut usize,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let program = unsafe { reference(program, "program") }?;
        if ![llr_side::Input as i32, llr_side::Output as i32].contains(&side) {
            return Err(Error::new(
                Status::InvalidArgument,
                format!("side {side} is neither 0 (input) nor 1 (output)"),
            ));
        }
        let Some(Io::Tensor { dims: found, .. }) = program.tensors(method, side).and_then(|ios| ios.get(index)) else {
            return Err(Error::new(Status::NotFound, format!("method {method} has no tensor {index} on side {side}")));
        };
        // SAFETY: the caller's promise.
        unsafe { Buffer { data: dims, capacity, out_count }.fill(found) }
    })
}

/// The first integer that a constant method gives, get_n_layers for instance: `name` is UTF-8, `name_len` bytes.
///
/// Errors, after which `*out_value` is as before: LLR_STATUS_INVALID_ARGUMENT (NULL, no UTF-8), LLR_STATUS_NOT_FOUND (no
/// such constant method), LLR_STATUS_INVALID_TYPE (it gives no integer or boolean first).
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live; `name` is NULL or points to `name_len` bytes; `out_value` is NULL or points to an int64_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_constant_int(
    program: *const llr_program,
    name: *const c_char,
    name_len: usize,
    out_value: *mut i64,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (program, name) = unsafe { (reference(program, "program")?, text(name, name_len, "name")?) };
        check_out(out_value, "out_value")?;
        let value = constant_int(&program.report, name)?;
        // SAFETY: not NULL, so it points to an integer of the caller.
        unsafe { out_value.write(value) };
        Ok(())
    })
}

fn constant_int(report: &Report, name: &str) -> Result<i64> {
    if name.is_empty() {
        return Err(invalid("`name` is empty".into()));
    }
    let missing = || Error::new(Status::NotFound, format!("the program has no constant method {name}"));
    match report.constant(name).ok_or_else(missing)?.first() {
        Some(Constant::Int(number)) => Ok(*number),
        Some(Constant::Bool(on)) => Ok(i64::from(*on)),
        Some(Constant::Ints(numbers)) if !numbers.is_empty() => Ok(numbers[0]),
        _ => Err(Error::new(Status::InvalidType, format!("constant method {name} gives no integer first"))),
    }
}

/// Number of backends that the program calls. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_backend_count(program: *const llr_program) -> usize {
    // SAFETY: the caller's promise.
    guard_value(0, || unsafe { count(program, |program| Some(program.report.backends().len())) })
}

/// The name of a backend, "QnnBackend" for instance, in alphabetical order: UTF-8, `*out_len` bytes, without a NUL; as
/// long as the program lives. Never fails.
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live; `out_len` is NULL or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_backend_name(
    program: *const llr_program,
    backend: usize,
    out_len: *mut usize,
) -> *const c_char {
    guard_value(ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe { name(program, out_len, |program| program.report.backends().get(backend).copied()) }
    })
}

/// Everything that is known of the program, as one JSON object: summary (kind, context_length, vocabulary_size, layers,
/// kv_bits, prefill_tokens, eval_modes), methods with their inputs and outputs, constant_methods with their values,
/// backends, delegates, states, segments: what `llr inspect --json` prints, and a little more. It may grow.
///
/// Ask for the size with `buffer` NULL and `capacity` 0, then fill. `out_count` (may be NULL) gets the number of bytes, a
/// NUL at the end included.
///
/// Errors, after which nothing was written: LLR_STATUS_INVALID_ARGUMENT (NULL, a capacity that is too small).
///
/// Threads: shared.
///
/// # Safety
/// `program` is NULL or live; `buffer` is NULL or has room for `capacity` bytes; `out_count` is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llr_program_to_json(
    program: *const llr_program,
    buffer: *mut c_char,
    capacity: usize,
    out_count: *mut usize,
) -> llr_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let program = unsafe { reference(program, "program") }?;
        // SAFETY: the caller's promise.
        unsafe { Buffer { data: buffer, capacity, out_count }.fill_text(&program.json().to_string()) }
    })
}
