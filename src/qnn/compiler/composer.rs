//! Makes tensors and nodes in one graph of the library's.

use super::error::CompileError;
use super::operation::{Operation, Param, TensorId};
use super::options::CompilerOptions;
use super::session::Session;
use super::tensor::{Coding, RawTensor, Role, TensorSpec};
use crate::error::Result;
use crate::qnn::{stdout, sys};
use std::ffi::{CStr, CString};

const PACKAGE: &CStr = c"qti.aisw";

/// One graph being composed.
pub(super) struct Composer<'a> {
    session: &'a Session<'a>,
    handle: sys::Qnn_GraphHandle_t,
    tensors: Vec<RawTensor>,
    nodes: usize,
}

impl<'a> Composer<'a> {
    pub(super) fn create(session: &'a Session<'a>, name: &str, options: &CompilerOptions) -> Result<Self> {
        let c_name = CString::new(name).map_err(|_| CompileError::Name { name: name.to_owned() })?;
        let optimization = sys::QnnHtpGraph_OptimizationOption_t {
            type_: sys::QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG,
            value: options.optimization_level.into(),
        };
        // Unions are cleared first: the library may read past the member that is set.
        let [mut level, mut vtcm] = [sys::QnnHtpGraph_CustomConfig_t::default(); 2];
        level.option = sys::QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION;
        level.u.optimization = optimization;
        vtcm.option = sys::QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE;
        vtcm.u.vtcmSizeInMb = options.vtcm_mb();
        let config = |custom: &sys::QnnHtpGraph_CustomConfig_t| sys::Qnn_Config_t {
            option: sys::QNN_GRAPH_CONFIG_OPTION_CUSTOM,
            u: sys::Qnn_ConfigUnion_t { customConfig: (&raw const *custom).cast() },
        };
        let configs = [config(&level), config(&vtcm)];
        // SAFETY: the context is live; name and options outlive the call.
        let create = || unsafe { session.api().graph_create(session.lock(), session.handle(), &c_name, &configs) };
        let handle =
            stdout::on_stderr(session.lock(), create).map_err(|error| error.detail(format!("graph {name}")))?;
        Ok(Self { session, handle, tensors: Vec::new(), nodes: 0 })
    }

    /// Makes a tensor that holds no constant.
    pub(super) fn tensor(&mut self, spec: &TensorSpec) -> Result<TensorId> {
        self.create_tensor(spec, &[])
    }

    /// Makes a constant, `data` row by row, and keeps the data: some operations read parameters and vectors again
    /// when their node is added.
    pub(super) fn constant(&mut self, spec: &TensorSpec, data: Vec<u8>) -> Result<TensorId> {
        let TensorId(id) = self.create_tensor(spec, &data)?;
        let tensor = &mut self.tensors[id];
        tensor.raw.u.v1.memory.clientBuf = client_buffer(&data);
        tensor.data = data;
        Ok(TensorId(id))
    }

    /// As [`Self::constant`], for matrices: the library has its own copy and needs no other.
    pub(super) fn matrix(&mut self, spec: &TensorSpec, data: &[u8]) -> Result<TensorId> {
        self.create_tensor(spec, data)
    }

    fn create_tensor(&mut self, spec: &TensorSpec, data: &[u8]) -> Result<TensorId> {
        let unfit = || CompileError::Tensor { name: spec.name.clone(), dims: spec.dims.clone() };
        let mut tensor = RawTensor::new(spec).ok_or_else(unfit)?;
        if u32::try_from(data.len()).is_err() {
            return Err(unfit().into());
        }
        tensor.raw.u.v1.memory.clientBuf = client_buffer(data);
        // SAFETY: the graph is not finalized, which takes this value; what the structure points at is in `tensor` and
        // `data`, which live through the call. The library only reads the data.
        let created = unsafe { self.session.api().tensor_create(self.session.lock(), self.handle, &mut tensor.raw) };
        created.map_err(|error| error.detail(format!("tensor {}", spec.name)))?;
        tensor.raw.u.v1.memory.clientBuf = sys::Qnn_ClientBuffer_t::default();
        self.tensors.push(tensor);
        Ok(TensorId(self.tensors.len() - 1))
    }

    /// Appends `operation` under a name of its own that ends with `label`.
    pub(super) fn add(&mut self, label: &str, operation: &Operation) -> Result<()> {
        let name = format!("n{}_{label}", self.nodes);
        self.nodes += 1;
        let mut params = Vec::with_capacity(operation.params.len());
        for (key, param) in &operation.params {
            params.push(self.param(&name, key, param)?);
        }
        let mut inputs: Vec<_> = operation.inputs.iter().map(|&TensorId(id)| self.tensors[id].raw).collect();
        let mut outputs = [self.tensors[operation.output.0].raw];
        let c_name = CString::new(name.as_str()).map_err(|_| CompileError::Name { name: name.clone() })?;
        let config = sys::Qnn_OpConfig_t {
            version: sys::QNN_OPCONFIG_VERSION_1,
            name: c_name.as_ptr(),
            packageName: PACKAGE.as_ptr(),
            typeName: operation.kind.as_ptr(),
            numOfParams: params.len() as u32,
            params: params.as_mut_ptr(),
            numOfInputs: inputs.len() as u32,
            inputTensors: inputs.as_mut_ptr(),
            numOfOutputs: 1,
            outputTensors: outputs.as_mut_ptr(),
        };
        // SAFETY: the graph is not finalized; the tensors were created in it, and all that they point at is in
        // `self.tensors`; names and arrays outlive the call.
        let added = unsafe { self.session.api().graph_add_node(self.session.lock(), self.handle, config) };
        Ok(added.map_err(|error| error.detail(format!("QNN node {name}: {}", operation.kind.to_string_lossy())))?)
    }

    fn param(&mut self, node: &str, key: &CStr, param: &Param) -> Result<sys::Qnn_Param_t> {
        let mut raw = sys::Qnn_Param_t { name: key.as_ptr(), ..sys::Qnn_Param_t::default() };
        let mut scalar = sys::Qnn_Scalar_t::default();
        let mut tensor = None;
        match param {
            Param::U32(value) => {
                (scalar.dataType, scalar.u.uint32Value) = (sys::QNN_DATATYPE_UINT_32, *value);
            }
            Param::I32(value) => {
                (scalar.dataType, scalar.u.int32Value) = (sys::QNN_DATATYPE_INT_32, *value);
            }
            Param::F32(value) => {
                (scalar.dataType, scalar.u.floatValue) = (sys::QNN_DATATYPE_FLOAT_32, *value);
            }
            Param::Bool(value) => {
                (scalar.dataType, scalar.u.bool8Value) = (sys::QNN_DATATYPE_BOOL_8, (*value).into());
            }
            Param::Numbers { dims, data } => {
                tensor = Some((sys::QNN_DATATYPE_UINT_32, dims, bytes_of(data, |x| x.to_ne_bytes())))
            }
            Param::Integers { dims, data } => {
                tensor = Some((sys::QNN_DATATYPE_INT_32, dims, bytes_of(data, |x| x.to_ne_bytes())))
            }
        }
        let Some((data_type, dims, data)) = tensor else {
            raw.u.scalar = scalar;
            return Ok(raw);
        };
        let name = format!("{node}_{}", key.to_string_lossy());
        let spec = TensorSpec { name, role: Role::Constant, data_type, dims: dims.clone(), coding: Coding::Plain };
        let TensorId(id) = self.constant(&spec, data)?;
        raw.paramType = sys::QNN_PARAMTYPE_TENSOR;
        raw.u.tensor = self.tensors[id].raw;
        Ok(raw)
    }

    /// Compiles the graph.
    pub(super) fn finalize(self) -> Result<()> {
        let (api, lock) = (self.session.api(), self.session.lock());
        // SAFETY: the graph is live, and no call on it can follow.
        Ok(stdout::on_stderr(lock, || unsafe { api.graph_finalize(lock, self.handle) })?)
    }
}

/// Null without data.
fn client_buffer(data: &[u8]) -> sys::Qnn_ClientBuffer_t {
    if data.is_empty() {
        return sys::Qnn_ClientBuffer_t::default();
    }
    sys::Qnn_ClientBuffer_t { data: data.as_ptr().cast_mut().cast(), dataSize: data.len() as u32 }
}

fn bytes_of<T: Copy>(numbers: &[T], bytes: impl Fn(T) -> [u8; 4]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| bytes(number)).collect()
}
