//! Tensors with bytes, for the tests of operators.

use super::GraphCompiler;
use crate::engine::Resources;
use crate::error::Result;
use crate::pte::{
    Blob, Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData, TensorValue,
};
use crate::runtime::{BackendRegistry, Execution, IoArena, KernelRegistry, Module, NativeModule, RuntimeError};
use crate::tensor::{DType, Dims, Element, element_count};
use half::{bf16, f16};
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

/// One operator call: constants, state, scalars and outputs, run through a real module.
#[derive(Default, Clone)]
pub(super) struct Call {
    program: Program,
    plan: ExecutionPlan,
    args: Vec<u32>,
}

impl Call {
    pub(super) fn new() -> Self {
        let mut call = Self::default();
        call.program.constants.push(Blob::from_vec(Vec::new()));
        call.plan.non_const_buffer_sizes = vec![0];
        call.plan.name = "forward".into();
        call
    }

    fn push(&mut self, value: EValue) -> u32 {
        self.plan.values.push(value);
        self.plan.values.len() as u32 - 1
    }

    pub(super) fn value(mut self, value: EValue) -> Self {
        let place = self.push(value);
        self.args.push(place);
        self
    }

    pub(super) fn int(self, int: i64) -> Self {
        self.value(EValue::Int(int))
    }

    /// A list of ints, whose values are not arguments themselves.
    pub(super) fn ints(mut self, ints: &[i64]) -> Self {
        let places = ints.iter().map(|&int| self.push(EValue::Int(int))).collect();
        self.value(EValue::IntList(places))
    }

    /// Argument `arg` once more.
    pub(super) fn again(mut self, arg: usize) -> Self {
        self.args.push(self.args[arg]);
        self
    }

    fn constant_value<T: Element>(&mut self, dtype: DType, dims: &[usize], elements: &[T]) -> EValue {
        let index = self.program.constants.len() as u32;
        self.program.constants.push(Blob::from_vec(bytemuck::cast_slice(elements).to_vec()));
        tensor(dtype, dims, ShapeDynamism::Static, TensorData::Constant { index })
    }

    pub(super) fn constant<T: Element>(mut self, dtype: DType, dims: &[usize], elements: &[T]) -> Self {
        let value = self.constant_value(dtype, dims, elements);
        self.value(value)
    }

    /// A constant whose elements lie in the order `order` of dimensions.
    pub(super) fn constant_in<T: Element>(
        mut self,
        dtype: DType,
        dims: &[usize],
        order: &[u8],
        elements: &[T],
    ) -> Self {
        let value = self.constant_value(dtype, dims, elements);
        self.value(ordered(value, order))
    }

    /// A constant that is no argument itself; gives its place for a list.
    pub(super) fn hidden<T: Element>(&mut self, dtype: DType, dims: &[usize], elements: &[T]) -> u32 {
        let value = self.constant_value(dtype, dims, elements);
        self.push(value)
    }

    /// A tensor that is no argument itself, in the memory of the output that comes next.
    pub(super) fn hidden_in_next_buffer(&mut self, dtype: DType, dims: &[usize]) -> u32 {
        let buffer = self.plan.non_const_buffer_sizes.len() as u32;
        let data = TensorData::Planned { buffer, offset: 0, initial: None };
        self.push(tensor(dtype, dims, ShapeDynamism::Static, data))
    }

    pub(super) fn tensors(self, places: &[u32]) -> Self {
        self.value(EValue::TensorList(places.to_vec()))
    }

    pub(super) fn optional_tensors(self, places: &[Option<u32>]) -> Self {
        self.value(EValue::OptionalTensorList(places.to_vec()))
    }

    /// A buffer of its own for a tensor of these sizes.
    fn planned(&mut self, dtype: DType, dims: &[usize], initial: Option<(u32, u32)>) -> TensorData {
        self.plan.non_const_buffer_sizes.push((element_count(dims).unwrap() * dtype.size()) as u64);
        TensorData::Planned { buffer: self.plan.non_const_buffer_sizes.len() as u32 - 1, offset: 0, initial }
    }

    /// State of the program, filled with `elements`; also an output.
    pub(super) fn state<T: Element>(mut self, dtype: DType, dims: &[usize], elements: &[T]) -> Self {
        self.program.mutable_data.push(vec![Blob::from_vec(bytemuck::cast_slice(elements).to_vec())]);
        let segment = self.program.mutable_data.len() as u32 - 1;
        let data = self.planned(dtype, dims, Some((segment, 0)));
        self.plan.outputs.push(self.plan.values.len() as u32);
        self.value(tensor(dtype, dims, ShapeDynamism::Static, data))
    }

    /// The output, in planned memory, filled with zeros; `bounds` may be larger than what the call makes of it.
    pub(super) fn output(mut self, dtype: DType, bounds: &[usize]) -> Self {
        self.plan.outputs.clear();
        self.second_output(dtype, bounds)
    }

    /// An output whose elements lie in the order `order` of dimensions.
    pub(super) fn output_in(mut self, dtype: DType, bounds: &[usize], order: &[u8]) -> Self {
        self.plan.outputs = vec![self.plan.values.len() as u32];
        let data = self.planned(dtype, bounds, None);
        self.value(ordered(tensor(dtype, bounds, ShapeDynamism::DynamicBound, data), order))
    }

    /// One more output.
    pub(super) fn second_output(mut self, dtype: DType, bounds: &[usize]) -> Self {
        self.plan.outputs.push(self.plan.values.len() as u32);
        self.side_output(dtype, bounds)
    }

    /// An output that nobody looks at.
    pub(super) fn side_output(mut self, dtype: DType, bounds: &[usize]) -> Self {
        let data = self.planned(dtype, bounds, None);
        self.value(tensor(dtype, bounds, ShapeDynamism::DynamicBound, data))
    }

    /// Runs `name.overload` on the arguments so far and gives the first output's sizes and bytes.
    pub(super) fn run(self, name: &str, overload: &str) -> Result<(Dims, Vec<u8>)> {
        self.run_all(name, overload).map(|mut outputs| outputs.swap_remove(0))
    }

    /// Runs `name.overload` on the arguments so far and gives the outputs' sizes and bytes. Where the call has a graph
    /// form, the compiled method must do the same.
    pub(super) fn run_all(self, name: &str, overload: &str) -> Result<Vec<Output>> {
        let all_given = [Given::Constant, Given::Fixed, Given::Dynamic];
        let compiled = all_given.map(|given| self.clone().compiled(name, overload, given));
        let types: Vec<DType> = self.plan.outputs.iter().map(|&value| self.dtype(value)).collect();
        let eager = run(self.module(name, overload), &[], types.len());
        for (given, compiled) in all_given.into_iter().zip(compiled) {
            match (&eager, compiled) {
                (_, None) => {}
                (Ok(eager), Some(Ok(compiled))) => same(&types, &compiled, eager, &format!("{name}, {given:?}")),
                (Err(_), Some(Err(_))) => {}
                // A graph reads what it needs before it writes.
                (Err(error), Some(Ok(_))) if matches!(error.find(), Some(RuntimeError::SharedMemory { .. })) => {}
                // Positions that count from the end are refused where they are known only at run time.
                (Ok(_), Some(Err(_))) if given != Given::Constant => {}
                (Ok(_), Some(Err(error))) => panic!("{name}, {given:?}, compiled: {}", error.chain()),
                (Err(error), Some(Ok(_))) => panic!("{name}, {given:?}: only the operator fails: {}", error.chain()),
            }
        }
        eager
    }

    fn dtype(&self, value: u32) -> DType {
        match &self.plan.values[value as usize] {
            EValue::Tensor(tensor) => tensor.dtype,
            _ => DType::U8,
        }
    }

    /// What the compiled method gives when its tensors are given so; `None` when it has no graph.
    pub(super) fn compiled(mut self, name: &str, overload: &str, given: Given) -> Option<Result<Vec<Output>>> {
        let mut inputs = Vec::new();
        if given != Given::Constant {
            for (place, value) in self.plan.values.iter_mut().enumerate() {
                let EValue::Tensor(tensor) = value else { continue };
                let TensorData::Constant { index } = tensor.data else { continue };
                let bytes = self.program.constants[index as usize].to_vec();
                tensor.data = TensorData::Unplanned;
                if given == Given::Dynamic {
                    tensor.dynamism = ShapeDynamism::DynamicBound;
                }
                self.plan.inputs.push(place as u32);
                inputs.push(bytes);
            }
        }
        if inputs.is_empty() {
            // A method that takes nothing is not compiled.
            let unused = tensor(DType::U8, &[1], ShapeDynamism::Static, TensorData::Unplanned);
            self.plan.inputs = vec![self.push(unused)];
            inputs.push(vec![0]);
        }
        let outputs = self.plan.outputs.len();
        static RESOURCES: LazyLock<Arc<Resources>> = LazyLock::new(|| Resources::new(NonZeroUsize::new(1)));
        let compiler = Arc::new(GraphCompiler::new(Arc::clone(&RESOURCES)));
        let result = run(self.module(name, overload).with_compiler(compiler, Execution::Compiled), &inputs, outputs);
        match result {
            Err(error) if matches!(error.find(), Some(RuntimeError::NotCompiled { .. })) => None,
            result => Some(result),
        }
    }

    /// Runs an operator whose result is a scalar, in one more argument.
    pub(super) fn scalar(self, name: &str, overload: &str) -> Result<crate::runtime::Value> {
        let mut call = self.value(EValue::Null);
        call.plan.outputs = vec![call.args[call.args.len() - 1]];
        let values = call.module(name, overload).constant("forward")?;
        Ok(values.unwrap().swap_remove(0))
    }

    fn module(mut self, name: &str, overload: &str) -> NativeModule {
        self.plan.operators = vec![OperatorName { name: name.into(), overload: overload.into() }];
        let call = Instruction::Kernel { operator: 0, args: self.args };
        self.plan.chains = vec![Chain { instructions: vec![call] }];
        self.program.plans = vec![self.plan];
        let mut kernels = KernelRegistry::default();
        super::register(&mut kernels);
        NativeModule::new(self.program, kernels, BackendRegistry::default()).unwrap()
    }
}

/// How the tensors of a call are given to its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// As constants of the file.
    Constant,
    /// As inputs of fixed sizes.
    Fixed,
    /// As inputs whose sizes are upper bounds.
    Dynamic,
}

/// Sizes and bytes.
pub(super) type Output = (Dims, Vec<u8>);

fn run(mut module: NativeModule, inputs: &[Vec<u8>], outputs: usize) -> Result<Vec<Output>> {
    let method = module.load_method("forward")?;
    let mut arena = IoArena::new(inputs.iter().map(|bytes| IoArena::footprint(bytes.len())).sum())?;
    for (index, bytes) in inputs.iter().enumerate() {
        let slice = arena.alloc(bytes.len())?;
        arena.bytes_mut(slice).copy_from_slice(bytes);
        module.bind_input(method, index, &arena, slice)?;
    }
    module.execute(method, &mut arena)?;
    let output = |index| module.output(method, index, &arena).map(|(dims, bytes)| (dims, bytes.to_vec()));
    (0..outputs).map(output).collect()
}

/// Reads elements of one type as reals.
type ToReals = fn(&[u8]) -> Vec<f32>;

/// Panics unless the outputs are the same, reals but for rounding; what is no number must be none in both.
fn same(types: &[DType], got: &[Output], want: &[Output], place: &str) {
    for ((dtype, got), want) in types.iter().zip(got).zip(want) {
        assert_eq!(got.0, want.0, "{place}");
        let (reals, tolerance): (ToReals, f32) = match dtype {
            DType::F32 => (elements::<f32>, 1e-5),
            DType::F64 => (|bytes| elements::<f64>(bytes).into_iter().map(|real| real as f32).collect(), 1e-6),
            DType::F16 => {
                (|bytes| elements::<u16>(bytes).into_iter().map(|x| f16::from_bits(x).to_f32()).collect(), 2e-3)
            }
            DType::BF16 => {
                (|bytes| elements::<u16>(bytes).into_iter().map(|x| bf16::from_bits(x).to_f32()).collect(), 2e-2)
            }
            _ => {
                assert_eq!(got.1, want.1, "{place}");
                continue;
            }
        };
        for (got, want) in reals(&got.1).into_iter().zip(reals(&want.1)) {
            let near = (got - want).abs() <= tolerance * want.abs().max(1.0);
            assert!(near || got == want || (got.is_nan() && want.is_nan()), "{place}: {got} for {want}");
        }
    }
}

fn ordered(mut value: EValue, order: &[u8]) -> EValue {
    if let EValue::Tensor(tensor) = &mut value {
        tensor.dim_order = order.to_vec();
    }
    value
}

fn tensor(dtype: DType, dims: &[usize], dynamism: ShapeDynamism, data: TensorData) -> EValue {
    EValue::Tensor(TensorValue {
        dtype,
        sizes: dims.to_vec(),
        dim_order: (0..dims.len() as u8).collect(),
        dynamism,
        data,
        fully_qualified_name: None,
    })
}

/// Bytes as numbers.
pub(super) fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// Panics unless every number is within `tolerance` of what is wanted, relative to it where it is above one.
pub(super) fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{got:?}");
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{got} for {want}");
    }
}
