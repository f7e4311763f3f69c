//! One node from its flatbuffer table.

use super::error::{NodePlace, XnnpackError};
use super::model::{Node, NodeOp};
use super::schema::{
    BINARY, CONCATENATE_INPUTS, NO_VALUE, UNARY, attention, binary, bounds, concatenate, fully_connected, node,
    node_flag, node_kind, node_name, slice, transpose, unary, union,
};
use crate::base::flatbuffer::Table;
use std::collections::HashMap;

type Result<T, E = XnnpackError> = std::result::Result<T, E>;

/// Decodes the node in `table`; `ids` gives the position of each value.
pub(super) fn node(index: usize, table: Table, ids: &HashMap<u32, usize>) -> Result<Node> {
    let tag = table.scalar(union::TAG, 0u8)?;
    let kind = node_name(tag).ok_or(XnnpackError::UnknownNode { node: index, tag })?;
    let place = NodePlace { index, kind };
    let body = table.table(union::TABLE)?;
    let body = Body { table: table.required("xnode_union", body)?, place, ids };
    let (op, inputs, output) = body.decode(tag)?;
    let bounds = match table.table(node::BOUNDS)? {
        Some(limits) => Some((limits.scalar(bounds::MIN, 0.0)?, limits.scalar(bounds::MAX, 0.0)?)),
        None => None,
    };
    Ok(Node { op, inputs, output, bounds, debug_handle: table.scalar(node::DEBUG_HANDLE, 0)? })
}

/// The table with a node's own fields.
struct Body<'a> {
    table: Table<'a>,
    place: NodePlace,
    ids: &'a HashMap<u32, usize>,
}

impl Body<'_> {
    fn decode(&self, tag: u8) -> Result<(NodeOp, Vec<usize>, usize)> {
        if let Some(&(_, op)) = UNARY.iter().find(|(unary, _)| *unary == tag) {
            return self.unary(NodeOp::Unary(op));
        }
        if let Some(&(_, op)) = BINARY.iter().find(|(binary, _)| *binary == tag) {
            self.flags(binary::FLAGS, 0)?;
            return Ok((NodeOp::Binary(op), self.values([binary::A, binary::B])?, self.value(binary::OUTPUT)?));
        }
        match tag {
            node_kind::CLAMP => self.unary(NodeOp::Clamp),
            node_kind::CONVERT => self.unary(NodeOp::Convert),
            node_kind::COPY => self.unary(NodeOp::Copy),
            node_kind::SOFTMAX => self.unary(NodeOp::Softmax),
            node_kind::GLOBAL_AVERAGE_POOLING => {
                let keep_dims = self.flags(unary::FLAGS, node_flag::KEEP_DIMS)?;
                let op = NodeOp::GlobalAveragePooling2d { keep_dims };
                Ok((op, self.values([unary::INPUT])?, self.value(unary::OUTPUT)?))
            }
            node_kind::FULLY_CONNECTED => {
                let transpose_weights = self.flags(fully_connected::FLAGS, node_flag::TRANSPOSE)?;
                let mut inputs = self.values([fully_connected::INPUT, fully_connected::FILTER])?;
                if self.table.scalar(fully_connected::BIAS, 0)? != NO_VALUE {
                    inputs.push(self.value(fully_connected::BIAS)?);
                }
                Ok((NodeOp::FullyConnected { transpose_weights }, inputs, self.value(fully_connected::OUTPUT)?))
            }
            node_kind::BATCH_MATRIX_MULTIPLY => {
                let op = NodeOp::BatchMatrixMultiply { transpose_b: self.flags(binary::FLAGS, node_flag::TRANSPOSE)? };
                Ok((op, self.values([binary::A, binary::B])?, self.value(binary::OUTPUT)?))
            }
            node_kind::TRANSPOSE => {
                self.flags(transpose::FLAGS, 0)?;
                let op = NodeOp::StaticTranspose { perm: self.list(transpose::RANK, transpose::LIST)? };
                Ok((op, self.values([transpose::INPUT])?, self.value(transpose::OUTPUT)?))
            }
            node_kind::RESHAPE => {
                self.flags(transpose::FLAGS, 0)?;
                let op = NodeOp::StaticReshape { new_shape: self.list(transpose::RANK, transpose::LIST)? };
                Ok((op, self.values([transpose::INPUT])?, self.value(transpose::OUTPUT)?))
            }
            node_kind::SLICE => {
                self.flags(slice::FLAGS, 0)?;
                let op = NodeOp::StaticSlice {
                    offsets: self.list(slice::RANK, slice::OFFSETS)?,
                    sizes: self.list(slice::RANK, slice::SIZES)?,
                };
                Ok((op, self.values([slice::INPUT])?, self.value(slice::OUTPUT)?))
            }
            node_kind::ATTENTION => {
                self.flags(attention::FLAGS, 0)?;
                let operands = [attention::QUERY, attention::KEY, attention::VALUE, attention::SCALE, attention::MASK];
                Ok((NodeOp::ScaledDotProductAttention, self.values(operands)?, self.value(attention::OUTPUT)?))
            }
            tag => {
                let Some(count) = node_kind::CONCATENATE.iter().position(|&concatenate| concatenate == tag) else {
                    let NodePlace { index: node, kind } = self.place;
                    return Err(XnnpackError::UnsupportedNode { node, kind });
                };
                self.flags(concatenate::FLAGS, 0)?;
                let op = NodeOp::Concatenate { axis: self.table.scalar(concatenate::AXIS, 0u32)? as usize };
                let operands = CONCATENATE_INPUTS.into_iter().take(count + 2);
                Ok((op, self.values(operands)?, self.value(concatenate::OUTPUT)?))
            }
        }
    }

    fn unary(&self, op: NodeOp) -> Result<(NodeOp, Vec<usize>, usize)> {
        self.flags(unary::FLAGS, 0)?;
        Ok((op, self.values([unary::INPUT])?, self.value(unary::OUTPUT)?))
    }

    /// The position of the value whose id field `field` holds.
    fn value(&self, field: u16) -> Result<usize> {
        let id: u32 = self.table.scalar(field, 0)?;
        let missing = XnnpackError::NoValue { place: self.place, id: id as usize };
        self.ids.get(&id).copied().ok_or(missing)
    }

    fn values(&self, fields: impl IntoIterator<Item = u16>) -> Result<Vec<usize>> {
        fields.into_iter().map(|field| self.value(field)).collect()
    }

    /// Whether the flag `known` is set; any other flag with a meaning is refused.
    fn flags(&self, field: u16, known: u32) -> Result<bool> {
        let flags: u32 = self.table.scalar(field, 0)?;
        if flags & !(known | node_flag::YIELD_WORKERS) != 0 {
            return Err(XnnpackError::UnsupportedFlags { place: self.place, flags });
        }
        Ok(flags & known != 0)
    }

    /// The list in field `list`, which is as long as field `rank` says.
    fn list(&self, rank: u16, list: u16) -> Result<Vec<usize>> {
        let numbers: Vec<u32> = self.table.scalars(list)?.unwrap_or_default();
        let stated: u32 = self.table.scalar(rank, 0)?;
        if stated as usize != numbers.len() {
            let why = format!("{stated} dimensions stated, {} listed", numbers.len());
            return Err(XnnpackError::Attributes { place: self.place, why });
        }
        Ok(numbers.into_iter().map(|number| number as usize).collect())
    }
}
