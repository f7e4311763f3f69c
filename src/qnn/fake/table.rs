//! The fake's functions.
//!
//! They are called by this crate alone, through the wrappers of `result.rs`, whose contracts make every pointer valid.

use super::state::{Object, State, with_state};
use super::{Call, RawInfo, compose, memory};
use crate::qnn::{BinaryInfo, QnnApi, SystemApi, sys};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) type Code = sys::Qnn_ErrorHandle_t;

const INVALID_TENSOR: Code = 6004;
const NO_SUCH_GRAPH: Code = 6002;
const MALFORMED_BINARY: Code = 30_010;

static NULL_DEVICE: AtomicBool = AtomicBool::new(false);

pub(super) fn set_null_device(on: bool) {
    NULL_DEVICE.store(on, Ordering::Relaxed);
}

pub(super) fn backend() -> QnnApi {
    let table = sys::QnnInterface_Functions_t {
        backendCreate: Some(backend_create),
        backendGetBuildId: Some(backend_get_build_id),
        backendFree: Some(backend_free),
        contextCreate: Some(compose::context_create),
        contextGetBinarySize: Some(compose::context_get_binary_size),
        contextGetBinary: Some(compose::context_get_binary),
        graphCreate: Some(compose::graph_create),
        graphAddNode: Some(compose::graph_add_node),
        graphFinalize: Some(compose::graph_finalize),
        tensorCreateGraphTensor: Some(compose::tensor_create),
        memRegister: Some(memory::mem_register),
        memDeRegister: Some(memory::mem_deregister),
        contextCreateFromBinary: Some(context_create_from_binary),
        contextFree: Some(context_free),
        graphRetrieve: Some(graph_retrieve),
        graphExecute: Some(graph_execute),
        logCreate: Some(log_create),
        logFree: Some(log_free),
        deviceCreate: Some(device_create),
        deviceFree: Some(device_free),
        errorGetMessage: Some(error_get_message),
        ..Default::default()
    };
    // SAFETY: the functions below behave as documented.
    unsafe { QnnApi::new(table) }.expect("the fake's table is complete")
}

pub(super) fn system() -> SystemApi {
    let table = sys::QnnSystemInterface_Functions_t {
        systemContextCreate: Some(system_create),
        systemContextGetMetaData: Some(system_get_metadata),
        systemContextFree: Some(system_free),
        ..Default::default()
    };
    // SAFETY: as above.
    unsafe { SystemApi::new(table) }.expect("the fake's table is complete")
}

/// What every call does first: count, log, fail if told. Only then `work` happens.
pub(super) fn enter(call: Call, work: impl FnOnce(&mut State) -> Code) -> Code {
    let lines = with_state(|state| {
        *state.calls.entry(call).or_default() += 1;
        state.take_lines(call)
    });
    for (callback, level, line) in lines {
        let sent = std::thread::spawn(move || send(callback, level, &line)).join();
        sent.expect("the log callback does not panic");
    }
    with_state(|state| state.take_fault(call).unwrap_or_else(|| work(state)))
}

/// Calls a log callback as printf("%s", line) would.
fn send(callback: sys::QnnLog_Callback_t, level: u32, line: &str) {
    let Some(callback) = callback else { return };
    let line = std::ffi::CString::new(line).unwrap_or_default();
    let stack = [line.as_ptr()];
    let mut args = VaList::of_stack(stack.as_ptr().cast());
    // SAFETY: the format takes one text, and the argument list holds one; both live through the call.
    unsafe { callback(c"%s".as_ptr(), level, 0, (&raw mut args).cast()) }
}

/// A C argument list whose arguments all lie in memory.
#[repr(C)]
#[cfg(target_arch = "x86_64")]
struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow_arg_area: *const c_void,
    reg_save_area: *const c_void,
}

#[cfg(target_arch = "x86_64")]
impl VaList {
    fn of_stack(stack: *const c_void) -> Self {
        // Offsets past the register area say that it is used up.
        Self { gp_offset: 48, fp_offset: 304, overflow_arg_area: stack, reg_save_area: std::ptr::null() }
    }
}

/// A C argument list whose arguments all lie in memory.
#[repr(C)]
#[cfg(target_arch = "aarch64")]
struct VaList {
    stack: *const c_void,
    gr_top: *const c_void,
    vr_top: *const c_void,
    gr_offs: i32,
    vr_offs: i32,
}

#[cfg(target_arch = "aarch64")]
impl VaList {
    fn of_stack(stack: *const c_void) -> Self {
        // Offsets of zero say that no register argument is left.
        Self { stack, gr_top: std::ptr::null(), vr_top: std::ptr::null(), gr_offs: 0, vr_offs: 0 }
    }
}

unsafe extern "C" fn backend_get_build_id(id: *mut *const c_char) -> Code {
    enter(Call::BackendGetBuildId, |_| {
        // SAFETY: the module's contract.
        unsafe { *id = c"v2.49.40.fake".as_ptr() };
        0
    })
}

unsafe extern "C" fn error_get_message(_code: Code, message: *mut *const c_char) -> Code {
    // SAFETY: the module's contract.
    unsafe { *message = c"as the fake was told".as_ptr() };
    0
}

unsafe extern "C" fn log_create(callback: sys::QnnLog_Callback_t, level: u32, log: *mut *mut c_void) -> Code {
    enter(Call::LogCreate, |state| {
        // SAFETY: the module's contract.
        unsafe { *log = state.create(Object::Log { callback, level }) };
        0
    })
}

unsafe extern "C" fn log_free(log: *mut c_void) -> Code {
    enter(Call::LogFree, |state| {
        state.free(Call::LogFree, log, "log");
        0
    })
}

unsafe extern "C" fn backend_create(
    log: *mut c_void,
    _config: *mut *const sys::Qnn_Config_t,
    backend: *mut *mut c_void,
) -> Code {
    enter(Call::BackendCreate, |state| {
        let log = state.expect(Call::BackendCreate, log, "log");
        // SAFETY: the module's contract.
        unsafe { *backend = state.create(Object::Backend { log }) };
        0
    })
}

unsafe extern "C" fn backend_free(backend: *mut c_void) -> Code {
    enter(Call::BackendFree, |state| {
        state.free(Call::BackendFree, backend, "backend");
        0
    })
}

unsafe extern "C" fn device_create(
    log: *mut c_void,
    _config: *mut *const sys::Qnn_Config_t,
    device: *mut *mut c_void,
) -> Code {
    enter(Call::DeviceCreate, |state| {
        let log = state.expect(Call::DeviceCreate, log, "log");
        // SAFETY: the module's contract.
        unsafe { *device = state.create(Object::Device { log }) };
        0
    })
}

unsafe extern "C" fn device_free(device: *mut c_void) -> Code {
    enter(Call::DeviceFree, |state| {
        state.free(Call::DeviceFree, device, "device");
        0
    })
}

unsafe extern "C" fn context_create_from_binary(
    backend: *mut c_void,
    device: *mut c_void,
    _config: *mut *const sys::Qnn_Config_t,
    binary: *const c_void,
    size: u64,
    context: *mut *mut c_void,
    _profile: *mut c_void,
) -> Code {
    const CALL: Call = Call::ContextCreateFromBinary;
    enter(CALL, |state| {
        let (backend, device) = (state.expect(CALL, backend, "backend"), state.expect(CALL, device, "device"));
        // SAFETY: the module's contract.
        let info = unsafe { describe(state, binary, size) };
        // SAFETY: the module's contract.
        unsafe { *context = state.create(Object::Context { backend, device, info }) };
        0
    })
}

/// # Safety
/// `binary` must be readable for `size` bytes.
unsafe fn describe(state: &State, binary: *const c_void, size: u64) -> Option<BinaryInfo> {
    // SAFETY: as the caller says.
    let bytes = unsafe { std::slice::from_raw_parts(binary.cast(), size as usize) };
    state.model.as_ref()?(bytes)
}

unsafe extern "C" fn context_free(context: *mut c_void, _profile: *mut c_void) -> Code {
    enter(Call::ContextFree, |state| {
        state.free(Call::ContextFree, context, "context");
        0
    })
}

unsafe extern "C" fn graph_retrieve(context: *mut c_void, name: *const c_char, graph: *mut *mut c_void) -> Code {
    enter(Call::GraphRetrieve, |state| {
        let context = state.expect(Call::GraphRetrieve, context, "context");
        // SAFETY: the module's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let known = match state.objects.get(&context) {
            Some(Object::Context { info: Some(info), .. }) => info.graphs.iter().any(|graph| graph.name == name),
            _ => true,
        };
        if !known {
            return NO_SUCH_GRAPH;
        }
        // SAFETY: the module's contract.
        unsafe { *graph = state.create(Object::Graph { context, name }) };
        0
    })
}

unsafe extern "C" fn graph_execute(
    graph: *mut c_void,
    inputs: *const sys::Qnn_Tensor_t,
    input_count: u32,
    outputs: *mut sys::Qnn_Tensor_t,
    output_count: u32,
    _profile: *mut c_void,
    _signal: *mut c_void,
) -> Code {
    if NULL_DEVICE.load(Ordering::Relaxed) {
        return 0;
    }
    enter(Call::GraphExecute, |state| {
        let graph = state.expect(Call::GraphExecute, graph, "graph");
        let Some(Object::Graph { context, name }) = state.objects.get(&graph) else {
            return INVALID_TENSOR;
        };
        let (context, name) = (*context, name.clone());
        let Some(Object::Context { info: Some(info), .. }) = state.objects.get(&context) else {
            return 0;
        };
        let Some(graph) = info.graphs.iter().find(|graph| graph.name == name).cloned() else {
            return NO_SUCH_GRAPH;
        };
        // SAFETY: the module's contract; both arrays are valid for their counts.
        let (inputs, outputs) = unsafe {
            (
                std::slice::from_raw_parts(inputs, input_count as usize),
                std::slice::from_raw_parts(outputs.cast_const(), output_count as usize),
            )
        };
        let ids = |tensors: &[sys::Qnn_Tensor_t]| -> Vec<u32> {
            // SAFETY: both versions begin with these fields.
            tensors.iter().map(|tensor| unsafe { tensor.u.v1.id }).collect()
        };
        let expected = |tensors: &[crate::qnn::TensorInfo]| tensors.iter().map(|tensor| tensor.id).collect::<Vec<_>>();
        if ids(inputs) != expected(&graph.inputs) || ids(outputs) != expected(&graph.outputs) {
            return INVALID_TENSOR;
        }
        // SAFETY: the module's contract.
        let run = unsafe { memory::run(state, context, &name, inputs, outputs) };
        run.err().unwrap_or(0)
    })
}

unsafe extern "C" fn system_create(context: *mut *mut c_void) -> Code {
    enter(Call::SystemContextCreate, |state| {
        // SAFETY: the module's contract.
        unsafe { *context = state.create(Object::System { _info: None }) };
        0
    })
}

unsafe extern "C" fn system_get_metadata(
    context: *mut c_void,
    binary: *const c_void,
    size: u64,
    info: *mut *const sys::QnnSystemContext_BinaryInfo_t,
) -> Code {
    const CALL: Call = Call::SystemContextGetMetaData;
    enter(CALL, |state| {
        let context = state.expect(CALL, context, "system context");
        // SAFETY: the module's contract.
        let Some(found) = (unsafe { describe(state, binary, size) }) else {
            return MALFORMED_BINARY;
        };
        let raw = RawInfo::new(&found, state.info_version);
        // SAFETY: the module's contract.
        unsafe { *info = raw.as_ptr() };
        state.objects.insert(context, Object::System { _info: Some(raw) });
        0
    })
}

unsafe extern "C" fn system_free(context: *mut c_void) -> Code {
    enter(Call::SystemContextFree, |state| {
        state.free(Call::SystemContextFree, context, "system context");
        0
    })
}
