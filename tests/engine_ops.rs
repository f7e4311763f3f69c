//! Every elementary operation of the graph, on random shapes and types, equals the reference interpreter: alone, with sizes known
//! only at run time, and with one thread as with two.

mod engine_common;

use engine_common::{Builder, T, check, check_tokens, dims, known, one_node};
use llama_runner::graph::{BinaryOp, Int, Op, Quantization, UnaryOp};
use llama_runner::tensor::{DType, Encoding};

const EXACT: f32 = 0.0;
const CLOSE: f32 = 2e-6;

const UNARY: &[UnaryOp] = &[
    UnaryOp::Abs,
    UnaryOp::Ceil,
    UnaryOp::Cos,
    UnaryOp::Exp,
    UnaryOp::Floor,
    UnaryOp::Gelu,
    UnaryOp::GeluTanh,
    UnaryOp::HardSwish,
    UnaryOp::Log,
    UnaryOp::LogicalNot,
    UnaryOp::Negate,
    UnaryOp::Reciprocal,
    UnaryOp::Rsqrt,
    UnaryOp::Sigmoid,
    UnaryOp::Silu,
    UnaryOp::Sin,
    UnaryOp::Sqrt,
    UnaryOp::Square,
    UnaryOp::Tanh,
];

const BINARY: &[BinaryOp] = &[
    BinaryOp::Add,
    BinaryOp::Subtract,
    BinaryOp::Multiply,
    BinaryOp::Divide,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
    BinaryOp::Equal,
    BinaryOp::NotEqual,
    BinaryOp::Less,
    BinaryOp::LessEqual,
    BinaryOp::Greater,
    BinaryOp::GreaterEqual,
    BinaryOp::LogicalAnd,
    BinaryOp::LogicalOr,
];

const INTEGERS: &[DType] = &[DType::U8, DType::I8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64];
const REALS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];

#[test]
fn unary_of_reals_and_integers() {
    for &op in UNARY {
        for &dtype in REALS {
            let shape = [T, known(37)];
            let out = if op == UnaryOp::LogicalNot { DType::Bool } else { dtype };
            let tolerance = if matches!(dtype, DType::F16 | DType::BF16) { 0.01 } else { CLOSE };
            // Poles make "the largest number" too large to say much: keep away from them.
            let mut builder = Builder::new("unary", 3);
            let x = builder.input(dtype, &shape);
            builder.tokens(0, 0);
            let x = match op {
                UnaryOp::Log | UnaryOp::Reciprocal | UnaryOp::Rsqrt | UnaryOp::Sqrt => {
                    let positive = builder.same(Op::Unary(UnaryOp::Abs), &[x], x);
                    builder.same(Op::Clamp { min: 0.25, max: 2.5 }, &[positive], x)
                }
                _ => x,
            };
            let y = builder.emit(Op::Unary(op), &[x], out, &shape);
            builder.output(y);
            check_tokens(&format!("{op:?} of {dtype}"), builder, tolerance);
        }
    }
    for op in [UnaryOp::Abs, UnaryOp::Negate, UnaryOp::Square, UnaryOp::LogicalNot, UnaryOp::Ceil, UnaryOp::Floor] {
        for &dtype in INTEGERS {
            let out = if op == UnaryOp::LogicalNot { DType::Bool } else { dtype };
            let shape = [T, known(71)];
            one_node(&format!("{op:?} of {dtype}"), Op::Unary(op), &[(dtype, &shape)], (out, &shape), EXACT);
        }
    }
}

#[test]
fn binary_with_every_kind_of_broadcasting() {
    let shapes: &[[&[Int]; 3]] = &[
        [&[T, known(5), known(16)], &[T, known(5), known(16)], &[T, known(5), known(16)]],
        [&[T, known(5), known(16)], &[known(16)], &[T, known(5), known(16)]],
        [&[T, known(5), known(16)], &[T, known(1), known(1)], &[T, known(5), known(16)]],
        [&[T, known(1), known(3)], &[known(4), known(3)], &[T, known(4), known(3)]],
        [&[T, known(1)], &[known(1), known(1), known(7)], &[known(1), T, known(7)]],
        [&[T], &[], &[T]],
    ];
    for &op in BINARY {
        for [a, b, out] in shapes {
            for &dtype in [&[DType::F32, DType::F16, DType::Bool][..], INTEGERS].concat().iter() {
                let arithmetic = !op.gives_bool();
                if dtype == DType::Bool && arithmetic {
                    continue;
                }
                if op == BinaryOp::Divide && INTEGERS.contains(&dtype) {
                    continue;
                }
                let result = if arithmetic { dtype } else { DType::Bool };
                let tolerance = if op == BinaryOp::Divide { CLOSE } else { EXACT };
                one_node(
                    &format!("{op:?} of {dtype}"),
                    Op::Binary(op),
                    &[(dtype, a), (dtype, b)],
                    (result, out),
                    tolerance,
                );
            }
        }
    }
}

#[test]
fn large_elementwise_is_cut_at_any_place() {
    for [a, b] in
        [[&[3, 7, 2001][..], &[2001][..]], [&[3, 7, 2001], &[7, 1]], [&[1], &[3, 7, 2001]], [&[42_021], &[42_021]]]
    {
        let mut builder = Builder::new("large", 5);
        let (x, y) = (builder.input(DType::F32, &dims(a)), builder.input(DType::F32, &dims(b)));
        let out = if a.len() >= b.len() { a } else { b };
        let product = builder.emit(Op::Binary(BinaryOp::Multiply), &[x, y], DType::F32, &dims(out));
        let sum = builder.emit(Op::Binary(BinaryOp::Subtract), &[product, y], DType::F32, &dims(out));
        let less = builder.emit(Op::Binary(BinaryOp::Less), &[sum, x], DType::Bool, &dims(out));
        let choice = builder.emit(Op::Where, &[less, sum, x], DType::F32, &dims(out));
        let silu = builder.emit(Op::Unary(UnaryOp::Silu), &[choice], DType::F32, &dims(out));
        [sum, less, choice, silu].into_iter().for_each(|value| builder.output(value));
        let runs = [builder.inputs(1, 0)];
        check("large", &builder.graph, &runs, CLOSE);
    }
}

#[test]
fn integers_divide_towards_zero_and_never_by_zero() {
    let mut builder = Builder::new("divide", 1);
    let a = builder.input_within(DType::I32, &[known(200)], (-1000, 1000));
    let b = builder.input_within(DType::I32, &[known(200)], (1, 9));
    let out = builder.same(Op::Binary(BinaryOp::Divide), &[a, b], a);
    builder.output(out);
    let mut inputs = builder.inputs(1, 0);
    check("divide", &builder.graph, &[inputs.clone()], EXACT);
    inputs[1] = llama_runner::graph::interpret::Tensor::integers(DType::I32, &[200], vec![0; 200]);
    let mut instance = engine_common::compile(&builder.graph, &engine_common::pools()[0]).unwrap();
    let error = engine_common::run(&mut instance, &builder.graph, &inputs).unwrap_err().to_string();
    assert!(error.contains("Divide") && error.contains("by zero"), "{error}");
    assert!(instance.output(0).is_none());
}

#[test]
fn clamp_where_and_convert() {
    let shape = [T, known(9)];
    for &dtype in [REALS, INTEGERS].concat().iter() {
        one_node("clamp", Op::Clamp { min: -1.5, max: 1.0 }, &[(dtype, &shape)], (dtype, &shape), EXACT);
        let condition = [T, known(1)];
        let inputs: &[(DType, &[Int])] = &[(dtype, &[known(9)]), (DType::Bool, &condition), (dtype, &shape)];
        let mut builder = Builder::new("where", 4);
        builder.tokens(1, 0);
        let ids: Vec<_> = inputs.iter().map(|(dtype, shape)| builder.input(*dtype, shape)).collect();
        let out = builder.emit(Op::Where, &[ids[1], ids[0], ids[2]], dtype, &shape);
        builder.output(out);
        check_tokens("where", builder, EXACT);
        for &to in [REALS, INTEGERS, &[DType::Bool]].concat().iter() {
            one_node(&format!("{dtype} to {to}"), Op::Convert, &[(dtype, &shape)], (to, &shape), EXACT);
        }
    }
    one_node("bool to f32", Op::Convert, &[(DType::Bool, &shape)], (DType::F32, &shape), EXACT);
}

#[test]
fn convert_between_reals_and_codes() {
    for (dtype, scale, zero_point) in [(DType::U8, 0.02, 100), (DType::I8, 0.05, -7), (DType::U16, 1e-4, 30_000)] {
        let bits = 8 * dtype.size() as u8;
        let quantized = Quantization::PerTensor { bits, encoding: Encoding { scale, zero_point } };
        let mut builder = Builder::new("codes", 8);
        let shape = [T, known(20)];
        let x = builder.input(DType::F32, &shape);
        let codes = builder.input_within(dtype, &shape, (0, 100));
        builder.tokens(0, 0);
        let y = builder.emit(Op::Convert, &[x], dtype, &shape);
        let sum = builder.emit(Op::Binary(BinaryOp::Add), &[y, codes], dtype, &shape);
        for value in [codes, y, sum] {
            builder.graph.value_mut(value).quantization = Some(quantized.clone());
        }
        let moved = builder.emit(Op::Permute { perm: vec![1, 0] }, &[sum], dtype, &[known(20), T]);
        builder.graph.value_mut(moved).quantization = Some(quantized.clone());
        let real = builder.emit(Op::Convert, &[moved], DType::F32, &[known(20), T]);
        [y, sum, moved, real, codes].into_iter().for_each(|value| builder.output(value));
        check_tokens(&format!("codes of {dtype}"), builder, 1e-6);
    }
}

#[test]
fn movement_of_every_element_size() {
    for dtype in [DType::U8, DType::F16, DType::U16, DType::F32, DType::I64, DType::Bool] {
        let shape = [T, known(3), known(4), known(5)];
        let x = (dtype, &shape[..]);
        one_node("reshape", Op::Reshape, &[x], (dtype, &[known(1), T, known(60)]), EXACT);
        for perm in [[0, 1, 2, 3], [1, 0, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [2, 3, 0, 1]] {
            let out = perm.map(|axis| shape[axis]);
            one_node("permute", Op::Permute { perm: perm.to_vec() }, &[x], (dtype, &out), EXACT);
        }
        for (axis, start, step, count) in [(3, 1, 2, 2), (2, 0, 1, 3), (1, 2, 1, 1), (3, 4, 1, 1)] {
            let mut out = shape;
            out[axis] = known(count);
            one_node("slice", Op::Slice { axis, start: known(start), step }, &[x], (dtype, &out), EXACT);
        }
        let expanded = [T, known(3), known(4), known(5)];
        one_node("expand", Op::Expand, &[(dtype, &[T, known(1), known(1), known(5)])], (dtype, &expanded), EXACT);
        one_node("expand", Op::Expand, &[(dtype, &[T, known(1)])], (dtype, &[known(6), known(1), T, known(2)]), EXACT);
        let mut builder = Builder::new("concat", 6);
        builder.tokens(0, 0);
        let parts = [[T, known(2), known(3)], [T, known(1), known(3)], [T, known(2), known(3)]];
        let parts = parts.map(|shape| builder.input(dtype, &shape));
        let out = builder.emit(Op::Concat { axis: 1 }, &parts, dtype, &[T, known(5), known(3)]);
        let rows = builder.emit(Op::Reshape, &[out], dtype, &[T, known(15)]);
        let same = builder.emit(Op::Concat { axis: 1 }, &[rows], dtype, &[T, known(15)]);
        [out, same].into_iter().for_each(|value| builder.output(value));
        check_tokens("concat", builder, EXACT);
    }
}

#[test]
fn slices_at_run_time_positions_are_views_of_tables() {
    let mut builder = Builder::new("tables", 2);
    let x = builder.input(DType::F32, &[known(1), T, known(6)]);
    let tokens = builder.tokens(0, 1);
    builder.input(DType::I64, &[known(1)]);
    let position = builder.item(1, 20);
    let table = builder.constant_f32(&[1, 30, 6]);
    let rows = builder.emit(
        Op::Slice { axis: 1, start: position, step: 1 },
        &[table],
        DType::F32,
        &[known(1), tokens, known(6)],
    );
    let sum = builder.same(Op::Binary(BinaryOp::Add), &[x, rows], x);
    let alias = builder.emit(Op::Reshape, &[rows], DType::F32, &[tokens, known(6)]);
    let product = builder.same(Op::Binary(BinaryOp::Multiply), &[sum, alias], x);
    [product, rows].into_iter().for_each(|value| builder.output(value));
    let runs: Vec<_> =
        [(1, 0), (9, 20), (3, 7), (3, 8)].map(|(tokens, position)| builder.inputs(tokens, position)).into();
    check("tables", &builder.graph, &runs, EXACT);
}

#[test]
fn made_from_nothing() {
    for dtype in [DType::F32, DType::F16, DType::I64, DType::U8, DType::I32] {
        let mut builder = Builder::new("made", 2);
        builder.input(DType::I64, &[T]);
        let tokens = builder.tokens(0, 0);
        let position = builder.item(0, 20);
        let arange = builder.emit(Op::Arange { start: position, step: -3 }, &[], dtype, &[tokens]);
        let fill = builder.emit(Op::Fill { value: 2.5 }, &[], dtype, &[tokens, known(3)]);
        let scalar = builder.emit(Op::Scalar { value: position }, &[], dtype, &[known(1), known(1)]);
        [arange, fill, scalar].into_iter().for_each(|value| builder.output(value));
        check_tokens("made", builder, EXACT);
    }
}

#[test]
fn reductions() {
    let shape = [T, known(5), known(33)];
    for (axes, out) in [
        (vec![2], [T, known(5), known(1)]),
        (vec![1], [T, known(1), known(33)]),
        (vec![0], [known(1), known(5), known(33)]),
        (vec![1, 2], [T, known(1), known(1)]),
        (vec![0, 2], [known(1), known(5), known(1)]),
    ] {
        for dtype in [DType::F32, DType::BF16] {
            let tolerance = if dtype == DType::F32 { CLOSE } else { 0.01 };
            one_node("mean", Op::Mean { axes: axes.clone() }, &[(dtype, &shape)], (dtype, &out), tolerance);
        }
        if let [axis] = axes[..] {
            for dtype in [DType::F32, DType::Bool, DType::I32, DType::U8] {
                let mut builder = Builder::new("any", 9);
                let x = builder.input_within(dtype, &shape, (0, 1));
                builder.tokens(0, 0);
                let y = builder.input_within(dtype, &out, (0, 2));
                let both = if dtype == DType::Bool {
                    Op::Binary(BinaryOp::LogicalAnd)
                } else {
                    Op::Binary(BinaryOp::Multiply)
                };
                let mixed = builder.emit(both, &[x, y], dtype, &shape);
                for value in [x, y, mixed] {
                    let from = builder.graph.value(value).shape.clone();
                    let to: Vec<_> =
                        from.iter().enumerate().map(|(i, &dim)| if i == axis { known(1) } else { dim }).collect();
                    let any = builder.emit(Op::Any { axis }, &[value], DType::Bool, &to);
                    builder.output(any);
                }
                check_tokens("any", builder, EXACT);
            }
        }
    }
    for axis in 0..3 {
        one_node("softmax", Op::Softmax { axis }, &[(DType::F32, &shape)], (DType::F32, &shape), CLOSE);
        one_node("softmax", Op::Softmax { axis }, &[(DType::F16, &shape)], (DType::F16, &shape), 1e-3);
    }
}
