//! Layers, matrix products, fused operations and caches, on every kind of weights and layout, equal the reference
//! interpreter: with sizes known only at run time, and with one thread as with two.

mod engine_common;

use engine_common::{Builder, T, check, check_tokens, dims, known, one_node};
use llama_runner::base::storage::Blob;
use llama_runner::graph::{BinaryOp, CacheLayout, CodeOrder, Int, Op, Quantization, RotaryStyle, UnaryOp, ValueId};
use llama_runner::tensor::{DType, Encoding};

const EXACT: f32 = 0.0;
const CLOSE: f32 = 2e-6;

/// Makes a value in a graph.
type Make = Box<dyn Fn(&mut Builder) -> ValueId>;

#[test]
fn embedding_from_every_kind_of_table() {
    let (rows, columns) = (17, 24);
    let count = rows * columns;
    let mut tables: Vec<Make> = Vec::new();
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
        let quantization = Quantization::Blockwise {
            bits: 4,
            block: 32,
            scales,
            scale_dtype: DType::F32,
            zero_points,
            order: CodeOrder::LowFirst,
        };
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
        with_points,
        high_first,
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
