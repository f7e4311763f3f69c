//! A graph as text: one line a node, for `--dump-after` and for test failures.

use super::{CodeOrder, Graph, Int, Quantization, ValueId, ValueKind};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {} ({} nodes)", self.name, self.nodes.len())?;
        for (id, symbol) in self.symbols.iter().enumerate() {
            writeln!(f, "  ${id} {} = {:?} in {}..={}", symbol.name, symbol.source, symbol.min, symbol.max)?;
        }
        for &input in &self.inputs {
            writeln!(f, "  input  {}", Typed(self, input))?;
        }
        for (id, state) in self.states.iter().enumerate() {
            writeln!(f, "  state  @{id} {} {}{:?}", state.name, state.dtype, state.shape)?;
        }
        for node in &self.nodes {
            f.write_str("  ")?;
            list(f, node.outputs.iter().map(|&id| Typed(self, id)))?;
            write!(f, " = {:?}(", node.op)?;
            list(f, node.inputs.iter().map(|&id| Operand(self, id)))?;
            writeln!(f, ")  # {}", node.origin)?;
        }
        for (state, value) in &self.state_updates {
            writeln!(f, "  @{} := %{}", state.0, value.0)?;
        }
        f.write_str("  return ")?;
        list(f, self.outputs.iter().map(|&id| Operand(self, id)))?;
        writeln!(f)
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    for (index, item) in items.enumerate() {
        write!(f, "{}{item}", if index == 0 { "" } else { ", " })?;
    }
    Ok(())
}

struct Operand<'a>(&'a Graph, ValueId);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.value(self.1).kind {
            ValueKind::Constant(_) => write!(f, "const {}", Typed(self.0, self.1)),
            ValueKind::State(state) => write!(f, "@{}", state.0),
            _ => write!(f, "%{}", self.1.0),
        }
    }
}

struct Typed<'a>(&'a Graph, ValueId);

impl fmt::Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0.value(self.1);
        write!(f, "%{}:{}[", self.1.0, value.dtype)?;
        list(f, value.shape.iter().map(|dim| Dim(self.0, *dim)))?;
        f.write_str("]")?;
        match &value.quantization {
            None => Ok(()),
            Some(Quantization::PerTensor { encoding, .. }) => {
                write!(f, "q({}, {})", encoding.scale, encoding.zero_point)
            }
            Some(Quantization::PerChannel { bits, axis, .. }) => write!(f, "q{bits}/axis{axis}"),
            Some(Quantization::Blockwise { bits, block, order, .. }) => {
                write!(f, "q{bits}/block{block}{}", if *order == CodeOrder::HighFirst { "/high first" } else { "" })
            }
            Some(Quantization::DynamicPerRow { .. }) => f.write_str("qd8"),
        }
    }
}

struct Dim<'a>(&'a Graph, Int);

impl fmt::Display for Dim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Int::Const(value) => write!(f, "{value}"),
            Int::Symbol(id) => write!(f, "{}", self.0.symbols[id.0 as usize].name),
        }
    }
}
