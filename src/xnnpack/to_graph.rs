//! A graph of one delegate alone.
//!
//! The file says only the largest shapes, so which sizes may vary must be found out. Every axis of an input that is
//! larger than 1 starts as a symbol of its own, bounded by the file. Where a node needs two sizes to be equal, their
//! symbols become one; where it needs a symbol to be a number (the columns of a weight, the sizes of a reshape), the
//! axis keeps the file's size. This ends with the most general shapes that make every node fit. An axis that shares its
//! symbol with an earlier one, or has a fixed size, is checked by whoever binds the inputs: a value's shape states it.

use super::error::XnnpackError;
use super::lower::lower_into;
use super::lower_values::{dtype, quantization};
use super::model::Model;
use crate::graph::{Graph, Int, SymbolSource};

/// Most rounds of finding equal sizes. A graph that needs more gets the file's shapes.
const MAX_ROUNDS: usize = 64;

/// The graph of `model`, with [`Model::inputs`] and [`Model::outputs`] in this order as its inputs and outputs.
///
/// # Errors
/// As [`lower_into`]; also when an output's shape in the file is not what its inputs' shapes give.
pub fn to_graph(model: &Model, name: &str) -> Result<Graph, XnnpackError> {
    model.verify_structure()?;
    let mut axes = Axes::new(model);
    for _ in 0..MAX_ROUNDS {
        let mut graph = Graph::new(name);
        match attempt(&mut graph, model, &axes) {
            Ok(()) => return Ok(graph),
            Err(XnnpackError::UnequalSizes { left, right, .. }) if axes.make_equal(&graph, left, right) => {}
            Err(error) => return Err(error),
        }
    }
    axes.fix_all();
    let mut graph = Graph::new(name);
    attempt(&mut graph, model, &axes)?;
    Ok(graph)
}

fn attempt(graph: &mut Graph, model: &Model, axes: &Axes) -> Result<(), XnnpackError> {
    let name = graph.name.clone();
    let inputs: Vec<_> = model
        .inputs()
        .into_iter()
        .enumerate()
        .map(|(input, index)| {
            let value = &model.values[index];
            let shape = (0..value.dims.len()).map(|axis| axes.size(graph, input, axis)).collect();
            let arg = value.external.map_or(0, |external| external.arg);
            let id = graph.add_input(format!("argument {arg}"), dtype(value.datatype), shape);
            graph.value_mut(id).quantization = quantization(model, value);
            id
        })
        .collect();
    graph.outputs = lower_into(graph, model, &name, &inputs)?;
    for (&output, index) in graph.outputs.iter().zip(model.outputs()) {
        let (made, value) = (graph.max_shape(output), &model.values[index]);
        if made != value.dims {
            let arg = value.external.map_or(0, |external| external.arg);
            return Err(XnnpackError::OutputShape { arg, stated: value.dims.clone(), made });
        }
    }
    Ok(())
}

/// What is known of the inputs' axes.
struct Axes {
    /// Of each input, of each axis: the file's size, and the first axis that is always as long.
    axes: Vec<Vec<(usize, Sized)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sized {
    /// As the file says.
    Fixed,
    /// As axis `.1` of input `.0`, which may be this one.
    Like(usize, usize),
}

impl Axes {
    fn new(model: &Model) -> Self {
        let axes = |(input, index): (usize, usize)| {
            let sized = |axis, dim| if dim == 1 { Sized::Fixed } else { Sized::Like(input, axis) };
            model.values[index].dims.iter().enumerate().map(|(axis, &dim)| (dim, sized(axis, dim))).collect()
        };
        Self { axes: model.inputs().into_iter().enumerate().map(axes).collect() }
    }

    fn size(&self, graph: &mut Graph, input: usize, axis: usize) -> Int {
        match self.axes[input][axis] {
            (dim, Sized::Fixed) => dim.into(),
            (dim, Sized::Like(input, axis)) => {
                let source = SymbolSource::InputDim { input, axis };
                graph.symbol(format!("input{input}.dim{axis}"), source, 1, dim as i64)
            }
        }
    }

    /// Makes two sizes of `graph` equal from now on; false when they cannot be.
    fn make_equal(&mut self, graph: &Graph, left: Int, right: Int) -> bool {
        match (self.axis(graph, left), self.axis(graph, right)) {
            (Some(left), Some(right)) if self.dim(left) == self.dim(right) => {
                let (first, second) = (left.min(right), left.max(right));
                self.replace(Sized::Like(second.0, second.1), Sized::Like(first.0, first.1));
                true
            }
            (Some(axis), None) | (None, Some(axis)) => {
                let other = if self.axis(graph, left).is_some() { right } else { left };
                // A size that is computed from others has no axis to share.
                if graph.bounds(other).1 == self.dim(axis) as i64 {
                    self.replace(Sized::Like(axis.0, axis.1), Sized::Fixed);
                    if !matches!(other, Int::Const(_)) {
                        self.fix_all();
                    }
                    return true;
                }
                false
            }
            (None, None) if [left, right].iter().any(|size| matches!(size, Int::Symbol(_))) => {
                let equal = graph.bounds(left).1 == graph.bounds(right).1;
                self.fix_all();
                equal
            }
            _ => false,
        }
    }

    /// The axis that a symbol is the size of.
    fn axis(&self, graph: &Graph, size: Int) -> Option<(usize, usize)> {
        let Int::Symbol(id) = size else { return None };
        match graph.symbols[id.0 as usize].source {
            SymbolSource::InputDim { input, axis } => Some((input, axis)),
            _ => None,
        }
    }

    fn dim(&self, (input, axis): (usize, usize)) -> usize {
        self.axes[input][axis].0
    }

    fn replace(&mut self, old: Sized, new: Sized) {
        self.axes.iter_mut().flatten().filter(|(_, sized)| *sized == old).for_each(|(_, sized)| *sized = new);
    }

    fn fix_all(&mut self) {
        self.axes.iter_mut().flatten().for_each(|(_, sized)| *sized = Sized::Fixed);
    }
}
