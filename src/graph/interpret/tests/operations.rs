//! Each operation.

use super::*;
use crate::graph::{BinaryOp, CacheLayout, Int, RotaryStyle, UnaryOp};

const INF: f32 = f32::INFINITY;

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
