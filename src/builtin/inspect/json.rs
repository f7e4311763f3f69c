//! The report for scripts: one JSON object, nothing folded.

use super::report::{Constant, Delegate, Extent, Io, Method, Qnn, QnnTensor, Report};
use crate::tensor::{DType, Dims};
use serde_json::{Value, json};

/// The whole object.
pub fn value(report: &Report) -> Value {
    let constant_methods = report
        .constant_methods
        .iter()
        .map(|(name, values)| (name.clone(), Value::from(values.iter().map(constant).collect::<Vec<_>>())));
    json!({
        "file": report.file,
        "version": report.version,
        "segments": report.segments.iter().map(extent).collect::<Vec<_>>(),
        "constants": { "count": report.constants.0, "bytes": report.constants.1 },
        "named_data": report.named_data.iter().map(|(key, size)| json!({ "key": key, "bytes": size })).collect::<Vec<_>>(),
        "methods": report.methods.iter().map(method).collect::<Vec<_>>(),
        "constant_methods": constant_methods.collect::<serde_json::Map<_, _>>(),
        "delegates": report.delegates.iter().map(delegate).collect::<Vec<_>>(),
        "states": report.states.iter().map(state).collect::<Vec<_>>(),
    })
}

fn state((name, dtype, dims): &(String, DType, Dims)) -> Value {
    json!({ "name": name, "dtype": dtype.name(), "dims": dims })
}

fn extent(extent: &Extent) -> Value {
    json!({ "offset": extent.offset, "bytes": extent.size })
}

fn method(method: &Method) -> Value {
    let calls = method.calls.iter().map(|(name, count)| json!({ "name": name, "count": count }));
    json!({
        "name": method.name,
        "inputs": method.inputs.iter().map(io).collect::<Vec<_>>(),
        "outputs": method.outputs.iter().map(io).collect::<Vec<_>>(),
        "values": method.values,
        "instructions": method.instructions,
        "planned_bytes": method.planned_bytes,
        "calls": calls.collect::<Vec<_>>(),
    })
}

fn io(io: &Io) -> Value {
    match io {
        Io::Tensor { dtype, dims, dynamic, planned } => {
            json!({ "dtype": dtype.name(), "dims": dims, "dynamic": dynamic, "planned": planned })
        }
        Io::Other(kind) => json!({ "kind": kind }),
    }
}

fn constant(constant: &Constant) -> Value {
    match constant {
        Constant::Null => Value::Null,
        Constant::Int(number) => json!(number),
        Constant::Bool(on) => json!(on),
        Constant::Double(number) => json!(number),
        Constant::Text(text) => json!(text),
        Constant::Ints(numbers) => json!(numbers),
        Constant::Doubles(numbers) => json!(numbers),
        Constant::Bools(bits) => json!(bits),
        Constant::Tensor(dtype, dims) => json!({ "dtype": dtype.name(), "dims": dims }),
        Constant::Tensors(count) => json!({ "tensors": count }),
    }
}

fn delegate(delegate: &Delegate) -> Value {
    let callers = delegate.callers.iter().map(|(method, index)| json!({ "method": method, "index": index }));
    let specs = delegate.compile_specs.iter().map(|(key, size)| json!({ "key": key, "bytes": size }));
    json!({
        "id": delegate.id,
        "blob": extent(&delegate.blob),
        "segment": delegate.segment,
        "callers": callers.collect::<Vec<_>>(),
        "compile_specs": specs.collect::<Vec<_>>(),
        "qnn": delegate.qnn.as_ref().map(qnn),
    })
}

fn qnn(qnn: &Qnn) -> Value {
    let options = qnn.options.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    let tensors = |tensors: &[QnnTensor]| tensors.iter().map(tensor).collect::<Vec<_>>();
    let graphs = qnn.graphs.as_ref().map(|graphs| {
        let graph = |graph: &super::report::QnnGraph| {
            json!({ "name": graph.name, "inputs": tensors(&graph.inputs), "outputs": tensors(&graph.outputs) })
        };
        graphs.iter().map(graph).collect::<Vec<_>>()
    });
    json!({
        "options": options.collect::<serde_json::Map<_, _>>(),
        "graphs": graphs.as_ref().ok(),
        "graphs_unknown": graphs.as_ref().err(),
    })
}

fn tensor(tensor: &QnnTensor) -> Value {
    json!({
        "name": tensor.name,
        "dtype": tensor.dtype,
        "dims": tensor.dims,
        "encoding": tensor.encoding.map(|e| json!({ "scale": e.scale, "zero_point": e.zero_point })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::inspect::report::tests::report;

    #[test]
    fn the_same_facts_as_the_text() {
        let json = value(&report());
        assert_eq!(json["file"], "model.pte");
        assert_eq!(json["segments"][1], json!({ "offset": 1024, "bytes": 3072 }));
        let kv = &json["methods"][0];
        assert_eq!(kv["name"], "kv_forward");
        assert_eq!(kv["inputs"].as_array().unwrap().len(), 3, "nothing is folded");
        assert_eq!(
            kv["inputs"][1],
            json!({ "dtype": "u8", "dims": [1, 4, 8, 127], "dynamic": false, "planned": false })
        );
        assert_eq!(kv["calls"][1], json!({ "name": "aten::add.out", "count": 2 }));
        assert_eq!(json["constant_methods"]["get_attr"], json!([0.25, 128, "torch.uint8"]));
        let qnn = &json["delegates"][0]["qnn"];
        assert_eq!(qnn["options"]["soc"], "SM8650");
        assert_eq!(qnn["graphs"][0]["inputs"][0]["encoding"], json!({ "scale": 0.5, "zero_point": 128 }));
        assert_eq!(qnn["graphs_unknown"], Value::Null);
    }
}
