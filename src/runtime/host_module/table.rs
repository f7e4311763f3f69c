//! The C side of a host's module: the table of callbacks and the two structures that they fill. `include/llama_runner.h`
//! declares them from this file, under the names that `cbindgen.toml` gives them; what the callbacks return is judged in
//! `calls.rs`.

use std::ffi::{c_char, c_void};

/// Version of llr_module_table. A table of another version is refused; what is appended to the table does not change it.
pub const LLR_MODULE_TABLE_VERSION: u32 = 1;
/// Most dimensions of a tensor.
pub const LLR_MODULE_MAX_RANK: usize = 16;
/// Flag of llr_module_tensor: the sizes may be smaller at run time, `sizes` are the upper bounds.
pub const LLR_MODULE_TENSOR_DYNAMIC: u32 = 1;
/// Flag of llr_module_tensor: the program has memory for it. It need not be bound; bound, it is copied in or out.
pub const LLR_MODULE_TENSOR_PLANNED: u32 = 2;
/// Flag of llr_module_tensor: `scale` and `zero_point` say what its integers stand for.
pub const LLR_MODULE_TENSOR_QUANTIZED: u32 = 4;
/// `dtype` of an input or output that is no tensor.
pub const LLR_MODULE_NO_TENSOR: i32 = -1;

/// `kind` of an llr_module_value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum HostValueKind {
    /// Nothing.
    None = 0,
    /// An integer, in `integer`.
    Int = 1,
    /// A floating-point number, in `real`.
    Double = 2,
    /// A boolean: `integer` is 0 or 1.
    Bool = 3,
    /// A text, in `text` and `text_len`.
    String = 4,
}

/// One output of a method that only returns constants. The library clears it and sets `struct_size`; the callback fills
/// in the rest.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HostValue {
    /// sizeof(llr_module_value) of the library; what lies beyond must not be written.
    pub struct_size: usize,
    /// An llr_module_value_kind.
    pub kind: i32,
    /// Of an integer or boolean.
    pub integer: i64,
    /// Of a floating-point number.
    pub real: f64,
    /// UTF-8, `text_len` bytes, valid until the next call of any callback.
    pub text: *const c_char,
    /// Bytes of `text`.
    pub text_len: usize,
}

/// An input or output of a method. The library clears it and sets `struct_size`; the callback fills in the rest.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HostTensor {
    /// sizeof(llr_module_tensor) of the library; what lies beyond must not be written.
    pub struct_size: usize,
    /// Element type: ExecuTorch's ScalarType number (0 u8, 3 i32, 4 i64, 6 f32, 27 u16 and so on), or LLR_MODULE_NO_TENSOR.
    pub dtype: i32,
    /// LLR_MODULE_TENSOR_* flags; not looked at by `output`.
    pub flags: u32,
    /// Number of dimensions, at most LLR_MODULE_MAX_RANK.
    pub rank: usize,
    /// The first `rank` are the sizes: of `input_info` and `output_info` the largest, of `output` the current ones.
    pub sizes: [i64; LLR_MODULE_MAX_RANK],
    /// With LLR_MODULE_TENSOR_QUANTIZED: real = (integer - zero_point) * scale.
    pub scale: f32,
    /// See `scale`.
    pub zero_point: i32,
    /// Of `output` only: the elements, aligned to their type. Valid until the next call of a callback that takes the
    /// module without being `output`, `output_info` or `last_error`. Not looked at for an output that is bound.
    pub data: *const c_void,
    /// Bytes at `data`: those of the current sizes.
    pub byte_len: usize,
}

/// A program that the host runs: its methods as callbacks, each of which gets the `module` pointer that was given with
/// the table. Fill it in with zeros first, then `struct_size`, `version` and the callbacks.
///
/// * Callbacks return 0, or a number of ExecuTorch's runtime::Error or of llr_status; the library then asks `last_error`
///   for words. After an error the module must be usable as before. Results are looked at only after 0.
/// * The library makes one call at a time on a module, on the thread that loads, runs or frees the runner. Callbacks may
///   not call functions of the same runner, and must return normally: no exception and no longjmp may leave them.
/// * Methods are named by the number that `load_method` gave. Inputs and outputs are counted from 0, in the program's
///   order.
/// * What the library reads (texts, `data`) must be valid as long as is said there.
/// * Everything is needed but what is called optional, which may be NULL. The table itself is copied.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HostTable {
    /// sizeof(llr_module_table) where the host was compiled. What an older host's table lacks counts as NULL.
    pub struct_size: usize,
    /// LLR_MODULE_TABLE_VERSION.
    pub version: u32,
    /// Optional. Called once, last of all, when no runner and no options need the module any more.
    pub release: Option<unsafe extern "C" fn(module: *mut c_void)>,
    /// Optional. Writes what went wrong in the last callback that failed, UTF-8, to `buffer`, at most `buffer_len` bytes
    /// and without a NUL; returns how many bytes the whole text has.
    pub last_error: Option<unsafe extern "C" fn(module: *mut c_void, buffer: *mut c_char, buffer_len: usize) -> usize>,
    /// How many methods the program has, those that only return constants included. Loads the program if need be.
    pub method_count: Option<unsafe extern "C" fn(module: *mut c_void, out_count: *mut usize) -> i32>,
    /// The name of a method, UTF-8, valid until the next call of any callback.
    pub method_name: Option<
        unsafe extern "C" fn(
            module: *mut c_void,
            index: usize,
            out_name: *mut *const c_char,
            out_name_len: *mut usize,
        ) -> i32,
    >,
    /// Runs the method called `name` (`name_len` bytes and a NUL), which takes nothing and returns no tensors, and keeps
    /// what it gives for `value`. A list counts as its elements.
    pub evaluate: Option<
        unsafe extern "C" fn(module: *mut c_void, name: *const c_char, name_len: usize, out_count: *mut usize) -> i32,
    >,
    /// One of the values that the last `evaluate` gave.
    pub value: Option<unsafe extern "C" fn(module: *mut c_void, index: usize, out_value: *mut HostValue) -> i32>,
    /// Prepares the method called `name` (`name_len` bytes and a NUL). The same method gets the same number again.
    pub load_method: Option<
        unsafe extern "C" fn(module: *mut c_void, name: *const c_char, name_len: usize, out_method: *mut u32) -> i32,
    >,
    /// How many inputs a loaded method has.
    pub input_count: Option<unsafe extern "C" fn(module: *mut c_void, method: u32, out_count: *mut usize) -> i32>,
    /// How many outputs a loaded method has.
    pub output_count: Option<unsafe extern "C" fn(module: *mut c_void, method: u32, out_count: *mut usize) -> i32>,
    /// Element type, largest sizes and flags of an input.
    pub input_info:
        Option<unsafe extern "C" fn(module: *mut c_void, method: u32, index: usize, out_info: *mut HostTensor) -> i32>,
    /// The same of an output.
    pub output_info:
        Option<unsafe extern "C" fn(module: *mut c_void, method: u32, index: usize, out_info: *mut HostTensor) -> i32>,
    /// Makes an input read from `data`, `byte_len` bytes, the size at the largest sizes. The memory is the library's,
    /// aligned to 64 bytes or at least to the element, may be looked at only inside `execute`, and stays until the input
    /// is bound anew. NULL and 0 take a binding away.
    pub bind_input: Option<
        unsafe extern "C" fn(
            module: *mut c_void,
            method: u32,
            index: usize,
            data: *const c_void,
            byte_len: usize,
        ) -> i32,
    >,
    /// Makes an output write to `data`, likewise.
    pub bind_output: Option<
        unsafe extern "C" fn(module: *mut c_void, method: u32, index: usize, data: *mut c_void, byte_len: usize) -> i32,
    >,
    /// Optional where no input is dynamic. Sets the current sizes of an input; its memory stays, of which the first bytes
    /// are used.
    pub resize_input: Option<
        unsafe extern "C" fn(module: *mut c_void, method: u32, index: usize, sizes: *const i64, rank: usize) -> i32,
    >,
    /// Runs a method on what is bound. Afterwards the outputs that are bound are in their memory.
    pub execute: Option<unsafe extern "C" fn(module: *mut c_void, method: u32) -> i32>,
    /// Type, current sizes and memory of an output, after `execute`.
    pub output: Option<
        unsafe extern "C" fn(module: *mut c_void, method: u32, index: usize, out_output: *mut HostTensor) -> i32,
    >,
    /// Optional, but not without `deregister_memory`. Tells, before anything in it is bound, of a block of memory that is
    /// shared with a device: its file descriptor, first byte and size. Called with llr_runner_options_set_shared_buffer
    /// only.
    pub register_memory:
        Option<unsafe extern "C" fn(module: *mut c_void, fd: i32, data: *mut c_void, byte_len: usize) -> i32>,
    /// Takes that back, after everything in it was bound elsewhere or unbound.
    pub deregister_memory:
        Option<unsafe extern "C" fn(module: *mut c_void, fd: i32, data: *mut c_void, byte_len: usize) -> i32>,
}

impl HostTable {
    /// Size of the table of version 1 as it was first published; a shorter one is none.
    pub const MIN_SIZE: usize = std::mem::offset_of!(Self, deregister_memory) + size_of::<usize>();
}

/// What a library exports that makes modules of programs, an adapter, under the name llr_module_open_v1: gives a module of
/// the program at `path` (UTF-8 with a NUL), with `data_path_count` external data files, and the table for it, which must
/// live as long as the library is loaded. The module is released through the table. Returns 0 or an error number, after
/// which there is nothing to release; what is wrong with the program may as well come out when a callback first needs
/// it, with words.
pub type OpenHostModule = unsafe extern "C" fn(
    path: *const c_char,
    data_paths: *const *const c_char,
    data_path_count: usize,
    out_table: *mut *const HostTable,
    out_module: *mut *mut c_void,
) -> i32;
