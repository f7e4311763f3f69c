//! Decoding is the inverse of encoding, and old layouts of the same model decode alike.

use super::super::schema::{
    NO_VALUE, NODE_NAMES, buffer, graph, node_tag, tensor, unary, union, value_flag, value_kind,
};
use super::*;
use crate::base::flatbuffer::{Fields, build};
use std::collections::{BTreeMap, HashSet};

fn again(model: &Model) -> Model {
    let named: BTreeMap<_, _> =
        model.named_data().into_iter().map(|(key, data)| (key.to_owned(), data.clone())).collect();
    decode_delegate(&Blob::from_vec(model.to_bytes().unwrap()), &named).unwrap()
}

#[test]
fn every_node_survives() {
    let mut tags = HashSet::new();
    for (name, mut model) in singles() {
        model.nodes[0].bounds = Some((-1.5, f32::INFINITY));
        assert_eq!(again(&model), model, "{name}");
        tags.insert(usize::from(node_tag(&model.nodes[0])));
    }
    let others: Vec<_> = (0..NODE_NAMES.len()).filter(|tag| !tags.contains(tag)).map(|tag| NODE_NAMES[tag]).collect();
    let unsupported = [
        "NONE",
        "XNNConv2d",
        "XNNStaticResizeBilinear2D",
        "XNNStaticConstantPad",
        "XNNAvgPooling2d",
        "XNNDepthwiseConv2d",
        "XNNMaxPooling2d",
        "XNNArgMaxPooling2d",
        "XNNLeakyReLU",
        "XNNELU",
        "XNNPReLU",
        "XNNConvTranspose2d",
    ];
    assert_eq!(others, unsupported);
}

#[test]
fn every_weight_quantization_survives() {
    for (name, model) in dynamic_linears() {
        assert_eq!(again(&model), model, "{name}");
    }
}

#[test]
fn every_element_type_survives() {
    let mut sketch = Sketch::default();
    let x = sketch.input(&[2, 3]);
    for datatype in [Datatype::Fp16, Datatype::Bf16, Datatype::Int32] {
        let value = sketch.value(datatype, &[2, 3]);
        sketch.constant(value);
    }
    for (datatype, zero_point) in [(Datatype::QInt8, -128), (Datatype::QUint8, 255), (Datatype::QInt32, 0)] {
        let value = sketch.quantized(datatype, &[2, 3], Quantization::PerTensor { scale: 0.5, zero_point });
        sketch.constant(value);
    }
    let channels = Quantization::PerChannel { axis: 1, scales: Scales::F32(vec![1.0, 2.0, 3.0]) };
    let value = sketch.quantized(Datatype::QcInt32, &[2, 3], channels);
    sketch.constant(value);
    sketch.0.values[x].quantize_rows = true;
    let scalar = sketch.value(Datatype::Fp32, &[]);
    sketch.constant(scalar);
    sketch.0.version = "1".into();
    assert_eq!(again(&sketch.0), sketch.0);
}

#[test]
fn arguments_keep_their_order() {
    let mut sketch = Sketch::default();
    let y = sketch.value(Datatype::Fp32, &[2]);
    let [a, b] = [(); 2].map(|()| sketch.input(&[2]));
    // Argument 2 is one that no node uses.
    sketch.0.args += 1;
    sketch.external(y, Direction::Output);
    sketch.0.values.swap(a, b);
    sketch.node(NodeOp::Binary(Binary::Subtract), &[b, a], y);
    let model = again(&sketch.0);
    assert_eq!((model.inputs(), model.outputs()), (vec![b, a], vec![y]));
    assert_eq!(model.values[y].external, Some(External { arg: 3, direction: Direction::Output }));
}

#[test]
fn constants_may_be_longer_than_values() {
    let mut sketch = Sketch::default();
    let value = sketch.value(Datatype::Fp32, &[2]);
    sketch.constant(value);
    sketch.0.constants[0].data = Blob::from_vec(vec![0; 11]);
    assert_eq!(again(&sketch.0), sketch.0);
}

/// A value in the old form without header: the graph is the blob, constants are in it, ids are arbitrary.
#[test]
fn blobs_without_header_and_with_inner_constants_are_read() {
    let value = |id: u32, constant: u32, external: u32, flags: u32| {
        let tensor = Fields::new()
            .scalar(tensor::DATATYPE, 1i16)
            .scalar(tensor::RANK, 1u32)
            .scalars(tensor::DIMS, [2u32])
            .scalar(tensor::CONSTANT, constant)
            .scalar(tensor::EXTERNAL_ID, external)
            .scalar(tensor::FLAGS, flags)
            .scalar(tensor::ID, id);
        Fields::new().scalar(union::TAG, value_kind::TENSOR).table(union::TABLE, tensor)
    };
    let abs = Fields::new().scalar(unary::INPUT, 70u32).scalar(unary::OUTPUT, 5u32);
    let abs = Fields::new().scalar(union::TAG, 30u8).table(union::TABLE, abs);
    let data = |bytes: &[u8]| Fields::new().scalars(buffer::STORAGE, bytes.to_vec());
    let root = Fields::new()
        .scalar(graph::EXTERN_COUNT, 1u32)
        .tables(graph::VALUES, [value(5, 0, 0, value_flag::OUTPUT), value(70, 1, NO_VALUE, 0)])
        .tables(graph::NODES, [abs])
        .tables(graph::CONSTANT_BUFFER, [data(&[]), data(&[1, 2, 3, 4, 5, 6, 7, 8])]);
    let model = decode_delegate(&Blob::from_vec(build(root, *b"XN00", 0)), &BTreeMap::new()).unwrap();

    let mut sketch = Sketch::default();
    let y = sketch.output(&[2]);
    let x = sketch.value(Datatype::Fp32, &[2]);
    sketch.0.values[x].constant = Some(sketch.data(None, vec![1, 2, 3, 4, 5, 6, 7, 8]));
    sketch.node(NodeOp::Unary(Unary::Abs), &[x], y).debug_handle = 0;
    assert_eq!(model, sketch.0);
}

#[test]
fn constants_in_the_blob_are_aligned() {
    let mut sketch = Sketch::default();
    sketch.data(None, vec![1; 5]);
    sketch.data(Some("elsewhere"), vec![2; 5]);
    sketch.data(None, vec![3; 5]);
    let bytes = sketch.0.to_bytes().unwrap();
    let at = |bytes: &[u8], byte| bytes.windows(5).position(|window| window == [byte; 5]);
    assert_eq!(at(&bytes, 1).map(|at| at % 16), Some(0));
    assert_eq!((at(&bytes, 2), at(&bytes, 3)), (None, at(&bytes, 1).map(|at| at + 16)));
}
