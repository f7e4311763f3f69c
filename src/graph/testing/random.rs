//! Random graphs, with work for every cleaning pass.

use super::{Rng, broadcast_shape, f32_blob};
use crate::graph::interpret::{Interpreter, Tensor};
use crate::graph::{BinaryOp, Graph, Int, Op, SymbolSource, UnaryOp, ValueId};
use crate::tensor::DType;

/// A graph of `size` random nodes over one input of `[tokens, 2, 6]`, with work for every cleaning pass.
pub(crate) fn random_graph(seed: u64, size: usize) -> Graph {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut graph = Graph::new(format!("random {seed}"));
    let tokens = graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 0 }, 1, 5);
    let x = graph.add_input("x", DType::F32, vec![tokens, 2.into(), 6.into()]);
    let mut values = vec![x];
    let constants = [&[2usize, 6][..], &[6], &[1, 2, 1], &[]];
    for shape in constants {
        let data = rng.reals(shape.iter().product());
        values.push(graph.add_constant("c", DType::F32, shape, None, f32_blob(&data)));
    }
    values.push(graph.add_scalar_f32("one", 1.0));
    for _ in 0..size {
        let x = values[rng.below(values.len())];
        let value = random_node(&mut graph, &mut rng, &values, x);
        values.push(value);
    }
    for &value in &values[values.len().saturating_sub(4)..] {
        graph.outputs.push(value);
    }
    graph
}

fn random_node(graph: &mut Graph, rng: &mut Rng, values: &[ValueId], x: ValueId) -> ValueId {
    let shape = graph.value(x).shape.clone();
    let rank = shape.len();
    let axis = rng.below(rank.max(1));
    let mut to = shape.clone();
    let op = match rng.below(if rank == 0 { 4 } else { 9 }) {
        0 => Op::Unary([UnaryOp::Tanh, UnaryOp::Negate, UnaryOp::Sigmoid, UnaryOp::Abs][rng.below(4)]),
        1 | 2 => {
            let fits = |&&other: &&ValueId| {
                let other = &graph.value(other).shape;
                let joined = broadcast_shape(&shape, other);
                let fits = |from: &[Int]| {
                    from.iter().rev().zip(joined.iter().rev()).all(|(a, b)| *a == Int::Const(1) || a == b)
                };
                fits(&shape) && fits(other)
            };
            let others: Vec<ValueId> = values.iter().filter(fits).copied().collect();
            let other = others[rng.below(others.len())];
            let op = [BinaryOp::Add, BinaryOp::Multiply, BinaryOp::Subtract, BinaryOp::Maximum][rng.below(4)];
            let joined = broadcast_shape(&shape, &graph.value(other).shape);
            return graph.emit("random", Op::Binary(op), &[x, other], DType::F32, joined);
        }
        3 => [Op::Convert, Op::Reshape, Op::Expand][rng.below(3)].clone(),
        4 => {
            to.insert(axis, 1.into());
            if rng.below(2) == 0 || rank > 4 {
                to = shape.iter().copied().filter(|&dim| dim != Int::Const(1)).collect();
            }
            Op::Reshape
        }
        5 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|i| perm.swap(i, rng.below(i + 1)));
            to = perm.iter().map(|&axis| shape[axis]).collect();
            Op::Permute { perm }
        }
        6 => match shape[axis] {
            Int::Const(size) if size > 1 => {
                let start = rng.below(size as usize);
                to[axis] = (1 + rng.below(size as usize - start)).into();
                Op::Slice { axis, start: start.into(), step: 1 }
            }
            _ => Op::Slice { axis, start: 0.into(), step: 1 },
        },
        7 => {
            to[axis] = 1.into();
            Op::Mean { axes: vec![axis] }
        }
        _ => Op::Softmax { axis },
    };
    graph.emit("random", op, &[x], DType::F32, to)
}

/// The outputs of a random graph on random inputs of two sizes.
pub(crate) fn random_outputs(graph: &Graph, seed: u64) -> Vec<Vec<f32>> {
    let mut interpreter = Interpreter::new(graph).expect("a well-formed graph");
    let run = |tokens: usize| {
        let data = Rng(seed | 1).reals(tokens * 12);
        interpreter.run(&[Tensor::f32(&[tokens, 2, 6], data)]).unwrap()
    };
    [1, 3].into_iter().flat_map(run).map(|tensor| tensor.reals().unwrap().to_vec()).collect()
}
