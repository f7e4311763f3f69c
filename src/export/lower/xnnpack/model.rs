//! Nodes of a graph as an XNNPACK graph: what the delegate's blob says. Sizes are upper bounds there.

use super::super::Assets;
use super::super::error::LowerError;
use super::Result;
use crate::base::storage::Blob;
use crate::graph::{BinaryOp, Graph, NodeId, Op, Quantization, UnaryOp, ValueId};
use crate::tensor::DType;
use crate::xnnpack::{self, Binary, Datatype, Direction, External, Model, NodeOp, Scales, Unary};
use std::collections::HashMap;

/// XNNPACK's name of an operation.
pub(super) fn unary(op: UnaryOp) -> Option<Unary> {
    Some(match op {
        UnaryOp::Abs => Unary::Abs,
        UnaryOp::Ceil => Unary::Ceiling,
        UnaryOp::Cos => Unary::Cos,
        UnaryOp::Exp => Unary::Exp,
        UnaryOp::Floor => Unary::Floor,
        UnaryOp::Gelu => Unary::Gelu,
        UnaryOp::HardSwish => Unary::HardSwish,
        UnaryOp::Log => Unary::Log,
        UnaryOp::Negate => Unary::Negate,
        UnaryOp::Rsqrt => Unary::ReciprocalSquareRoot,
        UnaryOp::Sigmoid => Unary::Sigmoid,
        UnaryOp::Sin => Unary::Sin,
        UnaryOp::Sqrt => Unary::SquareRoot,
        UnaryOp::Square => Unary::Square,
        UnaryOp::Tanh => Unary::Tanh,
        UnaryOp::GeluTanh | UnaryOp::LogicalNot | UnaryOp::Reciprocal | UnaryOp::Silu => return None,
    })
}

/// XNNPACK's name of an operation.
pub(super) fn binary(op: BinaryOp) -> Option<Binary> {
    Some(match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::Subtract => Binary::Subtract,
        BinaryOp::Multiply => Binary::Multiply,
        BinaryOp::Divide => Binary::Divide,
        BinaryOp::Maximum => Binary::Maximum,
        BinaryOp::Minimum => Binary::Minimum,
        _ => return None,
    })
}

/// Nodes that become one delegate.
pub(super) struct Delegate<'g, 'n> {
    pub graph: &'g Graph,
    /// The one value that comes from outside, but for constants.
    pub source: ValueId,
    pub nodes: &'n [NodeId],
    /// What is needed outside.
    pub outputs: &'n [ValueId],
}

impl Delegate<'_, '_> {
    /// As XNNPACK's graph: its first argument is the source, the others are the outputs.
    pub(super) fn model(&self, assets: &mut Assets) -> Result<Model> {
        let version = "0".to_owned();
        let model = Model { version, args: 1 + self.outputs.len(), ..Model::default() };
        let Self { graph, source, .. } = *self;
        let mut builder = Builder { graph, assets, model, values: HashMap::new(), constants: HashMap::new() };
        let input = builder.real(source);
        builder.model.values[input].external = Some(External { arg: 0, direction: Direction::Input });
        for &node in self.nodes {
            builder.node(node)?;
        }
        for (index, output) in self.outputs.iter().enumerate() {
            let value = builder.values[output];
            builder.model.values[value].external = Some(External { arg: 1 + index, direction: Direction::Output });
        }
        Ok(builder.model)
    }
}

struct Builder<'g, 'a> {
    graph: &'g Graph,
    assets: &'a mut Assets,
    model: Model,
    /// The model's value of each of the graph's.
    values: HashMap<ValueId, usize>,
    constants: HashMap<String, usize>,
}

impl Builder<'_, '_> {
    fn node(&mut self, id: NodeId) -> Result<()> {
        let node = &self.graph.nodes[id];
        let op = match &node.op {
            Op::FullyConnected | Op::DynamicQuantLinear => NodeOp::FullyConnected { transpose_weights: false },
            Op::Convert => NodeOp::Convert,
            Op::Unary(op) => NodeOp::Unary(unary(*op).ok_or_else(|| self.fail(id, "XNNPACK has no such operation"))?),
            Op::Binary(op) => {
                NodeOp::Binary(binary(*op).ok_or_else(|| self.fail(id, "XNNPACK has no such operation"))?)
            }
            _ => return Err(self.fail(id, "XNNPACK has no such operation")),
        };
        let mut inputs = node.inputs.iter().map(|&input| self.operand(input)).collect::<Result<Vec<_>>>()?;
        if node.op == Op::DynamicQuantLinear {
            inputs[0] = self.quantized_rows(node.inputs[0], inputs[0], id);
        }
        let output = self.computed(node.outputs[0]);
        self.push(op, inputs, output, id);
        Ok(())
    }

    fn fail(&self, id: NodeId, why: &str) -> LowerError {
        LowerError::node(self.graph, id, why)
    }

    fn push(&mut self, op: NodeOp, inputs: Vec<usize>, output: usize, id: NodeId) {
        self.model.nodes.push(xnnpack::Node { op, inputs, output, bounds: None, debug_handle: id as u32 });
    }

    fn value(&mut self, id: ValueId, datatype: Datatype, quantization: Option<xnnpack::Quantization>) -> usize {
        let mut dims = self.graph.max_shape(id);
        if dims.is_empty() {
            // XNNPACK's scalars have one dimension.
            dims.push(1);
        }
        let (constant, external, quantize_rows) = (None, None, false);
        self.model.values.push(xnnpack::Value { datatype, dims, quantization, constant, external, quantize_rows });
        self.model.values.len() - 1
    }

    fn real(&mut self, id: ValueId) -> usize {
        let value = self.value(id, Datatype::Fp32, None);
        self.values.insert(id, value);
        value
    }

    /// What a node makes: reals, or rows with scales of their own.
    fn computed(&mut self, id: ValueId) -> usize {
        if self.graph.value(id).quantization.is_none() {
            return self.real(id);
        }
        let rows = xnnpack::Quantization::DynamicPerRow { nonbatch_dims: 1 };
        let value = self.value(id, Datatype::QdInt8, Some(rows));
        self.values.insert(id, value);
        value
    }

    /// `x`, the model's value of `id`, quantized row by row.
    fn quantized_rows(&mut self, id: ValueId, x: usize, node: NodeId) -> usize {
        let rows = xnnpack::Quantization::DynamicPerRow { nonbatch_dims: 1 };
        let value = self.value(id, Datatype::QdInt8, Some(rows));
        self.push(NodeOp::Convert, vec![x], value, node);
        value
    }

    fn operand(&mut self, id: ValueId) -> Result<usize> {
        if let Some(&value) = self.values.get(&id) {
            return Ok(value);
        }
        let value = self.graph.value(id);
        let Some(data) = self.graph.constant(id).cloned() else {
            return Err(LowerError::Unmade { value: value.name.clone() });
        };
        let unfit = || LowerError::value(self.graph, id, "XNNPACK has no such weights");
        let (datatype, data, quantization) = match &value.quantization {
            None => {
                let wide = self.assets.as_f32(&data, value.dtype);
                let wide = wide.map_err(|source| LowerError::Keep { value: value.name.clone(), source })?;
                (Datatype::Fp32, wide.ok_or_else(unfit)?, None)
            }
            Some(Quantization::PerChannel { bits, axis, scales }) => {
                let scales = Scales::Stored(self.constant("scale_", &scales.data));
                let datatype = if *bits == 4 { Datatype::QcInt4 } else { Datatype::QcInt8 };
                (datatype, data, Some(xnnpack::Quantization::PerChannel { axis: *axis, scales }))
            }
            Some(Quantization::Blockwise { block, scales, scale_dtype: DType::BF16, .. }) => {
                let scales = Scales::Stored(self.constant("scale_", &scales.data));
                (Datatype::QbInt4, data, Some(xnnpack::Quantization::Blockwise { block: *block, scales }))
            }
            Some(_) => return Err(unfit()),
        };
        let constant = self.constant("", &data);
        let value = self.value(id, datatype, quantization);
        self.model.values[value].constant = Some(constant);
        self.values.insert(id, value);
        Ok(value)
    }

    /// The position of `data` among the model's constants; it is named data of the program.
    fn constant(&mut self, prefix: &'static str, data: &Blob) -> usize {
        let key = self.assets.named(prefix, data);
        *self.constants.entry(key.clone()).or_insert_with(|| {
            self.model.constants.push(xnnpack::Constant { key: Some(key), data: data.clone() });
            self.model.constants.len() - 1
        })
    }
}
