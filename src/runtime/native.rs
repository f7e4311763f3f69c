//! The [`Module`] that runs programs itself, with this build's kernels and backends.

use super::delegate::BackendRegistry;
use super::error::{RuntimeError, Side};
use super::io_arena::{IoArena, IoSlice};
use super::kernel::KernelRegistry;
use super::loader::Loader;
use super::memory::ConstantCopies;
use super::method::Method;
use super::module::{MethodId, MethodInfo, Module};
use super::value::Value;
use crate::error::Result;
use crate::pte::{ExecutionPlan, Program};
use crate::tensor::Dims;
use std::sync::Arc;

/// A program with the kernels and backends to run it.
///
/// * A planned input that is bound is copied in at each `execute`; unbound it keeps what its memory holds. A planned
///   or constant output that is bound is copied out after each `execute`.
/// * Binding to another arena releases all bindings of the method to the one before.
/// * Inputs that are no tensors cannot be bound; they keep the program's value.
/// * Slices of one method may overlap: that is not looked for, and the result is whatever order the instructions touch
///   the bytes in. Kernels of this crate refuse arguments that overlap their output.
/// * After an error from `execute` the method can be executed again; what its outputs hold is not defined.
pub struct NativeModule {
    program: Arc<Program>,
    kernels: KernelRegistry,
    backends: BackendRegistry,
    methods: Vec<Method>,
    copies: ConstantCopies,
}

impl NativeModule {
    /// A module of `program`. Nothing is loaded yet; what a method lacks is reported when it is loaded.
    pub fn new(program: Program, kernels: KernelRegistry, backends: BackendRegistry) -> Result<Self> {
        if program.plans.is_empty() {
            return Err(RuntimeError::NoMethods.into());
        }
        let program = Arc::new(program);
        Ok(Self { program, kernels, backends, methods: Vec::new(), copies: ConstantCopies::default() })
    }

    fn method(&self, id: MethodId) -> Result<&Method> {
        self.methods.get(id.0).ok_or_else(|| RuntimeError::NoSuchMethodId(id.0).into())
    }

    fn method_mut(&mut self, id: MethodId) -> Result<&mut Method> {
        self.methods.get_mut(id.0).ok_or_else(|| RuntimeError::NoSuchMethodId(id.0).into())
    }
}

/// The outputs of a method as values for a caller: scalars and strings, an int list as its ints.
fn scalars(plan: &ExecutionPlan, values: &[Value]) -> Result<Vec<Value>> {
    let mut scalars = Vec::new();
    for (index, &output) in plan.outputs.iter().enumerate() {
        let wrong = |value: Option<&Value>| {
            let kind = value.map_or("missing value", Value::kind);
            RuntimeError::NotScalar { method: plan.name.clone(), index, kind }
        };
        match values.get(output as usize) {
            Some(Value::IntList(list)) => {
                for &element in list {
                    match values.get(element as usize) {
                        Some(Value::Int(int)) => scalars.push(Value::Int(*int)),
                        other => return Err(wrong(other).into()),
                    }
                }
            }
            value @ (Some(Value::Tensor(_) | Value::TensorList(_) | Value::OptionalTensorList(_)) | None) => {
                return Err(wrong(value).into());
            }
            Some(scalar) => scalars.push(scalar.clone()),
        }
    }
    Ok(scalars)
}

impl Module for NativeModule {
    fn method_names(&self) -> Vec<String> {
        self.program.plans.iter().map(|plan| plan.name.clone()).collect()
    }

    fn load_method(&mut self, name: &str) -> Result<MethodId> {
        if let Some(loaded) = self.methods.iter().position(|method| method.info.name == name) {
            return Ok(MethodId(loaded));
        }
        let Some(plan) = self.program.plan(name) else {
            return Err(RuntimeError::NoSuchMethod { name: name.to_owned(), known: self.method_names() }.into());
        };
        let loader = Loader { program: &self.program, kernels: &self.kernels, backends: &self.backends };
        let method = loader.load(plan, &mut self.copies)?;
        self.methods.push(method);
        Ok(MethodId(self.methods.len() - 1))
    }

    /// Panics when `method` is of another module.
    fn method_info(&self, method: MethodId) -> &MethodInfo {
        &self.methods[method.0].info
    }

    fn constant(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        let Some(plan) = self.program.plan(name) else { return Ok(None) };
        if !plan.inputs.is_empty() {
            return Err(RuntimeError::NotConstant(name.to_owned()).into());
        }
        if plan.chains.iter().all(|chain| chain.instructions.is_empty()) {
            return scalars(plan, &plan.values.iter().map(Value::from_program).collect::<Vec<_>>()).map(Some);
        }
        let id = self.load_method(name)?;
        let method = self.method_mut(id)?;
        method.execute(&mut IoArena::new(0)?)?;
        let method = self.method(id)?;
        match self.program.plan(name) {
            Some(plan) => scalars(plan, &method.values).map(Some),
            None => Ok(None),
        }
    }

    fn bind_input(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.method_mut(method)?.bind(Side::Input, index, arena, slice)
    }

    fn bind_output(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.method_mut(method)?.bind(Side::Output, index, arena, slice)
    }

    fn resize_input(&mut self, method: MethodId, index: usize, dims: &[usize]) -> Result<()> {
        self.method_mut(method)?.resize_input(index, dims)
    }

    fn execute(&mut self, method: MethodId, arena: &mut IoArena) -> Result<()> {
        self.method_mut(method)?.execute(arena)
    }

    fn output<'a>(&'a self, method: MethodId, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        self.method(method)?.output(index, arena)
    }
}
