//! Tests of the compiler: each operation composed and run on the simulator against the reference interpreter, and every
//! call of the library failing once.

mod arguments;
mod faults;
mod linear;
mod operations;

use super::{CompilerOptions, compile};
use crate::base::env;
use crate::base::storage::Blob;
use crate::graph::interpret::{Interpreter, Tensor};
use crate::graph::testing::{Rng, dims, f32_blob};
use crate::graph::{Graph, Op, Quantization, ValueId};
use crate::qnn::tests::{Call, init};
use crate::qnn::{DelegateBlob, LibraryOptions, QnnBackend, QnnOptions, Soc};
use crate::tensor::{DType, Encoding};
use std::path::Path;

pub(super) fn options() -> CompilerOptions {
    CompilerOptions::new(Soc::named("SM8650").unwrap())
}

fn backend(dir: &Path) -> QnnBackend {
    let library = LibraryOptions { path: Some(dir.to_path_buf()), ..LibraryOptions::default() };
    QnnBackend::new(QnnOptions { library, ..QnnOptions::default() })
}

fn default_backend() -> QnnBackend {
    backend(&env::qnn_lib_dir().unwrap())
}

/// Unsigned codes whose range is about `low..=high`, and which have a zero.
fn covering(dtype: DType, [low, high]: [f32; 2]) -> Encoding {
    let most = if dtype == DType::U16 { 65_535.0 } else { 255.0 };
    let scale = (high - low) / most;
    Encoding { scale, zero_point: (-low / scale).round() as i32 }
}

fn per_tensor(dtype: DType, encoding: Encoding) -> Quantization {
    Quantization::PerTensor { bits: 8 * dtype.size() as u8, encoding }
}

/// A graph that grows a node at a time.
struct Sketch {
    graph: Graph,
    rng: Rng,
}

impl Sketch {
    fn new(name: &str) -> Self {
        Self { graph: Graph::new(name), rng: Rng(11) }
    }

    fn input(&mut self, dtype: DType, shape: &[usize], range: [f32; 2]) -> ValueId {
        let name = format!("in.{}", self.graph.inputs.len());
        let id = self.graph.add_input(name, dtype, dims(shape));
        self.graph.value_mut(id).quantization = Some(per_tensor(dtype, covering(dtype, range)));
        id
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], dtype: DType, (shape, range): (&[usize], [f32; 2])) -> ValueId {
        let id = self.graph.emit(format!("test.{}", self.graph.nodes.len()), op, inputs, dtype, dims(shape));
        self.graph.value_mut(id).quantization = Some(per_tensor(dtype, covering(dtype, range)));
        id
    }

    fn reals(&mut self, shape: &[usize], scale: f32) -> ValueId {
        let data: Vec<f32> = self.rng.reals(shape.iter().product()).iter().map(|x| x * scale).collect();
        self.graph.add_constant("reals", DType::F32, shape, None, f32_blob(&data))
    }

    fn finish(mut self, outputs: &[ValueId]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.graph
    }
}

/// Random codes for each input; of u16 all, of integers those below `below`.
fn random_inputs(graph: &Graph, below: usize, seed: u64) -> Vec<Tensor> {
    let mut rng = Rng(seed);
    let input = |&id: &ValueId| {
        let (value, shape) = (graph.value(id), graph.max_shape(id));
        let count = shape.iter().product();
        let most = match (value.dtype, &value.quantization) {
            (DType::F32, _) => return Tensor::f32(&shape, rng.reals(count)),
            (DType::U8, Some(_)) => 256,
            (DType::U16, Some(_)) => 65_536,
            _ => below,
        };
        Tensor::integers(value.dtype, &shape, (0..count).map(|_| rng.below(most) as i64).collect::<Vec<_>>())
    };
    graph.inputs.iter().map(input).collect()
}

/// What each output is to the interpreter, in codes.
fn predicted(graph: &Graph, inputs: &[Tensor]) -> Vec<Vec<i64>> {
    let outputs = Interpreter::new(graph).unwrap().run(inputs).unwrap();
    let codes = |(&id, tensor): (&ValueId, &Tensor)| {
        let value = graph.value(id);
        let Some(Quantization::PerTensor { encoding, .. }) = &value.quantization else { panic!("{}", value.name) };
        let most = if value.dtype == DType::U16 { 65_535 } else { 255 };
        tensor.reals().unwrap().iter().map(|&real| encoding.quantize(real, 0, most).into()).collect()
    };
    graph.outputs.iter().zip(&outputs).map(codes).collect()
}

/// Runs graph `method` of a context binary.
fn executed(backend: &QnnBackend, binary: &[u8], graph: &Graph, inputs: &[Tensor]) -> Vec<Vec<i64>> {
    let all = graph.inputs.iter().chain(&graph.outputs);
    let tensors: Vec<_> = all.map(|&id| (graph.value(id).dtype, graph.max_shape(id))).collect();
    let mut call = Call::new(&tensors);
    for (arg, input) in inputs.iter().enumerate() {
        call.bytes_mut(arg).copy_from_slice(&input.to_bytes());
    }
    let blob = Blob::from_vec(DelegateBlob::encode(1, binary));
    let mut delegate = init(backend, &graph.name, 0, &blob, &[], &call).unwrap();
    call.run(&mut *delegate).unwrap();
    let codes = |(index, &id): (usize, &ValueId)| {
        let bytes = call.bytes(inputs.len() + index);
        match graph.value(id).dtype {
            DType::U16 => bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b).into()).collect(),
            _ => bytes.iter().map(|&b| b.into()).collect(),
        }
    };
    graph.outputs.iter().enumerate().map(codes).collect()
}

/// Composes `graph` and holds what the simulator computes to the interpreter's prediction, up to `tolerance` codes.
/// Gives the largest difference.
fn check(graph: &Graph, below: usize, tolerance: i64) -> i64 {
    graph.verify().unwrap();
    let backend = default_backend();
    let binary = compile(&backend.library().unwrap(), std::slice::from_ref(graph), &options()).unwrap();
    let inputs = random_inputs(graph, below, 5);
    let (have, need) = (executed(&backend, &binary, graph, &inputs), predicted(graph, &inputs));
    let mut worst = 0;
    for (index, (have, need)) in have.iter().zip(&need).enumerate() {
        assert_eq!(have.len(), need.len());
        let distinct: std::collections::BTreeSet<_> = need.iter().collect();
        assert!(distinct.len() > 3 || need.len() < 8, "output {index} is all {distinct:?}: the test proves nothing");
        let off = have.iter().zip(need).map(|(a, b)| (a - b).abs()).max().unwrap();
        assert!(off <= tolerance, "{}, output {index}: off by {off} codes\n{have:?}\n{need:?}", graph.name);
        worst = worst.max(off);
    }
    eprintln!("{}: at most {worst} codes off", graph.name);
    worst
}
