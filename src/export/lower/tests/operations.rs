//! Single operations that whole models have not, and what is refused.

use super::super::{LowerError, portable, xnnpack};
use super::*;
use crate::base::storage::Blob;
use crate::graph::testing::{Rng, dims, f32_blob};
use crate::graph::{BinaryOp, CodeOrder, Constant, Int, Op, SymbolSource, UnaryOp, ValueId};
use crate::tensor::Encoding;
use half::bf16;

/// A graph under construction, with what its inputs hold.
struct Sketch {
    graph: Graph,
    inputs: Vec<Tensor>,
    rng: Rng,
}

impl Sketch {
    fn new() -> Self {
        Self { graph: Graph::new("forward"), inputs: Vec::new(), rng: Rng(5) }
    }

    fn real(&mut self, shape: &[usize]) -> ValueId {
        let data = self.rng.reals(shape.iter().product());
        self.inputs.push(Tensor::f32(shape, data));
        self.graph.add_input(format!("x{}", self.inputs.len()), DType::F32, dims(shape))
    }

    fn integers(&mut self, dtype: DType, shape: &[usize], data: &[i64]) -> ValueId {
        self.inputs.push(Tensor::integers(dtype, shape, data));
        self.graph.add_input(format!("i{}", self.inputs.len()), dtype, dims(shape))
    }

    fn constant(&mut self, shape: &[usize]) -> ValueId {
        let data = self.rng.reals(shape.iter().product());
        self.graph.add_constant("constant", DType::F32, shape, None, f32_blob(&data))
    }

    fn emit(&mut self, op: Op, inputs: &[ValueId], dtype: DType, shape: &[usize]) -> ValueId {
        self.graph.emit(format!("{op:?}"), op, inputs, dtype, dims(shape))
    }

    /// Also an output.
    fn out(&mut self, op: Op, inputs: &[ValueId], dtype: DType, shape: &[usize]) -> ValueId {
        let id = self.emit(op, inputs, dtype, shape);
        self.graph.outputs.push(id);
        id
    }

    fn encode(&mut self, id: ValueId, scale: f32, zero_point: i32) {
        let value = self.graph.value_mut(id);
        let (bits, encoding) = (8 * value.dtype.size() as u8, Encoding { scale, zero_point });
        value.quantization = Some(Quantization::PerTensor { bits, encoding });
    }

    fn check(&self) {
        let mut assets = Assets::default();
        let plan = portable::lower(&self.graph, &mut assets).unwrap_or_else(|error| panic!("{error}"));
        check(&self.graph, &program(plan, assets), &[self.inputs.clone(), self.inputs.clone()], 1e-5);
    }

    fn refusal(&self) -> String {
        portable::lower(&self.graph, &mut Assets::default()).unwrap_err().to_string()
    }
}

#[test]
fn elementwise_operations() {
    use BinaryOp::*;
    use UnaryOp::*;
    let mut of = Sketch::new();
    let (x, y) = (of.real(&[2, 3]), of.real(&[3]));
    for op in [Abs, Cos, Exp, Gelu, GeluTanh, Negate, Reciprocal, Sigmoid, Silu, Sin, Square, Tanh] {
        of.out(Op::Unary(op), &[x], DType::F32, &[2, 3]);
    }
    let positive = of.emit(Op::Unary(Exp), &[x], DType::F32, &[2, 3]);
    for op in [Log, Rsqrt, Sqrt] {
        of.out(Op::Unary(op), &[positive], DType::F32, &[2, 3]);
    }
    for op in [Add, Subtract, Multiply, Divide, Maximum, Minimum] {
        of.out(Op::Binary(op), &[x, y], DType::F32, &[2, 3]);
    }
    let truths = [Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual];
    let truths = truths.map(|op| of.out(Op::Binary(op), &[x, y], DType::Bool, &[2, 3]));
    of.out(Op::Binary(LogicalAnd), &truths[1..3], DType::Bool, &[2, 3]);
    of.out(Op::Binary(LogicalOr), &truths[1..3], DType::Bool, &[2, 3]);
    of.out(Op::Unary(LogicalNot), &truths[2..3], DType::Bool, &[2, 3]);
    of.out(Op::Any { axis: 1 }, &truths[2..3], DType::Bool, &[2, 1]);
    of.out(Op::Where, &[truths[2], x, y], DType::F32, &[2, 3]);
    of.out(Op::Clamp { min: -0.25, max: 0.5 }, &[x], DType::F32, &[2, 3]);
    of.out(Op::Mean { axes: vec![0, 1] }, &[x], DType::F32, &[1, 1]);
    of.out(Op::Softmax { axis: 1 }, &[x], DType::F32, &[2, 3]);
    of.check();
}

#[test]
fn movement_and_numbers_out_of_nothing() {
    let mut of = Sketch::new();
    let (x, y) = (of.real(&[2, 3, 4]), of.real(&[2, 1, 4]));
    of.out(Op::Reshape, &[x], DType::F32, &[6, 4]);
    let permuted = of.out(Op::Permute { perm: vec![2, 0, 1] }, &[x], DType::F32, &[4, 2, 3]);
    let flat = of.emit(Op::Reshape, &[permuted], DType::F32, &[24]);
    of.out(Op::Slice { axis: 0, start: 1.into(), step: 5 }, &[flat], DType::F32, &[4]);
    of.out(Op::Concat { axis: 1 }, &[y, x, y], DType::F32, &[2, 5, 4]);
    of.out(Op::Expand, &[y], DType::F32, &[2, 3, 4]);
    of.out(Op::SliceUpdate { axis: 1, start: 1.into() }, &[x, y], DType::F32, &[2, 3, 4]);
    of.out(Op::Arange { start: 3.into(), step: 2 }, &[], DType::I64, &[5]);
    of.out(Op::Fill { value: -1.5 }, &[], DType::F32, &[2, 2]);
    of.out(Op::Fill { value: 3.0 }, &[], DType::I64, &[2]);
    of.out(Op::Scalar { value: 7.into() }, &[], DType::I64, &[1, 1]);
    of.out(Op::Convert, &[x], DType::I32, &[2, 3, 4]);
    of.check();
}

#[test]
fn products_of_any_rank() {
    let mut of = Sketch::new();
    let product = |transpose_b| Op::MatMul { transpose_b };
    let (a, b) = (of.real(&[2, 3]), of.real(&[3, 4]));
    of.out(product(false), &[a, b], DType::F32, &[2, 4]);
    let (a, b) = (of.real(&[2, 5, 2, 3]), of.real(&[2, 1, 4, 3]));
    let inner = of.emit(product(true), &[a, b], DType::F32, &[2, 5, 2, 4]);
    of.out(Op::Unary(UnaryOp::Negate), &[inner], DType::F32, &[2, 5, 2, 4]);
    of.out(product(true), &[a, b], DType::F32, &[2, 5, 2, 4]);
    let (a, b) = (of.real(&[3, 2, 3]), of.real(&[3, 4]));
    of.out(product(false), &[a, b], DType::F32, &[3, 2, 4]);
    of.check();
}

#[test]
fn linear_layers_with_biases_and_half_precision_weights() {
    let mut of = Sketch::new();
    let x = of.real(&[2, 4]);
    let (w, bias) = (of.constant(&[3, 4]), of.constant(&[3]));
    of.out(Op::FullyConnected, &[x, w, bias], DType::F32, &[2, 3]);
    let half: Vec<u8> = of.rng.reals(12).into_iter().flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect();
    let w = of.graph.add_constant("half", DType::BF16, &[3, 4], None, Blob::from_vec(half));
    of.out(Op::FullyConnected, &[x, w], DType::F32, &[2, 3]);
    of.check();
}

fn table(of: &mut Sketch, bits: u8, dtype: DType, with_zero_points: bool) -> ValueId {
    let (rows, columns, block) = (5, 64, 32);
    let codes = (0..rows * columns * usize::from(bits) / 8).map(|_| of.rng.below(256) as u8).collect();
    let scales: Vec<f32> = (0..rows * 2).map(|_| 0.1 + of.rng.real().abs()).collect();
    let points = with_zero_points.then(|| Constant { data: Blob::from_vec((0..rows as u8 * 2).collect()) });
    let order = if bits == 4 { CodeOrder::HighFirst } else { CodeOrder::LowFirst };
    let quantization = Quantization::Blockwise {
        bits,
        block,
        scales: Constant { data: f32_blob(&scales) },
        scale_dtype: DType::F32,
        zero_points: points,
        order,
    };
    of.graph.add_constant("table", dtype, &[rows, columns], Some(quantization), Blob::from_vec(codes))
}

#[test]
fn embeddings() {
    let mut of = Sketch::new();
    let ids = of.integers(DType::I64, &[1, 3], &[4, 0, 2]);
    let small = of.integers(DType::I32, &[2], &[1, 3]);
    let plain = of.constant(&[5, 64]);
    of.out(Op::Embedding, &[plain, ids], DType::F32, &[1, 3, 64]);
    of.out(Op::Embedding, &[plain, small], DType::F32, &[2, 64]);
    for (bits, dtype, zero_points) in
        [(4, DType::U8, false), (4, DType::U8, true), (2, DType::U8, false), (8, DType::I8, false)]
    {
        let table = table(&mut of, bits, dtype, zero_points);
        of.out(Op::Embedding, &[table, ids], DType::F32, &[1, 3, 64]);
        of.out(Op::Embedding, &[table, small], DType::F32, &[2, 64]);
    }
    of.check();
}

#[test]
fn codes_at_the_border() {
    let mut of = Sketch::new();
    let x = of.real(&[2, 3]);
    for (dtype, scale, zero_point) in [(DType::U8, 0.01, 128), (DType::U16, 1e-4, 30_000), (DType::I8, 0.02, -3)] {
        let codes = of.out(Op::Convert, &[x], dtype, &[2, 3]);
        of.encode(codes, scale, zero_point);
        of.out(Op::Convert, &[codes], DType::F32, &[2, 3]);
        let others = of.out(Op::Convert, &[codes], DType::U16, &[2, 3]);
        of.encode(others, 3e-4, 20_000);
    }
    let given = of.integers(DType::U8, &[4], &[0, 127, 128, 255]);
    of.encode(given, 0.5, 128);
    of.out(Op::Convert, &[given], DType::F32, &[4]);
    of.check();
}

#[test]
fn outputs_that_no_node_makes_where_they_belong() {
    let mut of = Sketch::new();
    let x = of.real(&[2, 2]);
    let c = of.constant(&[2]);
    let y = of.out(Op::Unary(UnaryOp::Negate), &[x], DType::F32, &[2, 2]);
    of.graph.outputs.extend([x, c, y]);
    of.check();
}

/// Two states that change places, one that is read after its update, one whose old contents are an output.
#[test]
fn states_are_what_they_were_until_the_end() {
    let mut of = Sketch::new();
    let x = of.real(&[1, 2, 1, 2]);
    let [(a, old_a), (b, old_b), (c, old_c), (d, old_d)] =
        ["a", "b", "c", "d"].map(|name| of.graph.add_state(name, DType::F32, &[1, 2, 1, 2]));
    let more = of.emit(Op::Binary(BinaryOp::Add), &[old_b, x], DType::F32, &[1, 2, 1, 2]);
    let row = of.emit(Op::Slice { axis: 1, start: 0.into(), step: 1 }, &[x], DType::F32, &[1, 1, 1, 2]);
    let update = Op::SliceUpdate { axis: 1, start: 1.into() };
    let new_c = of.emit(update.clone(), &[old_c, row], DType::F32, &[1, 2, 1, 2]);
    let new_d = of.emit(update, &[old_d, row], DType::F32, &[1, 2, 1, 2]);
    of.out(Op::Binary(BinaryOp::Add), &[new_c, new_d], DType::F32, &[1, 2, 1, 2]);
    of.graph.outputs.extend([new_c, old_d, old_a]);
    of.graph.state_updates = vec![(a, more), (b, old_a), (c, new_c), (d, new_d)];
    of.check();
}

#[test]
fn integers_known_at_run_time() {
    let mut of = Sketch::new();
    let n = of.graph.symbol("n", SymbolSource::InputDim { input: 0, axis: 0 }, 1, 6);
    let x = of.graph.add_input("x", DType::F32, vec![n, 4.into()]);
    let at = of.graph.add_input("at", DType::I32, dims(&[2, 2]));
    let first = of.graph.symbol("first", SymbolSource::InputItem { input: 1, index: 2 }, 0, 10);
    let double = of.graph.symbol("double", SymbolSource::Product(n, 2.into()), 2, 12);
    let end = of.graph.symbol("end", SymbolSource::Sum(first, double), 2, 22);
    let half = of.graph.symbol("half", SymbolSource::FloorQuotient(end, 2.into()), 1, 11);
    let left = of.graph.symbol("left", SymbolSource::Difference(half, 1.into()), 0, 10);
    let table = of.constant(&[22, 4]);
    let mut out = |op, inputs: &[ValueId], dtype, shape| {
        let id = of.graph.emit(format!("{op:?}"), op, inputs, dtype, shape);
        of.graph.outputs.push(id);
        id
    };
    out(Op::Slice { axis: 0, start: first, step: 1 }, &[table], DType::F32, vec![double, 4.into()]);
    out(Op::Reshape, &[x], DType::F32, vec![double, 2.into()]);
    out(Op::Scalar { value: left }, &[], DType::I64, Vec::new());
    let last = of.graph.symbol("last", SymbolSource::Difference(n, 1.into()), 0, 5);
    let row = of.graph.emit("last", Op::Slice { axis: 0, start: last, step: 1 }, &[x], DType::F32, dims(&[1, 4]));
    of.graph.outputs.push(row);
    let _ = at;
    let run = |n: usize, first: i64| {
        vec![
            Tensor::f32(&[n, 4], (0..n * 4).map(|i| i as f32).collect::<Vec<_>>()),
            Tensor::integers(DType::I32, &[2, 2], [9, 9, first, 9]),
        ]
    };
    let mut assets = Assets::default();
    let plan = portable::lower(&of.graph, &mut assets).unwrap();
    check_way(&of.graph, &program(plan, assets), &[run(3, 2), run(6, 10), run(1, 0)], 1e-6, Execution::Instructions);
}

#[test]
fn what_no_operator_does_is_refused_by_name() {
    let mut of = Sketch::new();
    let x = of.real(&[2, 32]);
    let gamma = of.constant(&[32]);
    of.out(Op::RmsNorm { epsilon: 1e-5 }, &[x, gamma], DType::F32, &[2, 32]);
    assert!(of.refusal().contains("RmsNorm") && of.refusal().contains("decompose"), "{}", of.refusal());

    let mut of = Sketch::new();
    let x = of.real(&[2, 32]);
    let rows = of.emit(Op::Convert, &[x], DType::I8, &[2, 32]);
    of.graph.value_mut(rows).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
    assert!(of.refusal().contains("only XNNPACK delegates"), "{}", of.refusal());

    let mut of = Sketch::new();
    let x = of.real(&[2, 32]);
    of.out(Op::Unary(UnaryOp::HardSwish), &[x], DType::F32, &[2, 32]);
    assert!(of.refusal().contains("HardSwish"), "{}", of.refusal());
}

#[test]
fn parts_in_an_order_that_cannot_run_are_refused() {
    let mut of = Sketch::new();
    let x = of.real(&[2]);
    let y = of.emit(Op::Unary(UnaryOp::Negate), &[x], DType::F32, &[2]);
    of.out(Op::Unary(UnaryOp::Abs), &[y], DType::F32, &[2]);
    let parts = vec![super::super::Part::Node(1), super::super::Part::Node(0)];
    let error = super::super::lower(&of.graph, parts, &mut Assets::default()).unwrap_err();
    assert!(matches!(&error, LowerError::Unmade { value } if *value == of.graph.value(y).name), "{error}");
}

/// The blobs of the delegates of `program`, decoded.
fn delegates(program: &Program) -> Vec<crate::xnnpack::Model> {
    let plan = &program.plans[0];
    let decode = |delegate: &crate::pte::BackendDelegate| {
        crate::xnnpack::decode_delegate(&delegate.processed, &program.named_data).unwrap()
    };
    plan.delegates.iter().map(decode).collect()
}

fn codes(of: &mut Sketch, rows: usize, columns: usize, quantization: &dyn Fn(&mut Rng) -> Quantization) -> ValueId {
    let quantization = quantization(&mut of.rng);
    let bytes = rows * columns * usize::from(quantization.bits()) / 8;
    let dtype = if quantization.bits() == 8 { DType::I8 } else { DType::U8 };
    let data = (0..bytes).map(|_| of.rng.below(256) as u8).collect();
    of.graph.add_constant("codes", dtype, &[rows, columns], Some(quantization), Blob::from_vec(data))
}

/// `layers` over one operand, each `[1, n, 64]` → `[1, n, 32]`, with SwiGLU behind the first two, and a sum with the
/// operand that no delegate can take in.
fn feed_forward(of: &mut Sketch, weights: &mut dyn FnMut(&mut Sketch) -> ValueId, rounded: bool) {
    let n = of.graph.symbol("n", SymbolSource::InputDim { input: 0, axis: 1 }, 1, 5);
    let x = of.graph.add_input("x", DType::F32, vec![1.into(), n, 64.into()]);
    let wide = |columns: usize| vec![Int::from(1), n, columns.into()];
    let round = |of: &mut Sketch, x: ValueId| {
        if !rounded {
            return x;
        }
        let shape = of.graph.value(x).shape.clone();
        let rows = of.graph.add_computed("rows", DType::I8, shape);
        of.graph.value_mut(rows).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
        of.graph.add_node("rows", Op::Convert, &[x], &[rows]);
        rows
    };
    let rows = round(of, x);
    let [gate, up] = [0, 1].map(|_| {
        let w = weights(of);
        of.graph.emit("linear", Op::FullyConnected, &[rows, w], DType::F32, wide(64))
    });
    let emit = |of: &mut Sketch, op, inputs: &[ValueId]| of.graph.emit("elementwise", op, inputs, DType::F32, wide(64));
    let sigmoid = emit(of, Op::Unary(UnaryOp::Sigmoid), &[gate]);
    let silu = emit(of, Op::Binary(BinaryOp::Multiply), &[gate, sigmoid]);
    let product = emit(of, Op::Binary(BinaryOp::Multiply), &[silu, up]);
    let rows = round(of, product);
    let (w, bias) = (weights(of), of.constant(&[64]));
    let down = of.graph.emit("down", Op::FullyConnected, &[rows, w, bias], DType::F32, wide(64));
    let sum = emit(of, Op::Binary(BinaryOp::Add), &[down, x]);
    of.graph.outputs.push(sum);
}

fn check_delegates(of: &mut Sketch) -> Program {
    let mut assets = Assets::default();
    let plan = xnnpack::lower(&of.graph, &mut assets).unwrap_or_else(|error| panic!("{error}"));
    let program = program(plan, assets);
    let run = |rng: &mut Rng, n: usize| vec![Tensor::f32(&[1, n, 64], rng.reals(n * 64))];
    let runs = [run(&mut of.rng, 5), run(&mut of.rng, 1)];
    check(&of.graph, &program, &runs, 2e-3);
    program
}

#[test]
fn a_feed_forward_block_is_one_delegate() {
    let block = |rng: &mut Rng| Quantization::Blockwise {
        bits: 4,
        block: 32,
        scales: Constant { data: bf16_blob(&(0..128).map(|_| 0.01 + 0.1 * rng.real().abs()).collect::<Vec<_>>()) },
        scale_dtype: DType::BF16,
        zero_points: None,
        order: CodeOrder::LowFirst,
    };
    let channel = |bits| {
        move |rng: &mut Rng| {
            let scales: Vec<f32> = (0..64).map(|_| 0.001 + 0.01 * rng.real().abs()).collect();
            Quantization::PerChannel { bits, axis: 0, scales: Constant { data: f32_blob(&scales) } }
        }
    };
    let [four, eight] = [4, 8].map(channel);
    for quantization in [&block as &dyn Fn(&mut Rng) -> Quantization, &four, &eight] {
        let mut of = Sketch::new();
        feed_forward(&mut of, &mut |of| codes(of, 64, 64, quantization), true);
        let program = check_delegates(&mut of);
        let [model] = &delegates(&program)[..] else { panic!("{} delegates", program.plans[0].delegates.len()) };
        assert_eq!((model.nodes.len(), model.args), (8, 2));
        assert_eq!(program.named_data.len(), 7);
    }
    let mut of = Sketch::new();
    feed_forward(&mut of, &mut |of| of.constant(&[64, 64]), false);
    let program = check_delegates(&mut of);
    assert_eq!((delegates(&program).len(), program.named_data.len()), (1, 4));
    assert_eq!(program.constants.len(), 1);
}

fn eight_bits(rng: &mut Rng) -> Quantization {
    let scales: Vec<f32> = (0..64).map(|_| 0.001 + 0.01 * rng.real().abs()).collect();
    Quantization::PerChannel { bits: 8, axis: 0, scales: Constant { data: f32_blob(&scales) } }
}

#[test]
fn weights_of_8_bits_are_an_operators() {
    let mut of = Sketch::new();
    feed_forward(&mut of, &mut |of| codes(of, 64, 64, &eight_bits), false);
    let mut assets = Assets::default();
    let plan = portable::lower(&of.graph, &mut assets).unwrap_or_else(|error| panic!("{error}"));
    let calls = plan.operators.iter().filter(|name| name.name == "quantized_decomposed::mixed_linear").count();
    assert_eq!((calls, plan.delegates.len()), (1, 0));
    let runs = [5, 1].map(|n| vec![Tensor::f32(&[1, n, 64], of.rng.reals(n * 64))]);
    check(&of.graph, &program(plan, assets), &runs, 1e-4);
    // With a bias, and an operand that no view can be of.
    let mut of = Sketch::new();
    let (x, weights, bias) = (of.real(&[3, 64]), codes(&mut of, 64, 64, &eight_bits), of.constant(&[64]));
    of.out(Op::FullyConnected, &[x, weights, bias], DType::F32, &[3, 64]);
    of.check();
}

#[test]
fn equal_weights_of_two_methods_are_one_blob() {
    let mut assets = Assets::default();
    let mut data = Vec::new();
    for _ in 0..2 {
        let mut of = Sketch::new();
        feed_forward(&mut of, &mut |of| of.constant(&[64, 64]), false);
        xnnpack::lower(&of.graph, &mut assets).unwrap();
        data.push(of.graph.values.len());
    }
    assert_eq!(data[0], data[1]);
    assert_eq!(assets.into_program(Vec::new()).named_data.len(), 4);
}

#[test]
fn weights_that_xnnpack_has_no_form_for_are_refused() {
    let small = |rng: &mut Rng| Quantization::Blockwise {
        bits: 4,
        block: 16,
        scales: Constant { data: bf16_blob(&rng.reals(256)) },
        scale_dtype: DType::BF16,
        zero_points: None,
        order: CodeOrder::LowFirst,
    };
    let mut of = Sketch::new();
    feed_forward(&mut of, &mut |of| codes(of, 64, 64, &small), true);
    let error = xnnpack::lower(&of.graph, &mut Assets::default()).unwrap_err();
    assert!(error.to_string().contains("only XNNPACK delegates make them"), "{error}");
}

fn bf16_blob(data: &[f32]) -> Blob {
    Blob::from_vec(data.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect())
}
