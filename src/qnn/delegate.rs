//! A delegate: one graph with its tensor table built once. A run only writes the buffers' addresses into it.

use super::binary_info::GraphInfo;
use super::binding::{Binding, BindingError, Slot};
use super::context::{Context, Graph};
use super::registrations::Registrations;
use super::result::QnnError;
use super::sys;
use super::tensor_info::{Quantization, TensorInfo};
use crate::error::{Error, Result, Status};
use crate::runtime::{Delegate, RetypedArg, SharedMemory, Tensor, Value};
use std::ffi::CString;
use std::sync::Arc;

/// Implements [`Delegate`] on a graph of a context.
pub struct QnnDelegate {
    graph: Graph,
    info: GraphInfo,
    args: usize,
    binding: Binding,
    inputs: Vec<sys::Qnn_Tensor_t>,
    outputs: Vec<sys::Qnn_Tensor_t>,
    registrations: Registrations,
    /// What `inputs` and `outputs` point at.
    _names: Vec<CString>,
    _dims: Vec<Box<[u32]>>,
}

// SAFETY: the raw pointers lead to `_names` and `_dims`, which move with this value, and to buffers that are valid
// during `execute`, which has `&mut self`.
unsafe impl Send for QnnDelegate {}

impl QnnDelegate {
    /// Prepares `graph` of `context` for calls with `args`.
    pub(super) fn new(context: &Arc<Context>, info: &GraphInfo, args: &[&Tensor]) -> Result<Self> {
        let binding = Binding::new(info, args)?;
        let graph = Graph::retrieve(context, &info.name)?;
        let (mut names, mut dims) = (Vec::new(), Vec::new());
        let mut table = |tensors: &[TensorInfo], slots: &[Slot], kind| {
            let tensors = tensors.iter().zip(slots);
            tensors.map(|(tensor, slot)| raw_tensor(tensor, slot, kind, &mut names, &mut dims)).collect::<Vec<_>>()
        };
        let inputs = table(&info.inputs, &binding.inputs, sys::QNN_TENSOR_TYPE_APP_WRITE);
        let outputs = table(&info.outputs, &binding.outputs, sys::QNN_TENSOR_TYPE_APP_READ);
        let args = args.len();
        let registrations = Registrations::new(context, inputs.len() + outputs.len());
        let info = info.clone();
        Ok(Self { graph, info, args, binding, inputs, outputs, registrations, _names: names, _dims: dims })
    }

    #[cold]
    fn call_error(&self, error: QnnError) -> Error {
        error.detail(format!("graph {}", self.info.name)).into()
    }
}

fn client_buffer(address: *mut u8, slot: &Slot) -> sys::Qnn_TensorMemory_t {
    let buffer = sys::Qnn_ClientBuffer_t { data: address.cast(), dataSize: slot.bytes as u32 };
    sys::Qnn_TensorMemory_t { clientBuf: buffer }
}

/// An entry of the table, all but the buffer's address.
fn raw_tensor(
    info: &TensorInfo,
    slot: &Slot,
    kind: u32,
    names: &mut Vec<CString>,
    dims: &mut Vec<Box<[u32]>>,
) -> sys::Qnn_Tensor_t {
    // Names come from C strings and hold no NUL; sizes came as u32.
    let name = CString::new(info.name.as_str()).unwrap_or_default();
    let mut sizes: Box<[u32]> = info.dims.iter().map(|&dim| dim as u32).collect();
    let mut tensor = sys::Qnn_Tensor_t { version: info.version, ..sys::Qnn_Tensor_t::default() };
    let mut quantize = sys::Qnn_QuantizeParams_t {
        encodingDefinition: sys::QNN_DEFINITION_UNDEFINED,
        quantizationEncoding: sys::QNN_QUANTIZATION_ENCODING_UNDEFINED,
        ..sys::Qnn_QuantizeParams_t::default()
    };
    if let Quantization::PerTensor(encoding) = info.quantization {
        quantize.encodingDefinition = sys::QNN_DEFINITION_DEFINED;
        quantize.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_SCALE_OFFSET;
        let offset = 0i32.saturating_sub(encoding.zero_point);
        quantize.u.scaleOffset = sys::Qnn_ScaleOffset_t { scale: encoding.scale, offset };
    }
    // The heap blocks stay where they are when the vectors grow.
    tensor.u.v1 = sys::Qnn_TensorV1_t {
        id: info.id,
        name: name.as_ptr(),
        type_: kind,
        dataFormat: sys::QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER,
        dataType: info.data_type.0,
        quantizeParams: quantize,
        rank: sizes.len() as u32,
        dimensions: sizes.as_mut_ptr(),
        memType: sys::QNN_TENSORMEMTYPE_RAW,
        memory: client_buffer(std::ptr::null_mut(), slot),
    };
    names.push(name);
    dims.push(sizes);
    tensor
}

/// One side of a delegate's call.
struct Side<'a> {
    table: &'a mut [sys::Qnn_Tensor_t],
    slots: &'a [Slot],
    /// Index of the side's first tensor among the registrations.
    first: usize,
    /// Whether the library writes to it.
    write: bool,
}

/// Writes the addresses of a side's arguments into its table, or their handles where they lie in shared memory. Every
/// buffer has been checked to be bound and large enough.
fn point(side: Side<'_>, registrations: &mut Registrations, values: &[Value], args: &[u32]) -> Result<()> {
    let Side { table, slots, first, write } = side;
    for (index, (tensor, slot)) in table.iter_mut().zip(slots).enumerate() {
        let Some(Value::Tensor(value)) = values.get(args[slot.arg] as usize) else {
            return Err(BindingError::NoTensor { arg: slot.arg }.into());
        };
        let address = value.address();
        if address.is_null() || value.capacity() < slot.bytes || (write && !value.is_writable()) {
            return Err(unusable(value, slot));
        }
        // SAFETY: both versions of the structure begin with these fields.
        let fields = unsafe { &mut tensor.u.v1 };
        (fields.memType, fields.memory) = match registrations.handle(first + index, fields, (address, slot.bytes))? {
            Some(handle) => (sys::QNN_TENSORMEMTYPE_MEMHANDLE, sys::Qnn_TensorMemory_t { memHandle: handle }),
            None => (sys::QNN_TENSORMEMTYPE_RAW, client_buffer(address, slot)),
        };
    }
    Ok(())
}

#[cold]
fn unusable(tensor: &Tensor, slot: &Slot) -> Error {
    let why = match (tensor.address().is_null(), tensor.capacity() < slot.bytes) {
        (true, _) => "has no memory bound to it".to_owned(),
        (_, true) => format!("has {} bytes bound to it, {} are needed", tensor.capacity(), slot.bytes),
        _ => "is a constant and cannot be an output".to_owned(),
    };
    Error::new(Status::InvalidState, format!("argument {} of the QNN delegate {why}", slot.arg))
}

impl Delegate for QnnDelegate {
    fn retyped_args(&self) -> &[RetypedArg] {
        &self.binding.retyped
    }

    fn share(&mut self, memory: Option<&Arc<SharedMemory>>) {
        self.registrations.share(memory);
    }

    fn execute(&mut self, values: &mut [Value], args: &[u32]) -> Result<()> {
        if args.len() != self.args {
            let message = format!("the QNN delegate takes {} arguments, the call has {}", self.args, args.len());
            return Err(Error::new(Status::InvalidProgram, message));
        }
        let Self { registrations, binding, inputs, outputs, .. } = self;
        let first = inputs.len();
        let inputs = Side { table: inputs, slots: &binding.inputs, first: 0, write: false };
        let outputs = Side { table: outputs, slots: &binding.outputs, first, write: true };
        for side in [inputs, outputs] {
            point(side, registrations, values, args)?;
        }
        // SAFETY: ids come from the graph's own description; each address is bound, long enough and, for outputs,
        // writable (`point`), and valid while the method executes (the contract of `Tensor::bind`); each handle is
        // registered for as many bytes at such an address.
        unsafe { self.graph.execute(&self.inputs, &mut self.outputs) }.map_err(|error| self.call_error(error))
    }
}
