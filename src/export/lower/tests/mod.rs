//! Lowered programs say what their graphs say, in both ways of running them, after a trip through a file's bytes.

mod operations;
mod programs;

use super::Assets;
use crate::base::storage::Storage;
use crate::builtin::{self, ProgramOptions};
use crate::graph::interpret::{Data, Interpreter, Tensor};
use crate::graph::{Graph, Quantization};
use crate::pte::{ExecutionPlan, Program};
use crate::runtime::{Execution, IoArena, IoSlice, MethodId, Module};
use crate::tensor::DType;
use std::num::NonZeroUsize;
use std::sync::Arc;

const WAYS: [Execution; 2] = [Execution::Instructions, Execution::Compiled];

/// A method of a program with memory for what it exchanges.
struct Loaded {
    module: Box<dyn Module>,
    method: MethodId,
    arena: IoArena,
    inputs: Vec<IoSlice>,
}

impl Loaded {
    /// The first method.
    fn new(program: &Program, way: Execution) -> Self {
        let program = Program::from_storage(Arc::new(Storage::Owned(program.to_bytes().unwrap()))).unwrap();
        let name = program.plans[0].name.clone();
        let options = ProgramOptions { cpu_threads: NonZeroUsize::new(1), execution: way, ..ProgramOptions::default() };
        let mut module = builtin::load_program(program, "a lowered program", &options).unwrap();
        let method = module.load_method(&name).unwrap_or_else(|error| panic!("{}", error.chain()));
        let info = module.method_info(method).clone();
        let lens = |side: &[Option<crate::runtime::TensorInfo>]| {
            side.iter().map(|info| info.as_ref().unwrap().byte_len()).collect::<Vec<_>>()
        };
        let (ins, outs) = (lens(&info.inputs), lens(&info.outputs));
        let capacity = ins.iter().chain(&outs).map(|&len| IoArena::footprint(len)).sum();
        let mut arena = IoArena::new(capacity).unwrap();
        let inputs: Vec<IoSlice> = ins.iter().map(|&len| arena.alloc(len).unwrap()).collect();
        for (index, &slice) in inputs.iter().enumerate() {
            module.bind_input(method, index, &arena, slice).unwrap();
        }
        for (index, &len) in outs.iter().enumerate() {
            let slice = arena.alloc(len).unwrap();
            if !info.outputs[index].as_ref().unwrap().planned {
                module.bind_output(method, index, &arena, slice).unwrap();
            }
        }
        Self { module, method, arena, inputs }
    }

    /// The bytes of each output.
    fn run(&mut self, inputs: &[Tensor]) -> Vec<Vec<u8>> {
        let info = self.module.method_info(self.method).clone();
        for (index, input) in inputs.iter().enumerate() {
            if info.inputs[index].as_ref().unwrap().dynamic {
                self.module.resize_input(self.method, index, &input.shape).unwrap();
            }
            let bytes = bytes(input);
            let slice = self.inputs[index].part(0..bytes.len()).unwrap();
            self.arena.bytes_mut(slice).copy_from_slice(&bytes);
        }
        self.module.execute(self.method, &mut self.arena).unwrap_or_else(|error| panic!("{}", error.chain()));
        let output = |index| self.module.output(self.method, index, &self.arena).unwrap().1.to_vec();
        (0..info.outputs.len()).map(output).collect()
    }
}

/// What a caller would give.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let size = tensor.dtype.size();
    match &tensor.data {
        Data::Real(reals) => reals.iter().flat_map(|real| real.to_le_bytes()).collect(),
        Data::Integer(all) => all.iter().flat_map(|int| int.to_le_bytes()[..size].to_vec()).collect(),
    }
}

fn program(plan: ExecutionPlan, assets: Assets) -> Program {
    assets.into_program(vec![plan])
}

/// The outputs of `graph` as reals, from the interpreter.
fn reference(interpreter: &mut Interpreter<'_>, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let outputs = interpreter.run(inputs).unwrap();
    let reals = |tensor: &Tensor| match &tensor.data {
        Data::Real(reals) => reals.clone(),
        Data::Integer(all) => all.iter().map(|&int| int as f32).collect(),
    };
    outputs.iter().map(reals).collect()
}

/// Output bytes as reals, by the type that the graph gives output `index`.
fn reals(graph: &Graph, index: usize, bytes: &[u8]) -> Vec<f32> {
    let value = graph.value(graph.outputs[index]);
    let ints: Vec<i64> = match value.dtype {
        DType::F32 => return bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        DType::U8 | DType::Bool => bytes.iter().map(|&code| code.into()).collect(),
        DType::I8 => bytes.iter().map(|&code| code.cast_signed().into()).collect(),
        DType::U16 => bytes.as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b).into()).collect(),
        DType::I32 => bytes.as_chunks::<4>().0.iter().map(|&b| i32::from_le_bytes(b).into()).collect(),
        DType::I64 => bytes.as_chunks::<8>().0.iter().map(|&b| i64::from_le_bytes(b)).collect(),
        other => panic!("{other}"),
    };
    let real = |code: i64| match &value.quantization {
        Some(Quantization::PerTensor { encoding, .. }) => encoding.dequantize(code as i32),
        _ => code as f32,
    };
    ints.into_iter().map(real).collect()
}

/// Runs `program` in both ways and compares every output of every run with the interpreter's: within `tolerance` of
/// the largest element, in sequence, so that states count too.
fn check(graph: &Graph, program: &Program, runs: &[Vec<Tensor>], tolerance: f32) {
    for way in WAYS {
        check_way(graph, program, runs, tolerance, way);
    }
}

fn check_way(graph: &Graph, program: &Program, runs: &[Vec<Tensor>], tolerance: f32, way: Execution) {
    let mut interpreter = Interpreter::new(graph).unwrap();
    let mut loaded = Loaded::new(program, way);
    for (run, inputs) in runs.iter().enumerate() {
        let want = reference(&mut interpreter, inputs);
        let have = loaded.run(inputs);
        assert_eq!(have.len(), want.len());
        for (index, want) in want.iter().enumerate() {
            let have = reals(graph, index, &have[index]);
            let largest = want.iter().filter(|x| x.is_finite()).fold(1e-3f32, |largest, x| largest.max(x.abs()));
            assert_eq!(have.len(), want.len(), "{}: output {index}", graph.name);
            for (have, want) in have.iter().zip(want) {
                let near = (have - want).abs() <= tolerance * largest || have == want;
                let name = &graph.value(graph.outputs[index]).name;
                assert!(near, "{way:?}, run {run}, output {index} {name}: {have}, not {want}");
            }
        }
    }
}
