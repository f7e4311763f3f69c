//! Tensors with bytes, for the tests of operators.

use crate::error::Result;
use crate::pte::{
    Blob, Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData, TensorValue,
};
use crate::runtime::{BackendRegistry, IoArena, KernelRegistry, Module, NativeModule};
use crate::tensor::{DType, Dims, Element, element_count};

/// One operator call: constants, state, scalars and outputs, run through a real module.
#[derive(Default)]
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

    /// Runs `name.overload` on the arguments so far and gives the outputs' sizes and bytes.
    pub(super) fn run_all(self, name: &str, overload: &str) -> Result<Vec<(Dims, Vec<u8>)>> {
        let outputs = self.plan.outputs.len();
        let (mut module, mut arena) = (self.module(name, overload), IoArena::new(0)?);
        let method = module.load_method("forward")?;
        module.execute(method, &mut arena)?;
        let output = |index| module.output(method, index, &arena).map(|(dims, bytes)| (dims, bytes.to_vec()));
        (0..outputs).map(output).collect()
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
