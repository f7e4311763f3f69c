//! The parts of an operation that a decomposition takes apart: each is named after the whole, with a suffix.

use super::matching::is_plain_f32;
use crate::graph::{Graph, Int, Node, Op, Replacement, UnaryOp, ValueId};
use crate::tensor::DType;

/// Nodes that will stand where `root` does.
pub(super) struct Parts<'a> {
    pub graph: &'a mut Graph,
    root: &'a Node,
    replacement: Replacement,
}

impl<'a> Parts<'a> {
    /// `None` where an operand or result is not plain f32: its roundings are part of its meaning.
    pub fn of(graph: &'a mut Graph, root: &'a Node) -> Option<Self> {
        let plain = root.inputs.iter().chain(&root.outputs).all(|&id| is_plain_f32(graph, id));
        plain.then(|| Self { graph, root, replacement: Replacement::new() })
    }

    /// Operands of the whole.
    pub fn inputs(&self) -> &'a [ValueId] {
        &self.root.inputs
    }

    /// Shape of an operand or part.
    pub fn shape(&self, id: ValueId) -> Vec<Int> {
        self.graph.value(id).shape.clone()
    }

    /// A part's name.
    pub fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.graph.value(self.root.outputs[0]).name)
    }

    /// Adds a part.
    pub fn emit(&mut self, suffix: &str, op: Op, inputs: &[ValueId], shape: Vec<Int>) -> ValueId {
        let dtype = match &op {
            Op::Any { .. } | Op::Unary(UnaryOp::LogicalNot) => DType::Bool,
            Op::Binary(op) if op.gives_bool() => DType::Bool,
            Op::Where => DType::F32,
            _ => inputs.first().map_or(DType::F32, |&id| self.graph.value(id).dtype),
        };
        let name = self.name(suffix);
        let id = self.replacement.emit(self.graph, self.root, op, inputs, shape);
        let value = self.graph.value_mut(id);
        (value.name, value.dtype) = (name, dtype);
        id
    }

    /// Adds a constant of one element.
    pub fn scalar(&mut self, suffix: &str, value: f32) -> ValueId {
        let name = self.name(suffix);
        self.graph.add_scalar_f32(name, value)
    }

    /// Ends with the node that makes the whole.
    pub fn finish(self, op: Op, inputs: &[ValueId]) -> Vec<Node> {
        self.replacement.finish(self.root, op, inputs)
    }
}
