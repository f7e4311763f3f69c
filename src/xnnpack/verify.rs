//! What a sound model is; everything behind it trusts that.

use super::error::{NodePlace, XnnpackError};
use super::model::{Datatype, Direction, Model, Node, NodeOp, Quantization, Scales, Value};
use super::schema::{MAX_DIMS, MAX_EXTERNS, node_name, node_tag};
use std::collections::HashSet;

/// Largest size of a dimension: ExecuTorch's tensors have 31 bits for it.
const MAX_SIZE: usize = i32::MAX as usize;

type Result<T, E = XnnpackError> = std::result::Result<T, E>;

impl Model {
    /// Checks the whole model: sizes, constants as long as values need, scales, order of nodes, attributes.
    ///
    /// # Errors
    /// The first defect.
    pub fn verify(&self) -> Result<()> {
        self.verify_structure()?;
        self.values.iter().enumerate().try_for_each(|(index, value)| self.verify_scales(index, value))
    }

    /// As [`Model::verify`], without a look at the contents of constants.
    pub(super) fn verify_structure(&self) -> Result<()> {
        if self.args > MAX_EXTERNS as usize {
            return Err(XnnpackError::Externs { count: u32::try_from(self.args).unwrap_or(u32::MAX) });
        }
        let mut args = HashSet::new();
        for (index, value) in self.values.iter().enumerate() {
            self.verify_value(index, value)?;
            if let Some(external) = value.external
                && !args.insert(external.arg)
            {
                return Err(XnnpackError::DuplicateArg { value: index, arg: external.arg });
            }
        }
        self.verify_nodes()
    }

    fn verify_value(&self, index: usize, value: &Value) -> Result<()> {
        let rank = value.dims.len();
        if rank > MAX_DIMS {
            return Err(XnnpackError::Rank { value: index, rank });
        }
        if let Some(axis) = value.dims.iter().position(|&dim| dim == 0) {
            return Err(XnnpackError::EmptyDim { value: index, axis });
        }
        let too_large = || XnnpackError::TooLarge { value: index, dims: value.dims.clone() };
        let need = value.byte_len().filter(|_| value.dims.iter().all(|&dim| dim <= MAX_SIZE)).ok_or_else(too_large)?;
        if let Some(external) = value.external {
            if external.arg >= self.args {
                return Err(XnnpackError::Arg { value: index, arg: external.arg, count: self.args });
            }
            if value.constant.is_some() {
                return Err(XnnpackError::ConstantArg { value: index });
            }
        }
        if let Some(constant) = value.constant {
            self.constant(index, constant, "elements", need)?;
        }
        let is_input = value.external.is_some_and(|external| external.direction == Direction::Input);
        if value.quantize_rows && !(is_input && value.datatype.is_real() && rank > 0) {
            return Err(XnnpackError::QuantizeRows { value: index });
        }
        self.verify_quantization(index, value)
    }

    /// The first `need` bytes of a constant that `value` uses for its `what`.
    fn constant(&self, value: usize, index: usize, what: &'static str, need: usize) -> Result<&[u8]> {
        let missing = XnnpackError::ConstantIndex { value, index, count: self.constants.len() };
        let data = &self.constants.get(index).ok_or(missing)?.data;
        data.get(..need).ok_or(XnnpackError::ConstantShort { value, what, need, have: data.len() })
    }

    fn verify_quantization(&self, index: usize, value: &Value) -> Result<()> {
        use Datatype::*;
        let (datatype, rank) = (value.datatype, value.dims.len());
        let (fits, quantization) = match &value.quantization {
            None => (datatype.is_real() || datatype == Int32, "none"),
            Some(Quantization::PerTensor { .. }) => (matches!(datatype, QInt8 | QUint8 | QInt32), "per tensor"),
            Some(Quantization::PerChannel { .. }) => (matches!(datatype, QcInt8 | QcInt32 | QcInt4), "per channel"),
            Some(Quantization::Blockwise { .. }) => (datatype == QbInt4, "per channel and group"),
            Some(Quantization::DynamicPerRow { .. }) => (datatype == QdInt8, "per token, dynamic"),
        };
        if !fits {
            return Err(XnnpackError::QuantizationKind { value: index, datatype, quantization });
        }
        match &value.quantization {
            None => {}
            Some(Quantization::PerTensor { zero_point, .. }) => {
                let codes = match datatype {
                    QInt8 => -128..=127,
                    QUint8 => 0..=255,
                    _ => 0..=0,
                };
                if !codes.contains(zero_point) {
                    return Err(XnnpackError::ZeroPoint { value: index, zero_point: *zero_point, datatype });
                }
            }
            Some(Quantization::PerChannel { axis, .. }) if *axis >= rank => {
                return Err(XnnpackError::ChannelAxis { value: index, axis: *axis, rank });
            }
            Some(Quantization::Blockwise { block, .. }) if value.scale_count().is_none() => {
                return Err(XnnpackError::Blocks { value: index, block: *block, dims: value.dims.clone() });
            }
            Some(Quantization::DynamicPerRow { nonbatch_dims }) => {
                if *nonbatch_dims == 0 || *nonbatch_dims > rank {
                    return Err(XnnpackError::RowAxes { value: index, nonbatch_dims: *nonbatch_dims, rank });
                }
                if value.constant.is_some() || value.external.is_some() {
                    return Err(XnnpackError::DynamicOutside { value: index });
                }
            }
            Some(Quantization::PerChannel { .. } | Quantization::Blockwise { .. }) => {}
        }
        self.scales(index, value).map(|_| ())
    }

    /// The scales of a value with channels or blocks, found and counted.
    fn scales<'a>(&'a self, index: usize, value: &'a Value) -> Result<Option<FoundScales<'a>>> {
        let (scales, need) = match (&value.quantization, value.scale_count()) {
            (Some(Quantization::PerChannel { scales: Scales::Bf16(_), .. }), _) => {
                return Err(XnnpackError::ScaleType { value: index });
            }
            (Some(Quantization::PerChannel { scales, .. } | Quantization::Blockwise { scales, .. }), Some(need)) => {
                (scales, need)
            }
            _ => return Ok(None),
        };
        let counted = |have| (have == need).then_some(()).ok_or(XnnpackError::ScaleCount { value: index, have, need });
        Ok(Some(match scales {
            Scales::Stored(constant) if matches!(value.quantization, Some(Quantization::PerChannel { .. })) => {
                FoundScales::F32Bytes(self.constant(index, *constant, "scales", need.saturating_mul(4))?)
            }
            Scales::Stored(constant) => {
                FoundScales::Bf16Bytes(self.constant(index, *constant, "scales", need.saturating_mul(2))?)
            }
            Scales::F32(scales) => {
                counted(scales.len())?;
                FoundScales::F32(scales)
            }
            Scales::Bf16(scales) => {
                counted(scales.len())?;
                FoundScales::Bf16(scales)
            }
        }))
    }

    /// Every scale is a positive normal number, as XNNPACK demands.
    fn verify_scales(&self, value: usize, data: &Value) -> Result<()> {
        let check = |(index, scale): (usize, f32)| {
            if scale.is_normal() && scale > 0.0 { Ok(()) } else { Err(XnnpackError::Scale { value, index, scale }) }
        };
        if let Some(Quantization::PerTensor { scale, .. }) = data.quantization {
            return check((0, scale));
        }
        let bf16 = |bits: u16| f32::from_bits(u32::from(bits) << 16);
        match self.scales(value, data)? {
            None => Ok(()),
            Some(FoundScales::F32(scales)) => scales.iter().copied().enumerate().try_for_each(check),
            Some(FoundScales::Bf16(scales)) => scales.iter().map(|&bits| bf16(bits)).enumerate().try_for_each(check),
            Some(FoundScales::F32Bytes(bytes)) => {
                let (scales, _) = bytes.as_chunks::<4>();
                scales.iter().map(|&scale| f32::from_le_bytes(scale)).enumerate().try_for_each(check)
            }
            Some(FoundScales::Bf16Bytes(bytes)) => {
                let (scales, _) = bytes.as_chunks::<2>();
                scales.iter().map(|&scale| bf16(u16::from_le_bytes(scale))).enumerate().try_for_each(check)
            }
        }
    }

    fn verify_nodes(&self) -> Result<()> {
        let given = |value: &Value| {
            value.constant.is_some() || value.external.is_some_and(|external| external.direction == Direction::Input)
        };
        let mut made: Vec<bool> = self.values.iter().map(given).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            let place = node.place(index);
            for &value in &node.inputs {
                match made.get(value) {
                    Some(true) => {}
                    Some(false) => return Err(XnnpackError::UsedBeforeMade { place, value }),
                    None => return Err(XnnpackError::NoValue { place, id: value }),
                }
            }
            match made.get_mut(node.output) {
                Some(made @ false) => *made = true,
                Some(true) => return Err(XnnpackError::MadeTwice { place, value: node.output }),
                None => return Err(XnnpackError::NoValue { place, id: node.output }),
            }
            if let Some((min, max)) = node.bounds
                && (min.is_nan() || max.is_nan() || min > max)
            {
                return Err(XnnpackError::Bounds { place, min, max });
            }
            self.verify_node(place, node)?;
        }
        let unmade = |(value, made): (usize, &bool)| (self.values[value].external.is_some() && !made).then_some(value);
        made.iter().enumerate().find_map(unmade).map_or(Ok(()), |value| Err(XnnpackError::NeverMade { value }))
    }

    fn verify_node(&self, place: NodePlace, node: &Node) -> Result<()> {
        let operands = match node.op {
            NodeOp::FullyConnected { .. } => 2..=3,
            NodeOp::Binary(_) | NodeOp::BatchMatrixMultiply { .. } => 2..=2,
            NodeOp::Concatenate { .. } => 2..=5,
            NodeOp::ScaledDotProductAttention => 5..=5,
            _ => 1..=1,
        };
        if !operands.contains(&node.inputs.len()) {
            return Err(XnnpackError::Operands { place, have: node.inputs.len() });
        }
        let dims = &self.values[node.inputs[0]].dims;
        let rank = dims.len();
        let fail = |why: String| Err(XnnpackError::Attributes { place, why });
        match &node.op {
            NodeOp::StaticTranspose { perm } => {
                let mut sorted = perm.clone();
                sorted.sort_unstable();
                if !sorted.into_iter().eq(0..rank) {
                    return fail(format!("{perm:?} is no permutation of {rank} axes"));
                }
            }
            NodeOp::StaticReshape { new_shape } => {
                let absurd = new_shape.len() > MAX_DIMS || new_shape.iter().any(|&size| size > MAX_SIZE);
                if absurd || new_shape.iter().filter(|&&size| size == 0).count() > 1 {
                    return fail(format!("{new_shape:?} is no shape: at most 6 sizes, of which one may be 0"));
                }
            }
            NodeOp::StaticSlice { offsets, sizes } => {
                if offsets.len() != rank || sizes.len() != rank {
                    return fail(format!("{} offsets and {} sizes for {rank} axes", offsets.len(), sizes.len()));
                }
                for ((&offset, &size), &dim) in offsets.iter().zip(sizes).zip(dims) {
                    let end = offset.checked_add(size).filter(|&end| end <= dim && (size > 0 || offset == 0));
                    if end.is_none() {
                        return fail(format!("{size} elements from {offset} on of {dim}"));
                    }
                }
            }
            NodeOp::Concatenate { axis } if *axis >= rank => return fail(format!("axis {axis} of {rank}")),
            _ => {}
        }
        Ok(())
    }
}

impl Node {
    /// The node at position `index`, for messages.
    pub(super) fn place(&self, index: usize) -> NodePlace {
        NodePlace { index, kind: node_name(node_tag(self)).unwrap_or_default() }
    }
}

/// Scales, wherever they are.
enum FoundScales<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
    F32Bytes(&'a [u8]),
    Bf16Bytes(&'a [u8]),
}
