//! Every operation of the graph, on random shapes and types, equals the reference interpreter: alone, with sizes known
//! only at run time, and with one thread as with two.

mod engine_common;

use engine_common::{Builder, MAX_TOKENS, check, dims};
use llama_runner::base::storage::Blob;
use llama_runner::graph::{BinaryOp, CacheLayout, CodeOrder, Int, Op, Quantization, RotaryStyle, UnaryOp, ValueId};
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

/// Runs the graph with 1, all and some tokens.
fn check_tokens(name: &str, mut builder: Builder, tolerance: f32) {
    let runs: Vec<_> = [1, MAX_TOKENS, 4, 1].into_iter().map(|tokens| builder.inputs(tokens, 2)).collect();
    check(name, &builder.graph, &runs, tolerance);
}

/// A graph of one node over inputs of these types and shapes, where `T` is the number of tokens.
fn one_node(name: &str, op: Op, inputs: &[(DType, &[Int])], out: (DType, &[Int]), tolerance: f32) {
    let mut builder = Builder::new(name, 7);
    let ids: Vec<ValueId> = inputs.iter().map(|(dtype, shape)| builder.input(*dtype, shape)).collect();
    builder.tokens(0, 0);
    let out = builder.emit(op, &ids, out.0, out.1);
    builder.output(out);
    check_tokens(name, builder, tolerance);
}

const T: Int = Int::Symbol(llama_runner::graph::SymbolId(0));

fn known(size: i64) -> Int {
    Int::Const(size)
}

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

#[test]
fn embedding_from_every_kind_of_table() {
    let (rows, columns) = (17, 24);
    let count = rows * columns;
    let mut tables: Vec<Box<dyn Fn(&mut Builder) -> ValueId>> = Vec::new();
    tables.push(Box::new(move |b| b.constant_f32(&[rows, columns])));
    tables.push(Box::new(move |b| {
        let halves = b.random.reals(count).into_iter().flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect();
        b.graph.add_constant("table", DType::F16, &[rows, columns], None, Blob::from_vec(halves))
    }));
    for (bits, dtype) in [(2u8, DType::U8), (4, DType::U8), (8, DType::I8)] {
        let orders = [CodeOrder::LowFirst, CodeOrder::HighFirst];
        for (zero, order) in [false, true].into_iter().zip(orders).chain([(false, CodeOrder::HighFirst)]) {
            tables.push(Box::new(move |b| {
                let blocks = rows * columns / 8;
                let scales = b.scales(blocks);
                let points = llama_runner::graph::Constant { data: Blob::from_vec(b.random.bytes(blocks)) };
                let zero_points = zero.then_some(points);
                let quantization =
                    Quantization::Blockwise { bits, block: 8, scales, scale_dtype: DType::F32, zero_points, order };
                b.constant_codes(&[rows, columns], dtype, quantization)
            }));
        }
        for axis in 0..2 {
            tables.push(Box::new(move |b| {
                let scales = b.scales([rows, columns][axis]);
                b.constant_codes(&[rows, columns], dtype, Quantization::PerChannel { bits, axis, scales })
            }));
        }
    }
    tables.push(Box::new(move |b| {
        let encoding = Encoding { scale: 0.01, zero_point: 77 };
        b.constant_codes(&[rows, columns], DType::U8, Quantization::PerTensor { bits: 8, encoding })
    }));
    tables.push(Box::new(move |b| b.input(DType::F32, &dims(&[rows, columns]))));
    for (index, table) in tables.iter().enumerate() {
        for indices in [DType::I64, DType::I32, DType::U8] {
            let mut builder = Builder::new("embedding", index as u64);
            let ids = builder.input_within(indices, &[known(1), T], (0, rows as i64));
            builder.tokens(0, 1);
            let table = table(&mut builder);
            let out = builder.emit(Op::Embedding, &[table, ids], DType::F32, &[known(1), T, known(columns as i64)]);
            builder.output(out);
            check_tokens(&format!("embedding {index}"), builder, EXACT);
        }
    }
}

#[test]
fn linear_layers_with_every_kind_of_weights() {
    let real: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| b.constant_f32(&[n, k]);
    let half: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let halves = b.random.reals(n * k).into_iter().flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect();
        b.graph.add_constant("w", DType::F16, &[n, k], None, Blob::from_vec(halves))
    };
    let blockwise: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| b.blockwise([n, k], 32);
    let odd_blocks: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let scales = b.scales(n * k / 4);
        let quantization = Quantization::Blockwise {
            bits: 4,
            block: 4,
            scales,
            scale_dtype: DType::F32,
            zero_points: None,
            order: CodeOrder::LowFirst,
        };
        b.constant_codes(&[n, k], DType::U8, quantization)
    };
    let with_points: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let scales = b.scales(n * k / 32);
        let points = (0..n * k / 32).map(|_| b.random.below(16) as u8).collect();
        let zero_points = Some(llama_runner::graph::Constant { data: Blob::from_vec(points) });
        let (scale_dtype, order) = (DType::F32, CodeOrder::LowFirst);
        let quantization = Quantization::Blockwise { bits: 4, block: 32, scales, scale_dtype, zero_points, order };
        b.constant_codes(&[n, k], DType::U8, quantization)
    };
    let high_first: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let (scales, scale_dtype, order) = (b.scales(n * k / 8), DType::F32, CodeOrder::HighFirst);
        let quantization = Quantization::Blockwise { bits: 4, block: 8, scales, scale_dtype, zero_points: None, order };
        b.constant_codes(&[n, k], DType::U8, quantization)
    };
    let channels4: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let scales = b.scales(n);
        b.constant_codes(&[n, k], DType::U8, Quantization::PerChannel { bits: 4, axis: 0, scales })
    };
    let channels2: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let scales = b.scales(n);
        b.constant_codes(&[n, k], DType::U8, Quantization::PerChannel { bits: 2, axis: 0, scales })
    };
    let channels8: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let scales = b.scales(n);
        b.constant_codes(&[n, k], DType::I8, Quantization::PerChannel { bits: 8, axis: 0, scales })
    };
    let columns8: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let scales = b.scales(k);
        b.constant_codes(&[n, k], DType::I8, Quantization::PerChannel { bits: 8, axis: 1, scales })
    };
    let tensor8: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let encoding = Encoding { scale: 0.01, zero_point: 128 };
        b.constant_codes(&[n, k], DType::U8, Quantization::PerTensor { bits: 8, encoding })
    };
    let computed: fn(&mut Builder, usize, usize) -> ValueId = |b, n, k| {
        let w = b.constant_f32(&[n, k]);
        b.same(Op::Unary(UnaryOp::Negate), &[w], w)
    };
    let kinds = [
        real,
        half,
        blockwise,
        odd_blocks,
        high_first,
        with_points,
        channels4,
        channels2,
        channels8,
        columns8,
        tensor8,
        computed,
    ];
    for (kind, weights) in kinds.into_iter().enumerate() {
        for (n, k) in [(40, 64), (17, 96)] {
            for bias in 0..3 {
                for form in 0..3 {
                    let mut builder = Builder::new("linear", (kind * 100 + n + bias) as u64);
                    let shape = [known(1), T, known(k as i64)];
                    let x = builder.input(DType::F32, &shape);
                    builder.tokens(0, 1);
                    let w = weights(&mut builder, n, k);
                    let mut inputs = vec![x, w];
                    match bias {
                        1 => inputs.push(builder.constant_f32(&[n])),
                        2 => {
                            let constant = builder.constant_f32(&[n]);
                            inputs.push(builder.same(Op::Unary(UnaryOp::Abs), &[constant], constant));
                        }
                        _ => {}
                    }
                    let op = if form == 1 { Op::DynamicQuantLinear } else { Op::FullyConnected };
                    if form == 2 {
                        inputs[0] = builder.emit(Op::Convert, &[x], DType::I8, &shape);
                        let rows = Quantization::DynamicPerRow { nonbatch_dims: 1 };
                        builder.graph.value_mut(inputs[0]).quantization = Some(rows);
                    }
                    let out = builder.emit(op, &inputs, DType::F32, &[known(1), T, known(n as i64)]);
                    builder.output(out);
                    check_tokens(&format!("linear {kind}, bias {bias}, form {form}"), builder, 1e-5);
                }
            }
        }
    }
}

#[test]
fn layers_over_one_input_quantize_it_once() {
    let mut builder = Builder::new("shared", 3);
    let shape = [known(1), T, known(64)];
    let x = builder.input(DType::F32, &shape);
    builder.tokens(0, 1);
    let mut outs = Vec::new();
    for (index, n) in [48, 16, 16, 80, 5, 33].into_iter().enumerate() {
        let rows = builder.emit(Op::Convert, &[x], DType::I8, &shape);
        builder.graph.value_mut(rows).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
        let w = if index == 4 {
            let scales = builder.scales(n);
            builder.constant_codes(&[n, 64], DType::I8, Quantization::PerChannel { bits: 8, axis: 0, scales })
        } else {
            builder.blockwise([n, 64], 32)
        };
        let dtype = if index == 3 { DType::F16 } else { DType::F32 };
        outs.push(builder.emit(Op::FullyConnected, &[rows, w], dtype, &[known(1), T, known(n as i64)]));
        if index == 1 {
            let real = builder.emit(Op::Convert, &[rows], DType::F32, &shape);
            outs.push(real);
        }
    }
    outs.into_iter().for_each(|value| builder.output(value));
    let instance = engine_common::compile(&builder.graph, &engine_common::pools()[0]).unwrap();
    // Four layers and one of 4-bit weights, one of 8-bit weights; rounding for f16; the rows that are read, and their two uses.
    assert!(instance.compiled().step_count() <= 6, "{}", instance.compiled().step_count());
    check_tokens("shared", builder, 1e-3);
}

#[test]
fn matrix_products_broadcast_their_batches() {
    let cases: &[[&[Int]; 3]] = &[
        [&[T, known(7)], &[known(7), known(5)], &[T, known(5)]],
        [&[known(2), T, known(7)], &[known(7), known(5)], &[known(2), T, known(5)]],
        [&[known(3), T, known(8)], &[known(3), known(8), known(17)], &[known(3), T, known(17)]],
        [
            &[known(2), known(3), T, known(8)],
            &[known(2), known(1), known(8), known(4)],
            &[known(2), known(3), T, known(4)],
        ],
        [&[known(1), T, known(8)], &[known(3), known(8), known(4)], &[known(3), T, known(4)]],
    ];
    for [a, b, out] in cases {
        for transpose_b in [false, true] {
            for constant in [false, true] {
                let mut builder = Builder::new("matmul", 5);
                let x = builder.input(DType::F32, a);
                builder.tokens(0, a.len() - 2);
                let mut b: Vec<Int> = b.to_vec();
                if transpose_b {
                    let rank = b.len();
                    b.swap(rank - 1, rank - 2);
                }
                let y = if constant {
                    let shape: Vec<usize> = b.iter().map(|&dim| builder.graph.bounds(dim).1 as usize).collect();
                    builder.constant_f32(&shape)
                } else {
                    builder.input(DType::F32, &b)
                };
                let z = builder.emit(Op::MatMul { transpose_b }, &[x, y], DType::F32, out);
                builder.output(z);
                check_tokens("matmul", builder, CLOSE);
            }
        }
    }
}

#[test]
fn fused_operations() {
    for dtype in [DType::F32, DType::F16] {
        let tolerance = if dtype == DType::F32 { CLOSE } else { 2e-3 };
        let shape = [known(1), T, known(72)];
        one_node(
            "swiglu",
            Op::SwiGlu,
            &[(dtype, &[T, known(72)]), (dtype, &[T, known(72)])],
            (dtype, &[T, known(72)]),
            tolerance,
        );
        let mut builder = Builder::new("rms", 3);
        let x = builder.input(dtype, &shape);
        builder.tokens(0, 1);
        let gamma = builder.constant_f32(&[72]);
        let y = builder.same(Op::RmsNorm { epsilon: 1e-5 }, &[x, gamma], x);
        builder.output(y);
        check_tokens("rms", builder, tolerance);
        for style in [RotaryStyle::Interleaved, RotaryStyle::Half] {
            let mut builder = Builder::new("rotary", 3);
            let x = builder.input(dtype, &[known(2), T, known(3), known(8)]);
            builder.tokens(0, 1);
            let cos = builder.input(DType::F32, &[T, known(4)]);
            let sin = builder.input(DType::F32, &[T, known(4)]);
            let y = builder.same(Op::Rotary { style }, &[x, cos, sin], x);
            builder.output(y);
            check_tokens("rotary", builder, tolerance);
        }
    }
}

#[test]
fn quantize_per_token_gives_the_very_codes() {
    for zero_point_dtype in [DType::I8, DType::I64, DType::I32] {
        let mut builder = Builder::new("per token", 3);
        let (shape, one) = ([known(2), T, known(19)], [known(2), T, known(1)]);
        let x = builder.input(DType::F32, &shape);
        builder.tokens(0, 1);
        let codes = builder.graph.add_computed("codes", DType::I8, shape.to_vec());
        let scales = builder.graph.add_computed("scales", DType::F32, one.to_vec());
        let points = builder.graph.add_computed("points", zero_point_dtype, one.to_vec());
        let op = Op::QuantizePerToken { zero_point_dtype };
        builder.graph.add_node("quantize", op, &[x], &[codes, scales, points]);
        [codes, scales, points].into_iter().for_each(|value| builder.output(value));
        check_tokens("per token", builder, EXACT);
    }
}

#[test]
fn updates_of_slices_and_caches() {
    for dtype in [DType::F32, DType::F16, DType::I8, DType::I64] {
        let mut builder = Builder::new("update", 3);
        let x = builder.input(dtype, &[known(2), T, known(3)]);
        let tokens = builder.tokens(0, 1);
        builder.input(DType::I64, &[known(1)]);
        let position = builder.item(1, 20);
        let target = builder.input(dtype, &dims(&[2, 32, 3]));
        let y = builder.emit(Op::SliceUpdate { axis: 1, start: position }, &[target, x], dtype, &dims(&[2, 32, 3]));
        builder.output(y);
        for layout in [CacheLayout::PositionMajor, CacheLayout::HeadMajor] {
            let new = builder.input(dtype, &[known(2), tokens, known(4), known(3)]);
            let shape = match layout {
                CacheLayout::PositionMajor => [2, 32, 4, 3],
                CacheLayout::HeadMajor => [2, 4, 32, 3],
            };
            let (state, old) = builder.graph.add_state(format!("{layout:?}"), dtype, &shape);
            let cache = builder.emit(Op::CacheUpdate { layout, start: position }, &[old, new], dtype, &dims(&shape));
            builder.graph.state_updates.push((state, cache));
            let doubled = builder.emit(Op::Binary(BinaryOp::Add), &[cache, cache], dtype, &dims(&shape));
            builder.output(doubled);
        }
        let runs: Vec<_> = [(4, 0), (1, 4), (9, 12), (1, 20)].map(|(t, p)| builder.inputs(t, p)).into();
        check("update", &builder.graph, &runs, EXACT);
    }
}

#[test]
fn attention_in_both_layouts_with_and_without_a_mask() {
    for layout in [CacheLayout::PositionMajor, CacheLayout::HeadMajor] {
        for (heads, kv_heads, dim) in [(4, 4, 8), (6, 2, 20), (3, 1, 16)] {
            for masked in [false, true] {
                for start in [None, Some(-3), Some(12), Some(40)] {
                    let mut builder = Builder::new("attention", 11);
                    let positions = 16usize;
                    let q = builder.input(DType::F32, &[known(2), T, known(heads), known(dim)]);
                    let tokens = builder.tokens(0, 1);
                    builder.input(DType::I64, &[known(1)]);
                    let position = builder.item(1, 7);
                    let (p, h, d) = (positions, kv_heads as usize, dim as usize);
                    let shape = match layout {
                        CacheLayout::PositionMajor => [2, p, h, d],
                        CacheLayout::HeadMajor => [2, h, p, d],
                    };
                    let (k, v) = (builder.input(DType::F32, &dims(&shape)), builder.input(DType::F32, &dims(&shape)));
                    let mut inputs = vec![q, k, v];
                    if masked {
                        let mask = builder.input(DType::F32, &[known(1), tokens, known(16)]);
                        let hidden = builder.input(DType::Bool, &[known(1), tokens, known(16)]);
                        let hide = builder.graph.add_scalar_f32("hide", f32::NEG_INFINITY);
                        inputs.push(builder.same(Op::Where, &[hidden, hide, mask], mask));
                    }
                    let start = start.map_or(position, known);
                    let op = Op::Attention { layout, start, scale: 0.3 };
                    let y = builder.same(op, &inputs, q);
                    builder.output(y);
                    let runs: Vec<_> = [(1, 0), (9, 7), (5, 3)].map(|(t, p)| builder.inputs(t, p)).into();
                    check(
                        &format!("attention {layout:?} {heads}/{kv_heads} {masked} {start:?}"),
                        &builder.graph,
                        &runs,
                        5e-6,
                    );
                }
            }
        }
    }
}

#[test]
fn attention_over_codes() {
    for layout in [CacheLayout::PositionMajor, CacheLayout::HeadMajor] {
        for points in [DType::I8, DType::I32] {
            for quantized_q in [false, true] {
                let mut builder = Builder::new("attention", 11);
                let (heads, kv_heads, dim, positions) = (4i64, 2usize, 12usize, 16usize);
                let q_shape = [known(1), T, known(heads), known(dim as i64)];
                let q = builder.input_within(if quantized_q { DType::I8 } else { DType::F32 }, &q_shape, (-128, 128));
                let tokens = builder.tokens(0, 1);
                builder.input(DType::I64, &[known(1)]);
                let position = builder.item(1, 7);
                let mut shape = match layout {
                    CacheLayout::PositionMajor => [1, positions, kv_heads, dim],
                    CacheLayout::HeadMajor => [1, kv_heads, positions, dim],
                };
                let [k, v] = [0, 1].map(|_| builder.input_within(DType::I8, &dims(&shape), (-128, 128)));
                shape[3] = 1;
                let mut inputs = vec![q, k, v];
                for _ in 0..2 {
                    inputs.push(builder.input(DType::F32, &dims(&shape)));
                    inputs.push(builder.input_within(points, &dims(&shape), (-20, 20)));
                }
                if quantized_q {
                    let shape = [known(1), tokens, known(heads), known(1)];
                    inputs.push(builder.input(DType::F32, &shape));
                    inputs.push(builder.input_within(points, &shape, (-20, 20)));
                }
                let op = Op::QuantizedAttention { layout, start: position, scale: 1e-4 };
                let y = builder.emit(op, &inputs, DType::F32, &q_shape);
                builder.output(y);
                let runs: Vec<_> = [(1, 0), (9, 7), (5, 3)].map(|(t, p)| builder.inputs(t, p)).into();
                check("attention over codes", &builder.graph, &runs, 1e-5);
            }
        }
    }
}
