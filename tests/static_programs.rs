//! A static program, with its mask, keys and values outside, made of portable operators: the runner's modes run it on the
//! CPU as they run QNN programs, and it says what the `forward` programs of the same weights say.

mod common;
mod forward_common;

use forward_common::{golden, ids};
use llama_runner::builtin;
use llama_runner::engine::Resources;
use llama_runner::ops::GraphCompiler;
use llama_runner::pte::{Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, TensorData, TensorValue};
use llama_runner::runner::{EvalMode, GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions};
use llama_runner::runtime::{BackendRegistry, Execution, NativeModule};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;
use std::ops::ControlFlow;
use std::sync::Arc;

const CONTEXT: usize = 128;

/// A checkpoint of llama2.c.
struct Checkpoint {
    dim: usize,
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocab: usize,
    numbers: Vec<f32>,
}

impl Checkpoint {
    fn read() -> Self {
        let bytes = std::fs::read(common::model("stories260K.bin")).unwrap();
        let (header, rest) = bytes.split_at(28);
        let header: Vec<usize> =
            header.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()) as usize).collect();
        let numbers = rest.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let &[dim, hidden, layers, heads, kv_heads, vocab, _] = &header[..] else { panic!() };
        Self { dim, hidden, layers, heads, kv_heads, vocab, numbers }
    }

    fn head_dim(&self) -> usize {
        self.dim / self.heads
    }

    /// The tensors in the file's order: sizes of one layer's part, and how many parts.
    fn tensor(&self, which: usize, layer: usize) -> (Vec<usize>, Vec<f32>) {
        let (dim, kv) = (self.dim, self.kv_heads * self.head_dim());
        let parts = [
            (vec![self.vocab, dim], 1),
            (vec![dim], self.layers),
            (vec![dim, dim], self.layers),
            (vec![kv, dim], self.layers),
            (vec![kv, dim], self.layers),
            (vec![dim, dim], self.layers),
            (vec![dim], self.layers),
            (vec![self.hidden, dim], self.layers),
            (vec![dim, self.hidden], self.layers),
            (vec![self.hidden, dim], self.layers),
            (vec![dim], 1),
        ];
        let size = |shape: &[usize]| shape.iter().product::<usize>();
        let first: usize = parts[..which].iter().map(|(shape, count)| size(shape) * count).sum();
        let (shape, _) = parts[which].clone();
        let first = first + layer * size(&shape);
        let numbers = self.numbers[first..first + size(&shape)].to_vec();
        (shape, numbers)
    }
}

/// Grows a method; every tensor that an operator makes gets memory of its own.
struct Builder<'a> {
    program: &'a mut Program,
    plan: ExecutionPlan,
    instructions: Vec<Instruction>,
    used: u64,
}

impl Builder<'_> {
    fn tensor(&mut self, dtype: DType, dims: &[usize], data: TensorData) -> u32 {
        self.plan.push(EValue::Tensor(TensorValue::new(dtype, dims.to_vec(), data)))
    }

    fn input(&mut self, dtype: DType, dims: &[usize]) -> u32 {
        let input = self.tensor(dtype, dims, TensorData::Unplanned);
        self.plan.inputs.push(input);
        input
    }

    fn constant(&mut self, (dims, numbers): (Vec<usize>, Vec<f32>)) -> u32 {
        let index = self.program.add_constant(numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
        self.tensor(DType::F32, &dims, TensorData::Constant { index })
    }

    fn int(&mut self, int: i64) -> u32 {
        self.plan.push(EValue::Int(int))
    }

    fn ints(&mut self, ints: &[usize]) -> u32 {
        let places = ints.iter().map(|&int| self.int(int as i64)).collect();
        self.plan.push(EValue::IntList(places))
    }

    fn instruction(&mut self, name: &str, args: &[u32], out: u32) {
        let name = OperatorName::parse(name);
        let operator = self.plan.operators.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.plan.operators.push(name);
            self.plan.operators.len() - 1
        }) as u32;
        self.instructions.push(Instruction::Kernel { operator, args: args.iter().copied().chain([out]).collect() });
    }

    fn call(&mut self, name: &str, args: &[u32], dims: &[usize]) -> u32 {
        let data = TensorData::Planned { buffer: 1, offset: self.used, initial: None };
        self.used += (4 * dims.iter().product::<usize>() as u64).next_multiple_of(64);
        let out = self.tensor(DType::F32, dims, data);
        self.instruction(name, args, out);
        out
    }

    /// What `value` holds, as an output of the method.
    fn output(&mut self, value: u32, dims: &[usize]) {
        let out = self.tensor(DType::F32, dims, TensorData::Unplanned);
        let null = self.plan.push(EValue::Null);
        self.instruction("aten::clone.out", &[value, null], out);
        self.plan.outputs.push(out);
    }

    fn view(&mut self, x: u32, dims: &[usize]) -> u32 {
        let sizes = self.ints(dims);
        self.call("aten::view_copy.out", &[x, sizes], dims)
    }

    fn permute(&mut self, x: u32, perm: &[usize], dims: &[usize]) -> u32 {
        let perm = self.ints(perm);
        self.call("aten::permute_copy.out", &[x, perm], dims)
    }

    fn linear(&mut self, x: u32, weights: (Vec<usize>, Vec<f32>), rows: usize) -> u32 {
        let out = weights.0[0];
        let (weights, null) = (self.constant(weights), self.plan.push(EValue::Null));
        self.call("aten::linear.out", &[x, weights, null], &[1, rows, out])
    }

    fn add(&mut self, a: u32, b: u32, dims: &[usize]) -> u32 {
        let one = self.int(1);
        self.call("aten::add.out", &[a, b, one], dims)
    }

    fn norm(&mut self, x: u32, gamma: (Vec<usize>, Vec<f32>), rows: usize) -> u32 {
        let dims = [1, rows, gamma.0[0]];
        let squares = self.call("aten::mul.out", &[x, x], &dims);
        let (last, keep, null) = (self.int(-1), self.plan.push(EValue::Bool(true)), self.plan.push(EValue::Null));
        let last = self.plan.push(EValue::IntList(vec![last]));
        let mean = self.call("aten::mean.out", &[squares, last, keep, null], &[1, rows, 1]);
        let epsilon = self.constant((vec![], vec![1e-5]));
        let sum = self.add(mean, epsilon, &[1, rows, 1]);
        let root = self.call("aten::rsqrt.out", &[sum], &[1, rows, 1]);
        let normed = self.call("aten::mul.out", &[x, root], &dims);
        let gamma = self.constant(gamma);
        self.call("aten::mul.out", &[normed, gamma], &dims)
    }

    /// Neighbours of each head rotated: x `[1, rows, heads · d]`, tables `[1, rows, 1, d / 2]`.
    fn rotate(&mut self, x: u32, tables: [u32; 2], [rows, heads, d]: [usize; 3]) -> u32 {
        let paired = self.view(x, &[1, rows, heads, d / 2, 2]);
        let half = [1, rows, heads, d / 2];
        let [re, im] = [0, 1].map(|at| {
            let (axis, at) = (self.int(4), self.int(at));
            self.call("aten::select_copy.int_out", &[paired, axis, at], &half)
        });
        let mut product = |a, table| self.call("aten::mul.out", &[a, tables[table]], &half);
        let [rc, is, rs, ic] = [product(re, 0), product(im, 1), product(re, 1), product(im, 0)];
        let one = self.int(1);
        let first = self.call("aten::sub.out", &[rc, is, one], &half);
        let second = self.add(rs, ic, &half);
        let apart = [1, rows, heads, d / 2, 1];
        let parts = [first, second].map(|part| self.view(part, &apart));
        let (list, axis) = (self.plan.push(EValue::TensorList(parts.to_vec())), self.int(-1));
        let joined = self.call("aten::cat.out", &[list, axis], &[1, rows, heads, d / 2, 2]);
        self.view(joined, &[1, rows, heads, d])
    }

    fn join(&mut self, parts: [u32; 2], axis: i64, dims: &[usize]) -> u32 {
        let (list, axis) = (self.plan.push(EValue::TensorList(parts.to_vec())), self.int(axis));
        self.call("aten::cat.out", &[list, axis], dims)
    }

    /// `[1, kv heads, a, b]` → `[heads, a, b]`, each head repeated.
    fn repeated(&mut self, x: u32, heads: usize, [kv_heads, a, b]: [usize; 3]) -> u32 {
        let group = heads / kv_heads;
        let apart = self.view(x, &[1, kv_heads, 1, a, b]);
        let (sizes, no) = (self.ints(&[1, kv_heads, group, a, b]), self.plan.push(EValue::Bool(false)));
        let wide = self.call("aten::expand_copy.out", &[apart, sizes, no], &[1, kv_heads, group, a, b]);
        self.view(wide, &[heads, a, b])
    }
}

/// The method that takes `rows` tokens at a time.
fn method(program: &mut Program, name: &str, of: &Checkpoint, rows: usize) {
    let (d, heads, kv_heads, dim) = (of.head_dim(), of.heads, of.kv_heads, of.dim);
    let cached = CONTEXT - rows;
    let plan = ExecutionPlan { name: name.into(), ..Default::default() };
    let mut builder = Builder { program, plan, instructions: Vec::new(), used: 0 };
    let b = &mut builder;
    let tokens = b.input(DType::I32, &[1, rows]);
    let mask = b.input(DType::F32, &[1, rows, CONTEXT]);
    let positions = b.input(DType::I32, &[1, rows]);
    let keys: Vec<u32> = (0..of.layers).map(|_| b.input(DType::F32, &[1, kv_heads, d, cached])).collect();
    let values: Vec<u32> = (0..of.layers).map(|_| b.input(DType::F32, &[1, kv_heads, cached, d])).collect();

    let angle = |position: usize, pair: usize| position as f32 * 10_000f32.powf(-((2 * pair) as f32) / d as f32);
    let table = |apply: fn(f32) -> f32| {
        let angles = (0..CONTEXT).flat_map(|position| (0..d / 2).map(move |pair| (position, pair)));
        (vec![CONTEXT, d / 2], angles.map(|(position, pair)| apply(angle(position, pair))).collect::<Vec<f32>>())
    };
    // Views of i32 need memory of i32.
    let flat = {
        let data = TensorData::Planned { buffer: 1, offset: b.used, initial: None };
        b.used += (4 * rows as u64).next_multiple_of(64);
        let out = b.tensor(DType::I32, &[rows], data);
        let sizes = b.ints(&[rows]);
        b.instruction("aten::view_copy.out", &[positions, sizes], out);
        out
    };
    let tables = [table(f32::cos), table(f32::sin)].map(|table| {
        let (table, index) = (b.constant(table), b.plan.push(EValue::OptionalTensorList(vec![Some(flat)])));
        let found = b.call("aten::index.Tensor_out", &[table, index], &[rows, d / 2]);
        b.view(found, &[1, rows, 1, d / 2])
    });

    let embedding = b.constant(of.tensor(0, 0));
    let (padding, no) = (b.int(-1), b.plan.push(EValue::Bool(false)));
    let mut x = b.call("aten::embedding.out", &[embedding, tokens, padding, no, no], &[1, rows, dim]);
    let (mut new_keys, mut new_values) = (Vec::new(), Vec::new());
    for layer in 0..of.layers {
        let normed = b.norm(x, of.tensor(1, layer), rows);
        let [q, k, v] = [2, 3, 4].map(|which| b.linear(normed, of.tensor(which, layer), rows));
        let (q, k) = (b.rotate(q, tables, [rows, heads, d]), b.rotate(k, tables, [rows, kv_heads, d]));
        let q = b.permute(q, &[0, 2, 1, 3], &[1, heads, rows, d]);
        let q = b.view(q, &[heads, rows, d]);
        let k = b.permute(k, &[0, 2, 3, 1], &[1, kv_heads, d, rows]);
        let v = b.view(v, &[1, rows, kv_heads, d]);
        let v = b.permute(v, &[0, 2, 1, 3], &[1, kv_heads, rows, d]);
        new_keys.push(k);
        new_values.push(v);
        let all_k = b.join([keys[layer], k], -1, &[1, kv_heads, d, CONTEXT]);
        let all_v = b.join([values[layer], v], 2, &[1, kv_heads, CONTEXT, d]);
        let all_k = b.repeated(all_k, heads, [kv_heads, d, CONTEXT]);
        let all_v = b.repeated(all_v, heads, [kv_heads, CONTEXT, d]);
        let scores = b.call("aten::bmm.out", &[q, all_k], &[heads, rows, CONTEXT]);
        let scale = b.plan.push(EValue::Double(1.0 / (d as f64).sqrt()));
        let scaled = b.call("aten::mul.Scalar_out", &[scores, scale], &[heads, rows, CONTEXT]);
        let masked = b.add(scaled, mask, &[heads, rows, CONTEXT]);
        let last = b.int(-1);
        let weights = b.call("aten::_softmax.out", &[masked, last, no], &[heads, rows, CONTEXT]);
        let attended = b.call("aten::bmm.out", &[weights, all_v], &[heads, rows, d]);
        let attended = b.permute(attended, &[1, 0, 2], &[rows, heads, d]);
        let attended = b.view(attended, &[1, rows, dim]);
        let attended = b.linear(attended, of.tensor(5, layer), rows);
        x = b.add(x, attended, &[1, rows, dim]);
        let normed = b.norm(x, of.tensor(6, layer), rows);
        let [gate, up] = [7, 9].map(|which| b.linear(normed, of.tensor(which, layer), rows));
        let wide = [1, rows, of.hidden];
        let sigmoid = b.call("aten::sigmoid.out", &[gate], &wide);
        let silu = b.call("aten::mul.out", &[gate, sigmoid], &wide);
        let product = b.call("aten::mul.out", &[silu, up], &wide);
        let down = b.linear(product, of.tensor(8, layer), rows);
        x = b.add(x, down, &[1, rows, dim]);
    }
    let normed = b.norm(x, of.tensor(10, 0), rows);
    let logits = b.linear(normed, of.tensor(0, 0), rows);
    b.output(logits, &[1, rows, of.vocab]);
    new_keys.into_iter().for_each(|k| b.output(k, &[1, kv_heads, d, rows]));
    new_values.into_iter().for_each(|v| b.output(v, &[1, kv_heads, rows, d]));
    let Builder { mut plan, instructions, used, .. } = builder;
    plan.chains = vec![Chain { instructions }];
    plan.non_const_buffer_sizes = vec![0, used];
    program.plans.push(plan);
}

fn runner(methods: &[(&str, usize)], options: RunnerOptions, execution: Execution) -> Runner {
    let checkpoint = Checkpoint::read();
    let mut program = Program::default();
    for &(name, rows) in methods {
        method(&mut program, name, &checkpoint, rows);
    }
    let module = NativeModule::new(program, builtin::kernels(), BackendRegistry::default()).unwrap();
    let module = module.with_compiler(Arc::new(GraphCompiler::new(Resources::new(None))), execution);
    let tokenizer = llama_runner::tokenizer::load(&common::model("tok512.model")).unwrap();
    Runner::load(Box::new(module), tokenizer, options).unwrap_or_else(|error| panic!("{}", error.chain()))
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_mode_runs_a_static_program_on_the_cpu() {
    let golden = golden(&common::shared(), "portable_s260k_fp32_kv");
    let want = ids(&golden, "ids_prefill");
    let prompt: Vec<TokenId> = ids(&golden, "prompt").into_iter().map(|id| id as TokenId).collect();
    let both = [("kv_forward", 1), ("prefill_forward", 16)];
    for (methods, mode) in [(&both[..1], EvalMode::Kv), (&both, EvalMode::Hybrid), (&both, EvalMode::Kv)] {
        for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
            for way in [Execution::Compiled, Execution::Instructions] {
                let options = RunnerOptions { eval_mode: Some(mode), kv_updater, ..Default::default() };
                let mut runner = runner(methods, options, way);
                let config = GenerationConfig { max_decode_steps: Some(60), ..Default::default() };
                let turn = runner.generate(Prompt::Tokens(&prompt), &config, &mut |_| ControlFlow::Continue(()));
                let tokens: Vec<i64> = turn.unwrap().tokens.into_iter().map(|id| id as i64).collect();
                assert_eq!(tokens, want[prompt.len()..][..61], "{mode:?}, {kv_updater:?}, {way:?}");
            }
        }
    }
}
