//! Programs written in memory, kernels and a backend that do little and can be told to fail.
#![allow(dead_code)] // Each test program uses its own part.

use llama_runner::pte::{
    BackendDelegate, Blob, Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData,
    TensorValue,
};
use llama_runner::runtime::{
    Backend, BackendRegistry, Delegate, DelegateInit, IoArena, KernelArgs, KernelRegistry, MethodId, Module,
    NativeModule, RetypedArg, RuntimeError, Value,
};
use llama_runner::tensor::DType;
use llama_runner::{Error, Result, Status};
use std::sync::Arc;

/// Where a tensor's bytes are.
pub const UNPLANNED: TensorData = TensorData::Unplanned;

pub fn planned(offset: u64) -> TensorData {
    TensorData::Planned { buffer: 1, offset, initial: None }
}

pub fn constant(index: u32) -> TensorData {
    TensorData::Constant { index }
}

pub fn tensor(dtype: DType, dims: &[usize], data: TensorData) -> EValue {
    EValue::Tensor(TensorValue {
        dtype,
        sizes: dims.to_vec(),
        dim_order: (0..dims.len() as u8).collect(),
        dynamism: ShapeDynamism::Static,
        data,
        fully_qualified_name: Some("layer.weight".into()),
    })
}

pub fn dynamic(dtype: DType, dims: &[usize], data: TensorData) -> EValue {
    match tensor(dtype, dims, data) {
        EValue::Tensor(value) => EValue::Tensor(TensorValue { dynamism: ShapeDynamism::DynamicBound, ..value }),
        other => other,
    }
}

/// Four bytes.
pub fn bytes4(data: TensorData) -> EValue {
    tensor(DType::U8, &[4], data)
}

pub fn kernel(operator: u32, args: &[u32]) -> Instruction {
    Instruction::Kernel { operator, args: args.to_vec() }
}

pub fn delegate(delegate: u32, args: &[u32]) -> Instruction {
    Instruction::Delegate { delegate, args: args.to_vec() }
}

pub fn operator(name: &str) -> OperatorName {
    let (name, overload) = name.split_once('.').unwrap_or((name, ""));
    OperatorName { name: name.into(), overload: overload.into() }
}

pub fn fake_delegate(id: &str) -> BackendDelegate {
    BackendDelegate { id: id.into(), processed: Blob::from_vec(vec![1]), compile_specs: Vec::new() }
}

/// A method `forward` with 64 bytes of planned memory, delegates 0 and 1 of `FakeBackend`, and these operators:
/// 0 `test::add.out` (in, out): each byte plus one, 1 `test::fail`, 2 `test::less` (int, int, out),
/// 3 `test::count` (int, out): plus one, 4 `test::view` (in, out), 5 `test::shrink` (out): one row less.
pub fn forward(values: Vec<EValue>, inputs: &[u32], outputs: &[u32], instructions: Vec<Instruction>) -> ExecutionPlan {
    let operators = ["test::add.out", "test::fail", "test::less", "test::count", "test::view", "test::shrink"];
    ExecutionPlan {
        name: "forward".into(),
        values,
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
        chains: vec![Chain { instructions }],
        operators: operators.map(operator).to_vec(),
        delegates: vec![fake_delegate("FakeBackend"), fake_delegate("FakeBackend")],
        non_const_buffer_sizes: vec![0, 64],
    }
}

/// A program with constant 1 = bytes 10, 20, 30, 40.
pub fn program(plan: ExecutionPlan) -> Program {
    let constants = vec![Blob::from_vec(Vec::new()), Blob::from_vec(vec![10, 20, 30, 40])];
    Program { plans: vec![plan], constants, ..Program::default() }
}

pub fn kernels() -> KernelRegistry {
    let mut kernels = KernelRegistry::default();
    kernels.register("test::add.out", |args| {
        let (input, output) = args.in_out::<u8, u8>(0, 1)?;
        output.iter_mut().zip(input).for_each(|(output, input)| *output = input + 1);
        Ok(())
    });
    kernels.register("test::fail", |_| Err(Error::new(Status::Internal, "told to")));
    kernels.register("test::less", |args| {
        let less = args.int(0)? < args.int(1)?;
        args.set(2, Value::Bool(less))
    });
    kernels.register("test::count", |args| {
        let next = args.int(0)? + 1;
        args.set(1, Value::Int(next))
    });
    kernels.register("test::view", view);
    kernels.register("test::shrink", |args| {
        let tensor = args.tensor_mut(0)?;
        let mut dims = tensor.dims.clone();
        dims[0] -= 1;
        tensor.resize(&dims)
    });
    kernels
}

fn view(args: &mut KernelArgs<'_>) -> Result<()> {
    let dims = args.tensor(0)?.dims.clone();
    args.view_as(0, 1, &dims)
}

/// Its delegates write, to the last argument, byte by byte the sum of all others that are tensors, plus one.
#[derive(Default)]
pub struct FakeBackend {
    pub unavailable: bool,
    pub refuse: bool,
    /// By delegate index.
    pub retyped: Vec<Vec<RetypedArg>>,
}

impl Backend for FakeBackend {
    fn id(&self) -> &'static str {
        "FakeBackend"
    }

    fn available(&self) -> Result<()> {
        match self.unavailable {
            true => Err(Error::new(Status::LibraryUnavailable, "libFake.so is not in /nowhere")),
            false => Ok(()),
        }
    }

    fn init(&self, init: &DelegateInit<'_>) -> Result<Box<dyn Delegate>> {
        if self.refuse {
            return Err(Error::new(Status::DelegateInvalidCompatibility, "blob not understood"));
        }
        assert_eq!((init.method, &init.processed[..]), ("forward", &[1][..]));
        Ok(Box::new(FakeDelegate { retyped: self.retyped.get(init.index).cloned().unwrap_or_default() }))
    }
}

struct FakeDelegate {
    retyped: Vec<RetypedArg>,
}

impl Delegate for FakeDelegate {
    fn retyped_args(&self) -> &[RetypedArg] {
        &self.retyped
    }

    fn execute(&mut self, values: &mut [Value], args: &[u32]) -> Result<()> {
        let Some((&output, inputs)) = args.split_last() else { return Ok(()) };
        let mut sums = Vec::new();
        for &input in inputs {
            let Value::Tensor(tensor) = &values[input as usize] else { continue };
            let bytes = tensor.bytes()?;
            sums.resize(bytes.len().max(sums.len()), 1u8);
            sums.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
        }
        let Value::Tensor(tensor) = &mut values[output as usize] else { return Ok(()) };
        let len = tensor.byte_len();
        sums.resize(len, 1);
        tensor.bytes_mut()?.copy_from_slice(&sums);
        Ok(())
    }
}

pub fn backends(backend: FakeBackend) -> BackendRegistry {
    let mut registry = BackendRegistry::default();
    registry.register(Arc::new(backend));
    registry
}

pub fn module(plan: ExecutionPlan) -> NativeModule {
    NativeModule::new(program(plan), kernels(), backends(FakeBackend::default())).unwrap()
}

/// Why `forward` of `program` does not load.
pub fn load_error(program: Program, backend: FakeBackend) -> Error {
    let mut module = NativeModule::new(program, kernels(), backends(backend)).unwrap();
    module.load_method("forward").unwrap_err()
}

/// Loads `forward`, binds each unplanned input and output to its own slice, and gives their offsets' slices.
pub struct Bound {
    pub module: NativeModule,
    pub method: MethodId,
    pub arena: IoArena,
    pub inputs: Vec<llama_runner::runtime::IoSlice>,
    pub outputs: Vec<llama_runner::runtime::IoSlice>,
}

impl Bound {
    pub fn new(plan: ExecutionPlan) -> Self {
        Self::with(module(plan))
    }

    pub fn with(mut module: NativeModule) -> Self {
        let method = module.load_method("forward").unwrap();
        let mut arena = IoArena::new(1 << 16).unwrap();
        let info = module.method_info(method).clone();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (index, input) in info.inputs.iter().enumerate() {
            let slice = arena.alloc(input.as_ref().map_or(0, |info| info.byte_len())).unwrap();
            if input.is_some() {
                module.bind_input(method, index, &arena, slice).unwrap();
            }
            inputs.push(slice);
        }
        for (index, output) in info.outputs.iter().enumerate() {
            let slice = arena.alloc(output.as_ref().map_or(0, |info| info.byte_len())).unwrap();
            if output.is_some() {
                module.bind_output(method, index, &arena, slice).unwrap();
            }
            outputs.push(slice);
        }
        Self { module, method, arena, inputs, outputs }
    }

    pub fn set(&mut self, input: usize, bytes: &[u8]) {
        self.arena.bytes_mut(self.inputs[input])[..bytes.len()].copy_from_slice(bytes);
    }

    pub fn run(&mut self) -> Result<()> {
        self.module.execute(self.method, &mut self.arena)
    }

    /// The bytes in the caller's slice of an output.
    pub fn got(&self, output: usize) -> &[u8] {
        self.arena.bytes(self.outputs[output])
    }
}

/// The typed error inside, as text; panics when there is none.
pub fn typed(error: &Error) -> String {
    let found = error.find::<RuntimeError>();
    found.unwrap_or_else(|| panic!("no typed error in: {}", error.chain())).to_string()
}
