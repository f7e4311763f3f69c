//! Growing a graph: what producers and passes call.

use super::{
    Constant, Graph, Int, Node, NodeId, Op, Quantization, State, StateId, Symbol, SymbolId, SymbolSource, Value,
    ValueId, ValueKind,
};
use crate::base::storage::Blob;
use crate::tensor::DType;

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The value with number `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// The value with number `id`, to change.
    pub fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id.0 as usize]
    }

    fn push(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        ValueId(self.values.len() as u32 - 1)
    }

    /// A new graph input, the next in order.
    pub fn add_input(&mut self, name: impl Into<String>, dtype: DType, shape: Vec<Int>) -> ValueId {
        let kind = ValueKind::Input(self.inputs.len());
        let id = self.push(Value { name: name.into(), dtype, shape, quantization: None, kind });
        self.inputs.push(id);
        id
    }

    /// A constant; `data` holds its elements (or codes) row by row.
    pub fn add_constant(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        shape: &[usize],
        quantization: Option<Quantization>,
        data: Blob,
    ) -> ValueId {
        let shape = shape.iter().map(|&dim| dim.into()).collect();
        let kind = ValueKind::Constant(Constant { data });
        self.push(Value { name: name.into(), dtype, shape, quantization, kind })
    }

    /// A one-element f32 constant of rank 0.
    pub fn add_scalar_f32(&mut self, name: impl Into<String>, value: f32) -> ValueId {
        self.add_constant(name, DType::F32, &[], None, Blob::from_vec(value.to_le_bytes().to_vec()))
    }

    /// A mutable buffer, and the value that it holds before a run.
    pub fn add_state(&mut self, name: impl Into<String>, dtype: DType, shape: &[usize]) -> (StateId, ValueId) {
        let name = name.into();
        let id = StateId(self.states.len() as u32);
        self.states.push(State { name: name.clone(), dtype, shape: shape.to_vec() });
        let shape = shape.iter().map(|&dim| dim.into()).collect();
        (id, self.push(Value { name, dtype, shape, quantization: None, kind: ValueKind::State(id) }))
    }

    /// A value that a node will make.
    pub fn add_computed(&mut self, name: impl Into<String>, dtype: DType, shape: Vec<Int>) -> ValueId {
        self.push(Value { name: name.into(), dtype, shape, quantization: None, kind: ValueKind::Computed })
    }

    /// Appends a node.
    pub fn add_node(&mut self, origin: impl Into<String>, op: Op, inputs: &[ValueId], outputs: &[ValueId]) -> NodeId {
        self.nodes.push(Node { origin: origin.into(), op, inputs: inputs.to_vec(), outputs: outputs.to_vec() });
        self.nodes.len() - 1
    }

    /// Appends a node with one new result.
    pub fn emit(
        &mut self,
        origin: impl Into<String>,
        op: Op,
        inputs: &[ValueId],
        dtype: DType,
        shape: Vec<Int>,
    ) -> ValueId {
        let origin = origin.into();
        let output = self.add_computed(origin.clone(), dtype, shape);
        self.add_node(origin, op, inputs, &[output]);
        output
    }

    /// The symbol with this source, made if it is new: equal sources are one symbol, so equal dims compare equal.
    /// Arithmetic on known integers gives a known integer.
    pub fn symbol(&mut self, name: impl Into<String>, source: SymbolSource, min: i64, max: i64) -> Int {
        if let Some(known) = fold(&source) {
            return Int::Const(known);
        }
        let found = self.symbols.iter().position(|symbol| symbol.source == source);
        let id = found.unwrap_or_else(|| {
            self.symbols.push(Symbol { name: name.into(), source, min, max });
            self.symbols.len() - 1
        });
        Int::Symbol(SymbolId(id as u32))
    }

    /// Smallest and largest value of `int`.
    pub fn bounds(&self, int: Int) -> (i64, i64) {
        match int {
            Int::Const(value) => (value, value),
            Int::Symbol(id) => {
                let symbol = &self.symbols[id.0 as usize];
                (symbol.min, symbol.max)
            }
        }
    }

    /// Largest shape of a value.
    pub fn max_shape(&self, id: ValueId) -> Vec<usize> {
        self.value(id).shape.iter().map(|&dim| self.bounds(dim).1.max(0) as usize).collect()
    }

    /// The constant bytes of `id`, if it is a constant.
    pub fn constant(&self, id: ValueId) -> Option<&Blob> {
        match &self.value(id).kind {
            ValueKind::Constant(constant) => Some(&constant.data),
            _ => None,
        }
    }

    /// The one f32 that a constant holds, whatever its rank; `None` for anything else.
    pub fn scalar_f32(&self, id: ValueId) -> Option<f32> {
        let data = self.constant(id)?;
        let value = self.value(id);
        (value.dtype == DType::F32 && value.quantization.is_none()).then_some(())?;
        Some(f32::from_le_bytes(data[..].try_into().ok()?))
    }

    /// The node that makes each value.
    pub fn producers(&self) -> Vec<Option<NodeId>> {
        let mut producers = vec![None; self.values.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            for output in &node.outputs {
                producers[output.0 as usize] = Some(id);
            }
        }
        producers
    }

    /// How often each value is used: as an operand, a graph output, or the next contents of a state.
    pub fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.values.len()];
        let operands = self.nodes.iter().flat_map(|node| &node.inputs);
        let results = self.outputs.iter().chain(self.state_updates.iter().map(|(_, value)| value));
        for value in operands.chain(results) {
            counts[value.0 as usize] += 1;
        }
        counts
    }

    /// Makes every user of `old` use `new`.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        let operands = self.nodes.iter_mut().flat_map(|node| &mut node.inputs);
        let results = self.outputs.iter_mut().chain(self.state_updates.iter_mut().map(|(_, value)| value));
        for value in operands.chain(results).filter(|value| **value == old) {
            *value = new;
        }
    }
}

fn fold(source: &SymbolSource) -> Option<i64> {
    use SymbolSource::*;
    match *source {
        Sum(Int::Const(a), Int::Const(b)) => a.checked_add(b),
        Difference(Int::Const(a), Int::Const(b)) => a.checked_sub(b),
        Product(Int::Const(a), Int::Const(b)) => a.checked_mul(b),
        FloorQuotient(Int::Const(a), Int::Const(b)) => {
            let quotient = a.checked_div(b)?;
            Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
        }
        _ => None,
    }
}
