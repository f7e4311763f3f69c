//! The fence around a host's callbacks: each call in one function that takes and gives Rust types, with everything that
//! came back judged. The only file that follows a pointer of a host, or gives it one: bindings are to memory of one arena,
//! which must be lent to `execute`.
#![allow(unsafe_code)]

use super::error::{HostError, HostPlace, status_of};
use super::table::{
    HostTable, HostTensor, HostValue, HostValueKind, LLR_MODULE_MAX_RANK, LLR_MODULE_NO_TENSOR,
    LLR_MODULE_TABLE_VERSION, LLR_MODULE_TENSOR_DYNAMIC, LLR_MODULE_TENSOR_PLANNED, LLR_MODULE_TENSOR_QUANTIZED,
};
use crate::error::Result;
use crate::log_warning;
use crate::runtime::{IoArena, IoSlice, MethodInfo, RuntimeError, SharedMemory, Side, TensorInfo, Unshared, Value};
use crate::tensor::{DType, Dims, Encoding, element_count};
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Most methods, and inputs or outputs of one, that are believed.
const MAX_COUNT: usize = 1 << 16;
/// Longest text that is believed, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// Most bytes of an explanation.
const MAX_WORDS: usize = 4096;

/// A host's module with its table. Shared by whoever may open it; used by one runner at a time, and released with the
/// last share.
#[derive(Debug)]
pub struct Host {
    table: HostTable,
    module: *mut c_void,
    state: AtomicU8,
}

/// States of a [`Host`].
const FREE: u8 = 0;
const LEASED: u8 = 1;
/// It may still know addresses that are no more.
const STUCK: u8 = 2;

// SAFETY: the pointer is only handed to callbacks, which the table's contract allows on any thread, one at a time: all but
// `release` go through the one lease, and `release` runs when nobody has a share any more.
unsafe impl Send for Host {}
// SAFETY: as above; a shared `Host` gives nothing but leases.
unsafe impl Sync for Host {}

impl Host {
    /// A host's module. On success it belongs to the result, which releases it; on an error it stays the caller's.
    ///
    /// # Errors
    /// [`HostError::NoTable`], [`HostError::TableSize`], [`HostError::TableVersion`], [`HostError::CallbackMissing`].
    ///
    /// # Safety
    /// `table` is NULL or points to a table's first two fields and to as many bytes as the first of them says; its
    /// callbacks do with `module` what [`HostTable`] says, on any thread, until `release` was called.
    pub unsafe fn new(table: *const HostTable, module: *mut c_void) -> Result<Arc<Self>, HostError> {
        if table.is_null() || !table.is_aligned() {
            return Err(HostError::NoTable);
        }
        // SAFETY: the table begins with these two fields, whatever its version.
        let (have, found) = unsafe { ((*table).struct_size, (*table).version) };
        let need = HostTable::MIN_SIZE;
        if have < need {
            return Err(HostError::TableSize { have, need });
        }
        if found != LLR_MODULE_TABLE_VERSION {
            return Err(HostError::TableVersion { found, wanted: LLR_MODULE_TABLE_VERSION });
        }
        let mut copy = std::mem::MaybeUninit::<HostTable>::zeroed();
        // SAFETY: the caller's table has `have` bytes, and zeros are a valid table: callbacks that are NULL.
        let table = unsafe {
            let len = have.min(size_of::<HostTable>());
            ptr::copy_nonoverlapping(table.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), len);
            copy.assume_init()
        };
        match missing(&table) {
            Some(name) => Err(HostError::CallbackMissing(name)),
            None => Ok(Arc::new(Self { table, module, state: AtomicU8::new(FREE) })),
        }
    }

    /// The right to use the module, which nobody else has until the lease is dropped.
    pub(super) fn lease(self: &Arc<Self>) -> Result<Lease, HostError> {
        match self.state.compare_exchange(FREE, LEASED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Lease::new(Arc::clone(self))),
            Err(STUCK) => Err(HostError::Stuck),
            Err(_) => Err(HostError::InUse),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(release) = self.table.release {
            // SAFETY: `new`'s contract; this is the last call.
            unsafe { release(self.module) }
        }
    }
}

/// The first callback that is needed and not there.
fn missing(table: &HostTable) -> Option<&'static str> {
    let HostTable { register_memory, deregister_memory, .. } = table;
    [
        ("method_count", table.method_count.is_some()),
        ("method_name", table.method_name.is_some()),
        ("evaluate", table.evaluate.is_some()),
        ("value", table.value.is_some()),
        ("load_method", table.load_method.is_some()),
        ("input_count", table.input_count.is_some()),
        ("output_count", table.output_count.is_some()),
        ("input_info", table.input_info.is_some()),
        ("output_info", table.output_info.is_some()),
        ("bind_input", table.bind_input.is_some()),
        ("bind_output", table.bind_output.is_some()),
        ("execute", table.execute.is_some()),
        ("output", table.output.is_some()),
        ("register_memory", register_memory.is_some() || deregister_memory.is_none()),
        ("deregister_memory", deregister_memory.is_some() || register_memory.is_none()),
    ]
    .into_iter()
    .find(|(_, there)| !there)
    .map(|(name, _)| name)
}

/// A slot of a loaded method: the host's number, and the method's name for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlotId<'a> {
    pub method: (u32, &'a str),
    pub side: Side,
    pub index: usize,
}

impl SlotId<'_> {
    fn place(self) -> HostPlace {
        HostPlace::Slot { method: self.method.1.to_owned(), side: self.side, index: self.index }
    }
}

/// What a slot is bound to; begins as nothing. Only [`Lease`] changes it.
#[derive(Debug, Default)]
pub(super) struct Binding(Option<IoSlice>);

impl Binding {
    pub fn slice(&self) -> Option<IoSlice> {
        self.0
    }
}

/// The right to call. Not `Sync`: calls come one at a time.
#[derive(Debug)]
pub(super) struct Lease {
    host: Arc<Host>,
    /// The arena of every binding.
    arena: Option<u64>,
    /// Bindings that are something.
    bound: usize,
    /// What the host was told of with `register_memory`, and must hear of again before it goes.
    shared: Option<Arc<SharedMemory>>,
    _not_sync: PhantomData<Cell<()>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = if self.bound == 0 { FREE } else { STUCK };
        if let Err(error) = self.unshare() {
            log_warning!("the host's module keeps memory that is shared with the device: {error}");
            state = STUCK;
        }
        self.host.state.store(state, Ordering::Release);
    }
}

/// What `name` expands to: the callback, which [`missing`] has found, called with the module and `arguments`.
macro_rules! call {
    ($lease:ident . $name:ident ( $($argument:expr),* ) for $place:expr) => {{
        let callback = $lease.host.table.$name.ok_or(HostError::CallbackMissing(stringify!($name)))?;
        // SAFETY: `Host::new`'s contract; the arguments are live for the call and of the kinds that the table names.
        let number = unsafe { callback($lease.host.module, $($argument),*) };
        $lease.check(stringify!($name), number, $place)
    }};
}

impl Lease {
    fn new(host: Arc<Host>) -> Self {
        Self { host, arena: None, bound: 0, shared: None, _not_sync: PhantomData }
    }

    /// The names of all methods.
    pub fn method_names(&mut self) -> Result<Vec<String>, HostError> {
        let mut count = 0;
        call!(self.method_count(&mut count) for || HostPlace::Module)?;
        believe("method_count", count, "methods", || HostPlace::Module)?;
        (0..count).map(|index| self.method_name(index)).collect()
    }

    fn method_name(&self, index: usize) -> Result<String, HostError> {
        let (mut name, mut len) = (ptr::null(), 0);
        call!(self.method_name(index, &mut name, &mut len) for || HostPlace::Module)?;
        // SAFETY: the table's contract: `len` bytes that live until the next call.
        unsafe { text(name, len) }.map_err(|why| HostError::Text { callback: "method_name", index, why })
    }

    /// The outputs of constant method `name`.
    pub fn evaluate(&mut self, name: &str) -> Result<Vec<Value>, HostError> {
        let c_name = c_text(name)?;
        let place = || HostPlace::Method(name.to_owned());
        let mut count = 0;
        call!(self.evaluate(c_name.as_ptr(), name.len(), &mut count) for place)?;
        believe("evaluate", count, "values", place)?;
        (0..count).map(|index| self.value(name, index)).collect()
    }

    fn value(&self, method: &str, index: usize) -> Result<Value, HostError> {
        let place = || HostPlace::Value { method: method.to_owned(), index };
        let mut value = HostValue {
            struct_size: size_of::<HostValue>(),
            kind: HostValueKind::None as i32,
            integer: 0,
            real: 0.0,
            text: ptr::null(),
            text_len: 0,
        };
        call!(self.value(index, &mut value) for place)?;
        const NONE: i32 = HostValueKind::None as i32;
        const INT: i32 = HostValueKind::Int as i32;
        const DOUBLE: i32 = HostValueKind::Double as i32;
        const BOOL: i32 = HostValueKind::Bool as i32;
        const STRING: i32 = HostValueKind::String as i32;
        match (value.kind, value.integer) {
            (NONE, _) => Ok(Value::Null),
            (INT, integer) => Ok(Value::Int(integer)),
            (DOUBLE, _) => Ok(Value::Double(value.real)),
            (BOOL, integer @ (0 | 1)) => Ok(Value::Bool(integer == 1)),
            (BOOL, integer) => Err(HostError::ValueBool { place: place(), integer }),
            // SAFETY: the table's contract: `text_len` bytes that live until the next call.
            (STRING, _) => unsafe { text(value.text, value.text_len) }
                .map(Value::String)
                .map_err(|why| HostError::Text { callback: "value", index, why }),
            (kind, _) => Err(HostError::ValueKind { place: place(), kind }),
        }
    }

    /// Loads a method: the host's number for it, and what it looks like.
    pub fn load_method(&mut self, name: &str) -> Result<(u32, MethodInfo), HostError> {
        let c_name = c_text(name)?;
        let place = || HostPlace::Method(name.to_owned());
        let (mut method, mut inputs, mut outputs) = (0, 0, 0);
        call!(self.load_method(c_name.as_ptr(), name.len(), &mut method) for place)?;
        call!(self.input_count(method, &mut inputs) for place)?;
        believe("input_count", inputs, "inputs", place)?;
        call!(self.output_count(method, &mut outputs) for place)?;
        believe("output_count", outputs, "outputs", place)?;
        let infos = |side, count| {
            let slot = |index| SlotId { method: (method, name), side, index };
            (0..count).map(|index| self.info(slot(index))).collect::<Result<Vec<_>, _>>()
        };
        let (inputs, outputs) = (infos(Side::Input, inputs)?, infos(Side::Output, outputs)?);
        Ok((method, MethodInfo { name: name.to_owned(), inputs, outputs }))
    }

    fn info(&self, slot: SlotId<'_>) -> Result<Option<TensorInfo>, HostError> {
        let SlotId { method: (id, _), side, index } = slot;
        let place = || slot.place();
        let mut tensor = cleared();
        let callback = match side {
            Side::Input => {
                call!(self.input_info(id, index, &mut tensor) for place)?;
                "input_info"
            }
            Side::Output => {
                call!(self.output_info(id, index, &mut tensor) for place)?;
                "output_info"
            }
        };
        if tensor.dtype == LLR_MODULE_NO_TENSOR {
            return Ok(None);
        }
        let (dtype, dims) = layout(callback, &tensor, place)?;
        let has = |flag| tensor.flags & flag != 0;
        let encoding = match has(LLR_MODULE_TENSOR_QUANTIZED) {
            true if tensor.scale > 0.0 && tensor.scale.is_finite() => {
                Some(Encoding { scale: tensor.scale, zero_point: tensor.zero_point })
            }
            true => return Err(HostError::Scale { callback, place: place(), scale: tensor.scale }),
            false => None,
        };
        let (dynamic, planned) = (has(LLR_MODULE_TENSOR_DYNAMIC), has(LLR_MODULE_TENSOR_PLANNED));
        if dynamic && side == Side::Input && self.host.table.resize_input.is_none() {
            return Err(HostError::NoResize(place()));
        }
        Ok(Some(TensorInfo { dtype, dims, dynamic, planned, encoding }))
    }

    /// Whether bindings may be to `arena`.
    pub fn is_at(&self, arena: &IoArena) -> bool {
        self.bound == 0 || self.arena == Some(arena.id())
    }

    /// Binds a slot to `slice`, which must lie in `arena` and be aligned to its elements. All bindings are to one arena.
    pub fn bind(
        &mut self,
        slot: SlotId<'_>,
        binding: &mut Binding,
        (arena, slice): (&IoArena, IoSlice),
        dtype: DType,
    ) -> Result<()> {
        let SlotId { method: (_, method), side, index } = slot;
        let method = || method.to_owned();
        let address =
            arena.address(slice).ok_or_else(|| RuntimeError::BindOutside { method: method(), side, index })?;
        if !address.addr().is_multiple_of(dtype.size()) {
            let offset = slice.offset;
            return Err(RuntimeError::BindUnaligned { method: method(), side, index, offset, dtype }.into());
        }
        if !self.is_at(arena) {
            return Err(RuntimeError::ForeignArena { method: method() }.into());
        }
        if self.arena != Some(arena.id()) {
            self.arena = None;
            self.share(arena)?;
            self.arena = Some(arena.id());
        }
        // Counted before the call: after an error the host may have the address, or the one before.
        self.bound += usize::from(binding.0.replace(slice).is_none());
        Ok(self.set_memory(slot, (address, slice.len))?)
    }

    /// Takes a binding away.
    pub fn unbind(&mut self, slot: SlotId<'_>, binding: &mut Binding) -> Result<(), HostError> {
        if binding.0.is_some() {
            self.set_memory(slot, (ptr::null_mut(), 0))?;
            binding.0 = None;
            self.bound -= 1;
        }
        Ok(())
    }

    /// Tells the host of the memory that `arena` shares with a device, if it does, in place of what it was told before.
    fn share(&mut self, arena: &IoArena) -> Result<(), HostError> {
        self.unshare()?;
        let Some(memory) = arena.shared_memory() else { return Ok(()) };
        let (fd, block, len) = block(memory);
        let told = match self.host.table.register_memory {
            None => Err(HostError::NoSharedMemory),
            Some(_) => call!(self.register_memory(fd, block, len) for || HostPlace::Module),
        };
        match (told, memory.unshared()) {
            (Ok(()), _) => self.shared = Some(Arc::clone(memory)),
            (Err(error), Unshared::Fails) => return Err(error),
            (Err(error), Unshared::Copies) => log_warning!("shared_buffer: {error}; it is used like any memory"),
        }
        Ok(())
    }

    /// Takes that back. Memory that a host does not give up is never freed.
    fn unshare(&mut self) -> Result<(), HostError> {
        let Some(memory) = self.shared.take() else { return Ok(()) };
        let (fd, block, len) = block(&memory);
        let told = call!(self.deregister_memory(fd, block, len) for || HostPlace::Module);
        if told.is_err() || self.bound > 0 {
            std::mem::forget(memory);
        }
        told
    }

    fn set_memory(&self, slot: SlotId<'_>, (data, len): (*mut u8, usize)) -> Result<(), HostError> {
        let SlotId { method: (id, _), side, index } = slot;
        let (data, place) = (data.cast::<c_void>(), || slot.place());
        match side {
            Side::Input => call!(self.bind_input(id, index, data.cast_const(), len) for place),
            Side::Output => call!(self.bind_output(id, index, data, len) for place),
        }
    }

    /// Sets the current sizes of an input.
    pub fn resize(&mut self, slot: SlotId<'_>, dims: &[usize]) -> Result<(), HostError> {
        // Within the bounds, which came as such numbers.
        let sizes: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        call!(self.resize_input(slot.method.0, slot.index, sizes.as_ptr(), sizes.len()) for || slot.place())
    }

    /// Runs a method. What is bound is memory of `arena`, whose exclusive borrow the host works on.
    pub fn execute(&mut self, (id, method): (u32, &str), arena: &mut IoArena) -> Result<()> {
        if !self.is_at(arena) {
            return Err(RuntimeError::ForeignArena { method: method.to_owned() }.into());
        }
        Ok(call!(self.execute(id) for || HostPlace::Method(method.to_owned()))?)
    }

    /// Current sizes of an output, its length in bytes, and the memory that the host lends with it, which has that length
    /// and alignment. That of a `bound` output is not looked at. What ends the loan needs `&mut self`.
    pub fn output(&self, slot: SlotId<'_>, info: &TensorInfo, bound: bool) -> Result<(Dims, usize, &[u8]), HostError> {
        let place = || slot.place();
        let mut tensor = cleared();
        call!(self.output(slot.method.0, slot.index, &mut tensor) for place)?;
        let elements = |dims: &[usize]| element_count(dims).unwrap_or(usize::MAX);
        let other =
            |have: String| HostError::OutputType { place: place(), have, want: describe(info.dtype, &info.dims) };
        if tensor.dtype == LLR_MODULE_NO_TENSOR {
            return Err(other("no tensor".to_owned()));
        }
        let (dtype, dims) = layout("output", &tensor, place)?;
        if dtype != info.dtype || elements(&dims) > elements(&info.dims) {
            return Err(other(describe(dtype, &dims)));
        }
        let len = elements(&dims) * dtype.size();
        if bound || len == 0 {
            return Ok((dims, len, &[]));
        }
        if tensor.byte_len != len {
            return Err(HostError::OutputLength { place: place(), have: tensor.byte_len, need: len });
        }
        if tensor.data.is_null() {
            return Err(HostError::OutputNull(place()));
        }
        if !tensor.data.addr().is_multiple_of(dtype.size()) {
            return Err(HostError::OutputUnaligned(place()));
        }
        // SAFETY: not NULL; the table's contract makes `len` bytes there valid until a call that takes `&mut self` here.
        Ok((dims, len, unsafe { std::slice::from_raw_parts(tensor.data.cast::<u8>(), len) }))
    }

    /// Makes an error of a callback's number, with the host's words.
    fn check(&self, callback: &'static str, number: i32, place: impl FnOnce() -> HostPlace) -> Result<(), HostError> {
        if number == 0 {
            return Ok(());
        }
        let (place, words) = (place(), self.words());
        Err(match status_of(number) {
            Some(_) => HostError::Failed { callback, place, number, words },
            None => HostError::UnknownNumber { callback, place, number, words },
        })
    }

    fn words(&self) -> String {
        let Some(last_error) = self.host.table.last_error else { return String::new() };
        let mut buffer = vec![0u8; MAX_WORDS];
        // SAFETY: `Host::new`'s contract; the buffer has that many bytes.
        let len = unsafe { last_error(self.host.module, buffer.as_mut_ptr().cast::<c_char>(), MAX_WORDS) };
        buffer.truncate(len);
        String::from_utf8_lossy(&buffer).trim().to_owned()
    }
}

/// Descriptor, first byte and size of the whole of a shared block.
fn block(memory: &SharedMemory) -> (i32, *mut c_void, usize) {
    let start = memory.offset_of(memory.as_ptr(), 0).unwrap_or(0);
    (memory.fd(), memory.as_ptr().wrapping_sub(start).cast(), memory.block_len())
}

fn cleared() -> HostTensor {
    HostTensor {
        struct_size: size_of::<HostTensor>(),
        dtype: LLR_MODULE_NO_TENSOR,
        flags: 0,
        rank: 0,
        sizes: [0; LLR_MODULE_MAX_RANK],
        scale: 0.0,
        zero_point: 0,
        data: ptr::null(),
        byte_len: 0,
    }
}

/// Element type and sizes, as far as they can be.
fn layout(
    callback: &'static str,
    tensor: &HostTensor,
    place: impl Fn() -> HostPlace,
) -> Result<(DType, Dims), HostError> {
    let dtype = i8::try_from(tensor.dtype).ok().and_then(DType::from_code);
    let dtype = dtype.ok_or_else(|| HostError::ElementType { callback, place: place(), dtype: tensor.dtype })?;
    let Some(sizes) = tensor.sizes.get(..tensor.rank) else {
        return Err(HostError::Rank { callback, place: place(), rank: tensor.rank, max: LLR_MODULE_MAX_RANK });
    };
    let fail = |why| HostError::Sizes { callback, place: place(), sizes: sizes.to_vec(), why };
    let dims = sizes.iter().map(|&size| usize::try_from(size)).collect::<Result<Dims, _>>();
    let dims = dims.map_err(|_| fail("a size is negative"))?;
    element_count(&dims).map_err(|_| fail("so many elements cannot be"))?;
    Ok((dtype, dims))
}

pub(super) fn describe(dtype: DType, dims: &[usize]) -> String {
    format!("{dtype}{dims:?}")
}

fn believe(
    callback: &'static str,
    count: usize,
    what: &'static str,
    place: impl FnOnce() -> HostPlace,
) -> Result<(), HostError> {
    if count <= MAX_COUNT {
        return Ok(());
    }
    Err(HostError::TooMany { callback, place: place(), what, count, max: MAX_COUNT })
}

fn c_text(name: &str) -> Result<CString, HostError> {
    CString::new(name).map_err(|_| HostError::Text { callback: "load_method", index: 0, why: "with a NUL inside" })
}

/// # Safety
/// `data` is NULL or points to `len` live bytes.
unsafe fn text(data: *const c_char, len: usize) -> Result<String, &'static str> {
    if data.is_null() {
        return Err("NULL");
    }
    if len > MAX_TEXT {
        return Err("longer than 1 MiB");
    }
    // SAFETY: the caller's promise, and not NULL.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| "no UTF-8")
}
