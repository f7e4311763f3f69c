//! The fake's shared memory, and what tensors hold: bytes at an address, or behind a descriptor, which is where a DSP
//! would look for them. Functions are called as `table.rs` says.

use super::Call;
use super::state::{Memory, Object, State};
use super::table::{Code, enter};
use crate::qnn::{QnnType, sys};
use std::ffi::c_void;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

const INVALID_ARGUMENT: Code = 8000;
const INVALID_HANDLE: Code = 8001;
const MAPPING: Code = 8003;

/// Bytes of a tensor.
fn byte_len(data_type: u32, dims: &[u32]) -> Option<u64> {
    let size = QnnType(data_type).dtype()?.size() as u64;
    dims.iter().try_fold(size, |len, &dim| len.checked_mul(dim.into()))
}

/// # Safety
/// The dimensions must be valid for the rank.
unsafe fn dims(rank: u32, dimensions: *const u32) -> Vec<u32> {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(dimensions, rank as usize) }.to_vec()
}

pub(super) unsafe extern "C" fn mem_register(
    context: *mut c_void,
    descriptors: *const sys::Qnn_MemDescriptor_t,
    count: u32,
    handles: *mut *mut c_void,
) -> Code {
    const CALL: Call = Call::MemRegister;
    enter(CALL, |state| {
        let context = state.expect(CALL, context, "context");
        // SAFETY: the module's contract.
        let descriptor = unsafe { &*descriptors };
        if count != 1 || descriptor.memType != sys::QNN_MEM_TYPE_CUSTOM {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the module's contract; custom memory of HTP has this descriptor.
        let custom = unsafe { &*descriptor.u.customInfo.cast::<sys::QnnMemHtp_Descriptor_t>() };
        // SAFETY: every bit pattern of either member is a valid value of the other.
        let place = unsafe { custom.u.sharedBufferConfig };
        // SAFETY: the module's contract.
        let dims = unsafe { dims(descriptor.memShape.numDim, descriptor.memShape.dimSize) };
        let data_type = descriptor.dataType;
        let end = byte_len(data_type, &dims).and_then(|len| place.offset.checked_add(len));
        if custom.type_ != sys::QNN_HTP_MEM_SHARED_BUFFER || end.is_none_or(|end| end > custom.size) {
            return INVALID_ARGUMENT;
        }
        let memory = Memory { context, fd: place.fd, offset: place.offset, data_type, dims };
        let same = |object: &Object| match object {
            Object::Memory(known) => {
                (known.context, known.fd, known.offset) == (memory.context, memory.fd, memory.offset)
            }
            _ => false,
        };
        let known = state.objects.iter().find(|(_, object)| same(object)).map(|(&number, _)| number);
        let handle = match known.filter(|_| state.one_handle_a_place) {
            Some(number) => std::ptr::without_provenance_mut(number),
            None => state.create(Object::Memory(memory)),
        };
        // SAFETY: the module's contract.
        unsafe { *handles = handle };
        0
    })
}

pub(super) unsafe extern "C" fn mem_deregister(handles: *const *mut c_void, count: u32) -> Code {
    const CALL: Call = Call::MemDeRegister;
    enter(CALL, |state| {
        if count != 1 {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the module's contract.
        state.free(CALL, unsafe { *handles }, "memory");
        0
    })
}

/// Where a tensor's bytes are.
enum Bytes {
    Client(*mut u8, usize),
    /// Not closed, for it is the allocator's.
    Shared(ManuallyDrop<File>, u64, usize),
}

impl Bytes {
    fn of(state: &State, context: usize, tensor: &sys::Qnn_Tensor_t) -> Result<Self, Code> {
        // SAFETY: both versions begin with these fields.
        let tensor = unsafe { &tensor.u.v1 };
        if tensor.memType == sys::QNN_TENSORMEMTYPE_RAW {
            // SAFETY: the type says that it is a client buffer.
            let buffer = unsafe { tensor.memory.clientBuf };
            return Ok(Self::Client(buffer.data.cast(), buffer.dataSize as usize));
        }
        // SAFETY: the type says that it is a handle.
        let handle = unsafe { tensor.memory.memHandle }.addr();
        let Some(Object::Memory(memory)) = state.objects.get(&handle) else { return Err(INVALID_HANDLE) };
        // SAFETY: the module's contract.
        let dims = unsafe { dims(tensor.rank, tensor.dimensions) };
        let alike = state.one_handle_a_place || (memory.data_type, &memory.dims) == (tensor.dataType, &dims);
        match byte_len(tensor.dataType, &dims) {
            Some(len) if alike && memory.context == context => {
                // SAFETY: it is not closed here; a descriptor that is closed already makes reads fail.
                let file = ManuallyDrop::new(unsafe { File::from_raw_fd(memory.fd) });
                Ok(Self::Shared(file, memory.offset, len as usize))
            }
            _ => Err(INVALID_HANDLE),
        }
    }

    /// # Safety
    /// A client buffer must be readable.
    unsafe fn read(&self) -> Result<Vec<u8>, Code> {
        match *self {
            // SAFETY: as the caller says.
            Self::Client(data, len) => Ok(unsafe { std::slice::from_raw_parts(data, len) }.to_vec()),
            Self::Shared(ref file, offset, len) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset).map(|()| bytes).map_err(|_| MAPPING)
            }
        }
    }

    /// # Safety
    /// A client buffer must be writable.
    unsafe fn write(&self, bytes: &[u8]) -> Result<(), Code> {
        match *self {
            // SAFETY: as the caller says.
            Self::Client(data, len) => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, len) },
            Self::Shared(ref file, offset, _) => file.write_all_at(bytes, offset).map_err(|_| MAPPING)?,
        }
        Ok(())
    }
}

/// Lets the executor, if there is one, make outputs of inputs.
///
/// # Safety
/// Client buffers must be valid for their sizes.
pub(super) unsafe fn run(
    state: &mut State,
    context: usize,
    graph: &str,
    inputs: &[sys::Qnn_Tensor_t],
    outputs: &[sys::Qnn_Tensor_t],
) -> Result<(), Code> {
    let places = |tensors: &[sys::Qnn_Tensor_t]| -> Result<Vec<Bytes>, Code> {
        tensors.iter().map(|tensor| Bytes::of(state, context, tensor)).collect()
    };
    let (inputs, outputs) = (places(inputs)?, places(outputs)?);
    // SAFETY: as the caller says.
    let read = |places: &[Bytes]| places.iter().map(|place| unsafe { place.read() }).collect::<Result<Vec<_>, _>>();
    let (given, mut made) = (read(&inputs)?, read(&outputs)?);
    let given: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
    let mut results: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
    let Some(executor) = &mut state.executor else { return Ok(()) };
    executor(graph, &given, &mut results);
    for (place, bytes) in outputs.iter().zip(&made) {
        // SAFETY: as the caller says.
        unsafe { place.write(bytes) }?;
    }
    Ok(())
}
