//! From a [`Model`] to the bytes of a blob, as today's exporters lay it out: header, graph, constants.

use super::error::XnnpackError;
use super::header::{self, Layout};
use super::model::{Constant, Direction, Model, Node, NodeOp, Quantization, Scales, Value};
use super::schema::{
    ALIGNMENT, CONCATENATE_INPUTS, HEADER_LEN, IDENTIFIERS, NO_OFFSET, NO_VALUE, attention, binary, bounds,
    concatenate, constant, fully_connected, graph, node, node_flag, node_tag, per_channel, per_group, per_tensor,
    per_token, quantization_kind, quantized_tensor, slice, tensor, transpose, unary, union, value_flag, value_kind,
};
use crate::base::flatbuffer::{Fields, build};

impl Model {
    /// The blob of this model. Constants without a key follow the graph; the others are the caller's to store under
    /// their keys ([`Model::named_data`]).
    ///
    /// # Errors
    /// The first defect of the model, or that it is too large for the format.
    pub fn to_bytes(&self) -> Result<Vec<u8>, XnnpackError> {
        self.verify()?;
        unchecked_bytes(self)
    }
}

/// The blob of a model, sound or not.
pub(super) fn unchecked_bytes(model: &Model) -> Result<Vec<u8>, XnnpackError> {
    let mut end = 0usize;
    let mut inline = Vec::new();
    let constants = model.constants.iter().map(|constant| match &constant.key {
        Some(key) => entry(NO_OFFSET, constant).string(constant::KEY, key),
        None => {
            let at = end.next_multiple_of(ALIGNMENT);
            end = at + constant.data.len();
            inline.push((at, constant));
            entry(at as u64, constant)
        }
    });
    let constants: Vec<_> = std::iter::once(Fields::new()).chain(constants).collect();
    let root = Fields::new()
        .string(graph::VERSION, &model.version)
        .tables(graph::NODES, model.nodes.iter().map(node))
        .tables(graph::VALUES, (0..).zip(&model.values).map(|(id, item)| value(id, item)))
        .scalar(graph::EXTERN_COUNT, model.args as u32)
        .scalars(graph::INPUT_IDS, ids(&model.inputs()))
        .scalars(graph::OUTPUT_IDS, ids(&model.outputs()))
        .tables(graph::CONSTANT_DATA, constants);
    let tables = build(root, IDENTIFIERS[1], 0);
    if tables.len() > i32::MAX as usize {
        return Err(XnnpackError::TooLargeToWrite { bytes: tables.len() });
    }

    let graph_at = HEADER_LEN.next_multiple_of(ALIGNMENT);
    let constants_at = (graph_at + tables.len()).next_multiple_of(ALIGNMENT);
    let layout = Layout { graph: graph_at..graph_at + tables.len(), constants: constants_at..constants_at + end };
    let mut bytes = header::write(&layout).to_vec();
    bytes.resize(graph_at, 0);
    bytes.extend(tables);
    for (at, constant) in inline {
        bytes.resize(constants_at + at, 0);
        bytes.extend(&constant.data[..]);
    }
    bytes.resize(layout.constants.end, 0);
    Ok(bytes)
}

fn entry(offset: u64, constant: &Constant) -> Fields<'static> {
    Fields::new().scalar(constant::OFFSET, offset).scalar(constant::SIZE, constant.data.len() as u64)
}

/// Positions are ids. A verified model's are small: a graph of 2^32 values would not fit the format.
fn ids(positions: &[usize]) -> impl Iterator<Item = u32> {
    positions.iter().map(|&position| position as u32)
}

fn value(id: u32, value: &Value) -> Fields<'_> {
    let (external_id, flags) = match value.external {
        None => (NO_VALUE, 0),
        Some(external) => match external.direction {
            Direction::Input => (external.arg as u32, value_flag::INPUT),
            Direction::Output => (external.arg as u32, value_flag::OUTPUT),
        },
    };
    let mut fields = Fields::new()
        .scalar(tensor::DATATYPE, value.datatype as i16)
        .scalar(tensor::RANK, value.dims.len() as u32)
        .scalars(tensor::DIMS, value.dims.iter().map(|&dim| dim as u32))
        .scalar(tensor::CONSTANT, value.constant.map_or(0, stored))
        .scalar(tensor::EXTERNAL_ID, external_id)
        .scalar(tensor::FLAGS, flags)
        .scalar(tensor::ID, id);
    if value.quantize_rows {
        fields = fields.scalar(tensor::DYNAMIC_DATATYPE, super::model::Datatype::QInt8 as i16);
    }
    let tagged = |tag, body| Fields::new().scalar(union::TAG, tag).table(union::TABLE, body);
    let Some(quantization) = &value.quantization else { return tagged(value_kind::TENSOR, fields) };
    let (tag, params) = params(quantization, value.scale_count().unwrap_or(0) as u32);
    let body = Fields::new()
        .table(quantized_tensor::TENSOR, fields)
        .scalar(quantized_tensor::TAG, tag)
        .table(quantized_tensor::PARAMS, params);
    tagged(value_kind::QUANTIZED_TENSOR, body)
}

/// Index 0 of the file's constants is a placeholder.
fn stored(position: usize) -> u32 {
    position as u32 + 1
}

fn params(quantization: &Quantization, count: u32) -> (u8, Fields<'_>) {
    let fields = Fields::new();
    match quantization {
        Quantization::PerTensor { scale, zero_point } => (
            quantization_kind::PER_TENSOR,
            fields.scalar(per_tensor::SCALE, *scale).scalar(per_tensor::ZERO_POINT, *zero_point),
        ),
        Quantization::PerChannel { axis, scales } => {
            let fields = fields.scalar(per_channel::AXIS, *axis as i32);
            let fields = match scales {
                Scales::Stored(index) => fields
                    .scalars::<f32>(per_channel::SCALE, [])
                    .scalar(per_channel::SCALE_CONSTANT, stored(*index))
                    .scalar(per_channel::SCALE_COUNT, count),
                Scales::F32(scales) => fields.scalars(per_channel::SCALE, scales.iter().copied()),
                // `verify` refuses these.
                Scales::Bf16(_) => fields,
            };
            (quantization_kind::PER_CHANNEL, fields)
        }
        Quantization::Blockwise { block, scales } => {
            let fields = fields.scalar(per_group::AXIS, 0i32).scalar(per_group::GROUP, *block as i32);
            let fields = match scales {
                Scales::Stored(index) => fields
                    .scalars::<f32>(per_group::SCALE, [])
                    .scalar(per_group::SCALE_CONSTANT, stored(*index))
                    .scalar(per_group::SCALE_COUNT, count),
                Scales::F32(scales) => fields.scalars(per_group::SCALE, scales.iter().copied()),
                Scales::Bf16(scales) => fields.scalars(per_group::SCALE_BF16, scales.iter().copied()),
            };
            (quantization_kind::PER_GROUP, fields)
        }
        Quantization::DynamicPerRow { nonbatch_dims } => {
            (quantization_kind::PER_TOKEN, fields.scalar(per_token::NONBATCH_DIMS, *nonbatch_dims as i32))
        }
    }
}

fn node(item: &Node) -> Fields<'_> {
    let mut fields = Fields::new()
        .scalar(union::TAG, node_tag(item))
        .table(union::TABLE, body(item))
        .scalar(node::DEBUG_HANDLE, item.debug_handle);
    if let Some((min, max)) = item.bounds {
        fields = fields.table(node::BOUNDS, Fields::new().scalar(bounds::MIN, min).scalar(bounds::MAX, max));
    }
    fields
}

fn body(item: &Node) -> Fields<'_> {
    let output = item.output as u32;
    let flag = |set, flag| if set { flag } else { 0u32 };
    let list = |list: &[usize]| list.iter().map(|&number| number as u32).collect::<Vec<_>>();
    // A verified node has as many operands as fields, but for a bias and the end of a concatenation.
    let operands = |fields: &[u16]| {
        fields.iter().enumerate().fold(Fields::new(), |table, (position, &field)| {
            table.scalar(field, item.inputs.get(position).map_or(NO_VALUE, |&input| input as u32))
        })
    };
    match &item.op {
        NodeOp::Unary(_) | NodeOp::Clamp | NodeOp::Convert | NodeOp::Copy | NodeOp::Softmax => {
            operands(&[unary::INPUT]).scalar(unary::OUTPUT, output).scalar(unary::FLAGS, 0u32)
        }
        NodeOp::GlobalAveragePooling2d { keep_dims } => operands(&[unary::INPUT])
            .scalar(unary::OUTPUT, output)
            .scalar(unary::FLAGS, flag(*keep_dims, node_flag::KEEP_DIMS)),
        NodeOp::Binary(_) => {
            operands(&[binary::A, binary::B]).scalar(binary::OUTPUT, output).scalar(binary::FLAGS, 0u32)
        }
        NodeOp::BatchMatrixMultiply { transpose_b } => operands(&[binary::A, binary::B])
            .scalar(binary::OUTPUT, output)
            .scalar(binary::FLAGS, flag(*transpose_b, node_flag::TRANSPOSE)),
        NodeOp::FullyConnected { transpose_weights } => {
            operands(&[fully_connected::INPUT, fully_connected::FILTER, fully_connected::BIAS])
                .scalar(fully_connected::OUTPUT, output)
                .scalar(fully_connected::FLAGS, flag(*transpose_weights, node_flag::TRANSPOSE))
        }
        NodeOp::StaticTranspose { perm: numbers } | NodeOp::StaticReshape { new_shape: numbers } => {
            operands(&[transpose::INPUT])
                .scalar(transpose::RANK, numbers.len() as u32)
                .scalars(transpose::LIST, list(numbers))
                .scalar(transpose::OUTPUT, output)
                .scalar(transpose::FLAGS, 0u32)
        }
        NodeOp::StaticSlice { offsets, sizes } => operands(&[slice::INPUT])
            .scalar(slice::RANK, sizes.len() as u32)
            .scalars(slice::OFFSETS, list(offsets))
            .scalars(slice::SIZES, list(sizes))
            .scalar(slice::OUTPUT, output)
            .scalar(slice::FLAGS, 0u32),
        NodeOp::Concatenate { axis } => operands(&CONCATENATE_INPUTS)
            .scalar(concatenate::AXIS, *axis as u32)
            .scalar(concatenate::OUTPUT, output)
            .scalar(concatenate::FLAGS, 0u32),
        NodeOp::ScaledDotProductAttention => {
            operands(&[attention::QUERY, attention::KEY, attention::VALUE, attention::SCALE, attention::MASK])
                .scalar(attention::OUTPUT, output)
                .scalar(attention::FLAGS, 0u32)
        }
    }
}
