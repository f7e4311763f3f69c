//! Tensors with bytes, for the tests of operators.

use crate::error::Result;
use crate::pte::{
    Blob, Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData, TensorValue,
};
use crate::runtime::{BackendRegistry, IoArena, KernelRegistry, Module, NativeModule};
use crate::tensor::{DType, Dims, Element, element_count};

/// One operator call: constants, scalars and one output, run through a real module.
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
        call.plan.name = "forward".into();
        call
    }

    pub(super) fn value(mut self, value: EValue) -> Self {
        self.args.push(self.plan.values.len() as u32);
        self.plan.values.push(value);
        self
    }

    pub(super) fn int(self, int: i64) -> Self {
        self.value(EValue::Int(int))
    }

    /// A list of ints, whose values are not arguments themselves.
    pub(super) fn ints(mut self, ints: &[i64]) -> Self {
        let first = self.plan.values.len() as u32;
        self.plan.values.extend(ints.iter().map(|&int| EValue::Int(int)));
        self.value(EValue::IntList((first..first + ints.len() as u32).collect()))
    }

    pub(super) fn constant<T: Element>(mut self, dtype: DType, dims: &[usize], elements: &[T]) -> Self {
        let index = self.program.constants.len() as u32;
        self.program.constants.push(Blob::from_vec(bytemuck::cast_slice(elements).to_vec()));
        self.value(tensor(dtype, dims, ShapeDynamism::Static, TensorData::Constant { index }))
    }

    /// The output, in planned memory, filled with zeros; `bounds` may be larger than what the call makes of it.
    pub(super) fn output(mut self, dtype: DType, bounds: &[usize]) -> Self {
        let bytes = element_count(bounds).unwrap() * dtype.size();
        self.plan.non_const_buffer_sizes = vec![0, bytes as u64];
        self.plan.outputs = vec![self.plan.values.len() as u32];
        let data = TensorData::Planned { buffer: 1, offset: 0, initial: None };
        self.value(tensor(dtype, bounds, ShapeDynamism::DynamicBound, data))
    }

    /// Runs `name.overload` on the arguments so far and gives the output's sizes and bytes.
    pub(super) fn run(self, name: &str, overload: &str) -> Result<(Dims, Vec<u8>)> {
        let (mut module, mut arena) = (self.module(name, overload), IoArena::new(0)?);
        let method = module.load_method("forward")?;
        module.execute(method, &mut arena)?;
        module.output(method, 0, &arena).map(|(dims, bytes)| (dims, bytes.to_vec()))
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
