//! Tests of the whole room: contents of binaries, faults through the fake, real files on the simulator.

mod contents;
mod faults;
mod simulator;

use super::{BinaryInfo, GraphInfo, QnnBackend, QnnType, Quantization, TensorInfo, Version, sys};
use crate::base::aligned::AlignedBuffer;
use crate::pte::{Blob, CompileSpec};
use crate::runtime::{Backend, Delegate, DelegateInit, Tensor, Value};
use crate::tensor::{DType, Encoding};
use std::collections::BTreeMap;

/// The values of a delegate call, each tensor with memory of its own.
pub(super) struct Call {
    pub(super) values: Vec<Value>,
    pub(super) args: Vec<u32>,
    memory: Vec<AlignedBuffer>,
}

impl Call {
    /// Binds a tensor of each type and shape.
    pub(super) fn new(tensors: &[(DType, Vec<usize>)]) -> Self {
        let mut call = Self { values: Vec::new(), args: (0..tensors.len() as u32).collect(), memory: Vec::new() };
        for (dtype, dims) in tensors {
            let mut tensor = Tensor::unbound(*dtype, dims.clone(), (0..dims.len() as u8).collect());
            let memory = AlignedBuffer::zeroed(tensor.byte_len()).unwrap();
            // SAFETY: the memory lives in the same value as the tensor.
            unsafe { tensor.bind(memory.as_ptr(), memory.len(), true) };
            call.values.push(Value::Tensor(tensor));
            call.memory.push(memory);
        }
        call
    }

    /// Tensors as a graph has them, inputs by their number; `dtype` replaces quantized types, as old exports do.
    pub(super) fn of_graph(graph: &GraphInfo, dtype: Option<DType>) -> Self {
        let mut inputs: Vec<&TensorInfo> = graph.inputs.iter().collect();
        inputs.sort_by_key(|input| input.name.split('_').nth(1).and_then(|n| n.parse::<usize>().ok()));
        let tensors = inputs.into_iter().chain(&graph.outputs).map(|tensor| {
            let own = tensor.data_type.dtype().unwrap();
            let dtype = dtype.filter(|_| tensor.data_type.is_quantized()).unwrap_or(own);
            (dtype, tensor.dims.clone())
        });
        Self::new(&tensors.collect::<Vec<_>>())
    }

    pub(super) fn bytes(&self, arg: usize) -> &[u8] {
        // SAFETY: the block has this many initialised bytes, and nothing else touches it meanwhile.
        unsafe { std::slice::from_raw_parts(self.memory[arg].as_ptr(), self.memory[arg].len()) }
    }

    pub(super) fn bytes_mut(&mut self, arg: usize) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory[arg].as_ptr(), self.memory[arg].len()) }
    }

    pub(super) fn run(&mut self, delegate: &mut dyn Delegate) -> crate::Result<()> {
        delegate.execute(&mut self.values, &self.args)
    }
}

/// Prepares the delegate of `method` whose blob is `processed` for calls like `call`.
pub(super) fn init(
    backend: &QnnBackend,
    method: &str,
    index: usize,
    processed: &Blob,
    specs: &[CompileSpec],
    call: &Call,
) -> crate::Result<Box<dyn Delegate>> {
    let (values, args) = (&call.values[..], &call.args[..]);
    let named_data = BTreeMap::new();
    backend.init(&DelegateInit {
        method,
        index,
        processed,
        compile_specs: specs,
        named_data: &named_data,
        values,
        args,
    })
}

pub(super) fn tensor_info(id: u32, name: &str, data_type: u32, dims: &[usize]) -> TensorInfo {
    let data_type = QnnType(data_type);
    let quantization = match data_type.is_quantized() {
        true => Quantization::PerTensor(Encoding { scale: 0.25, zero_point: 7 }),
        false => Quantization::None,
    };
    TensorInfo { version: 2, id, name: name.into(), data_type, dims: dims.to_vec(), quantization }
}

/// A small model: graph `kv_forward` with two inputs, listed last first, and one output.
pub(super) fn small_model() -> BinaryInfo {
    let graph = GraphInfo {
        name: "kv_forward".into(),
        inputs: vec![
            tensor_info(12, "input_1_mask@0", sys::QNN_DATATYPE_UFIXED_POINT_16, &[1, 1, 1, 4]),
            tensor_info(11, "input_0_tokens@0", sys::QNN_DATATYPE_INT_32, &[1, 1]),
        ],
        outputs: vec![tensor_info(13, "output_logits@0", sys::QNN_DATATYPE_UFIXED_POINT_8, &[1, 6])],
    };
    BinaryInfo {
        version: 3,
        backend_id: sys::QNN_BACKEND_ID_HTP,
        build_id: "v2.37.0".into(),
        core: Version { major: 2, minor: 27, patch: 0 },
        backend: Version { major: 5, minor: 37, patch: 1 },
        blob_version: Version { major: 3, minor: 3, patch: 3 },
        soc_version: "soc".into(),
        soc_model: Some(57),
        graphs: vec![graph],
    }
}
