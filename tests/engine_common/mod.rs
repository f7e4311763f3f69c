//! Builds small graphs and holds the engine to the reference interpreter.
#![allow(dead_code)] // Each test program uses its own part.

pub mod llama;

use llama_runner::base::storage::Blob;
use llama_runner::engine::{CompileOptions, Compiled, EngineError, InputView, Instance, WeightCache};
use llama_runner::graph::interpret::{Data, Interpreter, Tensor};
use llama_runner::graph::{
    CodeOrder, Constant, Graph, Int, Op, Quantization, StateId, SymbolId, SymbolSource, ValueId,
};
use llama_runner::kernels::{KernelSet, ThreadPool};
use llama_runner::tensor::DType;
use std::sync::{Arc, LazyLock};

/// A small generator: the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// In −1..1.
    pub fn real(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn reals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.real()).collect()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A graph in the making, with what its inputs may hold.
pub struct Builder {
    pub graph: Graph,
    pub random: Random,
    /// Bounds of the elements of integer inputs.
    ranges: Vec<(i64, i64)>,
}

pub const MAX_TOKENS: usize = 9;

impl Builder {
    pub fn new(name: &str, seed: u64) -> Self {
        Self { graph: Graph::new(name), random: Random(seed), ranges: Vec::new() }
    }

    /// The size of axis `axis` of input `input`, unknown until the run.
    pub fn tokens(&mut self, input: usize, axis: usize) -> Int {
        self.graph.symbol("tokens", SymbolSource::InputDim { input, axis }, 1, MAX_TOKENS as i64)
    }

    /// An element of an integer input.
    pub fn item(&mut self, input: usize, max: i64) -> Int {
        self.graph.symbol("position", SymbolSource::InputItem { input, index: 0 }, 0, max)
    }

    pub fn input(&mut self, dtype: DType, shape: &[Int]) -> ValueId {
        self.input_within(dtype, shape, (-4, 5))
    }

    /// An input whose integers lie in `range`.
    pub fn input_within(&mut self, dtype: DType, shape: &[Int], range: (i64, i64)) -> ValueId {
        self.ranges.push(range);
        self.graph.add_input(format!("in{}", self.ranges.len() - 1), dtype, shape.to_vec())
    }

    pub fn constant_f32(&mut self, shape: &[usize]) -> ValueId {
        let data = self.random.reals(shape.iter().product());
        self.constant_of(shape, &data)
    }

    pub fn constant_of(&mut self, shape: &[usize], data: &[f32]) -> ValueId {
        let bytes = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.graph.add_constant("w", DType::F32, shape, None, Blob::from_vec(bytes))
    }

    /// A constant of quantized codes.
    pub fn constant_codes(&mut self, shape: &[usize], dtype: DType, quantization: Quantization) -> ValueId {
        let columns = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().rev().skip(1).product::<usize>();
        let bytes = match quantization.bits() {
            bits @ ..8 => rows * (columns * usize::from(bits)).div_ceil(8),
            _ => rows * columns * dtype.size(),
        };
        let data = Blob::from_vec(self.random.bytes(bytes));
        self.graph.add_constant("w", dtype, shape, Some(quantization), data)
    }

    /// `count` small positive scales.
    pub fn scales(&mut self, count: usize) -> Constant {
        let scale = |x: f32| (0.01 + 0.02 * x.abs()).to_le_bytes();
        Constant { data: Blob::from_vec(self.random.reals(count).into_iter().flat_map(scale).collect()) }
    }

    pub fn bf16_scales(&mut self, count: usize) -> Constant {
        let scale = |x: f32| half::bf16::from_f32(0.01 + 0.02 * x.abs()).to_le_bytes();
        Constant { data: Blob::from_vec(self.random.reals(count).into_iter().flat_map(scale).collect()) }
    }

    /// 4-bit weights in blocks of `block` with bf16 scales.
    pub fn blockwise(&mut self, [n, k]: [usize; 2], block: usize) -> ValueId {
        let scales = self.bf16_scales(n * k / block);
        let scale_dtype = DType::BF16;
        let quantization = Quantization::Blockwise {
            bits: 4,
            block,
            scales,
            scale_dtype,
            zero_points: None,
            order: CodeOrder::LowFirst,
        };
        self.constant_codes(&[n, k], DType::U8, quantization)
    }

    pub fn emit(&mut self, op: Op, inputs: &[ValueId], dtype: DType, shape: &[Int]) -> ValueId {
        let origin = format!("{op:?} #{}", self.graph.nodes.len());
        self.graph.emit(origin, op, inputs, dtype, shape.to_vec())
    }

    /// An f32 result shaped as `like`.
    pub fn same(&mut self, op: Op, inputs: &[ValueId], like: ValueId) -> ValueId {
        let shape = self.graph.value(like).shape.clone();
        let dtype = self.graph.value(like).dtype;
        self.emit(op, inputs, dtype, &shape)
    }

    pub fn output(&mut self, value: ValueId) {
        self.graph.outputs.push(value);
    }

    /// Random inputs of a run with so many tokens at this position.
    pub fn inputs(&mut self, tokens: usize, position: i64) -> Vec<Tensor> {
        let mut symbols: Vec<i64> = Vec::new();
        for symbol in &self.graph.symbols {
            let of = |int| value_of(int, &symbols);
            symbols.push(match symbol.source {
                SymbolSource::InputDim { .. } => tokens as i64,
                SymbolSource::InputItem { .. } => position,
                SymbolSource::Sum(a, b) => of(a) + of(b),
                SymbolSource::Difference(a, b) => of(a) - of(b),
                SymbolSource::Product(a, b) => of(a) * of(b),
                SymbolSource::FloorQuotient(a, b) => of(a).div_euclid(of(b)),
            });
        }
        let items: Vec<usize> = self
            .graph
            .symbols
            .iter()
            .filter_map(|symbol| match symbol.source {
                SymbolSource::InputItem { input, .. } => Some(input),
                _ => None,
            })
            .collect();
        let mut all = Vec::new();
        for (index, &id) in self.graph.inputs.iter().enumerate() {
            let value = self.graph.value(id);
            let shape: Vec<usize> = value.shape.iter().map(|&dim| value_of(dim, &symbols) as usize).collect();
            let count = shape.iter().product();
            let real = matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64);
            let data = if items.contains(&index) {
                Data::Integer(vec![position; count])
            } else if real {
                Data::Real(self.random.reals(count).into_iter().map(|x| 3.0 * x).collect())
            } else {
                let (low, high) = if value.dtype == DType::Bool { (0, 2) } else { self.ranges[index] };
                Data::Integer((0..count).map(|_| low + self.random.below((high - low) as usize) as i64).collect())
            };
            all.push(Tensor { dtype: value.dtype, shape, data });
        }
        all
    }
}

fn value_of(int: Int, symbols: &[i64]) -> i64 {
    match int {
        Int::Const(value) => value,
        Int::Symbol(id) => symbols[id.0 as usize],
    }
}

pub fn dims(shape: &[usize]) -> Vec<Int> {
    shape.iter().map(|&dim| dim.into()).collect()
}

static POOLS: LazyLock<Vec<Arc<ThreadPool>>> =
    LazyLock::new(|| vec![Arc::new(ThreadPool::new(1)), Arc::new(ThreadPool::new(2))]);

/// Pools of one and of two threads.
pub fn pools() -> &'static [Arc<ThreadPool>] {
    &POOLS
}

pub fn compile(graph: &Graph, pool: &Arc<ThreadPool>) -> Result<Instance, EngineError> {
    let options = CompileOptions::default();
    let compiled =
        Compiled::new(graph.clone(), KernelSet::best(), Arc::clone(pool), &WeightCache::default(), &options)?;
    Instance::new(compiled)
}

/// Bytes of an input as a caller would give them.
pub fn bytes_of(graph: &Graph, index: usize, tensor: &Tensor) -> Vec<u8> {
    let value = graph.value(graph.inputs[index]);
    match (&value.quantization, &tensor.data) {
        (Some(_), Data::Integer(codes)) => {
            Tensor { dtype: value.dtype, shape: tensor.shape.clone(), data: Data::Integer(codes.clone()) }.to_bytes()
        }
        _ => tensor.to_bytes(),
    }
}

pub fn run(instance: &mut Instance, graph: &Graph, inputs: &[Tensor]) -> Result<(), EngineError> {
    let bytes: Vec<Vec<u8>> = inputs.iter().enumerate().map(|(index, input)| bytes_of(graph, index, input)).collect();
    let views: Vec<_> =
        inputs.iter().zip(&bytes).map(|(input, bytes)| InputView { dims: &input.shape, bytes }).collect();
    instance.run(&views)
}

/// The bytes of all outputs and states.
pub fn everything(instance: &Instance, graph: &Graph) -> Vec<Vec<u8>> {
    let outputs = (0..instance.output_count()).map(|index| instance.output(index).unwrap().bytes.to_vec());
    let states = (0..graph.states.len()).map(|state| instance.state(StateId(state as u32)).unwrap().to_vec());
    outputs.chain(states).collect()
}

/// Runs `graph` on both, run after run, with one thread and two: the engine's bits must not depend on threads, and must
/// be what the interpreter gives, within `tolerance` of the largest number of each output.
pub fn check(name: &str, graph: &Graph, runs: &[Vec<Tensor>], tolerance: f32) {
    let mut reference = Interpreter::new(graph).unwrap_or_else(|error| panic!("{name}: {error}\n{graph}"));
    let mut instances: Vec<Instance> = pools()
        .iter()
        .map(|pool| compile(graph, pool).unwrap_or_else(|error| panic!("{name}: {error}\n{graph}")))
        .collect();
    for (index, inputs) in runs.iter().enumerate() {
        let place = format!("{name}, run {index}");
        let expected = reference.run(inputs).unwrap_or_else(|error| panic!("{place}: {error}\n{graph}"));
        let mut all = Vec::new();
        for instance in &mut instances {
            run(instance, graph, inputs).unwrap_or_else(|error| panic!("{place}: {error}\n{graph}"));
            all.push(everything(instance, graph));
        }
        assert!(all[0] == all[1], "{place}: one thread and two differ\n{graph}");
        for (output, expected) in expected.iter().enumerate() {
            let view = instances[0].output(output).unwrap();
            assert_eq!((view.dtype, view.dims), (expected.dtype, &expected.shape[..]), "{place}, output {output}");
            let value = graph.value(graph.outputs[output]);
            let have = decode(value, view.bytes);
            close(&format!("{place}, output {output}"), graph, &have, &expected.data, tolerance);
        }
        for (state, stored) in graph.states.iter().enumerate() {
            let id = StateId(state as u32);
            let real = matches!(stored.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
            let dtype = if real { DType::F32 } else { stored.dtype };
            let have = Tensor::from_bytes(dtype, &stored.shape, instances[0].state(id).unwrap()).unwrap();
            let expected = &reference.state(id).unwrap().data;
            close(&format!("{place}, state {}", stored.name), graph, &have.data, expected, tolerance);
        }
    }
}

fn decode(value: &llama_runner::graph::Value, bytes: &[u8]) -> Data {
    let count = bytes.len() / value.dtype.size();
    let data = Tensor::from_bytes(value.dtype, &[count], bytes).unwrap().data;
    match (&value.quantization, data) {
        (Some(Quantization::PerTensor { encoding, .. }), Data::Integer(codes)) => {
            Data::Real(codes.into_iter().map(|code| encoding.dequantize(code as i32)).collect())
        }
        (_, data) => data,
    }
}

fn close(place: &str, graph: &Graph, have: &Data, expected: &Data, tolerance: f32) {
    match (have, expected) {
        (Data::Real(have), Data::Real(expected)) => {
            assert_eq!(have.len(), expected.len(), "{place}");
            let largest = expected.iter().filter(|x| x.is_finite()).fold(1e-3f32, |max, x| max.max(x.abs()));
            for (i, (a, b)) in have.iter().zip(expected).enumerate() {
                let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * largest;
                assert!(same, "{place}, element {i}: {a} where {b} is right\n{graph}");
            }
        }
        _ => assert_eq!(have, expected, "{place}\n{graph}"),
    }
}

/// Runs the graph with 1, all and some tokens.
pub fn check_tokens(name: &str, mut builder: Builder, tolerance: f32) {
    let runs: Vec<_> = [1, MAX_TOKENS, 4, 1].into_iter().map(|tokens| builder.inputs(tokens, 2)).collect();
    check(name, &builder.graph, &runs, tolerance);
}

/// A graph of one node over inputs of these types and shapes, where `T` is the number of tokens.
pub fn one_node(name: &str, op: Op, inputs: &[(DType, &[Int])], out: (DType, &[Int]), tolerance: f32) {
    let mut builder = Builder::new(name, 7);
    let ids: Vec<ValueId> = inputs.iter().map(|(dtype, shape)| builder.input(*dtype, shape)).collect();
    builder.tokens(0, 0);
    let out = builder.emit(op, &ids, out.0, out.1);
    builder.output(out);
    check_tokens(name, builder, tolerance);
}

/// The number of tokens, where it is the first symbol.
pub const T: Int = Int::Symbol(SymbolId(0));

/// A size that is known.
pub fn known(size: i64) -> Int {
    Int::Const(size)
}
