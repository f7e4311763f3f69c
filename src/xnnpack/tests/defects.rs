//! One test a defect of models: a sound model, broken in one place, is refused by the encoder, and its bytes by the
//! decoder, with the error that names the place.

use super::super::encode::unchecked_bytes;
use super::*;
use XnnpackError::*;
use std::collections::BTreeMap;

/// The error of a model that both sides give.
fn error(model: &Model) -> XnnpackError {
    let error = model.verify().expect_err("the damage is found");
    assert_eq!(model.to_bytes(), Err(error.clone()));
    let named: BTreeMap<_, _> =
        model.named_data().into_iter().map(|(key, data)| (key.to_owned(), data.clone())).collect();
    let bytes = Blob::from_vec(unchecked_bytes(model).unwrap());
    let decoded = decode_delegate(&bytes, &named).expect_err("the damage is found");
    assert_eq!(std::mem::discriminant(&decoded), std::mem::discriminant(&error), "{decoded} {error}");
    assert!(!error.to_string().is_empty());
    error
}

/// Of a linear with per-channel weights: 0 input, 1 codes, 2 weights, 3 bias, 4 output; 0 Convert, 1 FullyConnected.
fn damaged(damage: impl FnOnce(&mut Model)) -> XnnpackError {
    let mut model = dynamic_linears().remove(0).1;
    damage(&mut model);
    error(&model)
}

/// Of a linear with weights of blocks.
fn damaged_blocks(damage: impl FnOnce(&mut Model)) -> XnnpackError {
    let mut model = dynamic_linears().remove(4).1;
    damage(&mut model);
    error(&model)
}

fn damaged_single(op: NodeOp, inputs: &[&[usize]], output: &[usize]) -> XnnpackError {
    error(&single(op, inputs, output))
}

fn place(index: usize, kind: &'static str) -> NodePlace {
    NodePlace { index, kind }
}

fn linear() -> NodePlace {
    place(1, "XNNFullyConnected")
}

#[test]
fn too_many_arguments() {
    assert_eq!(damaged(|model| model.args = 4097), Externs { count: 4097 });
}

#[test]
fn too_many_dimensions() {
    assert_eq!(damaged(|model| model.values[0].dims = vec![1; 7]), Rank { value: 0, rank: 7 });
}

#[test]
fn empty_dimension() {
    assert_eq!(damaged(|model| model.values[0].dims[1] = 0), EmptyDim { value: 0, axis: 1 });
}

#[test]
fn absurd_size() {
    let dims = vec![1 << 20, 1 << 21];
    assert_eq!(damaged(|model| model.values[0].dims.clone_from(&dims)), TooLarge { value: 0, dims });
    let dims = vec![1 << 31];
    assert_eq!(damaged(|model| model.values[0].dims.clone_from(&dims)), TooLarge { value: 0, dims });
}

#[test]
fn argument_out_of_range() {
    assert_eq!(damaged(|model| model.args = 1), Arg { value: 4, arg: 1, count: 1 });
}

#[test]
fn one_argument_twice() {
    let error = damaged(|model| model.values[4].external = model.values[0].external);
    assert_eq!(error, DuplicateArg { value: 4, arg: 0 });
}

#[test]
fn constant_argument() {
    assert_eq!(damaged(|model| model.values[0].constant = Some(0)), ConstantArg { value: 0 });
}

#[test]
fn constant_that_does_not_exist() {
    assert_eq!(damaged(|model| model.values[3].constant = Some(9)), ConstantIndex { value: 3, index: 9, count: 3 });
}

#[test]
fn constant_shorter_than_the_value() {
    let error = damaged(|model| model.constants[1].data = model.constants[1].data.head(47));
    assert_eq!(error, ConstantShort { value: 2, what: "elements", need: 48, have: 47 });
}

#[test]
fn scales_shorter_than_the_channels() {
    let error = damaged(|model| model.constants[0].data = model.constants[0].data.head(23));
    assert_eq!(error, ConstantShort { value: 2, what: "scales", need: 24, have: 23 });
}

#[test]
fn rows_quantized_where_they_cannot_be() {
    for (name, damage) in [
        ("inner", (|model| model.values[1].quantize_rows = true) as fn(&mut Model)),
        ("output", |model| model.values[4].quantize_rows = true),
        ("codes", |model| (model.values[0].quantize_rows, model.values[0].datatype) = (true, Datatype::Int32)),
    ] {
        assert!(matches!(damaged(damage), QuantizeRows { .. }), "{name}");
    }
}

#[test]
fn quantization_of_another_element_type() {
    let error = damaged(|model| model.values[2].quantization = None);
    assert_eq!(error, QuantizationKind { value: 2, datatype: Datatype::QcInt8, quantization: "none" });
    let error = damaged(|model| model.values[2].datatype = Datatype::QInt8);
    assert_eq!(error, QuantizationKind { value: 2, datatype: Datatype::QInt8, quantization: "per channel" });
    let error = damaged_blocks(|model| model.values[2].datatype = Datatype::QcInt4);
    assert!(matches!(error, QuantizationKind { value: 2, .. }));
    let error = damaged(|model| model.values[1].datatype = Datatype::Fp32);
    assert!(matches!(error, QuantizationKind { value: 1, .. }));
}

#[test]
fn scale_that_is_no_positive_normal_number() {
    for scale in [0.0, -1.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY] {
        let stored =
            damaged(|model| model.constants[0].data = Blob::from_vec(bytes_of(&[1.0, scale, 1.0, 1.0, 1.0, 1.0])));
        assert_eq!(stored, Scale { value: 2, index: 1, scale });
        let inline = damaged_blocks(|model| match &mut model.values[2].quantization {
            Some(Quantization::Blockwise { scales: Scales::F32(scales), .. }) => scales[11] = scale,
            other => panic!("{other:?}"),
        });
        assert_eq!(inline, Scale { value: 2, index: 11, scale });
        let mut tensor = single(NodeOp::Convert, &[&[2]], &[2]);
        tensor.values[1].datatype = Datatype::QInt8;
        tensor.values[1].quantization = Some(Quantization::PerTensor { scale, zero_point: 0 });
        assert_eq!(error(&tensor), Scale { value: 1, index: 0, scale });
    }
    let mut halves = dynamic_linears().remove(5).1;
    match &mut halves.values[2].quantization {
        Some(Quantization::Blockwise { scales: Scales::Bf16(scales), .. }) => scales[3] = 0x8000,
        other => panic!("{other:?}"),
    }
    assert_eq!(error(&halves), Scale { value: 2, index: 3, scale: -0.0 });
    let mut stored = dynamic_linears().remove(3).1;
    stored.constants[0].data = Blob::from_vec(vec![0; 24]);
    assert_eq!(error(&stored), Scale { value: 2, index: 0, scale: 0.0 });
}

#[test]
fn zero_point_that_is_no_code() {
    for (datatype, zero_point) in [
        (Datatype::QInt8, 128),
        (Datatype::QInt8, -129),
        (Datatype::QUint8, -1),
        (Datatype::QUint8, 256),
        (Datatype::QInt32, 1),
    ] {
        let mut model = single(NodeOp::Convert, &[&[2]], &[2]);
        model.values[1].datatype = datatype;
        model.values[1].quantization = Some(Quantization::PerTensor { scale: 1.0, zero_point });
        assert_eq!(error(&model), ZeroPoint { value: 1, zero_point, datatype });
    }
}

#[test]
fn wrong_number_of_scales() {
    let error = damaged_blocks(|model| match &mut model.values[2].quantization {
        Some(Quantization::Blockwise { scales: Scales::F32(scales), .. }) => scales.truncate(11),
        other => panic!("{other:?}"),
    });
    assert_eq!(error, ScaleCount { value: 2, have: 11, need: 12 });
}

#[test]
fn bf16_scales_of_channels() {
    let mut model = dynamic_linears().remove(0).1;
    model.values[2].quantization = Some(Quantization::PerChannel { axis: 0, scales: Scales::Bf16(vec![1; 6]) });
    assert_eq!(model.verify(), Err(ScaleType { value: 2 }));
}

#[test]
fn channels_along_no_axis() {
    let error = damaged(|model| match &mut model.values[2].quantization {
        Some(Quantization::PerChannel { axis, .. }) => *axis = 2,
        other => panic!("{other:?}"),
    });
    assert_eq!(error, ChannelAxis { value: 2, axis: 2, rank: 2 });
}

#[test]
fn blocks_that_do_not_fit() {
    for bad in [0, 3, 16] {
        let error = damaged_blocks(|model| match &mut model.values[2].quantization {
            Some(Quantization::Blockwise { block, .. }) => *block = bad,
            other => panic!("{other:?}"),
        });
        assert_eq!(error, Blocks { value: 2, block: bad, dims: vec![6, 8] });
    }
    let error = damaged_blocks(|model| model.values[2].dims = vec![48]);
    assert_eq!(error, Blocks { value: 2, block: 4, dims: vec![48] });
}

#[test]
fn rows_of_too_many_axes() {
    for bad in [0, 4] {
        let error = damaged(|model| {
            model.values[1].quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: bad });
        });
        assert_eq!(error, RowAxes { value: 1, nonbatch_dims: bad, rank: 3 });
    }
}

#[test]
fn dynamic_quantization_of_constants_and_arguments() {
    assert_eq!(damaged(|model| model.values[1].constant = Some(1)), DynamicOutside { value: 1 });
    let error = damaged(|model| {
        model.values[1].external = Some(External { arg: 2, direction: Direction::Output });
        model.args = 3;
    });
    assert_eq!(error, DynamicOutside { value: 1 });
}

#[test]
fn value_that_does_not_exist() {
    assert_eq!(damaged(|model| model.nodes[1].inputs[2] = 9), NoValue { place: linear(), id: 9 });
    assert_eq!(damaged(|model| model.nodes[1].output = 9), NoValue { place: linear(), id: 9 });
}

#[test]
fn wrong_number_of_operands() {
    let mut model = dynamic_linears().remove(0).1;
    model.nodes[1].inputs.truncate(1);
    assert_eq!(model.verify(), Err(Operands { place: linear(), have: 1 }));
    let model = single(NodeOp::Concatenate { axis: 0 }, &[&[2][..]; 6], &[12]);
    assert_eq!(model.verify(), Err(Operands { place: place(0, "XNNConcatenate2"), have: 6 }));
}

#[test]
fn operand_used_before_it_is_made() {
    assert_eq!(
        damaged(|model| model.nodes.swap(0, 1)),
        UsedBeforeMade { place: place(0, "XNNFullyConnected"), value: 1 }
    );
}

#[test]
fn result_that_is_there_already() {
    let convert = place(0, "XNNConvert");
    assert_eq!(damaged(|model| model.nodes[0].output = 0), MadeTwice { place: convert, value: 0 });
    assert_eq!(damaged(|model| model.nodes[0].output = 2), MadeTwice { place: convert, value: 2 });
    assert_eq!(damaged(|model| model.nodes[1].output = 1), MadeTwice { place: linear(), value: 1 });
}

#[test]
fn output_that_nothing_makes() {
    assert_eq!(damaged(|model| model.nodes.truncate(1)), NeverMade { value: 4 });
}

#[test]
fn bounds_that_nothing_satisfies() {
    assert_eq!(
        damaged(|model| model.nodes[1].bounds = Some((1.0, 0.5))),
        Bounds { place: linear(), min: 1.0, max: 0.5 }
    );
    let mut model = dynamic_linears().remove(0).1;
    model.nodes[1].bounds = Some((f32::NAN, 0.5));
    assert!(matches!(model.verify(), Err(Bounds { .. })));
}

#[test]
fn attributes_that_do_not_fit() {
    use NodeOp::*;
    let slice = |offsets: &[usize], sizes: &[usize]| StaticSlice { offsets: offsets.into(), sizes: sizes.into() };
    let rows: [(NodeOp, Shape); 12] = [
        (StaticTranspose { perm: vec![0, 0] }, &[2, 3]),
        (StaticTranspose { perm: vec![0] }, &[2, 3]),
        (StaticTranspose { perm: vec![0, 2] }, &[2, 3]),
        (StaticReshape { new_shape: vec![0, 0] }, &[2, 3]),
        (StaticReshape { new_shape: vec![1; 7] }, &[2, 3]),
        (StaticReshape { new_shape: vec![1 << 31, 0] }, &[2, 3]),
        (slice(&[0], &[1]), &[2, 3]),
        (slice(&[0, 2], &[2, 2]), &[2, 3]),
        (slice(&[0, 1], &[2, 0]), &[2, 3]),
        (slice(&[0, 4], &[2, 0]), &[2, 3]),
        (slice(&[0, u32::MAX as usize], &[2, 1]), &[2, 3]),
        (slice(&[0, 0], &[2, 4]), &[2, 3]),
    ];
    for (op, input) in rows {
        let error = damaged_single(op.clone(), &[input], &[2, 3]);
        assert!(matches!(error, Attributes { place: NodePlace { index: 0, .. }, .. }), "{op:?}: {error}");
    }
    let error = damaged_single(Concatenate { axis: 1 }, &[&[2], &[2]], &[4]);
    assert_eq!(error, Attributes { place: place(0, "XNNConcatenate2"), why: "axis 1 of 1".into() });
}
