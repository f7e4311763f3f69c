//! Linear layers: which weights they need, and which of them share their input.

use super::{Lowering, Target};
use crate::engine::EngineError;
use crate::engine::plan::PlanStep;
use crate::engine::reals::{Grid, is_real};
use crate::engine::steps::elementwise::{Round, Zip, ZipReals};
use crate::engine::steps::linear::{MAX_MEMBERS, MatMul, QuantizedLinears, RealLinear};
use crate::engine::weights::{Packed, Request, WeightCache};
use crate::graph::{Graph, Node, NodeId, Op, Quantization, ValueId};
use crate::kernels::{Binary, Bits, ThreadPool};
use std::collections::HashMap;

/// The linear layers of a graph with constant weights.
#[derive(Debug, Default)]
pub(super) struct Linears {
    packed: HashMap<NodeId, Packed>,
    /// Of each layer on 8-bit activations: the reals that are quantized.
    sources: HashMap<NodeId, ValueId>,
    /// Layers that one step does, by the first of them.
    groups: HashMap<NodeId, Vec<NodeId>>,
    /// Where the step writes the results of later layers.
    written: HashMap<NodeId, Target>,
    nodes: HashMap<NodeId, Node>,
}

impl Linears {
    /// Finds them and packs their weights.
    pub fn find(graph: &Graph, pool: &ThreadPool, weights: &WeightCache) -> Result<Self, EngineError> {
        let producers = graph.producers();
        let mut this = Self::default();
        let (mut ids, mut requests) = (Vec::new(), Vec::new());
        for (id, node) in graph.nodes.iter().enumerate() {
            let Some(request) = request(graph, node) else { continue };
            let source = match node.op {
                Op::DynamicQuantLinear => Some(node.inputs[0]),
                _ => before_rows(graph, &producers, node.inputs[0]),
            };
            this.sources.extend(source.map(|source| (id, source)));
            requests.push(Request { quantized_rows: source.is_some(), ..request });
            ids.push(id);
        }
        this.packed = ids.into_iter().zip(weights.pack(pool, &requests)?).collect();
        this.group(graph);
        Ok(this)
    }

    fn group(&mut self, graph: &Graph) {
        let mut open: HashMap<(ValueId, usize), NodeId> = HashMap::new();
        for (id, node) in graph.nodes.iter().enumerate() {
            let (Some(Packed::Quantized(weights)), Some(&source)) = (self.packed.get(&id), self.sources.get(&id))
            else {
                continue;
            };
            let key = (source, weights.shape().group);
            match open.get(&key).and_then(|first| self.groups.get_mut(first)) {
                Some(group) if group.len() < MAX_MEMBERS => group.push(id),
                _ => {
                    open.insert(key, id);
                    self.groups.insert(id, vec![id]);
                }
            }
            self.nodes.insert(id, node.clone());
        }
    }
}

/// The weights that a node asks for; `None` when it has none that are constant.
fn request(graph: &Graph, node: &Node) -> Option<Request> {
    let transposed = match node.op {
        Op::FullyConnected | Op::DynamicQuantLinear => false,
        Op::MatMul { transpose_b } => !transpose_b,
        _ => return None,
    };
    let constant = |value: ValueId| Some((graph.value(value).clone(), graph.constant(value)?.clone()));
    let weights = constant(node.inputs[1])?;
    // No rows or no columns are nothing to pack; products of more matrices are not linear layers.
    let is_matrix = weights.0.shape.len() == 2 && weights.0.shape.iter().all(|&dim| graph.bounds(dim).1 > 0);
    let (x, out) = (&graph.value(node.inputs[0]).shape, &graph.value(node.outputs[0]).shape);
    let is_matrix = is_matrix && x[..x.len() - 1] == out[..out.len() - 1];
    let bias = node.inputs.get(2).and_then(|&bias| constant(bias));
    is_matrix.then(|| Request { origin: node.origin.clone(), weights, bias, transposed, quantized_rows: false })
}

/// What a value that is quantized row by row, along its last axis, was made from.
fn before_rows(graph: &Graph, producers: &[Option<NodeId>], value: ValueId) -> Option<ValueId> {
    let shape = &graph.value(value).shape;
    let Some(Quantization::DynamicPerRow { nonbatch_dims }) = graph.value(value).quantization else { return None };
    let one_row = shape.iter().rev().take(nonbatch_dims).skip(1).all(|&dim| graph.bounds(dim) == (1, 1));
    let node = &graph.nodes[producers[value.0 as usize]?];
    let source = *node.inputs.first()?;
    let known = is_real(graph.value(source)) && !matches!(Grid::of(graph.value(source)), Grid::Rows { .. });
    (node.op == Op::Convert && nonbatch_dims > 0 && one_row && known).then_some(source)
}

impl Lowering<'_> {
    /// A linear layer, or a product with a constant.
    pub(super) fn linear(&mut self, id: NodeId, node: &Node) -> Result<(), EngineError> {
        match self.linears.packed.get(&id).cloned() {
            Some(Packed::Quantized(_)) => {
                if let Some(group) = self.linears.groups.remove(&id) {
                    self.quantized_linears(&group)?;
                }
                let target = self.linears.written.remove(&id).unwrap_or_else(|| self.linear_target(node));
                self.finish_linear(node, target)
            }
            Some(Packed::Real(weights)) => {
                let x = self.linear_input(node)?;
                let target = self.linear_target(node);
                let name = self.kernels.kernel_name("f32f32f32", "gemm");
                let step = RealLinear { x, weights, out: target.written };
                self.push(&name, &node.origin, Box::new(step), &[x], &[target.written], &[]);
                self.finish_linear(node, target)
            }
            None => self.product(node),
        }
    }

    /// The input of a layer that computes with reals.
    fn linear_input(&mut self, node: &Node) -> Result<ValueId, EngineError> {
        let x = self.input(node, 0)?;
        if node.op != Op::DynamicQuantLinear {
            return Ok(x);
        }
        let out = self.temporary(x, crate::tensor::DType::F32);
        let step = Round { grid: Grid::Rows { nonbatch_dims: 1 }, x, out };
        self.push("Quantize", &node.origin, Box::new(step), &[x], &[out], &[x]);
        Ok(out)
    }

    /// Where the product goes: apart from the result, when that still has to be rounded or a bias to be added.
    fn linear_target(&mut self, node: &Node) -> Target {
        let target = self.target(node.outputs[0]);
        match node.inputs.get(2) {
            Some(&bias) if self.graph.constant(bias).is_none() && target.written == target.out => {
                Target { written: self.temporary(target.out, crate::tensor::DType::F32), out: target.out }
            }
            _ => target,
        }
    }

    fn finish_linear(&mut self, node: &Node, target: Target) -> Result<(), EngineError> {
        let mut product = target.written;
        if let Some(&bias) = node.inputs.get(2)
            && self.graph.constant(bias).is_none()
        {
            let bias = self.operand(bias)?;
            let exact = self.grid(target.out).holds_all();
            let out = if exact { target.out } else { self.temporary(target.out, crate::tensor::DType::F32) };
            let step = ZipReals { zip: Zip::Kernel(Binary::Add), a: product, b: bias, out };
            self.push("Add", &node.origin, Box::new(step), &[product, bias], &[out], &[product]);
            product = out;
        }
        self.settle(node, Target { written: product, out: target.out });
        Ok(())
    }

    /// One step for all layers of `group`, where the first of them stands.
    fn quantized_linears(&mut self, group: &[NodeId]) -> Result<(), EngineError> {
        let x = self.operand(self.linears.sources[&group[0]])?;
        let mut members = Vec::new();
        let mut origins: Vec<String> = Vec::new();
        for id in group {
            let node = self.linears.nodes[id].clone();
            let target = self.linear_target(&node);
            self.linears.written.insert(*id, target);
            if let Packed::Quantized(weights) = &self.linears.packed[id] {
                members.push((weights.clone(), target.written));
            }
            origins.push(node.origin);
        }
        let types = if members[0].0.bits() == Bits::Four { "qd8q4f32" } else { "qd8q8f32" };
        let writes = members.iter().map(|member| member.1).collect();
        self.steps.push(PlanStep {
            step: Box::new(QuantizedLinears { x, members }),
            name: self.kernels.kernel_name(types, "gemm"),
            origin: origins.join(" + "),
            reads: vec![x],
            writes,
            in_place: Vec::new(),
        });
        Ok(())
    }

    /// A product of two values of the run, or of weights that no kernel packs.
    fn product(&mut self, node: &Node) -> Result<(), EngineError> {
        let transpose_b = match node.op {
            Op::MatMul { transpose_b } => transpose_b,
            _ => true,
        };
        let (a, b) = (self.linear_input(node)?, self.input(node, 1)?);
        let target = self.target(node.outputs[0]);
        let bias = node.inputs.get(2).map(|&bias| self.operand(bias)).transpose()?;
        let out = match bias {
            Some(_) => self.temporary(target.out, crate::tensor::DType::F32),
            None => target.written,
        };
        self.push("MatMul", &node.origin, Box::new(MatMul { a, b, out, transpose_b }), &[a, b], &[out], &[]);
        if let Some(bias) = bias {
            let step = ZipReals { zip: Zip::Kernel(Binary::Add), a: out, b: bias, out: target.written };
            self.push("Add", &node.origin, Box::new(step), &[out, bias], &[target.written], &[out]);
        }
        self.settle(node, target);
        Ok(())
    }
}
