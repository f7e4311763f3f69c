//! The verifier, defect by defect; the printer; rewriting.

use super::testing::{AttentionForm, Llama, dims, f32_blob};
use super::*;
use crate::base::storage::Blob;
use crate::tensor::{DType, Encoding};

/// Input `x [tokens, 4]`, position input, a state, a weight, and one node of each kind that the tests bend.
fn sample() -> Graph {
    let mut graph = Graph::new("sample");
    let tokens = graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 0 }, 1, 8);
    let start = graph.symbol("start", SymbolSource::InputItem { input: 1, index: 0 }, 0, 8);
    let x = graph.add_input("x", DType::F32, vec![tokens, 4.into()]);
    graph.add_input("start", DType::I64, dims(&[1]));
    let (state, cache) = graph.add_state("cache", DType::F32, &[16, 4]);
    let weight = graph.add_constant("w", DType::F32, &[4, 4], None, f32_blob(&[1.0; 16]));
    let y = graph.emit("linear #0", Op::FullyConnected, &[x, weight], DType::F32, vec![tokens, 4.into()]);
    let written = graph.emit("write #1", Op::SliceUpdate { axis: 0, start }, &[cache, y], DType::F32, dims(&[16, 4]));
    graph.outputs.push(y);
    graph.state_updates.push((state, written));
    graph
}

const X: ValueId = ValueId(0);
const START: ValueId = ValueId(1);
const CACHE: ValueId = ValueId(2);
const WEIGHT: ValueId = ValueId(3);
const Y: ValueId = ValueId(4);
const WRITTEN: ValueId = ValueId(5);
const TOKENS: Int = Int::Symbol(SymbolId(0));

fn refused(bend: impl FnOnce(&mut Graph)) -> String {
    let mut graph = sample();
    graph.verify().expect("the sample is well formed");
    bend(&mut graph);
    graph.verify().expect_err("the bent sample is not").to_string()
}

/// The refusal of one node more, which gives `shape` of `dtype`.
fn refused_node(op: Op, inputs: &[ValueId], dtype: DType, shape: Vec<Int>) -> String {
    refused(|graph| {
        graph.emit("odd", op, inputs, dtype, shape);
    })
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (bend, part) in [
        ((|graph| graph.nodes[0].inputs[0] = ValueId(99)) as fn(&mut Graph), "names value 99, and there are 6"),
        (|graph| graph.nodes[0].outputs[0] = ValueId(99), "names value 99"),
        (|graph| graph.outputs[0] = ValueId(99), "names value 99"),
        (|graph| graph.inputs[0] = ValueId(99), "no input"),
        (|graph| graph.value_mut(Y).shape[0] = Int::Symbol(SymbolId(9)), "value linear #0 names symbol 9"),
        (|graph| graph.nodes[1].op = Op::SliceUpdate { axis: 0, start: Int::Symbol(SymbolId(9)) }, "names symbol 9"),
        (|graph| graph.value_mut(CACHE).kind = ValueKind::State(StateId(9)), "names state 9"),
        (|graph| graph.state_updates[0].0 = StateId(9), "state updates names state 9"),
    ] {
        let message = refused(bend);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_value_used_before_it_is_made_is_refused() {
    let message = refused(|graph| graph.nodes.swap(0, 1));
    assert_eq!(message, "node 0 (write #1) uses value linear #0 before it is made");
    let message = refused(|graph| {
        let lost = graph.add_computed("lost", DType::F32, dims(&[1]));
        graph.outputs.push(lost);
    });
    assert_eq!(message, "graph results uses value lost before it is made");
}

#[test]
fn a_value_made_twice_is_refused() {
    let message = refused(|graph| graph.nodes.push(graph.nodes[0].clone()));
    assert_eq!(message, "node 2 (linear #0) makes value linear #0, which is made already");
    let message = refused(|graph| graph.nodes[0].outputs[0] = X);
    assert!(message.contains("makes value x"), "{message}");
}

#[test]
fn inputs_that_do_not_know_their_place_are_refused() {
    let message = refused(|graph| graph.inputs.swap(0, 1));
    assert!(message.contains("input"), "{message}");
    let message = refused(|graph| graph.value_mut(Y).kind = ValueKind::Input(0));
    assert_eq!(message, "value linear #0: it calls itself input 0, which is another");
    let message = refused(|graph| graph.value_mut(WEIGHT).kind = ValueKind::Input(7));
    assert!(message.contains("calls itself input 7"), "{message}");
}

#[test]
fn symbols_without_a_source_or_bounds_are_refused() {
    for (source, part) in [
        (SymbolSource::InputDim { input: 0, axis: 2 }, "an axis that no input has"),
        (SymbolSource::InputDim { input: 5, axis: 0 }, "an axis that no input has"),
        (SymbolSource::InputItem { input: 5, index: 0 }, "an input that does not exist"),
        (SymbolSource::InputItem { input: 0, index: 0 }, "an input without integers"),
        (SymbolSource::Sum(Int::Const(1), Int::Symbol(SymbolId(1))), "a later symbol"),
        (SymbolSource::Product(Int::Symbol(SymbolId(7)), Int::Const(1)), "a later symbol"),
    ] {
        let message = refused(|graph| graph.symbols[1].source = source);
        assert!(message.starts_with("value symbol start") && message.contains(part), "{message}");
    }
    let message = refused(|graph| graph.symbols[0].min = 9);
    assert_eq!(message, "value symbol tokens: its bounds are empty");
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let message = refused(|graph| graph.value_mut(Y).shape[1] = Int::Const(-1));
    assert_eq!(message, "value linear #0: a size is -1");
    let message = refused(|graph| graph.value_mut(Y).shape = dims(&[1 << 30, 1 << 30]));
    assert!(message.contains("too large"), "{message}");
    let message = refused(|graph| graph.states[0].shape = vec![1 << 30, 1 << 30]);
    assert!(message.contains("cache"), "{message}");
    let message = refused(|graph| graph.value_mut(WEIGHT).shape[0] = TOKENS);
    assert_eq!(message, "value w: a constant of unknown size");
}

#[test]
fn constants_of_another_length_are_refused() {
    let message =
        refused(|graph| graph.value_mut(WEIGHT).kind = ValueKind::Constant(Constant { data: f32_blob(&[0.0]) }));
    assert!(message.starts_with("value w: 4 bytes"), "{message}");
}

fn refused_quantization(quantization: Quantization, dtype: DType, bytes: usize) -> String {
    refused(|graph| {
        graph.add_constant("q", dtype, &[2, 6], Some(quantization), Blob::from_vec(vec![0; bytes]));
    })
}

#[test]
fn quantizations_that_do_not_fit_their_codes_are_refused() {
    let scales = |count: usize| Constant { data: f32_blob(&vec![1.0; count]) };
    let blockwise = |block, count, scale_dtype, zero_points| Quantization::Blockwise {
        bits: 4,
        block,
        scales: scales(count),
        scale_dtype,
        zero_points,
        order: CodeOrder::LowFirst,
    };
    let encoding = Encoding { scale: 1.0, zero_point: 0 };
    let one_point = Some(Constant { data: Blob::from_vec(vec![0]) });
    for (quantization, dtype, bytes, part) in [
        (blockwise(3, 4, DType::F32, None), DType::U8, 5, "5 bytes for"),
        (blockwise(3, 3, DType::F32, None), DType::U8, 6, "12 bytes of scales where 16"),
        (blockwise(3, 4, DType::BF16, None), DType::U8, 6, "16 bytes of scales where 8"),
        (blockwise(3, 4, DType::F16, None), DType::U8, 6, "scales of type f16"),
        (blockwise(4, 4, DType::F32, None), DType::U8, 6, "6 columns are not whole blocks of 4"),
        (blockwise(0, 4, DType::F32, None), DType::U8, 6, "whole blocks of 0"),
        (blockwise(3, 4, DType::F32, one_point), DType::U8, 6, "1 bytes of zero points where 4"),
        (blockwise(3, 4, DType::F32, None), DType::I8, 6, "codes of 4 bits in i8"),
        (Quantization::PerChannel { bits: 8, axis: 2, scales: scales(2) }, DType::I8, 12, "axis 2 of its scales"),
        (Quantization::PerChannel { bits: 8, axis: 1, scales: scales(2) }, DType::I8, 12, "8 bytes of scales where 24"),
        (Quantization::PerTensor { bits: 16, encoding }, DType::I8, 12, "codes of 16 bits in i8"),
        (Quantization::PerTensor { bits: 32, encoding }, DType::F32, 48, "codes of 32 bits in f32"),
        (Quantization::DynamicPerRow { nonbatch_dims: 1 }, DType::I8, 12, "a constant cannot be quantized dynamically"),
        (Quantization::DynamicPerRow { nonbatch_dims: 3 }, DType::I8, 12, "rows of 3 axes in i8 of rank 2"),
        (Quantization::DynamicPerRow { nonbatch_dims: 1 }, DType::U8, 12, "rows of 1 axes in u8"),
    ] {
        let message = refused_quantization(quantization.clone(), dtype, bytes);
        assert!(message.contains(part), "{quantization:?}: {message}");
    }
}

#[test]
fn states_keep_their_shape_and_have_one_next() {
    let message = refused(|graph| graph.value_mut(CACHE).shape = dims(&[4, 16]));
    assert_eq!(message, "value cache: state cache has another shape or type");
    let message = refused(|graph| graph.state_updates[0].1 = Y);
    assert_eq!(message, "state cache is updated with linear #0, which has another shape or type");
    let message = refused(|graph| graph.state_updates.push((StateId(0), CACHE)));
    assert!(message.contains("state cache"), "{message}");
}

#[test]
fn nodes_of_another_arity_are_refused() {
    for op in [Op::Reshape, Op::Where, Op::Concat { axis: 0 }, Op::SwiGlu, Op::Embedding] {
        let message = refused_node(op.clone(), &[], DType::F32, dims(&[1]));
        assert!(message.starts_with("node 2 (odd)"), "{op:?}: {message}");
    }
    let message = refused_node(Op::Fill { value: 0.0 }, &[X], DType::F32, dims(&[1]));
    assert_eq!(message, "node 2 (odd): 1 operands and 1 results where 0 and 1 are needed");
}

#[test]
fn movements_that_do_not_fit_are_refused() {
    let same = || vec![TOKENS, 4.into()];
    for (op, inputs, dtype, shape) in [
        (Op::Reshape, &[X][..], DType::F32, vec![TOKENS, 5.into()]),
        (Op::Reshape, &[X], DType::F16, same()),
        (Op::Permute { perm: vec![1, 1] }, &[X], DType::F32, same()),
        (Op::Permute { perm: vec![0, 2] }, &[X], DType::F32, same()),
        (Op::Permute { perm: vec![0] }, &[X], DType::F32, same()),
        (Op::Permute { perm: vec![1, 0] }, &[X], DType::F32, same()),
        (Op::Slice { axis: 2, start: 0.into(), step: 1 }, &[X], DType::F32, same()),
        (Op::Slice { axis: 1, start: 0.into(), step: 0 }, &[X], DType::F32, same()),
        (Op::Slice { axis: 1, start: 1.into(), step: 1 }, &[X], DType::F32, same()),
        (Op::Slice { axis: 1, start: 1.into(), step: 2 }, &[X], DType::F32, vec![TOKENS, 3.into()]),
        (Op::Slice { axis: 1, start: 1.into(), step: usize::MAX }, &[X], DType::F32, vec![TOKENS, 2.into()]),
        (Op::Slice { axis: 1, start: Int::Const(-1), step: 1 }, &[X], DType::F32, vec![TOKENS, 2.into()]),
        (Op::Slice { axis: 1, start: 0.into(), step: 1 }, &[X], DType::F32, vec![1.into(), 4.into()]),
        (Op::Concat { axis: 2 }, &[X], DType::F32, same()),
        (Op::Concat { axis: 1 }, &[X, X], DType::F32, vec![TOKENS, 7.into()]),
        (Op::Concat { axis: 1 }, &[X, START], DType::F32, vec![TOKENS, 5.into()]),
        (Op::Expand, &[X], DType::F32, vec![TOKENS, 8.into()]),
        (Op::Expand, &[X], DType::F32, vec![4.into()]),
        (Op::Embedding, &[WEIGHT, X], DType::F32, vec![TOKENS, 4.into(), 4.into()]),
        (Op::Embedding, &[WEIGHT, START], DType::F32, dims(&[1, 5])),
        (Op::Embedding, &[START, START], DType::I64, dims(&[1])),
        (Op::SliceUpdate { axis: 1, start: 0.into() }, &[CACHE, Y], DType::F32, dims(&[16, 4])),
        (Op::SliceUpdate { axis: 0, start: 0.into() }, &[WEIGHT, CACHE], DType::F32, dims(&[4, 4])),
        (Op::SliceUpdate { axis: 0, start: 0.into() }, &[CACHE, START], DType::F32, dims(&[16, 4])),
        (Op::Scalar { value: TOKENS }, &[], DType::I64, dims(&[2])),
    ] {
        let message = refused_node(op.clone(), inputs, dtype, shape);
        assert!(message.starts_with("node 2 (odd)"), "{op:?}: {message}");
    }
}

#[test]
fn arithmetic_on_operands_that_do_not_fit_is_refused() {
    let same = || vec![TOKENS, 4.into()];
    let add = Op::Binary(BinaryOp::Add);
    for (op, inputs, dtype, shape) in [
        (Op::Unary(UnaryOp::Tanh), &[START][..], DType::I64, dims(&[1])),
        (Op::Unary(UnaryOp::Tanh), &[X], DType::F32, dims(&[1])),
        (Op::Unary(UnaryOp::Abs), &[X], DType::I32, same()),
        (Op::Unary(UnaryOp::LogicalNot), &[X], DType::F32, same()),
        (add.clone(), &[X, START], DType::F32, same()),
        (add.clone(), &[X, CACHE], DType::F32, same()),
        (add.clone(), &[X, X], DType::Bool, same()),
        (Op::Binary(BinaryOp::Less), &[X, X], DType::F32, same()),
        (Op::Clamp { min: 0.0, max: 1.0 }, &[X], DType::F16, same()),
        (Op::Where, &[X, X, X], DType::F32, same()),
        (Op::Convert, &[X], DType::F16, dims(&[1])),
        (Op::Mean { axes: vec![1] }, &[X], DType::F32, same()),
        (Op::Mean { axes: vec![2] }, &[X], DType::F32, same()),
        (Op::Mean { axes: vec![0] }, &[START], DType::I64, dims(&[1])),
        (Op::Any { axis: 1 }, &[X], DType::F32, vec![TOKENS, 1.into()]),
        (Op::Softmax { axis: 2 }, &[X], DType::F32, same()),
        (Op::Softmax { axis: 0 }, &[START], DType::I64, dims(&[1])),
        (Op::FullyConnected, &[X, CACHE], DType::F32, same()),
        (Op::FullyConnected, &[X, WEIGHT, X], DType::F32, same()),
        (Op::FullyConnected, &[START, WEIGHT], DType::F32, dims(&[4])),
        (Op::MatMul { transpose_b: true }, &[X, CACHE], DType::F32, same()),
        (Op::MatMul { transpose_b: false }, &[X, CACHE], DType::F32, vec![TOKENS, 16.into()]),
        (Op::MatMul { transpose_b: false }, &[X, START], DType::F32, same()),
        (Op::RmsNorm { epsilon: 0.0 }, &[X, START], DType::F32, same()),
        (Op::RmsNorm { epsilon: 0.0 }, &[X, WEIGHT], DType::F32, same()),
        (Op::SwiGlu, &[X, WEIGHT], DType::F32, same()),
    ] {
        let message = refused_node(op.clone(), inputs, dtype, shape);
        assert!(message.starts_with("node 2 (odd)"), "{op:?}: {message}");
    }
}

/// The refusal of a fused llama of which the first node that `is` was bent.
fn refused_fused(is: fn(&Op) -> bool, bend: fn(&mut Node)) -> String {
    let mut graph = Llama { attention: AttentionForm::Fused, ..Llama::default() }.build();
    graph.verify().expect("the llama is well formed");
    bend(graph.nodes.iter_mut().find(|node| is(&node.op)).expect("the llama has such a node"));
    graph.verify().expect_err("the bent llama is not").to_string()
}

#[test]
fn fused_operations_on_operands_that_do_not_fit_are_refused() {
    const HEADS_FIRST: CacheLayout = CacheLayout::HeadMajor;
    let attention: fn(&Op) -> bool = |op| matches!(op, Op::Attention { .. });
    let update: fn(&Op) -> bool = |op| matches!(op, Op::CacheUpdate { .. });
    type Case = (fn(&Op) -> bool, fn(&mut Node), &'static str);
    let bends: [Case; 7] = [
        (attention, |node| node.inputs.truncate(2), "attention needs q, k, v"),
        (attention, |node| node.inputs.swap(0, 1), "attention: shapes"),
        (attention, |node| node.inputs.push(node.inputs[0]), "mask: shapes"),
        (
            attention,
            |node| node.op = Op::Attention { layout: HEADS_FIRST, start: 0.into(), scale: 1.0 },
            "attention: shapes",
        ),
        (
            attention,
            |node| node.op = Op::QuantizedAttention { layout: HEADS_FIRST, start: 0.into(), scale: 1.0 },
            "3 operands where",
        ),
        (update, |node| node.op = Op::CacheUpdate { layout: HEADS_FIRST, start: 0.into() }, "cache update: shapes"),
        (update, |node| node.inputs[1] = ValueId(0), "operands of different types"),
    ];
    for (is, bend, part) in bends {
        let message = refused_fused(is, bend);
        assert!(message.contains(part), "{part}: {message}");
    }
    let rotary = Op::Rotary { style: RotaryStyle::Half };
    let message = refused_node(rotary, &[X, X, X], DType::F32, vec![TOKENS, 4.into()]);
    assert!(message.contains("rotary: shapes"), "{message}");
    let quantize = Op::QuantizePerToken { zero_point_dtype: DType::I64 };
    let message = refused(|graph| {
        let codes = graph.add_computed("codes", DType::I8, vec![TOKENS, 4.into()]);
        let rest = [DType::F32, DType::I64].map(|dtype| graph.add_computed("q", dtype, vec![TOKENS, 4.into()]));
        graph.add_node("odd", quantize.clone(), &[X], &[codes, rest[0], rest[1]]);
    });
    assert!(message.contains("quantize per token: shapes"), "{message}");
    let message = refused(|graph| {
        let results =
            [DType::U8, DType::F32, DType::I64].map(|dtype| graph.add_computed("q", dtype, vec![TOKENS, 4.into()]));
        graph.add_node("odd", quantize, &[X], &results);
    });
    assert!(message.contains("results of u8, f32 and i64"), "{message}");
}

#[test]
fn every_spelling_of_the_llama_verifies() {
    for attention in
        [AttentionForm::Plain, AttentionForm::PositionMajor, AttentionForm::CacheLess, AttentionForm::Fused]
    {
        for quantized in [false, true] {
            Llama { attention, quantized, ..Llama::default() }.build().verify().unwrap();
        }
    }
}

#[test]
fn the_printed_graph_names_everything_once() {
    assert_eq!(
        sample().to_string(),
        "graph sample (2 nodes)\n\
         \x20 $0 tokens = InputDim { input: 0, axis: 0 } in 1..=8\n\
         \x20 $1 start = InputItem { input: 1, index: 0 } in 0..=8\n\
         \x20 input  %0:f32[tokens, 4]\n\
         \x20 input  %1:i64[1]\n\
         \x20 state  @0 cache f32[16, 4]\n\
         \x20 %4:f32[tokens, 4] = FullyConnected(%0, const %3:f32[4, 4])  # linear #0\n\
         \x20 %5:f32[16, 4] = SliceUpdate { axis: 0, start: Symbol(SymbolId(1)) }(@0, %4)  # write #1\n\
         \x20 @0 := %5\n\
         \x20 return %4\n"
    );
}

#[test]
fn the_printer_shows_quantizations() {
    let mut graph = Graph::new("q");
    let scales = Constant { data: f32_blob(&[1.0; 4]) };
    let data = || Blob::from_vec(vec![0; 8]);
    let blockwise = Quantization::Blockwise {
        bits: 4,
        block: 4,
        scales: scales.clone(),
        scale_dtype: DType::F32,
        zero_points: None,
        order: CodeOrder::LowFirst,
    };
    graph.add_constant("b", DType::U8, &[4, 4], Some(blockwise), data());
    graph.add_constant("c", DType::I8, &[4, 2], Some(Quantization::PerChannel { bits: 8, axis: 0, scales }), data());
    let encoding = Encoding { scale: 0.5, zero_point: 3 };
    graph.add_constant("t", DType::U8, &[8], Some(Quantization::PerTensor { bits: 8, encoding }), data());
    let dynamic = graph.add_computed("d", DType::I8, dims(&[4]));
    graph.value_mut(dynamic).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
    graph.outputs = (0..4).map(ValueId).collect();
    let text = graph.to_string();
    let line = "return const %0:u8[4, 4]q4/block4, const %1:i8[4, 2]q8/axis0, const %2:u8[8]q(0.5, 3), %3\n";
    assert!(text.ends_with(line), "{text}");
}

#[test]
fn equal_sources_are_one_symbol_and_known_arithmetic_is_done() {
    let mut graph = sample();
    let sum = graph.symbol("end", SymbolSource::Sum(TOKENS, Int::Const(1)), 2, 9);
    assert_eq!(graph.symbol("again", SymbolSource::Sum(TOKENS, Int::Const(1)), 2, 9), sum);
    for (source, known) in [
        (SymbolSource::Sum(2.into(), 3.into()), 5),
        (SymbolSource::Difference(2.into(), 3.into()), -1),
        (SymbolSource::Product(2.into(), 3.into()), 6),
        (SymbolSource::FloorQuotient(Int::Const(-7), 2.into()), -4),
        (SymbolSource::FloorQuotient(7.into(), Int::Const(-2)), -4),
        (SymbolSource::FloorQuotient(Int::Const(-7), Int::Const(-2)), 3),
    ] {
        assert_eq!(graph.symbol("known", source, 0, 0), Int::Const(known), "{source:?}");
    }
    assert_eq!(graph.symbols.len(), 3);
}

#[test]
fn compaction_renumbers_every_mention() {
    let mut graph = sample();
    graph.values.insert(0, Value { name: "unused".into(), ..graph.value(Y).clone() });
    let shift = |value: &mut ValueId| value.0 += 1;
    graph.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs)).for_each(shift);
    graph.inputs.iter_mut().chain(&mut graph.outputs).for_each(shift);
    graph.state_updates.iter_mut().for_each(|(_, value)| shift(value));
    graph.verify().unwrap();
    let numbers = graph.compact();
    assert_eq!(numbers[..3], [None, Some(X), Some(START)]);
    graph.verify().unwrap();
    assert_eq!(graph.to_string(), sample().to_string());
    assert_eq!(graph.value(WRITTEN).name, "write #1");
}

#[test]
fn a_rewrite_keeps_order_and_uses() {
    let mut graph = sample();
    let replaced = graph.rewrite(|graph, before, id| {
        let node = &before.nodes()[id];
        (node.op == Op::FullyConnected).then(|| {
            let mut replacement = Replacement::new();
            let shape = graph.value(node.outputs[0]).shape.clone();
            let product = replacement.emit(graph, node, Op::MatMul { transpose_b: true }, &node.inputs, shape);
            replacement.finish(node, Op::Unary(UnaryOp::Abs), &[product])
        })
    });
    assert_eq!(replaced, 1);
    graph.verify().unwrap();
    assert_eq!(
        graph.nodes.iter().map(|node| &node.origin[..]).collect::<Vec<_>>(),
        ["linear #0", "linear #0", "write #1"]
    );
    assert_eq!(graph.nodes[1].outputs, [Y]);
}
