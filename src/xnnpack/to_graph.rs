//! A graph of one delegate alone.
//!
//! The file says only the largest shapes, so which sizes may vary must be found out ([`InputAxes`]): where a node needs
//! two sizes to be equal, their symbols become one; where it needs a symbol to be a number (the columns of a weight, the
//! sizes of a reshape), the axis keeps the file's size.

use super::error::XnnpackError;
use super::lower::lower_into;
use super::lower_values::{dtype, quantization};
use super::model::Model;
use crate::graph::{Graph, InputAxes};

/// Most rounds of finding equal sizes. A graph that needs more gets the file's shapes.
const MAX_ROUNDS: usize = 64;

/// The graph of `model`, with [`Model::inputs`] and [`Model::outputs`] in this order as its inputs and outputs.
///
/// # Errors
/// As [`lower_into`]; also when an output's shape in the file is not what its inputs' shapes give.
pub fn to_graph(model: &Model, name: &str) -> Result<Graph, XnnpackError> {
    model.verify_structure()?;
    let mut axes = InputAxes::new(model.inputs().into_iter().map(|index| (&model.values[index].dims[..], true)));
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

fn attempt(graph: &mut Graph, model: &Model, axes: &InputAxes) -> Result<(), XnnpackError> {
    let name = graph.name.clone();
    let inputs: Vec<_> = model
        .inputs()
        .into_iter()
        .enumerate()
        .map(|(input, index)| {
            let value = &model.values[index];
            let shape = axes.shape(graph, input);
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
