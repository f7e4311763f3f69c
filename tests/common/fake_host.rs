//! A host: any `Module` behind the C table, as a host written in C would do it, with a fault that one call can have.
#![allow(dead_code)] // Each test program uses its own part.
#![allow(unsafe_code)]

use llama_runner::runtime::{
    HostTable, HostTensor, HostValue, HostValueKind, IoArena, IoSlice, LLR_MODULE_MAX_RANK, LLR_MODULE_TABLE_VERSION,
    LLR_MODULE_TENSOR_DYNAMIC, LLR_MODULE_TENSOR_PLANNED, LLR_MODULE_TENSOR_QUANTIZED, MethodId, Module, TensorInfo,
    Value,
};
use llama_runner::{Error, Result, Status};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;

/// What the next call of a callback does instead of its work.
#[derive(Clone, Copy)]
pub enum Fault {
    /// It returns a number.
    Number(i32),
    /// It does its work and then lies.
    Lie(Lie),
}

/// What a callback's results are changed by.
#[derive(Clone, Copy)]
pub enum Lie {
    Count(fn(&mut usize)),
    Name(fn(&mut *const c_char, &mut usize)),
    Value(fn(&mut HostValue)),
    Tensor(fn(&mut HostTensor)),
}

/// What a test sees of a host while a runner has it.
#[derive(Default)]
pub struct Watch {
    /// The callback that fails, after how many good calls, and how. It fails once.
    pub fault: Mutex<Option<(&'static str, usize, Fault)>>,
    /// Calls of each callback.
    pub calls: Mutex<BTreeMap<&'static str, usize>>,
    pub released: Mutex<usize>,
    /// Bindings that are there.
    pub bound: Mutex<usize>,
    /// Shared memory that it knows of: descriptor, address, size.
    pub shared: Mutex<Vec<(i32, usize, usize)>>,
}

impl Watch {
    pub fn calls(&self, callback: &str) -> usize {
        self.calls.lock().get(callback).copied().unwrap_or(0)
    }

    /// Makes the call of `callback` after the next `skip` fail.
    pub fn fail_once(&self, callback: &'static str, skip: usize, fault: Fault) {
        *self.fault.lock() = Some((callback, skip, fault));
    }

    fn due(&self, callback: &str) -> Option<Fault> {
        let mut planned = self.fault.lock();
        match &mut *planned {
            Some((name, 0, fault)) if *name == callback => {
                let fault = *fault;
                *planned = None;
                Some(fault)
            }
            Some((name, skip, _)) if *name == callback => {
                *skip -= 1;
                None
            }
            _ => None,
        }
    }
}

/// An input or output: where the runner wants it, and where the module has it.
struct Place {
    outside: Option<(*mut u8, usize)>,
    inside: IoSlice,
}

struct Method {
    id: MethodId,
    inputs: Vec<Option<Place>>,
    outputs: Vec<Option<Place>>,
}

struct FakeHost {
    module: Box<dyn Module>,
    /// Where the module itself is bound.
    arena: IoArena,
    names: Vec<CString>,
    values: Vec<Value>,
    methods: Vec<Method>,
    error: String,
    watch: Arc<Watch>,
}

/// A table and a module pointer for `llr_runner_options_set_host_module` or `Host::new`, and the watch on them.
pub fn host(module: Box<dyn Module>) -> (HostTable, *mut c_void, Arc<Watch>) {
    let watch = Arc::new(Watch::default());
    let names = module.method_names().into_iter().map(|name| CString::new(name).unwrap()).collect();
    let host = FakeHost {
        module,
        arena: IoArena::new(1 << 20).unwrap(),
        names,
        values: Vec::new(),
        methods: Vec::new(),
        error: String::new(),
        watch: watch.clone(),
    };
    (TABLE, Box::into_raw(Box::new(host)).cast(), watch)
}

pub const TABLE: HostTable = HostTable {
    struct_size: size_of::<HostTable>(),
    version: LLR_MODULE_TABLE_VERSION,
    release: Some(release),
    last_error: Some(last_error),
    method_count: Some(method_count),
    method_name: Some(method_name),
    evaluate: Some(evaluate),
    value: Some(value),
    load_method: Some(load_method),
    input_count: Some(input_count),
    output_count: Some(output_count),
    input_info: Some(input_info),
    output_info: Some(output_info),
    bind_input: Some(bind_input),
    bind_output: Some(bind_output),
    resize_input: Some(resize_input),
    execute: Some(execute),
    output: Some(output),
    register_memory: None,
    deregister_memory: None,
};

/// Runs a callback: counts it, lets it fail if it should, and keeps the words of its error. Gives the lie to tell.
unsafe fn call(
    module: *mut c_void,
    name: &'static str,
    body: impl FnOnce(&mut FakeHost) -> Result<()>,
    lie: impl FnOnce(Lie),
) -> i32 {
    // SAFETY: every table of this file is given with a `FakeHost`.
    let host = unsafe { &mut *module.cast::<FakeHost>() };
    *host.watch.calls.lock().entry(name).or_default() += 1;
    let mut told = None;
    match host.watch.due(name) {
        Some(Fault::Number(number)) => {
            host.error = format!("{name} was made to fail");
            return number;
        }
        Some(Fault::Lie(lie)) => told = Some(lie),
        None => {}
    }
    if let Err(error) = body(host) {
        host.error = error.chain();
        return error.status() as i32;
    }
    if let Some(told) = told {
        lie(told);
    }
    0
}

fn method(host: &mut FakeHost, id: u32) -> Result<&mut Method> {
    host.methods.get_mut(id as usize).ok_or_else(|| Error::new(Status::InvalidArgument, "no such method"))
}

unsafe fn text(data: *const c_char, len: usize) -> String {
    // SAFETY: the library gives `len` bytes and a NUL.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len + 1) };
    assert_eq!(bytes[len], 0);
    String::from_utf8(bytes[..len].to_vec()).unwrap()
}

unsafe extern "C" fn release(module: *mut c_void) {
    // SAFETY: from `Box::into_raw` above; called once.
    let host = unsafe { Box::from_raw(module.cast::<FakeHost>()) };
    *host.watch.released.lock() += 1;
}

unsafe extern "C" fn last_error(module: *mut c_void, buffer: *mut c_char, buffer_len: usize) -> usize {
    // SAFETY: as in `call`; the library's buffer has `buffer_len` bytes.
    unsafe {
        let error = &(*module.cast::<FakeHost>()).error;
        ptr::copy_nonoverlapping(error.as_ptr(), buffer.cast::<u8>(), error.len().min(buffer_len));
        error.len()
    }
}

unsafe fn count(
    module: *mut c_void,
    name: &'static str,
    out: *mut usize,
    get: impl Fn(&mut FakeHost) -> Result<usize>,
) -> i32 {
    // SAFETY: the library's out-parameter.
    let out = unsafe { &mut *out };
    let mut counted = 0;
    let body = |host: &mut FakeHost| get(host).map(|count| counted = count);
    // SAFETY: as in `call`.
    let number = unsafe {
        call(module, name, body, |lie| {
            if let Lie::Count(change) = lie {
                change(out);
            }
        })
    };
    // A lie has been told already.
    if number == 0 && *out == 0 {
        *out = counted;
    }
    number
}

unsafe extern "C" fn method_count(module: *mut c_void, out: *mut usize) -> i32 {
    // SAFETY: as in `count`.
    unsafe { count(module, "method_count", out, |host| Ok(host.names.len())) }
}

unsafe extern "C" fn method_name(
    module: *mut c_void,
    index: usize,
    out_name: *mut *const c_char,
    out_len: *mut usize,
) -> i32 {
    // SAFETY: the library's out-parameters.
    let (name, len) = unsafe { (&mut *out_name, &mut *out_len) };
    let (mut text, mut text_len) = (ptr::null(), 0);
    let body = |host: &mut FakeHost| {
        (text, text_len) = (host.names[index].as_ptr(), host.names[index].as_bytes().len());
        Ok(())
    };
    let lie = |lie| {
        if let Lie::Name(change) = lie {
            change(name, len);
        }
    };
    // SAFETY: as in `call`.
    let number = unsafe { call(module, "method_name", body, lie) };
    // SAFETY: as above.
    unsafe {
        if number == 0 && *out_len == 0 {
            (*out_name, *out_len) = (text, text_len);
        }
    }
    number
}

unsafe extern "C" fn evaluate(module: *mut c_void, name: *const c_char, len: usize, out: *mut usize) -> i32 {
    // SAFETY: the library's text.
    let name = unsafe { text(name, len) };
    let get = |host: &mut FakeHost| {
        host.values = host.module.constant(&name)?.ok_or_else(|| Error::new(Status::NotFound, "no such method"))?;
        Ok(host.values.len())
    };
    // SAFETY: as in `count`.
    unsafe { count(module, "evaluate", out, get) }
}

unsafe extern "C" fn value(module: *mut c_void, index: usize, out: *mut HostValue) -> i32 {
    // SAFETY: the library's out-parameter.
    let out = unsafe { &mut *out };
    assert_eq!(out.struct_size, size_of::<HostValue>());
    let mut given = *out;
    let body = |host: &mut FakeHost| {
        given.kind = match &host.values[index] {
            Value::Int(int) => {
                given.integer = *int;
                HostValueKind::Int
            }
            Value::Bool(bool) => {
                given.integer = i64::from(*bool);
                HostValueKind::Bool
            }
            Value::Double(real) => {
                given.real = *real;
                HostValueKind::Double
            }
            Value::String(text) => {
                (given.text, given.text_len) = (text.as_ptr().cast(), text.len());
                HostValueKind::String
            }
            _ => HostValueKind::None,
        } as i32;
        Ok(())
    };
    let mut told = None;
    // SAFETY: as in `call`.
    let number = unsafe { call(module, "value", body, |lie| told = Some(lie)) };
    if let Some(Lie::Value(change)) = told {
        change(&mut given);
    }
    *out = given;
    number
}

unsafe extern "C" fn load_method(module: *mut c_void, name: *const c_char, len: usize, out: *mut u32) -> i32 {
    // SAFETY: the library's text and out-parameter.
    let (name, out) = unsafe { (text(name, len), &mut *out) };
    let body = |host: &mut FakeHost| {
        let id = host.module.load_method(&name)?;
        if let Some(loaded) = host.methods.iter().position(|method| method.id == id) {
            *out = loaded as u32;
            return Ok(());
        }
        let info = host.module.method_info(id).clone();
        let FakeHost { module, arena, .. } = host;
        let mut place = |info: &TensorInfo| Place { outside: None, inside: arena.alloc(info.byte_len()).unwrap() };
        let inputs: Vec<_> = info.inputs.iter().map(|info| info.as_ref().map(&mut place)).collect();
        let outputs: Vec<_> = info.outputs.iter().map(|info| info.as_ref().map(&mut place)).collect();
        for (index, input) in inputs.iter().enumerate() {
            if let Some(input) = input {
                module.bind_input(id, index, arena, input.inside)?;
            }
        }
        for (index, output) in outputs.iter().enumerate() {
            if let Some(output) = output {
                module.bind_output(id, index, arena, output.inside)?;
            }
        }
        *out = host.methods.len() as u32;
        host.methods.push(Method { id, inputs, outputs });
        Ok(())
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "load_method", body, |_| ()) }
}

unsafe extern "C" fn input_count(module: *mut c_void, id: u32, out: *mut usize) -> i32 {
    // SAFETY: as in `count`.
    unsafe { count(module, "input_count", out, |host| Ok(method(host, id)?.inputs.len())) }
}

unsafe extern "C" fn output_count(module: *mut c_void, id: u32, out: *mut usize) -> i32 {
    // SAFETY: as in `count`.
    unsafe { count(module, "output_count", out, |host| Ok(method(host, id)?.outputs.len())) }
}

fn sizes(dims: &[usize]) -> [i64; LLR_MODULE_MAX_RANK] {
    let mut sizes = [0; LLR_MODULE_MAX_RANK];
    sizes.iter_mut().zip(dims).for_each(|(size, &dim)| *size = dim as i64);
    sizes
}

/// Fills in a tensor, then lets the lie change it.
unsafe fn tensor(
    module: *mut c_void,
    name: &'static str,
    out: *mut HostTensor,
    get: impl FnOnce(&mut FakeHost, &mut HostTensor) -> Result<()>,
) -> i32 {
    // SAFETY: the library's out-parameter.
    let out = unsafe { &mut *out };
    assert_eq!((out.struct_size, out.rank), (size_of::<HostTensor>(), 0));
    let mut told = None;
    // SAFETY: as in `call`.
    let number = unsafe { call(module, name, |host| get(host, out), |lie| told = Some(lie)) };
    if let Some(Lie::Tensor(change)) = told {
        change(out);
    }
    number
}

fn fill(out: &mut HostTensor, info: Option<&TensorInfo>) {
    let Some(info) = info else { return };
    (out.dtype, out.rank, out.sizes) = (i32::from(info.dtype as i8), info.dims.len(), sizes(&info.dims));
    out.flags = if info.dynamic { LLR_MODULE_TENSOR_DYNAMIC } else { 0 };
    out.flags |= if info.planned { LLR_MODULE_TENSOR_PLANNED } else { 0 };
    if let Some(encoding) = info.encoding {
        out.flags |= LLR_MODULE_TENSOR_QUANTIZED;
        (out.scale, out.zero_point) = (encoding.scale, encoding.zero_point);
    }
}

unsafe extern "C" fn input_info(module: *mut c_void, id: u32, index: usize, out: *mut HostTensor) -> i32 {
    let get = |host: &mut FakeHost, out: &mut HostTensor| {
        let id = method(host, id)?.id;
        fill(out, host.module.method_info(id).inputs[index].as_ref());
        Ok(())
    };
    // SAFETY: as in `tensor`.
    unsafe { tensor(module, "input_info", out, get) }
}

unsafe extern "C" fn output_info(module: *mut c_void, id: u32, index: usize, out: *mut HostTensor) -> i32 {
    let get = |host: &mut FakeHost, out: &mut HostTensor| {
        let id = method(host, id)?.id;
        fill(out, host.module.method_info(id).outputs[index].as_ref());
        Ok(())
    };
    // SAFETY: as in `tensor`.
    unsafe { tensor(module, "output_info", out, get) }
}

fn bind(watch: &Watch, place: &mut Option<Place>, outside: (*mut u8, usize)) {
    let place = place.as_mut().expect("a tensor");
    let mut bound = watch.bound.lock();
    *bound -= usize::from(place.outside.is_some());
    place.outside = Some(outside).filter(|(data, _)| !data.is_null());
    *bound += usize::from(place.outside.is_some());
    assert!(outside.1 == place.inside.len || (outside.0.is_null() && outside.1 == 0));
}

unsafe extern "C" fn bind_input(module: *mut c_void, id: u32, index: usize, data: *const c_void, len: usize) -> i32 {
    let body = |host: &mut FakeHost| {
        let watch = host.watch.clone();
        bind(&watch, &mut method(host, id)?.inputs[index], (data.cast_mut().cast(), len));
        Ok(())
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "bind_input", body, |_| ()) }
}

unsafe extern "C" fn bind_output(module: *mut c_void, id: u32, index: usize, data: *mut c_void, len: usize) -> i32 {
    let body = |host: &mut FakeHost| {
        let watch = host.watch.clone();
        bind(&watch, &mut method(host, id)?.outputs[index], (data.cast(), len));
        Ok(())
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "bind_output", body, |_| ()) }
}

unsafe extern "C" fn resize_input(module: *mut c_void, id: u32, index: usize, sizes: *const i64, rank: usize) -> i32 {
    // SAFETY: the library gives `rank` sizes.
    let sizes = unsafe { std::slice::from_raw_parts(sizes, rank) };
    let dims: Vec<usize> = sizes.iter().map(|&size| size as usize).collect();
    let body = |host: &mut FakeHost| {
        let id = method(host, id)?.id;
        host.module.resize_input(id, index, &dims)
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "resize_input", body, |_| ()) }
}

unsafe extern "C" fn execute(module: *mut c_void, id: u32) -> i32 {
    let body = |host: &mut FakeHost| {
        let FakeHost { module, arena, methods, .. } = host;
        let method = &methods[id as usize];
        for place in method.inputs.iter().flatten() {
            if let Some((data, len)) = place.outside {
                // SAFETY: the library bound these bytes.
                arena.bytes_mut(place.inside).copy_from_slice(unsafe { std::slice::from_raw_parts(data, len) });
            }
        }
        module.execute(method.id, arena)?;
        for (index, place) in method.outputs.iter().enumerate() {
            if let Some((data, _)) = place.as_ref().and_then(|place| place.outside) {
                let (_, bytes) = module.output(method.id, index, arena)?;
                // SAFETY: the library bound the largest size, and this is at most as much.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
            }
        }
        Ok(())
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "execute", body, |_| ()) }
}

unsafe extern "C" fn output(module: *mut c_void, id: u32, index: usize, out: *mut HostTensor) -> i32 {
    let get = |host: &mut FakeHost, out: &mut HostTensor| {
        let id = method(host, id)?.id;
        let dtype = host.module.method_info(id).outputs[index].as_ref().unwrap().dtype;
        let (dims, bytes) = host.module.output(id, index, &host.arena)?;
        (out.dtype, out.rank, out.sizes) = (i32::from(dtype as i8), dims.len(), sizes(&dims));
        (out.data, out.byte_len) = (bytes.as_ptr().cast(), bytes.len());
        Ok(())
    };
    // SAFETY: as in `tensor`.
    unsafe { tensor(module, "output", out, get) }
}

/// A table of a host that can be told of shared memory.
pub const SHARING_TABLE: HostTable =
    HostTable { register_memory: Some(register_memory), deregister_memory: Some(deregister_memory), ..TABLE };

unsafe extern "C" fn register_memory(module: *mut c_void, fd: i32, data: *mut c_void, len: usize) -> i32 {
    let body = |host: &mut FakeHost| {
        assert_eq!(*host.watch.bound.lock(), 0, "told before anything is bound");
        host.watch.shared.lock().push((fd, data.addr(), len));
        Ok(())
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "register_memory", body, |_| ()) }
}

unsafe extern "C" fn deregister_memory(module: *mut c_void, fd: i32, data: *mut c_void, len: usize) -> i32 {
    let body = |host: &mut FakeHost| {
        assert_eq!(*host.watch.bound.lock(), 0, "taken back after everything is unbound");
        let mut shared = host.watch.shared.lock();
        let known = shared.iter().position(|&known| known == (fd, data.addr(), len));
        shared.remove(known.expect("what was registered"));
        Ok(())
    };
    // SAFETY: as in `call`.
    unsafe { call(module, "deregister_memory", body, |_| ()) }
}
