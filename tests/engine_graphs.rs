//! Random graphs whose values are used again and again: working in place must never show. And the refusals.

mod engine_common;

use engine_common::{Builder, MAX_TOKENS, check, compile, dims, pools, run};
use llama_runner::Error;
use llama_runner::engine::{EngineError, InputView};
use llama_runner::error::Status;
use llama_runner::graph::interpret::Tensor;
use llama_runner::graph::{BinaryOp, Int, Op, Quantization, StateId, UnaryOp, ValueId};
use llama_runner::tensor::DType;

const COLUMNS: usize = 6;
const ROWS: usize = 4;

/// Values of shape `[tokens, COLUMNS]`, and of shape `[ROWS, COLUMNS]`.
struct Pools {
    long: Vec<ValueId>,
    fixed: Vec<ValueId>,
    tokens: Int,
}

impl Pools {
    fn grow(&mut self, b: &mut Builder) {
        let long = [self.tokens, COLUMNS.into()];
        let fixed = dims(&[ROWS, COLUMNS]);
        let (x, y) = (b.random.pick(&self.long), b.random.pick(&self.long));
        let (s, t) = (b.random.pick(&self.fixed), b.random.pick(&self.fixed));
        let op = b.random.pick(&[BinaryOp::Add, BinaryOp::Subtract, BinaryOp::Multiply, BinaryOp::Maximum]);
        let row = |b: &mut Builder, of: ValueId, last: usize| {
            let start = Int::from(b.random.below(last + 1));
            b.emit(Op::Slice { axis: 0, start, step: 1 }, &[of], DType::F32, &dims(&[1, COLUMNS]))
        };
        match b.random.below(12) {
            0 => self.long.push(b.same(Op::Binary(op), &[x, y], x)),
            1 => self.fixed.push(b.same(Op::Binary(op), &[s, t], s)),
            2 => {
                let row = row(b, s, ROWS - 1);
                self.long.push(b.same(Op::Binary(op), &[x, row], x));
            }
            3 => {
                let clamped = b.same(Op::Clamp { min: -2.0, max: 2.0 }, &[x], x);
                self.long.push(b.same(Op::Unary(UnaryOp::Negate), &[clamped], x));
            }
            4 => {
                let wide = b.emit(Op::Reshape, &[x], DType::F32, &[Int::Const(1), self.tokens, COLUMNS.into()]);
                self.long.push(b.emit(Op::Reshape, &[wide], DType::F32, &long));
            }
            5 => {
                let turned = b.emit(Op::Permute { perm: vec![1, 0] }, &[x], DType::F32, &[COLUMNS.into(), self.tokens]);
                let turned = b.same(Op::Unary(UnaryOp::Abs), &[turned], turned);
                self.long.push(b.emit(Op::Permute { perm: vec![1, 0] }, &[turned], DType::F32, &long));
            }
            6 => {
                let less = b.emit(Op::Binary(BinaryOp::Less), &[x, y], DType::Bool, &long);
                self.long.push(b.same(Op::Where, &[less, y, x], x));
            }
            7 => {
                let row = row(b, t, ROWS - 1);
                let start = Int::from(b.random.below(ROWS));
                self.fixed.push(b.same(Op::SliceUpdate { axis: 0, start }, &[s, row], s));
            }
            8 => {
                let row = row(b, x, 0);
                let start = Int::from(b.random.below(ROWS));
                self.fixed.push(b.same(Op::SliceUpdate { axis: 0, start }, &[s, row], s));
            }
            9 => {
                let row = row(b, s, ROWS - 1);
                let row = b.same(Op::Unary(UnaryOp::Negate), &[row], row);
                let start = Int::from(b.random.below(ROWS));
                self.long.push(b.same(Op::Binary(op), &[x, row], x));
                self.fixed.push(b.same(Op::SliceUpdate { axis: 0, start }, &[t, row], t));
            }
            10 => {
                let parts = [s, t].map(|of| {
                    b.emit(
                        Op::Slice { axis: 0, start: 1usize.into(), step: 1 },
                        &[of],
                        DType::F32,
                        &dims(&[2, COLUMNS]),
                    )
                });
                self.fixed.push(b.emit(Op::Concat { axis: 0 }, &parts, DType::F32, &fixed));
            }
            _ => {
                let half = b.emit(Op::Convert, &[s], DType::F16, &fixed);
                let doubled = b.emit(Op::Binary(BinaryOp::Add), &[half, half], DType::F16, &fixed);
                self.fixed.push(b.emit(Op::Convert, &[doubled], DType::F32, &fixed));
            }
        }
    }
}

fn random_graph(seed: u64) -> Builder {
    let mut b = Builder::new("random", seed);
    let tokens = b.tokens(0, 0);
    let first = b.input(DType::F32, &[tokens, COLUMNS.into()]);
    let other = b.input(DType::F32, &dims(&[ROWS, COLUMNS]));
    let constant = b.constant_f32(&[ROWS, COLUMNS]);
    let mut pools = Pools { long: vec![first], fixed: vec![other, constant], tokens };
    let states: Vec<StateId> = (0..3)
        .map(|i| {
            let (state, value) = b.graph.add_state(format!("state {i}"), DType::F32, &[ROWS, COLUMNS]);
            pools.fixed.push(value);
            state
        })
        .collect();
    for _ in 0..3 + b.random.below(20) {
        pools.grow(&mut b);
    }
    for state in states {
        if b.random.below(5) > 0 {
            let mut value = b.random.pick(&pools.fixed);
            if b.random.below(3) == 0 {
                value = b.emit(Op::Reshape, &[value], DType::F32, &dims(&[ROWS, COLUMNS]));
            }
            b.graph.state_updates.push((state, value));
        }
    }
    for _ in 0..1 + b.random.below(4) {
        let pool = if b.random.below(2) == 0 { &pools.long } else { &pools.fixed };
        let value = b.random.pick(pool);
        b.output(value);
    }
    b
}

#[test]
fn random_graphs_equal_the_interpreter_to_the_bit() {
    for seed in 0..400 {
        let mut builder = random_graph(seed);
        let runs: Vec<_> = [1, 3, MAX_TOKENS, 2].map(|tokens| builder.inputs(tokens, 0)).into();
        check(&format!("seed {seed}"), &builder.graph, &runs, 0.0);
    }
}

#[test]
fn states_may_trade_places() {
    let mut b = Builder::new("swap", 1);
    let x = b.input(DType::F32, &dims(&[3]));
    let [(s, a), (t, c)] = ["a", "b"].map(|name| b.graph.add_state(name, DType::F32, &[3]));
    let sum = b.same(Op::Binary(BinaryOp::Add), &[c, x], c);
    b.graph.state_updates = vec![(s, sum), (t, a)];
    [a, c, sum].into_iter().for_each(|value| b.output(value));
    let runs: Vec<_> = (0..5).map(|_| b.inputs(1, 0)).collect();
    check("swap", &b.graph, &runs, 0.0);
}

#[test]
fn states_of_every_type_keep_their_contents() {
    for dtype in [DType::F32, DType::F16, DType::I8, DType::I64, DType::Bool] {
        let mut b = Builder::new("types", 1);
        let x = b.input(dtype, &dims(&[5]));
        let (state, old) = b.graph.add_state("state", dtype, &[5]);
        let op = if dtype == DType::Bool { Op::Binary(BinaryOp::LogicalOr) } else { Op::Binary(BinaryOp::Add) };
        let sum = b.same(op, &[old, x], x);
        b.graph.state_updates.push((state, sum));
        [sum, old, x].into_iter().for_each(|value| b.output(value));
        let runs: Vec<_> = (0..4).map(|_| b.inputs(1, 0)).collect();
        check("types", &b.graph, &runs, 0.0);
    }
}

#[test]
fn zero_tokens_are_a_run_like_any_other() {
    let mut b = Builder::new("none", 1);
    let tokens = b.graph.symbol("tokens", llama_runner::graph::SymbolSource::InputDim { input: 0, axis: 0 }, 0, 8);
    let x = b.input(DType::F32, &[tokens, 64usize.into()]);
    let w = b.blockwise([32, 64], 32);
    let y = b.emit(Op::DynamicQuantLinear, &[x, w], DType::F32, &[tokens, 32usize.into()]);
    let gamma = b.constant_f32(&[32]);
    let z = b.same(Op::RmsNorm { epsilon: 1e-5 }, &[y, gamma], y);
    let z = b.same(Op::Softmax { axis: 1 }, &[z], z);
    let joined = b.emit(Op::Concat { axis: 1 }, &[y, z], DType::F32, &[tokens, 64usize.into()]);
    let square = b.constant_f32(&[64, 64]);
    let out = b.emit(Op::MatMul { transpose_b: false }, &[joined, square], DType::F32, &[tokens, 64usize.into()]);
    b.output(out);
    let runs: Vec<_> = [0, 3, 0].map(|tokens| b.inputs(tokens, 0)).into();
    check("none", &b.graph, &runs, 1e-5);
}

fn add_graph() -> Builder {
    let mut b = Builder::new("add", 1);
    let tokens = b.tokens(0, 0);
    let x = b.input(DType::F32, &[tokens, 3usize.into()]);
    let y = b.same(Op::Binary(BinaryOp::Add), &[x, x], x);
    b.output(y);
    b
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let b = add_graph();
    let mut instance = compile(&b.graph, &pools()[0]).unwrap();
    let bytes = [0; 24];
    assert!(matches!(instance.run(&[]), Err(EngineError::InputCount { have: 0, need: 1 })));
    for (dims, bytes) in [(&[2usize, 4][..], &bytes[..]), (&[2], &bytes), (&[2, 3, 1], &bytes), (&[2, 3], &bytes[..23])]
    {
        match instance.run(&[InputView { dims, bytes }]) {
            Err(error @ (EngineError::Input { .. } | EngineError::Symbol { .. })) => {
                assert_eq!(Error::from(error).status(), Status::InvalidArgument);
            }
            other => panic!("{dims:?}: {other:?}"),
        }
    }
    instance.run(&[InputView { dims: &[2, 3], bytes: &bytes }]).unwrap();
    assert_eq!(instance.output(0).unwrap().dims, [2, 3]);
    assert!(instance.output(1).is_none());
}

#[test]
fn inputs_need_no_alignment() {
    let b = add_graph();
    let mut instance = compile(&b.graph, &pools()[0]).unwrap();
    let mut bytes = [0u8; 40];
    for shift in 0..8 {
        let input = &mut bytes[shift..shift + 12];
        input.copy_from_slice(&[1.5f32, -2.0, 8.25].map(f32::to_le_bytes).concat());
        instance.run(&[InputView { dims: &[1, 3], bytes: input }]).unwrap();
        assert_eq!(instance.output(0).unwrap().bytes, [3.0f32, -4.0, 16.5].map(f32::to_le_bytes).concat());
    }
}

#[test]
fn failures_name_their_node() {
    let mut b = Builder::new("rows", 1);
    let tokens = b.tokens(0, 0);
    let ids = b.input(DType::I64, &[tokens]);
    let table = b.constant_f32(&[5, 2]);
    let rows = b.emit(Op::Embedding, &[table, ids], DType::F32, &[tokens, 2usize.into()]);
    b.output(rows);
    let mut instance = compile(&b.graph, &pools()[0]).unwrap();
    for bad in [5, -1, i64::MAX, i64::MIN] {
        match run(&mut instance, &b.graph, &[Tensor::integers(DType::I64, &[2], vec![0, bad])]) {
            Err(EngineError::Node { origin, why }) => {
                assert!(origin.contains("Embedding") && why.contains(&bad.to_string()), "{origin} {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    run(&mut instance, &b.graph, &[Tensor::integers(DType::I64, &[2], vec![4, 0])]).unwrap();
}

#[test]
fn ranges_that_leave_an_axis_at_run_time_are_refused() {
    let mut b = Builder::new("slice", 1);
    b.input(DType::I64, &[Int::Const(1)]);
    let position = b.item(0, 100);
    let table = b.constant_f32(&[10, 2]);
    let rows = b.emit(Op::Slice { axis: 0, start: position, step: 1 }, &[table], DType::F32, &dims(&[4, 2]));
    b.output(rows);
    let mut instance = compile(&b.graph, &pools()[0]).unwrap();
    for position in [7, 100] {
        let inputs = b.inputs(1, position);
        let error = run(&mut instance, &b.graph, &inputs).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EngineError::Shape { .. }), "{text}");
        assert!(text.contains("Slice") && text.contains("leave an axis of 10"), "{text}");
    }
    let inputs = b.inputs(1, 6);
    run(&mut instance, &b.graph, &inputs).unwrap();
}

#[test]
fn graphs_that_nobody_can_run_are_refused() {
    let pool = &pools()[0];
    let mut b = add_graph();
    b.graph.nodes[0].inputs.pop();
    assert!(matches!(compile(&b.graph, pool), Err(EngineError::Verify(_))));

    let mut b = Builder::new("rows out", 1);
    let x = b.input(DType::F32, &dims(&[2, 8]));
    let y = b.emit(Op::Convert, &[x], DType::I8, &dims(&[2, 8]));
    b.graph.value_mut(y).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
    b.output(y);
    match compile(&b.graph, pool) {
        Err(error @ EngineError::Unsupported { .. }) => assert_eq!(Error::from(error).status(), Status::NotSupported),
        other => panic!("{other:?}"),
    }

    let mut b = Builder::new("axes", 1);
    let x = b.input(DType::F32, &dims(&[1; 17]));
    b.output(x);
    assert!(matches!(compile(&b.graph, pool), Err(EngineError::Unsupported { .. })));
}
