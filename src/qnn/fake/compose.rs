//! The fake's functions that compose graphs. They are called as `table.rs` says.

use super::Call;
use super::state::{Object, State};
use super::table::{Code, enter};
use crate::qnn::sys;
use std::ffi::{c_char, c_void};

const INVALID_TENSOR: Code = 6004;
const GRAPH_FINALIZED: Code = 6024;

/// What a composed context is as bytes.
const BINARY: [u8; 8] = [0, 0, 0, 2, 0, 0, 0, 3];

pub(super) unsafe extern "C" fn context_create(
    backend: *mut c_void,
    device: *mut c_void,
    _config: *mut *const sys::Qnn_Config_t,
    context: *mut *mut c_void,
) -> Code {
    const CALL: Call = Call::ContextCreate;
    enter(CALL, |state| {
        let (backend, device) = (state.expect(CALL, backend, "backend"), state.expect(CALL, device, "device"));
        // SAFETY: the module's contract.
        unsafe { *context = state.create(Object::Context { backend, device, info: None }) };
        0
    })
}

pub(super) unsafe extern "C" fn context_get_binary_size(context: *mut c_void, size: *mut u64) -> Code {
    const CALL: Call = Call::ContextGetBinarySize;
    enter(CALL, |state| {
        let context = state.expect(CALL, context, "context");
        let open = |object: &Object| matches!(object, Object::Composed { context: of, finalized: false, .. } if *of == context);
        if state.objects.values().any(open) {
            state.misuse.push(format!("{CALL:?} before all graphs are finalized"));
        }
        // SAFETY: the module's contract.
        unsafe { *size = BINARY.len() as u64 };
        0
    })
}

pub(super) unsafe extern "C" fn context_get_binary(
    context: *mut c_void,
    binary: *mut c_void,
    size: u64,
    written: *mut u64,
) -> Code {
    const CALL: Call = Call::ContextGetBinary;
    enter(CALL, |state| {
        state.expect(CALL, context, "context");
        let count = BINARY.len().min(size as usize);
        // SAFETY: the module's contract.
        unsafe {
            std::ptr::copy_nonoverlapping(BINARY.as_ptr(), binary.cast(), count);
            *written = count as u64;
        }
        0
    })
}

pub(super) unsafe extern "C" fn graph_create(
    context: *mut c_void,
    _name: *const c_char,
    _config: *mut *const sys::Qnn_Config_t,
    graph: *mut *mut c_void,
) -> Code {
    enter(Call::GraphCreate, |state| {
        let context = state.expect(Call::GraphCreate, context, "context");
        // SAFETY: the module's contract.
        unsafe { *graph = state.create(Object::Composed { context, tensors: 0, finalized: false }) };
        0
    })
}

/// The number of tensors of a graph that may still change.
fn open_graph(state: &mut State, call: Call, graph: *mut c_void) -> Result<&mut u32, Code> {
    let number = state.expect(call, graph, "graph");
    match state.objects.get_mut(&number) {
        Some(Object::Composed { tensors, finalized: false, .. }) => Ok(tensors),
        _ => Err(GRAPH_FINALIZED),
    }
}

pub(super) unsafe extern "C" fn tensor_create(graph: *mut c_void, tensor: *mut sys::Qnn_Tensor_t) -> Code {
    enter(Call::TensorCreate, |state| match open_graph(state, Call::TensorCreate, graph) {
        Ok(tensors) => {
            *tensors += 1;
            // SAFETY: the module's contract; both versions begin with these fields.
            unsafe { (*tensor).u.v1.id = *tensors };
            0
        }
        Err(code) => code,
    })
}

pub(super) unsafe extern "C" fn graph_add_node(graph: *mut c_void, operation: sys::Qnn_OpConfig_t) -> Code {
    enter(Call::GraphAddNode, |state| {
        let tensors = match open_graph(state, Call::GraphAddNode, graph) {
            Ok(tensors) => *tensors,
            Err(code) => return code,
        };
        let lists =
            [(operation.inputTensors, operation.numOfInputs), (operation.outputTensors, operation.numOfOutputs)];
        let known = lists.into_iter().all(|(list, count)| {
            // SAFETY: the module's contract.
            let list = unsafe { std::slice::from_raw_parts(list.cast_const(), count as usize) };
            // SAFETY: both versions begin with these fields.
            list.iter().all(|tensor| (1..=tensors).contains(&unsafe { tensor.u.v1.id }))
        });
        if known { 0 } else { INVALID_TENSOR }
    })
}

pub(super) unsafe extern "C" fn graph_finalize(
    graph: *mut c_void,
    _profile: *mut c_void,
    _signal: *mut c_void,
) -> Code {
    enter(Call::GraphFinalize, |state| {
        let number = state.expect(Call::GraphFinalize, graph, "graph");
        match state.objects.get_mut(&number) {
            Some(Object::Composed { finalized, .. }) => {
                *finalized = true;
                0
            }
            _ => GRAPH_FINALIZED,
        }
    })
}
