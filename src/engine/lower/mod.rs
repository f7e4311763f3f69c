//! Graph → steps: chooses the step of each node, and finds values that need none because they lie in others.

mod linear;
mod node;

use super::EngineError;
use super::constant::ConstantBytes;
use super::plan::{Home, Plan, PlanStep, View};
use super::reals::{Grid, element_size, is_real};
use super::steps::Step;
use super::steps::elementwise::Round;
use super::steps::movement::Copy;
use super::steps::quantize::{Decode, Encode};
use super::weights::WeightCache;
use crate::graph::{Graph, Node, Op, ValueId, ValueKind};
use crate::kernels::{KernelSet, ThreadPool};
use crate::tensor::{DType, MAX_RANK};
use linear::Linears;
use std::collections::HashMap;

/// Steps of a verified graph. Weights are packed.
pub(super) fn lower(
    mut graph: Graph,
    kernels: KernelSet,
    pool: &ThreadPool,
    weights: &WeightCache,
) -> Result<Plan, EngineError> {
    graph.remove_dead_nodes();
    let linears = Linears::find(&graph, pool, weights)?;
    let nodes = std::mem::take(&mut graph.nodes);
    let mut lowering = Lowering::new(graph, kernels, weights, linears)?;
    for (id, node) in nodes.iter().enumerate() {
        lowering.node(id, node)?;
    }
    lowering.finish()
}

/// A graph that is becoming a [`Plan`].
struct Lowering<'a> {
    graph: Graph,
    kernels: KernelSet,
    weights: &'a WeightCache,
    linears: Linears,
    steps: Vec<PlanStep>,
    homes: Vec<Home>,
    sizes: Vec<usize>,
    constants: Vec<ConstantBytes>,
    origins: HashMap<ValueId, String>,
    /// What steps read in the place of inputs and constants that are not held as the engine holds reals.
    stand_ins: HashMap<ValueId, ValueId>,
    /// Values that are quantized row by row and were not made yet, and what they are made from.
    rows_of: HashMap<ValueId, ValueId>,
}

/// A step's result: where the step writes it, and the value that it becomes.
#[derive(Debug, Clone, Copy)]
struct Target {
    written: ValueId,
    out: ValueId,
}

impl<'a> Lowering<'a> {
    fn new(graph: Graph, kernels: KernelSet, weights: &'a WeightCache, linears: Linears) -> Result<Self, EngineError> {
        let home = |kind: &ValueKind| match kind {
            ValueKind::Input(index) => Home::Input(*index),
            ValueKind::State(state) => Home::State(state.0 as usize),
            ValueKind::Constant(_) | ValueKind::Computed => Home::Nowhere,
        };
        let homes = graph.values.iter().map(|value| home(&value.kind)).collect();
        let size = |value: &crate::graph::Value| match value.kind {
            ValueKind::Input(_) => value.dtype.size(),
            _ => element_size(value),
        };
        let sizes = graph.values.iter().map(size).collect();
        for value in &graph.values {
            let fail = |why: &str| EngineError::Unsupported { place: value.name.clone(), why: why.into() };
            if value.shape.len() > MAX_RANK {
                return Err(fail("it has too many axes"));
            }
            if matches!(value.kind, ValueKind::Input(_)) && matches!(Grid::of(value), Grid::Rows { .. } | Grid::Stored)
            {
                return Err(fail("an input whose scales the caller cannot give"));
            }
        }
        Ok(Self {
            graph,
            kernels,
            weights,
            linears,
            homes,
            sizes,
            steps: Vec::new(),
            constants: Vec::new(),
            origins: HashMap::new(),
            stand_ins: HashMap::new(),
            rows_of: HashMap::new(),
        })
    }

    fn home(&self, value: ValueId) -> Home {
        self.homes[value.0 as usize]
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.graph.value(value).dtype
    }

    fn is_real(&self, value: ValueId) -> bool {
        is_real(self.graph.value(value))
    }

    fn size(&self, value: ValueId) -> usize {
        self.sizes[value.0 as usize]
    }

    fn grid(&self, value: ValueId) -> Grid {
        Grid::of(self.graph.value(value))
    }

    fn unsupported(&self, node: &Node, why: impl Into<String>) -> EngineError {
        EngineError::Unsupported { place: node.origin.clone(), why: why.into() }
    }

    /// A new value of the shape of `like`; an f32 unless `dtype` says otherwise.
    fn temporary(&mut self, like: ValueId, dtype: DType) -> ValueId {
        let (name, shape) = (self.graph.value(like).name.clone(), self.graph.value(like).shape.clone());
        let value = self.graph.add_computed(name, dtype, shape);
        self.homes.push(Home::Nowhere);
        self.sizes.push(dtype.size());
        value
    }

    /// `value` as steps read it: constants decoded, inputs as reals, rows rounded.
    fn operand(&mut self, value: ValueId) -> Result<ValueId, EngineError> {
        if let Some(&stand_in) = self.stand_ins.get(&value) {
            return Ok(stand_in);
        }
        if let Some(x) = self.rows_of.remove(&value) {
            let grid = self.grid(value);
            let origin = self.graph.value(value).name.clone();
            self.push("Quantize", &origin, Box::new(Round { grid, x, out: value }), &[x], &[value], &[x]);
            return Ok(value);
        }
        match &self.graph.value(value).kind {
            ValueKind::Constant(constant) => {
                let data = constant.data.clone();
                let bytes = self.weights.constant(self.graph.value(value), &data)?;
                self.homes[value.0 as usize] = Home::Constant(self.constants.len());
                self.constants.push(bytes);
                self.stand_ins.insert(value, value);
                Ok(value)
            }
            ValueKind::Input(_) if self.is_real(value) && !self.grid(value).is_plain() => {
                let (grid, origin) = (self.grid(value), self.graph.value(value).name.clone());
                let out = self.temporary(value, DType::F32);
                self.push("Decode", &origin, Box::new(Decode { grid, x: value, out }), &[value], &[out], &[]);
                self.stand_ins.insert(value, out);
                Ok(out)
            }
            _ => Ok(value),
        }
    }

    /// Operand `index` of a node.
    fn input(&mut self, node: &Node, index: usize) -> Result<ValueId, EngineError> {
        self.operand(node.inputs[index])
    }

    fn push(
        &mut self,
        name: &str,
        origin: &str,
        step: Box<dyn Step>,
        reads: &[ValueId],
        writes: &[ValueId],
        in_place: &[ValueId],
    ) {
        let (reads, writes, in_place) = (reads.to_vec(), writes.to_vec(), in_place.to_vec());
        self.steps.push(PlanStep { step, name: name.into(), origin: origin.into(), reads, writes, in_place });
    }

    /// Where a step that computes `out` writes: elsewhere first, when the result must be rounded to the type of `out`.
    fn target(&mut self, out: ValueId) -> Target {
        let grid = self.grid(out);
        let exact = !self.is_real(out) || grid.holds_all();
        Target { written: if exact { out } else { self.temporary(out, DType::F32) }, out }
    }

    /// As [`Self::target`], for a step that only moves the elements of `x`.
    fn moved(&mut self, x: ValueId, out: ValueId) -> Target {
        let same = self.grid(x) == self.grid(out) && !matches!(self.grid(out), Grid::Rows { .. });
        if same { Target { written: out, out } } else { self.target(out) }
    }

    /// Rounds a result where that is needed.
    fn settle(&mut self, node: &Node, Target { written: x, out }: Target) {
        if x != out {
            let grid = self.grid(out);
            self.push("Round", &node.origin, Box::new(Round { grid, x, out }), &[x], &[out], &[x]);
        }
    }

    /// `out` lies in `of`.
    fn view(&mut self, node: &Node, x: ValueId, of: ValueId, start: Option<(usize, crate::graph::Int)>) {
        let target = self.moved(x, node.outputs[0]);
        self.homes[target.written.0 as usize] = Home::View(View { of, start });
        self.origins.insert(target.written, node.origin.clone());
        self.settle(node, target);
    }

    /// Adds what ends every run: outputs as callers hold them, then the states' new contents.
    fn finish(mut self) -> Result<Plan, EngineError> {
        let mut updates = Vec::new();
        for (state, value) in self.graph.state_updates.clone() {
            updates.push((state.0 as usize, self.operand(value)?));
        }
        let graph_outputs = self.graph.outputs.clone();
        let mut outputs = graph_outputs.iter().map(|&value| self.operand(value)).collect::<Result<Vec<_>, _>>()?;
        let tail = self.steps.len();
        // The old contents of a state must be saved before any state gets its new ones.
        for (state, value) in &mut updates {
            if matches!(self.root_home(*value), Home::State(from) if from != *state) {
                *value = self.copy(*value);
            }
        }
        for (&value, output) in graph_outputs.iter().zip(&mut outputs) {
            // What becomes a state may yet be made in the state's memory, which is not the engine's.
            let root = self.root(*output);
            if updates.iter().any(|&(_, update)| self.root(update) == root) {
                *output = self.copy(*output);
            }
            *output = self.export(value, *output)?;
        }
        for &(state, x) in &updates {
            let (name, dtype) = (self.graph.states[state].name.clone(), self.graph.states[state].dtype);
            let shape = self.graph.states[state].shape.iter().map(|&dim| dim.into()).collect();
            let out = self.graph.add_computed(name.clone(), dtype, shape);
            self.homes.push(Home::State(state));
            self.sizes.push(self.size(x));
            self.push("Update", &name, Box::new(Copy { x, out }), &[x], &[out], &[]);
        }
        // Whoever reads a constant has its bytes; the graph must not keep those of packed weights alive.
        for value in &mut self.graph.values {
            if let ValueKind::Constant(_) = value.kind {
                (value.kind, value.quantization) = (ValueKind::Computed, None);
            }
        }
        let Self { graph, steps, homes, sizes, constants, origins, .. } = self;
        Ok(Plan { graph, steps, tail, homes, sizes, constants, origins, updates, outputs })
    }

    /// What callers get for the graph output `value`, which steps hold as `x`.
    fn export(&mut self, value: ValueId, x: ValueId) -> Result<ValueId, EngineError> {
        let grid = self.grid(value);
        if matches!(grid, Grid::Rows { .. } | Grid::Stored) {
            let place = self.graph.value(value).name.clone();
            return Err(EngineError::Unsupported { place, why: "an output whose scales nobody gets".into() });
        }
        if self.is_real(value) && !grid.is_plain() {
            let dtype = self.dtype(value);
            let out = self.temporary(value, dtype);
            let origin = self.graph.value(value).name.clone();
            self.push("Encode", &origin, Box::new(Encode { grid, x, out }), &[x], &[out], &[]);
            return Ok(out);
        }
        Ok(match self.root_home(x) {
            Home::Input(_) | Home::State(_) => self.copy(x),
            _ => x,
        })
    }

    /// Where the memory of `value` is, as far as lowering knows: before steps work in place.
    fn root_home(&self, value: ValueId) -> Home {
        self.home(self.root(value))
    }

    /// The value that has memory of its own, of which `value` is a view.
    fn root(&self, mut value: ValueId) -> ValueId {
        while let Home::View(view) = self.home(value) {
            value = view.of;
        }
        value
    }

    fn copy(&mut self, x: ValueId) -> ValueId {
        let size = self.size(x);
        let out = self.temporary(x, self.dtype(x));
        self.sizes[out.0 as usize] = size;
        let origin = self.graph.value(x).name.clone();
        self.push("Copy", &origin, Box::new(Copy { x, out }), &[x], &[out], &[]);
        out
    }
}

/// The name of an operation, without its attributes.
fn op_name(op: &Op) -> String {
    let text = format!("{op:?}");
    let name = |text: &str| text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
    match op {
        Op::Unary(op) => name(&format!("{op:?}")),
        Op::Binary(op) => name(&format!("{op:?}")),
        _ => name(&text),
    }
}
