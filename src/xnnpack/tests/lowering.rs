//! What each node becomes, and what is refused.

use super::*;
use crate::error::Status;
use crate::graph::{Graph, Op, UnaryOp};
use crate::tensor::DType;

fn lowered(model: &Model) -> Graph {
    let graph = to_graph(model, "delegate").unwrap_or_else(|error| panic!("{error}"));
    graph.verify().unwrap_or_else(|error| panic!("{error}\n{graph}"));
    graph
}

fn ops(graph: &Graph) -> Vec<String> {
    graph.nodes.iter().map(|node| format!("{:?}", node.op)).collect()
}

fn refused(model: &Model) -> XnnpackError {
    to_graph(model, "delegate").map(|graph| graph.to_string()).expect_err("it is refused")
}

#[test]
fn every_node_becomes_a_sound_graph() {
    for (name, model) in singles() {
        let graph = lowered(&model);
        let made = graph.max_shape(graph.outputs[0]);
        assert_eq!(made, model.values[model.outputs()[0]].dims, "{name}");
        assert!(graph.nodes.iter().all(|node| node.origin.starts_with("delegate: ")), "{graph}");
    }
}

#[test]
fn nodes_become_the_operations_that_they_name() {
    use NodeOp::*;
    let rows: [(NodeOp, &[Shape], Shape, &[&str]); 12] = [
        (Unary(super::Unary::Gelu), &[&[2]], &[2], &["Unary(Gelu)"]),
        (Binary(super::Binary::Divide), &[&[2], &[1]], &[2], &["Binary(Divide)"]),
        (Copy, &[&[2]], &[2], &[]),
        (Softmax, &[&[2, 3]], &[2, 3], &["Softmax { axis: 1 }"]),
        (GlobalAveragePooling2d { keep_dims: false }, &[&[1, 2, 3, 4]], &[1, 4], &["Mean { axes: [1, 2] }", "Reshape"]),
        (FullyConnected { transpose_weights: false }, &[&[2, 3], &[5, 3], &[5]], &[2, 5], &["FullyConnected"]),
        (
            FullyConnected { transpose_weights: true },
            &[&[2, 3], &[3, 5], &[5]],
            &[2, 5],
            &["MatMul { transpose_b: false }", "Binary(Add)"],
        ),
        (BatchMatrixMultiply { transpose_b: true }, &[&[2, 3], &[5, 3]], &[2, 5], &["MatMul { transpose_b: true }"]),
        (StaticTranspose { perm: vec![1, 0] }, &[&[2, 3]], &[3, 2], &["Permute { perm: [1, 0] }"]),
        (StaticReshape { new_shape: vec![0] }, &[&[2, 3]], &[6], &["Reshape"]),
        (
            StaticSlice { offsets: vec![0, 1], sizes: vec![0, 2] },
            &[&[2, 3]],
            &[2, 2],
            &["Slice { axis: 1, start: Const(1), step: 1 }"],
        ),
        (
            ScaledDotProductAttention,
            &[&[2, 3, 4], &[2, 5, 4], &[2, 5, 6], &[4], &[3, 5]],
            &[2, 3, 6],
            &[
                "Binary(Multiply)",
                "MatMul { transpose_b: true }",
                "Binary(Add)",
                "Softmax { axis: 2 }",
                "MatMul { transpose_b: false }",
            ],
        ),
    ];
    for (op, inputs, output, expected) in rows {
        assert_eq!(ops(&lowered(&single(op.clone(), inputs, output))), expected, "{op:?}");
    }
}

#[test]
fn bounds_limit_the_result_of_any_node() {
    let mut model = single(NodeOp::Clamp, &[&[2]], &[2]);
    assert!(lowered(&model).nodes.is_empty());
    model.nodes[0].bounds = Some((0.0, 6.0));
    assert_eq!(ops(&lowered(&model)), ["Clamp { min: 0.0, max: 6.0 }"]);
    let mut model = single(NodeOp::Binary(Binary::Add), &[&[2], &[2]], &[2]);
    model.nodes[0].bounds = Some((0.0, f32::INFINITY));
    assert_eq!(ops(&lowered(&model)), ["Binary(Add)", "Clamp { min: 0.0, max: inf }"]);
}

#[test]
fn weights_stay_where_they_are() {
    for (name, model) in dynamic_linears() {
        let graph = lowered(&model);
        assert_eq!(ops(&graph), ["Convert", "FullyConnected"], "{name}");
        let weights = graph.nodes[1].inputs[1];
        let stored = model.values.iter().find(|value| value.dims == [6, 8]).and_then(|value| value.constant).unwrap();
        assert!(graph.constant(weights).unwrap().same_place(&model.constants[stored].data), "{name}");
        let value = graph.value(weights);
        let dtype = if name.starts_with("qc8w") { DType::I8 } else { DType::U8 };
        assert_eq!(value.dtype, dtype, "{name}");
        match value.quantization.as_ref().unwrap() {
            crate::graph::Quantization::PerChannel { bits, axis: 0, scales } => {
                assert_eq!(*bits, if dtype == DType::I8 { 8 } else { 4 });
                assert_eq!(scales.data[..4], 0.5f32.to_le_bytes(), "{name}");
            }
            // Small whole numbers are exact in bf16 and survive the exporter's rounding.
            crate::graph::Quantization::Blockwise { bits: 4, block: 4, scales, scale_dtype: DType::BF16, .. } => {
                let expected: Vec<u8> =
                    (1..=12).flat_map(|scale| ((scale as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect();
                assert_eq!(scales.data[..], expected, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn half_precision_weights_and_activations() {
    for (x_type, weight_type, y_type) in [
        (Datatype::Fp32, Datatype::Fp16, Datatype::Fp32),
        (Datatype::Fp16, Datatype::Fp16, Datatype::Fp16),
        (Datatype::Bf16, Datatype::Bf16, Datatype::Fp32),
    ] {
        let mut model = single(NodeOp::FullyConnected { transpose_weights: false }, &[&[2, 3], &[5, 3]], &[2, 5]);
        for (value, datatype) in model.values.iter_mut().zip([x_type, weight_type, y_type]) {
            value.datatype = datatype;
        }
        assert_eq!(ops(&lowered(&model)), ["FullyConnected"]);
    }
}

#[test]
fn conversions() {
    let per_tensor = || Some(Quantization::PerTensor { scale: 0.5, zero_point: 3 });
    let rows = [
        (Datatype::Fp32, None, Datatype::Fp16, None, vec!["Convert"]),
        (Datatype::Fp16, None, Datatype::Fp32, None, vec!["Convert"]),
        (Datatype::Fp32, None, Datatype::Bf16, None, vec!["Convert"]),
        (Datatype::Fp32, None, Datatype::QInt8, per_tensor(), vec!["Convert"]),
        (Datatype::QUint8, per_tensor(), Datatype::Fp32, None, vec!["Convert"]),
        (Datatype::QInt8, per_tensor(), Datatype::QUint8, per_tensor(), vec!["Convert", "Convert"]),
        (Datatype::Fp32, None, Datatype::Fp32, None, vec![]),
    ];
    for (from, from_quantization, to, to_quantization, expected) in rows {
        let mut model = single(NodeOp::Convert, &[&[2]], &[2]);
        (model.values[0].datatype, model.values[0].quantization) = (from, from_quantization);
        (model.values[1].datatype, model.values[1].quantization) = (to, to_quantization);
        assert_eq!(ops(&lowered(&model)), expected, "{from:?} {to:?}");
    }
}

#[test]
fn static_codes_are_computed_with_as_reals_and_moved_as_codes() {
    let mut add = single(NodeOp::Binary(Binary::Add), &[&[2], &[2]], &[2]);
    let mut reshape = single(NodeOp::StaticReshape { new_shape: vec![2, 1] }, &[&[2]], &[2, 1]);
    for value in add.values.iter_mut().chain(&mut reshape.values) {
        value.datatype = Datatype::QInt8;
        value.quantization = Some(Quantization::PerTensor { scale: 0.5, zero_point: 0 });
    }
    assert_eq!(ops(&lowered(&add)), ["Convert", "Convert", "Binary(Add)", "Convert"]);
    assert_eq!(ops(&lowered(&reshape)), ["Reshape"]);
    reshape.values[1].quantization = Some(Quantization::PerTensor { scale: 0.25, zero_point: 0 });
    assert!(matches!(refused(&reshape), XnnpackError::Types { .. }));
    reshape.values[1].quantization = reshape.values[0].quantization.clone();
    reshape.nodes[0].bounds = Some((0.0, 1.0));
    assert!(matches!(refused(&reshape), XnnpackError::Types { .. }));
}

#[test]
fn inputs_quantized_on_the_way_in() {
    let mut model = dynamic_linears().remove(0).1;
    // Without the convert node, as old exporters wrote it.
    model.nodes.remove(0);
    model.nodes[0].inputs[0] = 0;
    model.values[0].quantize_rows = true;
    assert_eq!(ops(&lowered(&model)), ["Convert", "FullyConnected"]);
}

#[test]
fn scalars_are_taken_for_one_element() {
    let model = single(NodeOp::Unary(Unary::Exp), &[&[1]], &[1]);
    let mut graph = Graph::new("scalar");
    let x = graph.add_input("x", DType::F32, vec![]);
    graph.outputs = lower_into(&mut graph, &model, "XNNPACK delegate 0", &[x]).unwrap();
    graph.verify().unwrap();
    assert_eq!(graph.nodes[1].op, Op::Unary(UnaryOp::Exp));
    assert_eq!(graph.max_shape(graph.outputs[0]), [1]);
}

#[test]
fn wrong_inputs_are_named() {
    let model = single(NodeOp::Unary(Unary::Exp), &[&[2, 3]], &[2, 3]);
    let lower = |dtype, dims: &[usize]| {
        let mut graph = Graph::new("test");
        let x = graph.add_input("x", dtype, dims.iter().map(|&dim| dim.into()).collect());
        lower_into(&mut graph, &model, "delegate", &[x]).map(|_| ())
    };
    assert_eq!(lower(DType::F32, &[2, 3]), Ok(()));
    assert_eq!(lower(DType::F32, &[1, 3]), Ok(()));
    for (dtype, dims) in
        [(DType::F16, &[2, 3][..]), (DType::F32, &[3, 3]), (DType::F32, &[0, 3]), (DType::F32, &[6]), (DType::F32, &[])]
    {
        let error = lower(dtype, dims).unwrap_err();
        assert!(matches!(error, XnnpackError::Input { arg: 0, .. }), "{dims:?}: {error}");
    }
    let mut graph = Graph::new("test");
    let error = lower_into(&mut graph, &model, "delegate", &[]).unwrap_err();
    assert_eq!(error, XnnpackError::InputCount { have: 0, need: 1 });
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    use NodeOp::*;
    let rows: [(NodeOp, &[Shape], Shape); 15] = [
        (Binary(super::Binary::Add), &[&[2], &[3]], &[3]),
        (Binary(super::Binary::Add), &[&[2], &[2, 2]], &[2]),
        (FullyConnected { transpose_weights: false }, &[&[2, 3], &[5, 4]], &[2, 5]),
        (FullyConnected { transpose_weights: false }, &[&[2, 3], &[3]], &[2, 5]),
        (FullyConnected { transpose_weights: false }, &[&[2, 3], &[5, 3], &[4]], &[2, 5]),
        (FullyConnected { transpose_weights: false }, &[&[2, 3], &[5, 3], &[5, 1]], &[2, 5]),
        (FullyConnected { transpose_weights: false }, &[&[], &[5, 3]], &[5]),
        (BatchMatrixMultiply { transpose_b: false }, &[&[2, 3], &[2, 3]], &[2, 3]),
        // XNNPACK shares each of the two matrices among three; no language model does.
        (BatchMatrixMultiply { transpose_b: false }, &[&[6, 3, 3], &[2, 3, 3]], &[6, 3, 3]),
        (StaticReshape { new_shape: vec![4, 0] }, &[&[2, 3]], &[4, 1]),
        (Concatenate { axis: 0 }, &[&[2, 3], &[2, 4]], &[4, 3]),
        (Concatenate { axis: 0 }, &[&[2, 3], &[3]], &[3, 3]),
        (Softmax, &[&[]], &[]),
        (GlobalAveragePooling2d { keep_dims: true }, &[&[2, 3, 4]], &[2, 3, 4]),
        (ScaledDotProductAttention, &[&[2, 3, 4], &[2, 5, 4], &[2, 5, 4], &[1], &[3, 5]], &[2, 3, 4]),
    ];
    for (op, inputs, output) in rows {
        let error = refused(&single(op.clone(), inputs, output));
        let named = matches!(error, XnnpackError::Shapes { .. } | XnnpackError::UnequalSizes { .. });
        assert!(named && error.to_string().starts_with("node 0 (XNN"), "{op:?} {inputs:?}: {error}");
    }
}

#[test]
fn a_stated_output_shape_must_come_out() {
    let model = single(NodeOp::StaticReshape { new_shape: vec![3, 2] }, &[&[2, 3]], &[6, 2]);
    assert_eq!(refused(&model), XnnpackError::OutputShape { arg: 1, stated: vec![6, 2], made: vec![3, 2] });
}

#[test]
fn types_that_do_not_fit_are_named() {
    let with = |op: NodeOp, inputs: &[&[usize]], output: &[usize], types: &[(usize, Datatype)]| {
        let mut model = single(op, inputs, output);
        for &(value, datatype) in types {
            model.values[value].datatype = datatype;
        }
        refused(&model)
    };
    let add = || NodeOp::Binary(Binary::Add);
    for error in [
        with(add(), &[&[2], &[2]], &[2], &[(1, Datatype::Fp16)]),
        with(add(), &[&[2], &[2]], &[2], &[(2, Datatype::Fp16)]),
        with(add(), &[&[2], &[2]], &[2], &[(0, Datatype::Int32), (1, Datatype::Int32)]),
        with(NodeOp::Concatenate { axis: 0 }, &[&[2], &[2]], &[4], &[(1, Datatype::Bf16)]),
        with(NodeOp::Convert, &[&[2]], &[2], &[(1, Datatype::Int32)]),
    ] {
        assert!(matches!(error, XnnpackError::Types { .. }), "{error}");
    }
}

#[test]
fn dynamically_quantized_values_only_feed_linears() {
    let mut model = dynamic_linears().remove(0).1;
    model.nodes[1].op = NodeOp::BatchMatrixMultiply { transpose_b: true };
    model.nodes[1].inputs.truncate(2);
    assert!(matches!(refused(&model), XnnpackError::Types { .. }));
    model.nodes[1].op = NodeOp::Copy;
    model.nodes[1].inputs.truncate(1);
    assert!(matches!(refused(&model), XnnpackError::Types { .. }));
}

#[test]
fn transposed_quantized_weights_are_not_supported() {
    let mut model = dynamic_linears().remove(0).1;
    model.nodes[1].op = NodeOp::FullyConnected { transpose_weights: true };
    let error = refused(&model);
    assert!(matches!(error, XnnpackError::UnsupportedUse { .. }));
    assert_eq!(error.status(), Status::NotSupported);
}
