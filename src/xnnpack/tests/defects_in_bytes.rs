//! One test a defect that only bytes can have: damaged tables are refused with the error that names the place.

use super::super::encode::unchecked_bytes;
use super::super::schema::{
    NO_OFFSET, NO_VALUE, binary, buffer, constant, graph, node_flag, per_channel, per_group, per_token,
    quantization_kind, quantized_tensor, slice, tensor, transpose, union, value_flag, value_kind,
};
use super::*;
use crate::base::flatbuffer::{Fields, FlatbufferError, build};
use crate::error::{Error, Status};
use XnnpackError::*;
use std::collections::BTreeMap;

/// The error of the graph `root` without a header.
fn error(root: Fields) -> XnnpackError {
    let named = BTreeMap::from([("four".to_owned(), Blob::from_vec(vec![0; 4]))]);
    decode_delegate(&Blob::from_vec(build(root, *b"XN01", 0)), &named).expect_err("the damage is found")
}

/// A graph of these values and nodes.
fn tables<'a>(values: impl IntoIterator<Item = Fields<'a>>, nodes: impl IntoIterator<Item = Fields<'a>>) -> Fields<'a> {
    Fields::new().scalar(graph::EXTERN_COUNT, 2u32).tables(graph::VALUES, values).tables(graph::NODES, nodes)
}

fn of_value(value: Fields) -> XnnpackError {
    error(tables([value], []))
}

fn of_constant(constant: Fields) -> XnnpackError {
    error(tables([], []).tables(graph::CONSTANT_DATA, [Fields::new(), constant]))
}

/// An fp32 tensor inside the graph, without its id.
fn inner() -> Fields<'static> {
    Fields::new()
        .scalar(tensor::DATATYPE, Datatype::Fp32 as i16)
        .scalar(tensor::RANK, 1u32)
        .scalars(tensor::DIMS, [2u32])
        .scalar(tensor::EXTERNAL_ID, NO_VALUE)
}

fn tagged<'a>(tag: u8, body: Fields<'a>) -> Fields<'a> {
    Fields::new().scalar(union::TAG, tag).table(union::TABLE, body)
}

/// A tensor with other fields than `inner`.
fn value(datatype: i16, external: u32, flags: u32) -> Fields<'static> {
    let tensor = Fields::new()
        .scalar(tensor::DATATYPE, datatype)
        .scalar(tensor::EXTERNAL_ID, external)
        .scalar(tensor::FLAGS, flags);
    tagged(value_kind::TENSOR, tensor)
}

/// A four-bit matrix with a quantization.
fn quantized(tag: u8, params: Fields<'static>) -> Fields<'static> {
    let tensor = Fields::new()
        .scalar(tensor::DATATYPE, Datatype::QbInt4 as i16)
        .scalar(tensor::RANK, 2u32)
        .scalars(tensor::DIMS, [2u32, 8])
        .scalar(tensor::EXTERNAL_ID, NO_VALUE);
    let body = Fields::new()
        .table(quantized_tensor::TENSOR, tensor)
        .scalar(quantized_tensor::TAG, tag)
        .table(quantized_tensor::PARAMS, params);
    tagged(value_kind::QUANTIZED_TENSOR, body)
}

/// The error of a node between value 0, an input, and value 1, an output.
fn of_node(tag: u8, body: Fields<'static>) -> XnnpackError {
    let external = |id: u32, flags: u32| {
        let tensor = Fields::new()
            .scalar(tensor::DATATYPE, Datatype::Fp32 as i16)
            .scalar(tensor::RANK, 1u32)
            .scalars(tensor::DIMS, [2u32])
            .scalar(tensor::EXTERNAL_ID, id)
            .scalar(tensor::FLAGS, flags)
            .scalar(tensor::ID, id);
        tagged(value_kind::TENSOR, tensor)
    };
    error(tables([external(0, value_flag::INPUT), external(1, value_flag::OUTPUT)], [tagged(tag, body)]))
}

#[test]
fn constants_in_both_places() {
    let root = tables([], [])
        .tables(graph::CONSTANT_BUFFER, [Fields::new(), Fields::new().scalars(buffer::STORAGE, [1u8])])
        .tables(graph::CONSTANT_DATA, [Fields::new(), Fields::new()]);
    assert_eq!(error(root), ConstantsTwice { inline: 2, outside: 2 });
}

#[test]
fn constant_with_two_places_or_none() {
    let both = Fields::new().scalar(constant::OFFSET, 0u64).string(constant::KEY, "four");
    assert_eq!(of_constant(both), ConstantPlace { index: 0, offset: 0, key: "four".into() });
    let none = Fields::new().scalar(constant::OFFSET, NO_OFFSET);
    assert_eq!(of_constant(none), ConstantPlace { index: 0, offset: NO_OFFSET, key: String::new() });
}

#[test]
fn constant_outside_of_the_blob() {
    let outside = Fields::new().scalar(constant::OFFSET, 16u64).scalar(constant::SIZE, 1u64);
    assert_eq!(of_constant(outside), ConstantOutside { index: 0, offset: 16, size: 1, available: 0 });
    // With a header, and the last byte cut off.
    let mut sketch = Sketch::default();
    sketch.data(None, vec![7; 20]);
    let mut bytes = sketch.0.to_bytes().unwrap();
    bytes.truncate(bytes.len() - 1);
    bytes[22..30].copy_from_slice(&19u64.to_le_bytes());
    let error = decode_delegate(&Blob::from_vec(bytes), &BTreeMap::new()).unwrap_err();
    assert_eq!(error, ConstantOutside { index: 0, offset: 0, size: 20, available: 19 });
}

#[test]
fn constant_that_the_program_lacks() {
    let missing = Fields::new().scalar(constant::OFFSET, NO_OFFSET).string(constant::KEY, "five");
    assert_eq!(of_constant(missing), ConstantMissing { index: 0, key: "five".into() });
}

#[test]
fn named_data_shorter_than_the_constant() {
    let short =
        Fields::new().scalar(constant::OFFSET, NO_OFFSET).scalar(constant::SIZE, 5u64).string(constant::KEY, "four");
    assert_eq!(of_constant(short), NamedDataShort { index: 0, key: "four".into(), size: 5, have: 4 });
}

#[test]
fn unknown_kind_of_value() {
    assert_eq!(of_value(tagged(3, inner())), ValueKind { value: 0, tag: 3 });
}

#[test]
fn unknown_element_type() {
    assert_eq!(of_value(value(15, NO_VALUE, 0)), UnknownDatatype { value: 0, code: 15 });
    assert_eq!(of_value(value(0, NO_VALUE, 0)), UnknownDatatype { value: 0, code: 0 });
}

#[test]
fn packed_element_type() {
    assert_eq!(of_value(value(11, NO_VALUE, 0)), UnsupportedDatatype { value: 0, name: "qpint8" });
    let error = of_value(value(13, NO_VALUE, 0));
    assert_eq!(error, UnsupportedDatatype { value: 0, name: "pfp32" });
    assert_eq!(error.status(), Status::NotSupported);
}

#[test]
fn rank_that_is_not_the_length_of_the_list() {
    let tensor = Fields::new().scalar(tensor::RANK, 3u32).scalars(tensor::DIMS, [2u32]);
    assert_eq!(of_value(tagged(value_kind::TENSOR, tensor)), RankStated { value: 0, stated: 3, listed: 1 });
}

#[test]
fn one_id_twice() {
    let values = || [(); 2].map(|()| tagged(value_kind::TENSOR, inner().scalar(tensor::ID, 7u32)));
    assert_eq!(error(tables(values(), [])), DuplicateId { value: 1, id: 7 });
    let invalid = tagged(value_kind::TENSOR, inner().scalar(tensor::ID, NO_VALUE));
    assert_eq!(of_value(invalid), DuplicateId { value: 0, id: NO_VALUE });
}

#[test]
fn unknown_flags_of_a_value() {
    assert_eq!(of_value(value(1, 0, 3)), ValueFlags { value: 0, flags: 3 });
    assert_eq!(of_value(value(1, 0, 4)), ValueFlags { value: 0, flags: 4 });
}

#[test]
fn external_id_without_flag_and_flag_without_id() {
    assert_eq!(of_value(value(1, 0, 0)), ExternalFlags { value: 0, id: 0, flags: 0 });
    assert_eq!(of_value(value(1, NO_VALUE, 2)), ExternalFlags { value: 0, id: NO_VALUE, flags: 2 });
}

#[test]
fn rows_quantized_to_another_type() {
    let value = tagged(value_kind::TENSOR, inner().scalar(tensor::DYNAMIC_DATATYPE, Datatype::QUint8 as i16));
    assert_eq!(of_value(value), QuantizeRows { value: 0 });
}

#[test]
fn unknown_quantization() {
    assert_eq!(of_value(quantized(5, Fields::new())), UnknownQuantization { value: 0, tag: 5 });
}

#[test]
fn scales_counted_wrongly() {
    let params = Fields::new()
        .scalar(per_group::GROUP, 4i32)
        .scalar(per_group::SCALE_CONSTANT, 1u32)
        .scalar(per_group::SCALE_COUNT, 3u32);
    assert_eq!(of_value(quantized(quantization_kind::PER_GROUP, params)), ScaleCount { value: 0, have: 3, need: 4 });
    let params = Fields::new().scalar(per_channel::SCALE_CONSTANT, 1u32);
    assert_eq!(of_value(quantized(quantization_kind::PER_CHANNEL, params)), ScaleCount { value: 0, have: 0, need: 2 });
}

#[test]
fn blocks_along_another_axis() {
    let params = Fields::new().scalar(per_group::AXIS, 1i32).scalar(per_group::GROUP, 4i32);
    assert_eq!(of_value(quantized(quantization_kind::PER_GROUP, params)), BlockAxis { value: 0, axis: 1 });
}

#[test]
fn negative_block() {
    let params = Fields::new().scalar(per_group::GROUP, -4i32);
    let error = of_value(quantized(quantization_kind::PER_GROUP, params));
    assert_eq!(error, Blocks { value: 0, block: usize::MAX, dims: vec![2, 8] });
}

#[test]
fn missing_parts_are_named() {
    let bare = Fields::new().scalar(union::TAG, value_kind::TENSOR);
    assert!(matches!(of_value(bare), Flatbuffer(FlatbufferError::Missing { field: "xvalue_union", .. })));
    let bare = tagged(value_kind::QUANTIZED_TENSOR, Fields::new());
    assert!(matches!(of_value(bare), Flatbuffer(FlatbufferError::Missing { .. })));
    let root = Fields::new().tables(graph::VALUES, []);
    assert!(matches!(error(root), Flatbuffer(FlatbufferError::Missing { field: "xnodes", .. })));
    let params = Fields::new().scalar(per_token::NONBATCH_DIMS, 1i32);
    assert!(matches!(of_value(quantized(quantization_kind::PER_TOKEN, params)), QuantizationKind { .. }));
}

#[test]
fn unknown_node() {
    assert_eq!(of_node(48, Fields::new()), UnknownNode { node: 0, tag: 48 });
    let error = of_node(0, Fields::new());
    assert_eq!(error, UnknownNode { node: 0, tag: 0 });
    assert_eq!(error.status(), Status::NotSupported);
}

#[test]
fn unsupported_nodes_are_named() {
    for (tag, kind) in [
        (7, "XNNConv2d"),
        (9, "XNNStaticResizeBilinear2D"),
        (10, "XNNStaticConstantPad"),
        (11, "XNNAvgPooling2d"),
        (13, "XNNDepthwiseConv2d"),
        (14, "XNNMaxPooling2d"),
        (21, "XNNArgMaxPooling2d"),
        (25, "XNNLeakyReLU"),
        (29, "XNNELU"),
        (31, "XNNPReLU"),
        (39, "XNNConvTranspose2d"),
    ] {
        let error = of_node(tag, Fields::new());
        assert_eq!(error, UnsupportedNode { node: 0, kind });
        let error = Error::from(error);
        assert_eq!(error.status(), Status::NotSupported);
        assert_eq!(error.to_string(), format!("node 0: {kind} is not supported by this build"));
    }
}

#[test]
fn flags_that_change_the_meaning() {
    let body = |flags: u32| Fields::new().scalar(binary::OUTPUT, 1u32).scalar(binary::FLAGS, flags);
    let place = NodePlace { index: 0, kind: "XNNAdd" };
    assert_eq!(of_node(1, body(1)), UnsupportedFlags { place, flags: 1 });
    // A batch matrix multiply may have its second operand transposed, not its first.
    let place = NodePlace { index: 0, kind: "XNNBatchMatrixMultiply" };
    assert_eq!(of_node(37, body(3)), UnsupportedFlags { place, flags: 3 });
    let flags = node_flag::YIELD_WORKERS;
    assert!(!matches!(of_node(1, body(flags).scalar(binary::B, 9u32)), UnsupportedFlags { .. }));
}

#[test]
fn operand_that_is_no_value() {
    let body = Fields::new().scalar(binary::B, 2u32).scalar(binary::OUTPUT, 1u32);
    assert_eq!(of_node(1, body), NoValue { place: NodePlace { index: 0, kind: "XNNAdd" }, id: 2 });
}

#[test]
fn lists_that_are_not_as_long_as_stated() {
    let body =
        Fields::new().scalar(transpose::RANK, 2u32).scalars(transpose::LIST, [0u32]).scalar(transpose::OUTPUT, 1u32);
    assert!(matches!(of_node(5, body), Attributes { .. }));
    let body = Fields::new().scalar(slice::RANK, 1u32).scalars(slice::OFFSETS, [0u32]).scalar(slice::OUTPUT, 1u32);
    assert!(matches!(of_node(35, body), Attributes { .. }));
}

#[test]
fn damaged_tables_are_refused() {
    let mut bytes = unchecked_bytes(&dynamic_linears()[0].1).unwrap();
    bytes[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = decode_delegate(&Blob::from_vec(bytes), &BTreeMap::new()).unwrap_err();
    assert!(matches!(error, Flatbuffer(FlatbufferError::Outside { .. })), "{error}");
}

#[test]
fn every_truncation_is_refused() {
    let bytes = Blob::from_vec(dynamic_linears()[2].1.to_bytes().unwrap());
    for len in 0..bytes.len() {
        assert!(decode_delegate(&bytes.head(len), &BTreeMap::new()).is_err(), "cut at {len}");
    }
}
