//! The inverse of reading a binary's contents: builds QNN's structures, in any version, from an owned description.

use crate::qnn::{BinaryInfo, GraphInfo, QnnType, Quantization, TensorInfo, sys};
use std::ffi::{CString, c_char};

/// QNN's structures for one binary, with all that they point at.
pub struct RawInfo {
    info: Box<sys::QnnSystemContext_BinaryInfo_t>,
    parts: Parts,
}

/// The heap blocks behind the pointers; none moves once made.
#[derive(Default)]
struct Parts {
    texts: Vec<CString>,
    dims: Vec<Box<[u32]>>,
    encodings: Vec<Box<[sys::Qnn_ScaleOffset_t]>>,
    tensors: Vec<Box<[sys::Qnn_Tensor_t]>>,
    graphs: Vec<Box<[sys::QnnSystemContext_GraphInfo_t]>>,
}

// SAFETY: the pointers lead into the value's own heap blocks, which are only read.
unsafe impl Send for RawInfo {}

impl RawInfo {
    /// Builds the structures in `version`; an unknown version gets its number and nothing else that counts.
    pub fn new(info: &BinaryInfo, version: u32) -> Self {
        let mut parts = Parts::default();
        let mut raw = Box::new(sys::QnnSystemContext_BinaryInfo_t { version, ..Default::default() });
        let graph_version = version.min(sys::QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3);
        let graphs: Box<[_]> = info.graphs.iter().map(|graph| parts.graph(graph, graph_version)).collect();
        let (build_id, soc_version) = (parts.text(&info.build_id), parts.text(&info.soc_version));
        parts.graphs.push(graphs);
        let graphs = parts.graphs[0].as_mut_ptr();
        let count = info.graphs.len() as u32;
        if version == sys::QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3 {
            raw.u.v3 = sys::QnnSystemContext_BinaryInfoV3_t {
                backendId: info.backend_id,
                buildId: build_id,
                coreApiVersion: info.core.into(),
                backendApiVersion: info.backend.into(),
                socVersion: soc_version,
                contextBlobVersion: info.blob_version.into(),
                numGraphs: count,
                graphs,
                socModel: info.soc_model.unwrap_or(0),
                ..Default::default()
            };
        } else {
            raw.u.v1 = sys::QnnSystemContext_BinaryInfoV1_t {
                backendId: info.backend_id,
                buildId: build_id,
                coreApiVersion: info.core.into(),
                backendApiVersion: info.backend.into(),
                socVersion: soc_version,
                contextBlobVersion: info.blob_version.into(),
                numGraphs: count,
                graphs,
                ..Default::default()
            };
        }
        Self { info: raw, parts }
    }

    /// The structure, valid as long as `self`.
    pub fn as_ptr(&self) -> *const sys::QnnSystemContext_BinaryInfo_t {
        debug_assert!(!self.parts.graphs.is_empty());
        &raw const *self.info
    }

    /// The structure, to spoil it.
    pub fn info_mut(&mut self) -> &mut sys::QnnSystemContext_BinaryInfo_t {
        &mut self.info
    }

    /// The first graph, to spoil it. Panics without one.
    pub fn first_graph(&mut self) -> &mut sys::QnnSystemContext_GraphInfo_t {
        &mut self.parts.graphs[0][0]
    }

    /// The first input of the first graph, to spoil it. Panics without one.
    pub fn first_input(&mut self) -> &mut sys::Qnn_Tensor_t {
        &mut self.parts.tensors[0][0]
    }
}

impl Parts {
    fn text(&mut self, text: &str) -> *const c_char {
        self.texts.push(CString::new(text).expect("no NUL in a description"));
        self.texts[self.texts.len() - 1].as_ptr()
    }

    fn graph(&mut self, graph: &GraphInfo, version: u32) -> sys::QnnSystemContext_GraphInfo_t {
        let mut raw = sys::QnnSystemContext_GraphInfo_t { version, ..Default::default() };
        let name = self.text(&graph.name);
        let inputs = self.tensors(&graph.inputs, sys::QNN_TENSOR_TYPE_APP_WRITE);
        let outputs = self.tensors(&graph.outputs, sys::QNN_TENSOR_TYPE_APP_READ);
        raw.u.v1 = sys::QnnSystemContext_GraphInfoV1_t {
            graphName: name,
            numGraphInputs: graph.inputs.len() as u32,
            graphInputs: inputs,
            numGraphOutputs: graph.outputs.len() as u32,
            graphOutputs: outputs,
        };
        raw
    }

    fn tensors(&mut self, tensors: &[TensorInfo], kind: u32) -> *mut sys::Qnn_Tensor_t {
        let raw: Box<[_]> = tensors.iter().map(|tensor| self.tensor(tensor, kind)).collect();
        self.tensors.push(raw);
        let last = self.tensors.len() - 1;
        self.tensors[last].as_mut_ptr()
    }

    fn tensor(&mut self, tensor: &TensorInfo, kind: u32) -> sys::Qnn_Tensor_t {
        let QnnType(data_type) = tensor.data_type;
        let mut raw = sys::Qnn_Tensor_t { version: tensor.version, ..Default::default() };
        let name = self.text(&tensor.name);
        let mut dims: Box<[u32]> = tensor.dims.iter().map(|&dim| dim as u32).collect();
        let dimensions = dims.as_mut_ptr();
        self.dims.push(dims);
        raw.u.v1 = sys::Qnn_TensorV1_t {
            id: tensor.id,
            name,
            type_: kind,
            dataType: data_type,
            quantizeParams: self.quantization(&tensor.quantization),
            rank: tensor.dims.len() as u32,
            dimensions,
            ..Default::default()
        };
        raw
    }

    fn quantization(&mut self, quantization: &Quantization) -> sys::Qnn_QuantizeParams_t {
        let mut raw = sys::Qnn_QuantizeParams_t {
            encodingDefinition: sys::QNN_DEFINITION_DEFINED,
            quantizationEncoding: sys::QNN_QUANTIZATION_ENCODING_SCALE_OFFSET,
            ..Default::default()
        };
        let pair = |scale, zero_point: i32| sys::Qnn_ScaleOffset_t { scale, offset: -zero_point };
        match quantization {
            Quantization::None => raw.encodingDefinition = sys::QNN_DEFINITION_UNDEFINED,
            Quantization::PerTensor(encoding) => raw.u.scaleOffset = pair(encoding.scale, encoding.zero_point),
            Quantization::PerAxis { axis, encodings } => {
                let pairs = encodings.iter().map(|encoding| pair(encoding.scale, encoding.zero_point));
                let mut pairs: Box<[_]> = pairs.collect();
                raw.quantizationEncoding = sys::QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET;
                raw.u.axisScaleOffset = sys::Qnn_AxisScaleOffset_t {
                    axis: *axis,
                    numScaleOffsets: pairs.len() as u32,
                    scaleOffset: pairs.as_mut_ptr(),
                };
                self.encodings.push(pairs);
            }
            Quantization::Other(number) => raw.quantizationEncoding = *number,
        }
        raw
    }
}
