//! The interpreter against values computed by hand.

mod operations;
mod quantization;
mod runs;

use super::*;
use crate::graph::Op;
use crate::graph::testing::dims;
use crate::tensor::DType;

fn integers(shape: &[usize], data: &[i64]) -> Tensor {
    Tensor::integers(DType::I64, shape, data)
}

/// The result of one node whose operands are graph inputs.
fn run(op: Op, inputs: &[Tensor], dtype: DType, shape: &[usize]) -> Result<Tensor, InterpretError> {
    let mut graph = Graph::new("one");
    let ids: Vec<ValueId> = inputs.iter().map(|x| graph.add_input("x", x.dtype, dims(&x.shape))).collect();
    let output = graph.emit("node", op, &ids, dtype, dims(shape));
    graph.outputs.push(output);
    Ok(Interpreter::new(&graph).expect("a well-formed node").run(inputs)?.remove(0))
}

#[track_caller]
fn check(op: Op, inputs: &[Tensor], expected: Tensor) {
    assert_eq!(run(op, inputs, expected.dtype, &expected.shape), Ok(expected));
}

#[track_caller]
fn check_near(op: Op, inputs: &[Tensor], shape: &[usize], expected: &[f32]) {
    let result = run(op, inputs, DType::F32, shape).unwrap();
    let close = |(have, need): (&f32, &f32)| (have - need).abs() <= 2e-6 * need.abs().max(1.0);
    let have = result.reals().unwrap();
    assert!(have.len() == expected.len() && have.iter().zip(expected).all(close), "{have:?} is not {expected:?}");
}

fn counting(shape: &[usize]) -> Tensor {
    Tensor::f32(shape, (0..shape.iter().product::<usize>()).map(|x| x as f32).collect::<Vec<_>>())
}
