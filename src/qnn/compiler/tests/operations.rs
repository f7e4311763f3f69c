//! Operations one by one.

use super::{Sketch, check};
use crate::graph::{BinaryOp, Graph, Int, Op, UnaryOp};
use crate::tensor::DType;

const ONE: [f32; 2] = [-1.0, 1.0];

fn unary(name: &str, op: Op, dtype: DType, (input, output): ([f32; 2], [f32; 2])) -> Graph {
    let mut sketch = Sketch::new(name);
    let x = sketch.input(dtype, &[1, 4, 16], input);
    let y = sketch.node(op, &[x], dtype, (&[1, 4, 16], output));
    sketch.finish(&[y])
}

fn binary(op: BinaryOp, dtype: DType, shapes: [&[usize]; 3], range: [f32; 2]) -> Graph {
    let mut sketch = Sketch::new(&format!("{op:?}_{dtype}"));
    let inputs = [shapes[0], shapes[1]].map(|shape| sketch.input(dtype, shape, [-2.0, 1.5]));
    let y = sketch.node(Op::Binary(op), &inputs, dtype, (shapes[2], range));
    sketch.finish(&[y])
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn unary_operations_compute_what_the_interpreter_does() {
    for dtype in [DType::U16, DType::U8] {
        check(&unary("sigmoid", Op::Unary(UnaryOp::Sigmoid), dtype, ([-8.0, 8.0], [0.0, 1.0])), 0, 6);
        check(&unary("tanh", Op::Unary(UnaryOp::Tanh), dtype, ([-4.0, 4.0], ONE)), 0, 8);
        check(&unary("gelu", Op::Unary(UnaryOp::Gelu), dtype, ([-4.0, 4.0], [-0.2, 4.0])), 0, 24);
        check(&unary("square", Op::Unary(UnaryOp::Square), dtype, ([-2.0, 2.0], [0.0, 4.0])), 0, 3);
        check(&unary("clamp", Op::Clamp { min: -0.5, max: 0.75 }, dtype, (ONE, ONE)), 0, 2);
        check(&unary("softmax", Op::Softmax { axis: 2 }, dtype, ([-6.0, 6.0], [0.0, 1.0])), 0, 8);
    }
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn binary_operations_broadcast_and_compute_what_the_interpreter_does() {
    let same: [&[usize]; 3] = [&[1, 3, 8], &[1, 3, 8], &[1, 3, 8]];
    let broadcast: [&[usize]; 3] = [&[1, 2, 3, 8], &[1, 1, 3, 8], &[1, 2, 3, 8]];
    for dtype in [DType::U16, DType::U8] {
        for shapes in [same, broadcast] {
            check(&binary(BinaryOp::Add, dtype, shapes, [-4.0, 3.0]), 0, 3);
            check(&binary(BinaryOp::Subtract, dtype, shapes, [-3.5, 3.5]), 0, 3);
            check(&binary(BinaryOp::Multiply, dtype, shapes, [-3.0, 4.0]), 0, 3);
        }
        check(&binary(BinaryOp::Minimum, dtype, same, [-2.0, 1.5]), 0, 1);
        check(&binary(BinaryOp::Maximum, dtype, same, [-2.0, 1.5]), 0, 1);
    }
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn quantized_scalars_broadcast() {
    for scalar in [0.25f32, -1.5] {
        let mut sketch = Sketch::new("scalar");
        let x = sketch.input(DType::U16, &[1, 4, 8], ONE);
        let encoding = super::covering(DType::U16, [scalar.min(0.0), scalar.max(0.0)]);
        let code = encoding.quantize(scalar, 0, 0xffff) as u16;
        let data = crate::base::storage::Blob::from_vec(code.to_le_bytes().to_vec());
        let quantization = Some(super::per_tensor(DType::U16, encoding));
        let c = sketch.graph.add_constant("c", DType::U16, &[], quantization, data);
        let product = sketch.node(Op::Binary(BinaryOp::Multiply), &[x, c], DType::U16, (&[1, 4, 8], [-1.5, 1.5]));
        check(&sketch.finish(&[product]), 0, 4);
    }
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn rms_norm_computes_what_the_interpreter_does() {
    for (dtype, tolerance) in [(DType::U16, 4), (DType::U8, 2)] {
        let mut sketch = Sketch::new("rms_norm");
        let x = sketch.input(dtype, &[1, 4, 32], [-3.0, 2.0]);
        let gamma = sketch.reals(&[32], 2.0);
        let y = sketch.node(Op::RmsNorm { epsilon: 1e-5 }, &[x, gamma], dtype, (&[1, 4, 32], [-4.0, 4.0]));
        check(&sketch.finish(&[y]), 0, tolerance);
    }
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn means_compute_what_the_interpreter_does() {
    let mut sketch = Sketch::new("mean");
    let x = sketch.input(DType::U16, &[1, 4, 32], [-3.0, 2.0]);
    let y = sketch.node(Op::Mean { axes: vec![2] }, &[x], DType::U16, (&[1, 4, 1], [-2.0, 2.0]));
    check(&sketch.finish(&[y]), 0, 8);
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn movements_keep_codes_as_they_are() {
    for dtype in [DType::U16, DType::U8] {
        let mut sketch = Sketch::new("movements");
        let x = sketch.input(dtype, &[1, 4, 2, 8], ONE);
        let reshaped = sketch.node(Op::Reshape, &[x], dtype, (&[1, 8, 8], ONE));
        let permuted = sketch.node(Op::Permute { perm: vec![0, 2, 1, 3] }, &[x], dtype, (&[1, 2, 4, 8], ONE));
        let half = Op::Slice { axis: 3, start: Int::Const(4), step: 1 };
        let back = sketch.node(half, &[x], dtype, (&[1, 4, 2, 4], ONE));
        let odd = Op::Slice { axis: 3, start: Int::Const(1), step: 2 };
        let odd = sketch.node(odd, &[x], dtype, (&[1, 4, 2, 4], ONE));
        let joined = sketch.node(Op::Concat { axis: 3 }, &[back, odd], dtype, (&[1, 4, 2, 8], ONE));
        let row = sketch.node(Op::Slice { axis: 1, start: Int::Const(2), step: 1 }, &[x], dtype, (&[1, 1, 2, 8], ONE));
        let tiled = sketch.node(Op::Expand, &[row], dtype, (&[1, 3, 2, 8], ONE));
        check(&sketch.finish(&[reshaped, permuted, joined, tiled]), 0, 0);
    }
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn interleaved_pairs_are_joined_over_five_axes() {
    let mut sketch = Sketch::new("five_axes");
    let x = sketch.input(DType::U16, &[1, 2, 4, 8], ONE);
    let y = sketch.input(DType::U16, &[1, 2, 4, 8], ONE);
    let parts = [x, y].map(|x| sketch.node(Op::Reshape, &[x], DType::U16, (&[1, 2, 4, 8, 1], ONE)));
    let joined = sketch.node(Op::Concat { axis: 4 }, &parts, DType::U16, (&[1, 2, 4, 8, 2], ONE));
    let z = sketch.node(Op::Reshape, &[joined], DType::U16, (&[1, 2, 4, 16], ONE));
    check(&sketch.finish(&[z]), 0, 0);
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn encodings_and_types_are_converted() {
    let mut sketch = Sketch::new("converts");
    let real = sketch.graph.add_input("real", DType::F32, crate::graph::testing::dims(&[1, 4, 8]));
    let wide = sketch.node(Op::Convert, &[real], DType::U16, (&[1, 4, 8], ONE));
    let narrow = sketch.node(Op::Convert, &[wide], DType::U8, (&[1, 4, 8], [-0.5, 1.0]));
    let again = sketch.node(Op::Convert, &[narrow], DType::U16, (&[1, 4, 8], [-1.0, 2.0]));
    let other = sketch.node(Op::Convert, &[wide], DType::U16, (&[1, 4, 8], [-0.25, 0.5]));
    check(&sketch.finish(&[wide, narrow, again, other]), 0, 1);
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn movements_between_encodings_convert() {
    let mut sketch = Sketch::new("converting_concat");
    let x = sketch.input(DType::U16, &[1, 4, 8], ONE);
    let y = sketch.input(DType::U16, &[1, 4, 8], [-0.5, 0.5]);
    let z = sketch.node(Op::Concat { axis: 1 }, &[x, y], DType::U16, (&[1, 8, 8], [-2.0, 2.0]));
    check(&sketch.finish(&[z]), 0, 1);
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn rows_of_real_and_of_quantized_tables_are_looked_up() {
    let mut sketch = Sketch::new("lookup");
    let ids = sketch.graph.add_input("ids", DType::I32, crate::graph::testing::dims(&[1, 6]));
    let table = sketch.reals(&[20, 8], 1.0);
    let x = sketch.node(Op::Embedding, &[table, ids], DType::U16, (&[1, 6, 8], ONE));
    let codes: Vec<u8> = (0..160).map(|_| sketch.rng.below(256) as u8).collect();
    let encoding = super::covering(DType::U8, [-2.0, 2.0]);
    let quantization = Some(super::per_tensor(DType::U8, encoding));
    let blob = crate::base::storage::Blob::from_vec(codes);
    let table = sketch.graph.add_constant("codes", DType::U8, &[20, 8], quantization, blob);
    let y = sketch.node(Op::Embedding, &[table, ids], DType::U16, (&[1, 6, 8], [-2.0, 2.0]));
    check(&sketch.finish(&[x, y]), 20, 1);
}
