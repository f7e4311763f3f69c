//! What is known of a QNN delegate: from its compile spec, and from libQnnSystem.so, which can read its graphs.

use super::report::{Qnn, QnnGraph, QnnTensor};
use crate::pte::BackendDelegate;
use crate::qnn::{
    BlobInfo, CompileOptions, GraphInfo, HtpOptions, LibraryOptions, QnnBackend, QnnOptions, Quantization, TensorInfo,
};
use std::path::Path;

const BACKEND: &str = "QnnBackend";

/// What only a QNN delegate has; `None` for the delegates of other backends.
pub fn qnn(delegate: &BackendDelegate, lib_dir: Option<&Path>) -> Option<Qnn> {
    if delegate.id != BACKEND {
        return None;
    }
    let spec = CompileOptions::find(&delegate.compile_specs);
    let library = LibraryOptions { path: lib_dir.map(Path::to_path_buf), ..LibraryOptions::default() };
    let info = QnnBackend::new(QnnOptions { library, ..QnnOptions::default() }).describe(&delegate.processed);
    let mut options = compile_options(&spec);
    if let Ok(info) = &info {
        options.extend(binary_facts(info));
    }
    let graphs = info.map(|info| info.binary.graphs.iter().map(graph).collect()).map_err(|error| error.chain());
    Some(Qnn { options, graphs })
}

/// As [`qnn`], without loading a library: the graphs are not looked into.
pub fn qnn_options(delegate: &BackendDelegate) -> Option<Qnn> {
    (delegate.id == BACKEND).then(|| Qnn {
        options: compile_options(&CompileOptions::find(&delegate.compile_specs)),
        graphs: Err("no library was asked".to_owned()),
    })
}

fn compile_options(spec: &CompileOptions) -> Vec<(String, String)> {
    let mut options = vec![("target".to_owned(), spec.target())];
    let mut add = |key: &str, value: Option<String>| options.extend(value.map(|value| (key.to_owned(), value)));
    add("vtcm_mb", spec.vtcm_mb.map(|mb| mb.to_string()));
    let flags = [
        ("online_prepare", spec.online_prepare),
        ("shared_buffer", spec.shared_buffer),
        ("from_context_binary", spec.from_context_binary),
        ("use_mha2sha", spec.use_mha2sha),
    ];
    for (key, flag) in flags {
        add(key, flag.map(|on| on.to_string()));
    }
    if let Some(htp) = &spec.htp {
        add("htp", Some(htp_options(htp)));
    }
    options
}

/// By the numbers of ExecuTorch's compile spec.
fn htp_options(htp: &HtpOptions) -> String {
    const PERFORMANCE: [&str; 9] = [
        "default",
        "sustained high performance",
        "burst",
        "high performance",
        "power saver",
        "low power saver",
        "high power saver",
        "low balanced",
        "balanced",
    ];
    let mut parts = vec![PERFORMANCE.get(htp.performance_mode as usize).copied().unwrap_or("unknown mode")];
    parts.push(if htp.precision == 1 { "fp16" } else { "quantized" });
    parts.push(if htp.pd_session == 1 { "signed PD" } else { "unsigned PD" });
    parts.extend(htp.use_multi_contexts.then_some("multi-context"));
    parts.extend(htp.use_weight_sharing.then_some("weight sharing"));
    parts.join(", ")
}

fn binary_facts(info: &BlobInfo) -> Vec<(String, String)> {
    let binary = &info.binary;
    let soc = binary.soc_model.map(|model| ("binary_soc_model".to_owned(), model.to_string()));
    let facts = [
        ("binary_build", binary.build_id.clone()),
        ("binary_core_api", binary.core.to_string()),
        ("binary_backend_api", binary.backend.to_string()),
    ];
    facts.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(soc).collect()
}

fn graph(graph: &GraphInfo) -> QnnGraph {
    let tensors = |list: &[TensorInfo]| list.iter().map(tensor).collect();
    QnnGraph { name: graph.name.clone(), inputs: tensors(&graph.inputs), outputs: tensors(&graph.outputs) }
}

fn tensor(tensor: &TensorInfo) -> QnnTensor {
    let dtype = tensor.data_type.dtype().map_or_else(|| format!("{:#x}", tensor.data_type.0), |d| d.name().to_owned());
    let encoding = match tensor.quantization {
        Quantization::PerTensor(encoding) => Some(encoding),
        _ => None,
    };
    QnnTensor { name: tensor.name.clone(), dtype, dims: tensor.dims.clone(), encoding }
}
