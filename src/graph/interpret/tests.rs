//! Each operation against values computed by hand, and how a run is refused.

use super::*;
use crate::base::storage::Blob;
use crate::graph::testing::{dims, f32_blob};
use crate::graph::{BinaryOp, CacheLayout, Constant, Int, Op, Quantization, RotaryStyle, SymbolSource, UnaryOp};
use crate::tensor::{DType, Encoding};

const INF: f32 = f32::INFINITY;

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

#[test]
fn movements() {
    let x = counting(&[2, 3]);
    check(Op::Reshape, std::slice::from_ref(&x), Tensor::f32(&[3, 1, 2], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let permuted = Tensor::f32(&[3, 2], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    check(Op::Permute { perm: vec![1, 0] }, std::slice::from_ref(&x), permuted);
    let y = counting(&[2, 2, 2]);
    let permuted = Tensor::f32(&[2, 2, 2], [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]);
    check(Op::Permute { perm: vec![1, 2, 0] }, &[y], permuted);
    let slice = |axis, start: usize, step| Op::Slice { axis, start: start.into(), step };
    check(slice(1, 1, 1), std::slice::from_ref(&x), Tensor::f32(&[2, 2], [1.0, 2.0, 4.0, 5.0]));
    check(slice(1, 0, 2), std::slice::from_ref(&x), Tensor::f32(&[2, 2], [0.0, 2.0, 3.0, 5.0]));
    check(slice(0, 2, 1), std::slice::from_ref(&x), Tensor::f32(&[0, 3], []));
    let joined = Tensor::f32(&[2, 4], [0.0, 1.0, 2.0, 8.0, 3.0, 4.0, 5.0, 9.0]);
    check(Op::Concat { axis: 1 }, &[x.clone(), Tensor::f32(&[2, 1], [8.0, 9.0])], joined);
    check(Op::Concat { axis: 0 }, &[integers(&[1], &[7]), integers(&[2], &[8, 9])], integers(&[3], &[7, 8, 9]));
    let expanded = Tensor::f32(&[2, 2, 2], [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
    check(Op::Expand, &[Tensor::f32(&[2, 1], [1.0, 2.0])], expanded);
    let rows = Tensor::f32(&[1, 2, 3], [3.0, 4.0, 5.0, 0.0, 1.0, 2.0]);
    check(Op::Embedding, &[x.clone(), integers(&[1, 2], &[1, 0])], rows);
    let update = Op::SliceUpdate { axis: 1, start: 1.into() };
    check(update, &[x, Tensor::f32(&[2, 1], [8.0, 9.0])], Tensor::f32(&[2, 3], [0.0, 8.0, 2.0, 3.0, 9.0, 5.0]));
    check(Op::Arange { start: 5.into(), step: -2 }, &[], integers(&[3], &[5, 3, 1]));
    check(Op::Arange { start: 1.into(), step: 2 }, &[], Tensor::f32(&[2], [1.0, 3.0]));
    check(Op::Fill { value: f64::NEG_INFINITY }, &[], Tensor::f32(&[2], [-INF, -INF]));
    check(Op::Fill { value: 7.0 }, &[], integers(&[1, 2], &[7, 7]));
    check(Op::Scalar { value: 3.into() }, &[], Tensor::integers(DType::I32, &[], [3]));
}

#[test]
fn unary_operations() {
    let one = |op, x: f32, y: f32| check_near(Op::Unary(op), &[Tensor::f32(&[1], [x])], &[1], &[y]);
    for (op, x, y) in [
        (UnaryOp::Abs, -2.5, 2.5),
        (UnaryOp::Ceil, 1.2, 2.0),
        (UnaryOp::Cos, 1.0, 0.540_302_3),
        (UnaryOp::Exp, 1.0, std::f32::consts::E),
        (UnaryOp::Floor, -1.2, -2.0),
        (UnaryOp::Gelu, 1.0, 0.841_344_7),
        (UnaryOp::GeluTanh, 1.0, 0.841_192),
        (UnaryOp::HardSwish, 1.0, 2.0 / 3.0),
        (UnaryOp::HardSwish, -4.0, 0.0),
        (UnaryOp::Log, 2.0, std::f32::consts::LN_2),
        (UnaryOp::Negate, 2.0, -2.0),
        (UnaryOp::Reciprocal, 4.0, 0.25),
        (UnaryOp::Rsqrt, 4.0, 0.5),
        (UnaryOp::Sigmoid, 0.0, 0.5),
        (UnaryOp::Sigmoid, -200.0, 0.0),
        (UnaryOp::Silu, 1.0, 0.731_058_6),
        (UnaryOp::Sin, 1.0, 0.841_471),
        (UnaryOp::Sqrt, 9.0, 3.0),
        (UnaryOp::Square, -3.0, 9.0),
        (UnaryOp::Tanh, 0.5, 0.462_117_16),
    ] {
        one(op, x, y);
    }
    let bools = |data: &[i64]| Tensor::integers(DType::Bool, &[2], data);
    check(Op::Unary(UnaryOp::LogicalNot), &[bools(&[0, 1])], bools(&[1, 0]));
    check(Op::Unary(UnaryOp::LogicalNot), &[Tensor::f32(&[2], [0.0, -3.0])], bools(&[1, 0]));
    check(
        Op::Unary(UnaryOp::Negate),
        &[Tensor::integers(DType::I8, &[2], [-128, 5])],
        Tensor::integers(DType::I8, &[2], [-128, -5]),
    );
}

#[test]
fn binary_operations_broadcast() {
    let (column, row) = (Tensor::f32(&[2, 1], [6.0, -1.0]), Tensor::f32(&[2], [2.0, 3.0]));
    let binary = |op, expected: [f32; 4]| {
        check(Op::Binary(op), &[column.clone(), row.clone()], Tensor::f32(&[2, 2], expected));
    };
    binary(BinaryOp::Add, [8.0, 9.0, 1.0, 2.0]);
    binary(BinaryOp::Subtract, [4.0, 3.0, -3.0, -4.0]);
    binary(BinaryOp::Multiply, [12.0, 18.0, -2.0, -3.0]);
    binary(BinaryOp::Divide, [3.0, 2.0, -0.5, -1.0 / 3.0]);
    binary(BinaryOp::Maximum, [6.0, 6.0, 2.0, 3.0]);
    binary(BinaryOp::Minimum, [2.0, 3.0, -1.0, -1.0]);
    let (a, b) = (integers(&[3], &[1, 2, 3]), integers(&[], &[2]));
    for (op, expected) in [
        (BinaryOp::Equal, [0, 1, 0]),
        (BinaryOp::NotEqual, [1, 0, 1]),
        (BinaryOp::Less, [1, 0, 0]),
        (BinaryOp::LessEqual, [1, 1, 0]),
        (BinaryOp::Greater, [0, 0, 1]),
        (BinaryOp::GreaterEqual, [0, 1, 1]),
        (BinaryOp::LogicalAnd, [1, 1, 1]),
    ] {
        check(Op::Binary(op), &[a.clone(), b.clone()], Tensor::integers(DType::Bool, &[3], expected));
    }
    let zero = integers(&[], &[0]);
    let both = [integers(&[2], &[0, 5]), zero.clone()];
    check(Op::Binary(BinaryOp::LogicalAnd), &both, Tensor::integers(DType::Bool, &[2], [0, 0]));
    check(Op::Binary(BinaryOp::LogicalOr), &both, Tensor::integers(DType::Bool, &[2], [0, 1]));
    check(Op::Binary(BinaryOp::Divide), &[integers(&[2], &[-7, 7]), b], integers(&[2], &[-3, 3]));
    let error = run(Op::Binary(BinaryOp::Divide), &[a, zero], DType::I64, &[3]).unwrap_err();
    assert_eq!(error.to_string(), "node (Binary(Divide)): 1 is divided by zero");
    let large = Tensor::integers(DType::I32, &[], [i64::from(i32::MAX)]);
    let wrapped = Tensor::integers(DType::I32, &[], [-2]);
    check(Op::Binary(BinaryOp::Add), &[large.clone(), large], wrapped);
}

#[test]
fn comparisons_with_infinity_and_nan() {
    let x = Tensor::f32(&[3], [-INF, 0.0, f32::NAN]);
    let low = Tensor::f32(&[], [-INF]);
    check(Op::Binary(BinaryOp::Equal), &[x.clone(), low.clone()], Tensor::integers(DType::Bool, &[3], [1, 0, 0]));
    let largest = run(Op::Binary(BinaryOp::Maximum), &[low, x], DType::F32, &[3]).unwrap();
    assert!(largest.reals().unwrap()[2].is_nan());
}

#[test]
fn choices_limits_and_conversions() {
    let condition = Tensor::integers(DType::Bool, &[2, 1], [1, 0]);
    let choice = [condition, Tensor::f32(&[2], [1.0, 2.0]), Tensor::f32(&[], [-INF])];
    check(Op::Where, &choice, Tensor::f32(&[2, 2], [1.0, 2.0, -INF, -INF]));
    let x = Tensor::f32(&[4], [-2.0, 0.5, 2.0, f32::MAX]);
    check(Op::Clamp { min: -1.0, max: 1.0 }, std::slice::from_ref(&x), Tensor::f32(&[4], [-1.0, 0.5, 1.0, 1.0]));
    check(Op::Clamp { min: 1.0, max: 0.0 }, std::slice::from_ref(&x), Tensor::f32(&[4], [0.0; 4]));
    check(Op::Convert, &[x], integers(&[4], &[-2, 0, 2, i64::MAX]));
    check(Op::Convert, &[Tensor::f32(&[2], [-1.9, 300.0])], Tensor::integers(DType::I8, &[2], [-1, 44]));
    check(Op::Convert, &[Tensor::f32(&[2], [0.0, 0.5])], Tensor::integers(DType::Bool, &[2], [0, 1]));
    check(Op::Convert, &[integers(&[1], &[-3])], Tensor::f32(&[1], [-3.0]));
    check(Op::Convert, &[integers(&[1], &[1 << 33])], Tensor::integers(DType::I32, &[1], [0]));
    let half = Tensor { dtype: DType::F16, ..Tensor::f32(&[1], [0.099_975_586]) };
    check(Op::Convert, &[Tensor::f32(&[1], [0.1])], half);
}

#[test]
fn reductions() {
    let x = counting(&[2, 2, 2]);
    let mean = |axes: &[usize]| Op::Mean { axes: axes.to_vec() };
    check(mean(&[2]), std::slice::from_ref(&x), Tensor::f32(&[2, 2, 1], [0.5, 2.5, 4.5, 6.5]));
    check(mean(&[0, 2]), &[x], Tensor::f32(&[1, 2, 1], [2.5, 4.5]));
    let bools = Tensor::integers(DType::Bool, &[2, 2], [0, 0, 0, 1]);
    check(Op::Any { axis: 1 }, std::slice::from_ref(&bools), Tensor::integers(DType::Bool, &[2, 1], [0, 1]));
    check(Op::Any { axis: 0 }, &[bools], Tensor::integers(DType::Bool, &[1, 2], [0, 1]));
    let logits = Tensor::f32(&[2, 3], [0.0, 0.0, -INF, 1000.0, 1000.0, 1000.0]);
    let third = 1.0 / 3.0;
    check_near(Op::Softmax { axis: 1 }, &[logits], &[2, 3], &[0.5, 0.5, 0.0, third, third, third]);
    let ln3 = 3f32.ln();
    let columns = Tensor::f32(&[2, 2], [0.0, ln3, ln3, 0.0]);
    check_near(Op::Softmax { axis: 0 }, &[columns], &[2, 2], &[0.25, 0.75, 0.75, 0.25]);
    let hidden = run(Op::Softmax { axis: 0 }, &[Tensor::f32(&[2], [-INF, -INF])], DType::F32, &[2]).unwrap();
    assert!(hidden.reals().unwrap().iter().all(|x| x.is_nan()));
}

#[test]
fn matrix_products() {
    let x = Tensor::f32(&[1, 2, 2], [1.0, 2.0, 3.0, 4.0]);
    let w = Tensor::f32(&[3, 2], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let product = Tensor::f32(&[1, 2, 3], [1.0, 2.0, 3.0, 3.0, 4.0, 7.0]);
    check(Op::FullyConnected, &[x.clone(), w.clone()], product.clone());
    let bias = Tensor::f32(&[3], [10.0, 20.0, 30.0]);
    check(
        Op::FullyConnected,
        &[x.clone(), w.clone(), bias],
        Tensor::f32(&[1, 2, 3], [11.0, 22.0, 33.0, 13.0, 24.0, 37.0]),
    );
    check(Op::MatMul { transpose_b: true }, &[x.clone(), w], product.clone());
    let b = Tensor::f32(&[2, 3], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
    check(Op::MatMul { transpose_b: false }, &[x, b], product);
    let a = Tensor::f32(&[2, 1, 1, 1], [2.0, 3.0]);
    let b = Tensor::f32(&[2, 1, 1], [5.0, 7.0]);
    check(Op::MatMul { transpose_b: false }, &[a, b], Tensor::f32(&[2, 2, 1, 1], [10.0, 14.0, 15.0, 21.0]));
}

#[test]
fn norms_rotations_and_gates() {
    let x = Tensor::f32(&[2, 2], [3.0, 4.0, 0.0, 2.0]);
    let gamma = Tensor::f32(&[2], [1.0, 2.0]);
    let (a, b) = (1.0 / 13.5f32.sqrt(), 1.0 / 3f32.sqrt());
    check_near(Op::RmsNorm { epsilon: 1.0 }, &[x, gamma], &[2, 2], &[3.0 * a, 8.0 * a, 0.0, 4.0 * b]);
    // Two tokens, two heads; the second token turns by 90° and 180°.
    let x = counting(&[1, 2, 2, 4]);
    let (cos, sin) = (Tensor::f32(&[2, 2], [1.0, 1.0, 0.0, -1.0]), Tensor::f32(&[2, 2], [0.0, 0.0, 1.0, 0.0]));
    let rotated = [-9.0, 8.0, -10.0, -11.0, -13.0, 12.0, -14.0, -15.0];
    let first = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let inputs = [x, cos, sin];
    check(
        Op::Rotary { style: RotaryStyle::Interleaved },
        &inputs,
        Tensor::f32(&[1, 2, 2, 4], [first, rotated].concat()),
    );
    let rotated = [-10.0, -9.0, 8.0, -11.0, -14.0, -13.0, 12.0, -15.0];
    check(Op::Rotary { style: RotaryStyle::Half }, &inputs, Tensor::f32(&[1, 2, 2, 4], [first, rotated].concat()));
    let gate = [Tensor::f32(&[2], [1.0, 0.0]), Tensor::f32(&[2], [2.0, 5.0])];
    check_near(Op::SwiGlu, &gate, &[2], &[2.0 * 0.731_058_6, 0.0]);
}

#[test]
fn caches_in_both_layouts() {
    let new = Tensor::f32(&[1, 1, 2, 1], [8.0, 9.0]);
    let update = |layout| Op::CacheUpdate { layout, start: 1.into() };
    let cache = Tensor::f32(&[1, 3, 2, 1], [0.0; 6]);
    let expected = Tensor::f32(&[1, 3, 2, 1], [0.0, 0.0, 8.0, 9.0, 0.0, 0.0]);
    check(update(CacheLayout::PositionMajor), &[cache, new.clone()], expected);
    let cache = Tensor::f32(&[1, 2, 3, 1], [0.0; 6]);
    let expected = Tensor::f32(&[1, 2, 3, 1], [0.0, 8.0, 0.0, 0.0, 9.0, 0.0]);
    check(update(CacheLayout::HeadMajor), &[cache.clone(), new], expected);
    let late = Op::CacheUpdate { layout: CacheLayout::HeadMajor, start: 2.into() };
    let two = Tensor::f32(&[1, 2, 2, 1], [1.0; 4]);
    let error = run(late, &[cache, two], DType::F32, &[1, 2, 3, 1]).unwrap_err().to_string();
    assert!(error.contains("2 elements of an axis of 3 from 2"), "{error}");
}

/// Equal scores, so that weights are equal over what is seen: one value a position, four query heads over two.
#[test]
fn attention_sees_what_it_may() {
    let q = Tensor::f32(&[1, 2, 4, 1], [0.0; 8]);
    let k = Tensor::f32(&[1, 4, 2, 1], [1.0; 8]);
    let v = Tensor::f32(&[1, 4, 2, 1], [0.0, 10.0, 2.0, 20.0, 7.0, 60.0, 100.0, 100.0]);
    let attention = |layout, start: i64| Op::Attention { layout, start: Int::Const(start), scale: 1.0 };
    let seen = [1.0, 1.0, 15.0, 15.0, 3.0, 3.0, 30.0, 30.0];
    let inputs = [q.clone(), k.clone(), v.clone()];
    check_near(attention(CacheLayout::PositionMajor, 1), &inputs, &[1, 2, 4, 1], &seen);
    let turned = Tensor::f32(&[1, 2, 4, 1], [0.0, 2.0, 7.0, 100.0, 10.0, 20.0, 60.0, 100.0]);
    let k_turned = Tensor::f32(&[1, 2, 4, 1], [1.0; 8]);
    let inputs_turned = [q.clone(), k_turned, turned];
    check_near(attention(CacheLayout::HeadMajor, 1), &inputs_turned, &[1, 2, 4, 1], &seen);
    let first = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 10.0];
    check_near(attention(CacheLayout::PositionMajor, -1), &inputs, &[1, 2, 4, 1], &first);
    let mask = Tensor::f32(&[2, 4], [-INF, 0.0, -INF, -INF, -INF, -INF, -INF, -INF]);
    let masked = [q, k, v, mask];
    let seen = [2.0, 2.0, 20.0, 20.0, 0.0, 0.0, 0.0, 0.0];
    check_near(attention(CacheLayout::PositionMajor, 0), &masked, &[1, 2, 4, 1], &seen);
}

#[test]
fn attention_weighs_by_scaled_products() {
    let ln3 = 3f32.ln();
    let q = Tensor::f32(&[1, 1, 1, 2], [2.0, 0.0]);
    let k = Tensor::f32(&[1, 2, 1, 2], [ln3, 5.0, 0.0, 5.0]);
    let v = Tensor::f32(&[1, 2, 1, 2], [4.0, 0.0, 8.0, 1.0]);
    let op = Op::Attention { layout: CacheLayout::PositionMajor, start: 1.into(), scale: 0.5 };
    check_near(op, &[q.clone(), k, v], &[1, 1, 1, 2], &[5.0, 0.25]);
    // The same through 8-bit caches: k = (code - 1) * ln 3 and 5 is lost to a zero of q.
    let codes = |data: &[i64]| Tensor::integers(DType::I8, &[1, 2, 1, 2], data);
    let rows = |data: [f32; 2]| Tensor::f32(&[1, 2, 1, 1], data);
    let points = |data: [i64; 2]| Tensor::integers(DType::I8, &[1, 2, 1, 1], data);
    let op = Op::QuantizedAttention { layout: CacheLayout::PositionMajor, start: 1.into(), scale: 0.5 };
    let cache = [
        codes(&[2, 9, -3, 9]),
        codes(&[14, 10, 18, 11]),
        rows([ln3, ln3]),
        points([1, -3]),
        rows([1.0; 2]),
        points([10; 2]),
    ];
    let inputs: Vec<Tensor> = [q].into_iter().chain(cache.clone()).collect();
    check_near(op.clone(), &inputs, &[1, 1, 1, 2], &[5.0, 0.25]);
    let q = Tensor::integers(DType::I8, &[1, 1, 1, 2], [7, 3]);
    let of_q = [Tensor::f32(&[1, 1, 1, 1], [0.5]), Tensor::integers(DType::I8, &[1, 1, 1, 1], [3])];
    let inputs: Vec<Tensor> = [q].into_iter().chain(cache).chain(of_q).collect();
    check_near(op, &inputs, &[1, 1, 1, 2], &[5.0, 0.25]);
}

fn constant_linear(
    x: &[f32],
    dtype: DType,
    shape: &[usize],
    quantization: Quantization,
    codes: &[u8],
    op: Op,
) -> Vec<f32> {
    let mut graph = Graph::new("linear");
    let input = graph.add_input("x", DType::F32, dims(&[1, x.len()]));
    let w = graph.add_constant("w", dtype, shape, Some(quantization), Blob::from_vec(codes.to_vec()));
    let output = graph.emit("linear", op, &[input, w], DType::F32, dims(&[1, shape[0]]));
    graph.outputs.push(output);
    Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[1, x.len()], x)]).unwrap()[0].reals().unwrap().to_vec()
}

#[test]
fn weights_of_every_quantization() {
    let scales = |data: &[f32]| Constant { data: f32_blob(data) };
    let fc = || Op::FullyConnected;
    let per_channel = Quantization::PerChannel { bits: 8, axis: 0, scales: scales(&[0.5, 2.0]) };
    assert_eq!(constant_linear(&[1.0, 10.0], DType::I8, &[2, 2], per_channel, &[2, 255, 3, 4], fc()), [-4.0, 86.0]);
    // Low nibble first; zero point 8; each row starts at a byte.
    let per_channel = Quantization::PerChannel { bits: 4, axis: 0, scales: scales(&[1.0, 3.0]) };
    let codes = [0x7_9, 0x_a, 0x0_f, 0x_8];
    assert_eq!(constant_linear(&[1.0, 10.0, 100.0], DType::U8, &[2, 3], per_channel, &codes, fc()), [191.0, -219.0]);
    let blockwise = |zero_points: Option<&[u8]>| Quantization::Blockwise {
        bits: 4,
        block: 2,
        scales: scales(&[1.0, 10.0]),
        scale_dtype: DType::F32,
        zero_points: zero_points.map(|points| Constant { data: Blob::from_vec(points.to_vec()) }),
    };
    let ones = [1.0; 4];
    assert_eq!(constant_linear(&ones, DType::U8, &[1, 4], blockwise(None), &[0x89, 0xab], fc()), [51.0]);
    assert_eq!(constant_linear(&ones, DType::U8, &[1, 4], blockwise(Some(&[8, 9])), &[0x89, 0xab], fc()), [31.0]);
    let bf16 = Quantization::Blockwise {
        bits: 2,
        block: 4,
        scales: Constant { data: Blob::from_vec(half::bf16::from_f32(0.5).to_le_bytes().to_vec()) },
        scale_dtype: DType::BF16,
        zero_points: None,
    };
    // Codes 3, 2, 1, 0 less 2.
    assert_eq!(
        constant_linear(&[1.0, 10.0, 100.0, 1000.0], DType::U8, &[1, 4], bf16, &[0b00_01_10_11], fc()),
        [-1049.5]
    );
    let encoding = Encoding { scale: 0.25, zero_point: 2 };
    let per_tensor = Quantization::PerTensor { bits: 8, encoding };
    assert_eq!(constant_linear(&[4.0, 8.0], DType::U8, &[1, 2], per_tensor, &[3, 0], fc()), [-3.0]);
}

#[test]
fn a_quantized_table_gives_dequantized_rows() {
    let mut graph = Graph::new("embedding");
    let indices = graph.add_input("indices", DType::I64, dims(&[2]));
    let quantization = Quantization::Blockwise {
        bits: 4,
        block: 2,
        scales: Constant { data: f32_blob(&[1.0, 2.0, 3.0, 4.0]) },
        scale_dtype: DType::F32,
        zero_points: None,
    };
    let codes = Blob::from_vec(vec![0x98, 0xba, 0x01, 0x7f]);
    let table = graph.add_constant("table", DType::U8, &[2, 4], Some(quantization), codes);
    let rows = graph.emit("rows", Op::Embedding, &[table, indices], DType::F32, dims(&[2, 4]));
    graph.outputs.push(rows);
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let rows = interpreter.run(&[integers(&[2], &[1, 0])]).unwrap();
    assert_eq!(rows[0].reals().unwrap(), [-21.0, -24.0, 28.0, -4.0, 0.0, 1.0, 4.0, 6.0]);
    for index in [-1, 2] {
        let error = interpreter.run(&[integers(&[2], &[0, index])]).unwrap_err();
        assert_eq!(error.to_string(), format!("rows (Embedding): index {index} into a table of 2 rows"));
    }
}

#[test]
fn rows_are_rounded_as_xnnpack_rounds_them() {
    // Range −1..3: multiplier 63.75, zero point −64 (from the low end: −128 + 63.75 = −64.25).
    let mut row = [-1.0, 0.0, 0.5, 3.0];
    quantized::round_rows(&mut row, 4);
    let code = |code: i32| code as f32 * (1.0 / 63.75);
    assert_eq!(row, [code(-64), 0.0, code(32), code(191)]);
    // All positive: the range reaches down to zero. A row of zeros stays.
    let mut rows = [1.0, 2.0, 0.0, 0.0];
    quantized::round_rows(&mut rows, 2);
    assert_eq!(rows, [128.0 * (1.0 / 127.5), 255.0 * (1.0 / 127.5), 0.0, 0.0]);
    let weights = || Quantization::PerChannel { bits: 8, axis: 0, scales: Constant { data: f32_blob(&[1.0]) } };
    let linear = constant_linear(&[-1.0, 0.5], DType::I8, &[1, 2], weights(), &[1, 2], Op::DynamicQuantLinear);
    // Multiplier 170, zero point 42: codes −128 (−170 less the offset) and 127.
    assert_eq!(linear, [0.0]);
}

#[test]
fn rounding_on_the_way_into_a_layer_is_the_fused_layer() {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, dims(&[2, 2]));
    let codes = graph.add_computed("codes", DType::I8, dims(&[2, 2]));
    graph.value_mut(codes).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
    graph.add_node("convert", Op::Convert, &[x], &[codes]);
    let scales = Constant { data: f32_blob(&[0.1]) };
    let quantization = Quantization::PerChannel { bits: 8, axis: 0, scales };
    let w = graph.add_constant("w", DType::I8, &[1, 2], Some(quantization), Blob::from_vec(vec![100, 30]));
    let bias = graph.add_constant("bias", DType::F32, &[1], None, f32_blob(&[0.5]));
    let apart = graph.emit("apart", Op::FullyConnected, &[codes, w, bias], DType::F32, dims(&[2, 1]));
    let fused = graph.emit("fused", Op::DynamicQuantLinear, &[x, w, bias], DType::F32, dims(&[2, 1]));
    let plain = graph.emit("plain", Op::FullyConnected, &[x, w, bias], DType::F32, dims(&[2, 1]));
    graph.outputs.extend([apart, fused, plain]);
    let x = Tensor::f32(&[2, 2], [0.3, -0.777, 5.0, 0.01]);
    let outputs = Interpreter::new(&graph).unwrap().run(&[x]).unwrap();
    assert_eq!(outputs[0], outputs[1]);
    assert_ne!(outputs[0], outputs[2]);
}

#[test]
fn per_token_quantization() {
    let per_token = |row: &[f32]| {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(&[1, row.len()]));
        let codes = graph.add_computed("codes", DType::I8, dims(&[1, row.len()]));
        let [scale, point] = [DType::F32, DType::I64].map(|dtype| graph.add_computed("q", dtype, dims(&[1, 1])));
        graph.add_node("q", Op::QuantizePerToken { zero_point_dtype: DType::I64 }, &[x], &[codes, scale, point]);
        graph.outputs.extend([codes, scale, point]);
        let results = Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[1, row.len()], row)]).unwrap();
        results.into_iter().map(|tensor| tensor.data).collect::<Vec<_>>()
    };
    let scale = |wide: f64| Data::Real(vec![wide as f32]);
    let expected = [Data::Integer(vec![-128, -64, 127]), scale(4.0 / 255.0), Data::Integer(vec![-64])];
    assert_eq!(per_token(&[-1.0, 0.0, 3.0]), expected);
    assert_eq!(per_token(&[0.0, 0.0]), [Data::Integer(vec![127, 127]), scale(0.1), Data::Integer(vec![127])]);
    let tiny = per_token(&[1e-4, 0.0]);
    assert_eq!(tiny, [Data::Integer(vec![-126, -128]), scale(6.1e-5), Data::Integer(vec![-128])]);
}

#[test]
fn computed_values_are_rounded_to_their_grid() {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, dims(&[4]));
    let encoding = Encoding { scale: 0.5, zero_point: 10 };
    let codes = graph.add_computed("codes", DType::U8, dims(&[4]));
    graph.value_mut(codes).quantization = Some(Quantization::PerTensor { bits: 8, encoding });
    graph.add_node("q", Op::Convert, &[x], &[codes]);
    let back = graph.emit("back", Op::Convert, &[codes], DType::F32, dims(&[4]));
    graph.outputs.push(back);
    let outputs = Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[4], [0.25, 0.8, -100.0, 1000.0])]).unwrap();
    assert_eq!(outputs[0].reals().unwrap(), [0.0, 1.0, -5.0, 122.5]);
}

/// `y = x + state`, and the state becomes `y`; `n` rows of dynamic number.
fn accumulator() -> Graph {
    let mut graph = Graph::new("accumulator");
    let n = graph.symbol("n", SymbolSource::InputDim { input: 0, axis: 0 }, 1, 3);
    let offset = graph.symbol("offset", SymbolSource::InputItem { input: 1, index: 1 }, 0, 4);
    let end = graph.symbol("end", SymbolSource::Sum(n, offset), 1, 5);
    let x = graph.add_input("x", DType::F32, vec![n]);
    graph.add_input("offsets", DType::I64, dims(&[2]));
    let (state, contents) = graph.add_state("state", DType::F32, &[4]);
    let window = graph.emit("window", Op::Slice { axis: 0, start: offset, step: 1 }, &[contents], DType::F32, vec![n]);
    let sum = graph.emit("sum", Op::Binary(BinaryOp::Add), &[x, window], DType::F32, vec![n]);
    let update = Op::SliceUpdate { axis: 0, start: offset };
    let written = graph.emit("written", update, &[contents, sum], DType::F32, dims(&[4]));
    let end = graph.emit("end", Op::Scalar { value: end }, &[], DType::I64, vec![]);
    graph.state_updates.push((state, written));
    graph.outputs.extend([sum, end]);
    graph
}

#[test]
fn states_live_from_run_to_run_and_shapes_follow_the_inputs() {
    let graph = accumulator();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let inputs = |x: &[f32], offset: i64| [Tensor::f32(&[x.len()], x), integers(&[2], &[9, offset])];
    let outputs = interpreter.run(&inputs(&[1.0, 2.0], 1)).unwrap();
    assert_eq!(outputs, [Tensor::f32(&[2], [1.0, 2.0]), integers(&[], &[3])]);
    let outputs = interpreter.run(&inputs(&[10.0, 10.0, 10.0], 0)).unwrap();
    assert_eq!(outputs[0].reals().unwrap(), [10.0, 11.0, 12.0]);
    let state = interpreter.state(StateId(0)).unwrap().clone();
    assert_eq!(state.reals().unwrap(), [10.0, 11.0, 12.0, 0.0]);
    // A run that fails leaves the state alone.
    let error = interpreter.run(&inputs(&[1.0, 1.0], 3)).unwrap_err();
    assert!(error.to_string().starts_with("window (Slice"), "{error}");
    assert_eq!(interpreter.state(StateId(0)), Some(&state));
    interpreter.reset();
    assert_eq!(interpreter.state(StateId(0)), Some(&Tensor::zeros(DType::F32, &[4])));
    assert_eq!(interpreter.state(StateId(1)), None);
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let graph = accumulator();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let offsets = integers(&[2], &[0, 0]);
    let x = Tensor::f32(&[1], [0.0]);
    let mut refused = |inputs: &[Tensor]| interpreter.run(inputs).unwrap_err().to_string();
    assert_eq!(refused(std::slice::from_ref(&x)), "1 inputs where the graph has 2");
    assert_eq!(refused(&[Tensor::f32(&[4], [0.0; 4]), offsets.clone()]), "n is 4, outside 1..=3");
    assert_eq!(refused(&[x.clone(), integers(&[2], &[0, -1])]), "offset is -1, outside 0..=4");
    assert_eq!(refused(&[x.clone(), integers(&[1], &[0])]), "offset: the input does not hold it");
    assert_eq!(refused(&[x.clone(), Tensor::f32(&[2], [0.0; 2])]), "offset: the input does not hold it");
    assert_eq!(refused(&[Tensor::f32(&[], [0.0]), offsets.clone()]), "n: the input does not hold it");
    let two = Tensor::f32(&[1, 2], [0.0; 2]);
    assert_eq!(refused(&[two, offsets.clone()]), "input 0 (x): f32[1, 2] where f32[1] is needed");
    let short = Tensor { data: Data::Real(vec![]), ..x.clone() };
    assert_eq!(refused(&[short, offsets.clone()]), "input 0 (x): 0 elements for shape [1]");
    let mixed = Tensor { data: Data::Integer(vec![1]), ..x.clone() };
    assert_eq!(refused(&[mixed, offsets]), "input 0 (x): its data does not fit f32");
    let narrow = Tensor::integers(DType::I32, &[2], [0, 0]);
    assert_eq!(refused(&[x, narrow]), "input 1 (offsets): i32[2] where i64[2] is needed");
}

#[test]
fn what_cannot_be_computed_or_held_is_refused() {
    let mut graph = Graph::new("g");
    let n = graph.symbol("n", SymbolSource::InputItem { input: 0, index: 0 }, i64::MIN, i64::MAX);
    graph.add_input("n", DType::I64, dims(&[1]));
    let quotient = graph.symbol("quotient", SymbolSource::FloorQuotient(100.into(), n), -1 << 40, 1 << 30);
    let filled = graph.emit("fill", Op::Fill { value: 0.0 }, &[], DType::F32, vec![quotient, (1 << 10).into()]);
    graph.outputs.push(filled);
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let mut refused = |n| interpreter.run(&[integers(&[1], &[n])]).unwrap_err();
    assert_eq!(refused(0).to_string(), "quotient: its arithmetic overflows or divides by zero");
    assert_eq!(refused(-1).to_string(), "fill (Fill { value: 0.0 }): a size is -100");
    let source = SymbolSource::FloorQuotient(Int::Const(1 << 30), n);
    let mut graph = graph.clone();
    graph.symbols[1].source = source;
    let error = Interpreter::new(&graph).unwrap().run(&[integers(&[1], &[1])]).unwrap_err();
    assert_eq!(error, InterpretError::TooLarge { value: "fill".into(), shape: vec![1 << 30, 1 << 10] });
    assert_eq!(crate::Error::from(error).status(), Status::OutOfResources);
}

#[test]
fn the_hook_sees_and_may_change_every_value() {
    let graph = accumulator();
    let mut ranges = MinMax::default();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let inputs = [Tensor::f32(&[2], [-1.3, 2.6]), integers(&[2], &[0, 0])];
    let encoding = Encoding { scale: 0.5, zero_point: 0 };
    let hook = &mut |id: ValueId, tensor: &mut Tensor| {
        if graph.value(id).name == "x" {
            fake_quantize(tensor, &encoding, -128..=127);
        }
        ranges.observe(id, tensor);
    };
    let outputs = interpreter.run_with(&inputs, hook).unwrap();
    assert_eq!(outputs[0].reals().unwrap(), [-1.5, 2.5]);
    let range = |name: &str| {
        let index = graph.values.iter().position(|value| value.name == name).unwrap();
        ranges.range(ValueId(index as u32))
    };
    assert_eq!([range("x"), range("sum"), range("written")], [Some((-1.5, 2.5)); 3]);
    assert_eq!(range("state"), Some((0.0, 0.0)));
    assert_eq!(range("offsets"), None);
    assert_eq!(ranges.range(ValueId(999)), None);
}

#[test]
fn bytes_of_every_type_survive() {
    use DType::*;
    for (dtype, value) in
        [(U8, 200), (I8, -3), (U16, 60_000), (I16, -300), (U32, 1 << 31), (I32, -7), (I64, -1 << 40), (Bool, 1)]
    {
        let tensor = Tensor::integers(dtype, &[2], [value, 0]);
        assert_eq!(Tensor::from_bytes(dtype, &[2], &tensor.to_bytes()).unwrap(), tensor, "{dtype}");
    }
    for dtype in [F16, BF16, F32, F64] {
        let tensor = Tensor { dtype, ..Tensor::f32(&[2], [-1.5, 0.25]) };
        assert_eq!(tensor.to_bytes().len(), 2 * dtype.size());
        assert_eq!(Tensor::from_bytes(dtype, &[2], &tensor.to_bytes()).unwrap(), tensor, "{dtype}");
    }
    assert!(Tensor::from_bytes(F32, &[2], &[0; 7]).is_err());
}

#[test]
fn constants_and_inputs_may_be_results() {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, dims(&[1]));
    let c = graph.add_constant("c", DType::I32, &[2], None, Blob::from_vec(vec![1, 0, 0, 0, 255, 255, 255, 255]));
    graph.outputs.extend([c, x]);
    let outputs = Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[1], [5.0])]).unwrap();
    assert_eq!(outputs, [Tensor::integers(DType::I32, &[2], [1, -1]), Tensor::f32(&[1], [5.0])]);
}
