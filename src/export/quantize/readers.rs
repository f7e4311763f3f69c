//! What an error of the token embedding does: it stays in the residual stream, where every normalized linear layer
//! reads it.
//!
//! A layer `W` behind a norm of weights `g` makes `W·diag(g)·e` of an error `e`. Summed over the layers,
//! `H = Σ diag(g)·WᵀW·diag(g)` is to a row of the table what second moments of the operand are to a row of a linear
//! layer. Each is taken against the mean that it makes of any error, and counts less the further it is from the table:
//! the stream grows, and a norm makes the error smaller by as much.

use super::{Matrix, Moments, QuantizeError};
use crate::graph::{Graph, Op, ValueId};

/// Rows of a layer that are looked at, at most: evenly spread ones stand for the rest.
const ROWS: usize = 2048;

/// Moments of errors of rows of `columns` elements in the layers that read them; `None` where none does.
///
/// # Errors
/// As [`Matrix::of`] and [`Matrix::read`].
pub(super) fn moments_of_readers(graph: &Graph, columns: usize) -> Result<Option<Moments>, QuantizeError> {
    let producers = graph.producers();
    let (mut norms, mut all): (Vec<ValueId>, Option<Moments>) = (Vec::new(), None);
    for node in graph.nodes.iter().filter(|node| node.op == Op::FullyConnected) {
        let operand = node.inputs[0];
        // A norm, fused or in its parts, ends with its weights.
        let Some(norm) = producers[operand.0 as usize].map(|id| &graph.nodes[id]) else { continue };
        let gamma = norm.inputs.iter().find_map(|&id| Matrix::vector(graph, id, columns));
        let (Some(gamma), Some(matrix)) = (gamma, Matrix::of(graph, node.inputs[1])?) else { continue };
        if !norms.contains(&operand) {
            norms.push(operand);
        }
        let Some(mut moments) = moments(&matrix, &gamma)? else { continue };
        moments.scale(1.0 / (norms.len() * norms.len()) as f32);
        match &mut all {
            Some(all) => all.add(&moments),
            None => all = Some(moments),
        }
    }
    Ok(all)
}

/// Of one layer; the mean of squares is 1. `None` for a layer that reads nothing.
fn moments(matrix: &Matrix, gamma: &[f32]) -> Result<Option<Moments>, QuantizeError> {
    let step = matrix.rows().div_ceil(ROWS);
    let rows = matrix.rows().div_ceil(step);
    let mut row = vec![0.0; gamma.len()];
    let mut turned = vec![0.0; gamma.len() * rows]; // (columns, rows)
    for (index, at) in (0..matrix.rows()).step_by(step).enumerate() {
        matrix.read(at, &mut row)?;
        for (column, (x, gamma)) in row.iter().zip(gamma).enumerate() {
            turned[column * rows + index] = x * gamma;
        }
    }
    let Ok(mut moments) = Moments::of(&turned, gamma.len()) else { return Ok(None) };
    let mean = moments.squares().sum::<f32>() / gamma.len() as f32;
    moments.scale(1.0 / mean);
    Ok((mean > 0.0 && mean.is_finite()).then_some(moments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::blob;
    use crate::graph::Int;
    use crate::tensor::DType;

    /// A norm of weights `gamma` over `[1, 2]`, and a layer of `weights` behind it.
    fn read(graph: &mut Graph, gamma: [f32; 2], weights: [f32; 4]) {
        let x = graph.add_computed("x", DType::F32, vec![Int::Const(1), Int::Const(2)]);
        let gamma = graph.add_constant("gamma", DType::F32, &[2], None, blob(DType::F32, &gamma));
        let weights = graph.add_constant("w", DType::F32, &[2, 2], None, blob(DType::F32, &weights));
        let shape = vec![Int::Const(1), Int::Const(2)];
        let normed = graph.emit("norm", Op::RmsNorm { epsilon: 0.0 }, &[x, gamma], DType::F32, shape.clone());
        graph.emit("layer", Op::FullyConnected, &[normed, weights], DType::F32, shape);
    }

    #[test]
    fn errors_matter_as_much_as_the_layers_that_read_them_make_of_them() {
        let mut graph = Graph::new("g");
        assert!(moments_of_readers(&graph, 2).unwrap().is_none());
        read(&mut graph, [2.0, 1.0], [1.0, 0.0, 1.0, 2.0]);
        // Columns times gamma are (2, 2) and (0, 2): squares of 8 and 4, a product of 4, a mean of 6.
        let first = moments_of_readers(&graph, 2).unwrap().unwrap();
        let near = |have: &[f32], want: [f32; 2]| have.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near(first.row(0), [8.0 / 6.0, 4.0 / 6.0]) && near(first.row(1), [4.0 / 6.0, 4.0 / 6.0]), "{first:?}");
        // A second one that reads the first column only counts a quarter.
        read(&mut graph, [1.0, 0.0], [3.0, 5.0, 0.0, 5.0]);
        let both = moments_of_readers(&graph, 2).unwrap().unwrap();
        assert!(
            near(both.row(0), [8.0 / 6.0 + 0.5, 4.0 / 6.0]) && near(both.row(1), [4.0 / 6.0, 4.0 / 6.0]),
            "{both:?}"
        );
        assert!(moments_of_readers(&graph, 3).unwrap().is_none(), "rows of another width are read by none");
    }
}
