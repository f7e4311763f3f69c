//! From a blob's bytes to a [`Model`]: header, constants, values; nodes are in `decode_node`. What can be judged on the
//! model is left to `verify`.

use super::decode_node;
use super::error::XnnpackError;
use super::header;
use super::model::{Constant, Datatype, Direction, External, Model, Quantization, Scales, Value};
use super::schema::{
    MAX_EXTERNS, NO_OFFSET, NO_VALUE, buffer, constant, graph, per_channel, per_group, per_tensor, per_token,
    quantization_kind, quantized_tensor, tensor, union, value_flag, value_kind,
};
use crate::base::flatbuffer::{Buffer, FlatbufferError, Table};
use crate::base::storage::Blob;
use std::collections::{BTreeMap, HashMap};

type Result<T, E = XnnpackError> = std::result::Result<T, E>;

/// Decodes and verifies the delegate blob `processed`; constants that it names come from `named_data` and stay where
/// they are.
///
/// # Errors
/// The first defect found, or what this build does not support.
pub fn decode_delegate(processed: &Blob, named_data: &BTreeMap<String, Blob>) -> Result<Model> {
    let layout = header::parse(processed)?;
    let buffer = Buffer::new(&processed[layout.graph.clone()]);
    let root = buffer.root()?;
    let part = |start, len| processed.tail(start).map(|tail| tail.head(len)).filter(|part| part.len() == len);
    let outside = |at, size| FlatbufferError::Outside { at, size, len: layout.graph.len() };

    let inline = root.tables(graph::CONSTANT_BUFFER)?;
    let outer = root.tables(graph::CONSTANT_DATA)?;
    // The first entry of each list is a placeholder.
    let constants = match (inline.len(), outer.len()) {
        (inline, outside) if inline > 1 && outside > 1 => {
            return Err(XnnpackError::ConstantsTwice { inline, outside });
        }
        (count, _) if count > 1 => {
            let constant = |table: Table| {
                let range = table.byte_range(buffer::STORAGE)?.unwrap_or(0..0);
                let data = part(layout.graph.start + range.start, range.len());
                Ok(Constant { key: None, data: data.ok_or(outside(range.start, range.len()))? })
            };
            inline.skip(1).map(|table| constant(table?)).collect::<Result<_>>()?
        }
        _ => {
            let source = Source { named_data, constants: part(layout.constants.start, layout.constants.len()) };
            outer.enumerate().skip(1).map(|(index, table)| source.constant(index - 1, table?)).collect::<Result<_>>()?
        }
    };

    let externs: u32 = root.scalar(graph::EXTERN_COUNT, 0)?;
    if externs > MAX_EXTERNS {
        return Err(XnnpackError::Externs { count: externs });
    }
    let mut model = Model {
        version: root.string(graph::VERSION)?.unwrap_or_default().into(),
        args: externs as usize,
        constants,
        ..Model::default()
    };
    let mut ids = HashMap::new();
    root.required("xvalues", root.byte_range(graph::VALUES)?)?;
    for (index, table) in root.tables(graph::VALUES)?.enumerate() {
        let (id, value) = value(index, table?)?;
        if id == NO_VALUE || ids.insert(id, index).is_some() {
            return Err(XnnpackError::DuplicateId { value: index, id });
        }
        model.values.push(value);
    }
    root.required("xnodes", root.byte_range(graph::NODES)?)?;
    for (index, table) in root.tables(graph::NODES)?.enumerate() {
        model.nodes.push(decode_node::node(index, table?, &ids)?);
    }
    model.verify()?;
    Ok(model)
}

/// Where the bytes of constants come from.
struct Source<'a> {
    named_data: &'a BTreeMap<String, Blob>,
    constants: Option<Blob>,
}

impl Source<'_> {
    fn constant(&self, index: usize, table: Table) -> Result<Constant> {
        let offset: u64 = table.scalar(constant::OFFSET, 0)?;
        let size: u64 = table.scalar(constant::SIZE, 0)?;
        let key = table.string(constant::KEY)?.unwrap_or_default();
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        if key.is_empty() == (offset == NO_OFFSET) {
            return Err(XnnpackError::ConstantPlace { index, offset, key: key.into() });
        }
        if key.is_empty() {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let tail = self.constants.as_ref().and_then(|constants| constants.tail(start));
            let data = tail.filter(|tail| tail.len() >= len).map(|tail| tail.head(len));
            let available = self.constants.as_ref().map_or(0, |constants| constants.len());
            let outside = XnnpackError::ConstantOutside { index, offset, size, available };
            return Ok(Constant { key: None, data: data.ok_or(outside)? });
        }
        let Some(data) = self.named_data.get(key) else {
            return Err(XnnpackError::ConstantMissing { index, key: key.into() });
        };
        if data.len() < len {
            return Err(XnnpackError::NamedDataShort { index, key: key.into(), size, have: data.len() });
        }
        Ok(Constant { key: Some(key.into()), data: data.head(len) })
    }
}

/// A value and its id.
fn value(index: usize, table: Table) -> Result<(u32, Value)> {
    let tag = table.scalar(union::TAG, 0u8)?;
    let body = table.table(union::TABLE)?;
    let body = table.required("xvalue_union", body)?;
    let (body, quantization) = match tag {
        value_kind::TENSOR => (body, None),
        value_kind::QUANTIZED_TENSOR => {
            let inner = body.table(quantized_tensor::TENSOR)?;
            (body.required("tensor_value", inner)?, Some(quantization(index, body)?))
        }
        tag => return Err(XnnpackError::ValueKind { value: index, tag }),
    };
    let dims: Vec<u32> = body.scalars(tensor::DIMS)?.unwrap_or_default();
    let stated: u32 = body.scalar(tensor::RANK, 0)?;
    if stated as usize != dims.len() {
        return Err(XnnpackError::RankStated { value: index, stated, listed: dims.len() });
    }
    let quantize_rows = match body.scalar(tensor::DYNAMIC_DATATYPE, 0i16)? {
        0 => false,
        code if code == Datatype::QInt8 as i16 => true,
        _ => return Err(XnnpackError::QuantizeRows { value: index }),
    };
    let (quantization, scale_count) = quantization.unzip();
    let value = Value {
        datatype: datatype(index, body.scalar(tensor::DATATYPE, 0)?)?,
        dims: dims.into_iter().map(|dim| dim as usize).collect(),
        quantization,
        constant: stored(body.scalar(tensor::CONSTANT, 0)?),
        external: external(index, body.scalar(tensor::EXTERNAL_ID, 0)?, body.scalar(tensor::FLAGS, 0)?)?,
        quantize_rows,
    };
    match (scale_count.flatten(), value.scale_count()) {
        (Some(have), Some(need)) if have as usize != need => {
            Err(XnnpackError::ScaleCount { value: index, have: have as usize, need })
        }
        _ => Ok((body.scalar(tensor::ID, 0)?, value)),
    }
}

/// The position of the constant that the file calls `index`; 0 is none.
fn stored(index: u32) -> Option<usize> {
    (index as usize).checked_sub(1)
}

fn datatype(value: usize, code: i16) -> Result<Datatype> {
    match (code, Datatype::ALL.into_iter().find(|&datatype| datatype as i16 == code)) {
        (_, Some(datatype)) => Ok(datatype),
        (11, _) => Err(XnnpackError::UnsupportedDatatype { value, name: "qpint8" }),
        (13, _) => Err(XnnpackError::UnsupportedDatatype { value, name: "pfp32" }),
        _ => Err(XnnpackError::UnknownDatatype { value, code }),
    }
}

fn external(value: usize, id: u32, flags: u32) -> Result<Option<External>> {
    let direction = match flags {
        0 if id == NO_VALUE => return Ok(None),
        value_flag::INPUT if id != NO_VALUE => Direction::Input,
        value_flag::OUTPUT if id != NO_VALUE => Direction::Output,
        0 | value_flag::INPUT | value_flag::OUTPUT => return Err(XnnpackError::ExternalFlags { value, id, flags }),
        flags => return Err(XnnpackError::ValueFlags { value, flags }),
    };
    Ok(Some(External { arg: id as usize, direction }))
}

/// A quantization, and how many scales the file says a constant has.
fn quantization(value: usize, body: Table) -> Result<(Quantization, Option<u32>)> {
    let params = body.table(quantized_tensor::PARAMS)?;
    let params = body.required("quant_params", params)?;
    // Axes and sizes are stored signed; `verify` refuses what does not fit.
    let unsigned = |number: i32| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(match body.scalar(quantized_tensor::TAG, 0u8)? {
        quantization_kind::PER_TENSOR => {
            let scale = params.scalar(per_tensor::SCALE, 0.0)?;
            (Quantization::PerTensor { scale, zero_point: params.scalar(per_tensor::ZERO_POINT, 0)? }, None)
        }
        quantization_kind::PER_CHANNEL => {
            let axis = unsigned(params.scalar(per_channel::AXIS, 0)?);
            match stored(params.scalar(per_channel::SCALE_CONSTANT, 0)?) {
                Some(constant) => {
                    let count = params.scalar(per_channel::SCALE_COUNT, 0)?;
                    (Quantization::PerChannel { axis, scales: Scales::Stored(constant) }, Some(count))
                }
                None => {
                    let scales = params.scalars(per_channel::SCALE)?.unwrap_or_default();
                    (Quantization::PerChannel { axis, scales: Scales::F32(scales) }, None)
                }
            }
        }
        quantization_kind::PER_GROUP => {
            let axis: i32 = params.scalar(per_group::AXIS, 0)?;
            if axis != 0 {
                return Err(XnnpackError::BlockAxis { value, axis });
            }
            let block = unsigned(params.scalar(per_group::GROUP, 0)?);
            let halves: Vec<u16> = params.scalars(per_group::SCALE_BF16)?.unwrap_or_default();
            let (scales, count) = match stored(params.scalar(per_group::SCALE_CONSTANT, 0)?) {
                Some(constant) => (Scales::Stored(constant), Some(params.scalar(per_group::SCALE_COUNT, 0)?)),
                None if !halves.is_empty() => (Scales::Bf16(halves), None),
                None => (Scales::F32(params.scalars(per_group::SCALE)?.unwrap_or_default()), None),
            };
            (Quantization::Blockwise { block, scales }, count)
        }
        quantization_kind::PER_TOKEN => {
            let nonbatch_dims = unsigned(params.scalar(per_token::NONBATCH_DIMS, 0)?);
            (Quantization::DynamicPerRow { nonbatch_dims }, None)
        }
        tag => return Err(XnnpackError::UnknownQuantization { value, tag }),
    })
}
