//! Which sizes may vary at run time.

use super::*;
use crate::graph::{Graph, Int, ValueId};

/// The shapes of a graph's inputs and outputs, symbols by name.
fn signature(model: &Model) -> String {
    let graph = to_graph(model, "delegate").unwrap();
    graph.verify().unwrap_or_else(|error| panic!("{error}\n{graph}"));
    let show = |&dim: &Int| match dim {
        Int::Const(size) => size.to_string(),
        Int::Symbol(id) => graph.symbols[id.0 as usize].name.clone(),
    };
    let shape = |value| graph.value(value).shape.iter().map(show).collect::<Vec<_>>().join(" ");
    let list = |values: &[ValueId]| values.iter().map(|&value| shape(value)).collect::<Vec<_>>().join(", ");
    format!("{} -> {}", list(&graph.inputs), list(&graph.outputs))
}

#[test]
fn sizes_larger_than_one_vary_unless_a_node_fixes_them() {
    use NodeOp::*;
    let rows: [(NodeOp, &[Shape], Shape, &str); 8] = [
        (Unary(super::Unary::Exp), &[&[1, 7, 4]], &[1, 7, 4], "1 input0.dim1 input0.dim2 -> 1 input0.dim1 input0.dim2"),
        // Equal sizes become one symbol, that of the first input.
        (
            Binary(super::Binary::Add),
            &[&[7, 4], &[7, 1]],
            &[7, 4],
            "input0.dim0 input0.dim1, input0.dim0 1 -> input0.dim0 input0.dim1",
        ),
        (
            BatchMatrixMultiply { transpose_b: false },
            &[&[7, 4], &[4, 5]],
            &[7, 5],
            "input0.dim0 input0.dim1, input0.dim1 input1.dim1 -> input0.dim0 input1.dim1",
        ),
        (StaticReshape { new_shape: vec![0, 2, 2] }, &[&[7, 4]], &[7, 2, 2], "input0.dim0 4 -> input0.dim0 2 2"),
        (StaticReshape { new_shape: vec![7, 4] }, &[&[7, 4]], &[7, 4], "7 4 -> 7 4"),
        (StaticSlice { offsets: vec![0, 1], sizes: vec![7, 3] }, &[&[7, 4]], &[7, 3], "input0.dim0 4 -> input0.dim0 3"),
        (
            Concatenate { axis: 0 },
            &[&[7, 4], &[2, 4]],
            &[9, 4],
            "input0.dim0 input0.dim1, input1.dim0 input0.dim1 -> sum input0.dim1",
        ),
        (
            FullyConnected { transpose_weights: false },
            &[&[7, 4], &[3, 4]],
            &[7, 3],
            "input0.dim0 input0.dim1, input1.dim0 input0.dim1 -> input0.dim0 input1.dim0",
        ),
    ];
    for (op, inputs, output, expected) in rows {
        assert_eq!(signature(&single(op.clone(), inputs, output)), expected, "{op:?}");
    }
}

#[test]
fn constant_weights_fix_columns_and_leave_rows() {
    let model = &dynamic_linears()[0].1;
    assert_eq!(signature(model), "1 input0.dim1 8 -> 1 input0.dim1 6");
}

#[test]
fn equality_found_late_holds_from_the_start() {
    // Two inputs are joined to different results before a sum needs them to be equal.
    let mut sketch = Sketch::default();
    let [a, b] = [(); 2].map(|()| sketch.input(&[7, 1]));
    let [exp, abs] = [(); 2].map(|()| sketch.value(Datatype::Fp32, &[7, 1]));
    let y = sketch.output(&[7, 1]);
    sketch.node(NodeOp::Unary(Unary::Exp), &[a], exp);
    sketch.node(NodeOp::Unary(Unary::Abs), &[b], abs);
    sketch.node(NodeOp::Binary(Binary::Add), &[abs, exp], y);
    assert_eq!(signature(&sketch.0), "input0.dim0 1, input0.dim0 1 -> input0.dim0 1");
}

#[test]
fn computed_sizes_that_must_equal_others_get_the_sizes_of_the_file() {
    let mut sketch = Sketch::default();
    let [a, b, c] = [3, 4, 7].map(|size| sketch.input(&[size]));
    let joined = sketch.value(Datatype::Fp32, &[7]);
    let y = sketch.output(&[7]);
    sketch.node(NodeOp::Concatenate { axis: 0 }, &[a, b], joined);
    sketch.node(NodeOp::Binary(Binary::Add), &[joined, c], y);
    assert_eq!(signature(&sketch.0), "3, 4, 7 -> 7");
}

#[test]
fn many_equalities_end_in_the_sizes_of_the_file() {
    let mut sketch = Sketch::default();
    let mut sum = sketch.input(&[5]);
    for _ in 0..100 {
        let next = sketch.input(&[5]);
        let y = sketch.value(Datatype::Fp32, &[5]);
        sketch.node(NodeOp::Binary(Binary::Add), &[sum, next], y);
        sum = y;
    }
    sketch.external(sum, Direction::Output);
    let graph = to_graph(&sketch.0, "delegate").unwrap();
    assert!(graph.symbols.is_empty() && graph.verify().is_ok());
}

#[test]
fn symbols_of_the_caller_pass_through() {
    use crate::graph::SymbolSource;
    use crate::tensor::DType;
    let model = &dynamic_linears()[0].1;
    let mut graph = Graph::new("method");
    let tokens = graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 1 }, 1, 4);
    let x = graph.add_input("x", DType::F32, vec![1usize.into(), tokens, 8usize.into()]);
    let y = lower_into(&mut graph, model, "XNNPACK delegate 0", &[x]).unwrap();
    assert_eq!(graph.value(y[0]).shape, [Int::Const(1), tokens, Int::Const(6)]);
    graph.outputs = y;
    graph.verify().unwrap();
}
