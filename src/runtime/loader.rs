//! Turns a method of a program into something that can run: looks everything up, gives every tensor its memory.

use super::binding::{Bindings, Home, Slot};
use super::compiled::{Compilation, CompiledMethod, Execution, MethodCompiler, MethodSource};
use super::delegate::{Backend, BackendRegistry, Delegate, DelegateInit};
use super::error::{Missing, RuntimeError};
use super::executor::{Executor, Expected, Step};
use super::external::External;
use super::kernel::{Kernel, KernelRegistry};
use super::memory::{Common, Memory};
use super::method::{Body, Method};
use super::module::{MethodInfo, TensorInfo};
use super::retype;
use super::value::Value;
use crate::error::{Context, Result};
use crate::log_info;
use crate::pte::{EValue, ExecutionPlan, Instruction, Program, TensorData};
use crate::tensor::DType;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What methods are made from.
pub(super) struct Loader<'a> {
    pub(super) program: &'a Arc<Program>,
    pub(super) external: &'a External,
    pub(super) kernels: &'a KernelRegistry,
    pub(super) backends: &'a BackendRegistry,
    pub(super) compiler: Option<&'a dyn MethodCompiler>,
    pub(super) execution: Execution,
}

/// Kernels by operator, backends by delegate.
type Resolved<'a> = (Vec<Kernel>, Vec<&'a Arc<dyn Backend>>);

impl Loader<'_> {
    /// Loads a method of the program.
    pub(super) fn load(&self, plan: &ExecutionPlan, common: &mut Common) -> Result<Method> {
        self.load_plan(plan, common).with_context(|| format!("loading method {}", plan.name))
    }

    fn load_plan(&self, plan: &ExecutionPlan, common: &mut Common) -> Result<Method> {
        check_indices(plan)?;
        let (kernels, backends) = self.resolve(plan)?;
        let mut memory = Memory::new(self.program, plan, common)?;
        let mut values = Vec::with_capacity(plan.values.len());
        for (index, value) in plan.values.iter().enumerate() {
            let value = match value {
                EValue::Tensor(value) => {
                    let tensor = memory.tensor(value, self.external, common);
                    Value::Tensor(tensor.with_context(|| retype::describe(plan, index as u32))?)
                }
                other => Value::from_program(other),
            };
            values.push(value);
        }
        let places = Places::new(plan);
        places.check_homes(plan)?;
        let body = match self.compile(plan)? {
            Some(compiled) => Body::Compiled(compiled),
            None => {
                let delegates = self.init_delegates(plan, &backends, &values)?;
                retype::apply(plan, &delegates, &mut values)?;
                check_calls(plan, &values)?;
                Body::Instructions(Executor {
                    chains: lower(plan, &kernels, &places, &values),
                    delegates,
                    arena: None,
                    operator_names: plan.operators.iter().map(ToString::to_string).collect(),
                    delegate_ids: plan.delegates.iter().map(|delegate| delegate.id.clone()).collect(),
                })
            }
        };

        let (inputs, outputs) = places.slots(plan, &values);
        let info = MethodInfo {
            name: plan.name.clone(),
            inputs: inputs.iter().map(|slot| tensor_info(slot, &values, plan)).collect(),
            outputs: outputs.iter().map(|slot| tensor_info(slot, &values, plan)).collect(),
        };
        let bindings = Bindings::new(plan.name.clone(), inputs, outputs);
        Ok(Method { info, values, body, bindings, memory })
    }

    /// The method compiled; `None` when it runs by its instructions. Methods that take nothing are not worth it.
    fn compile(&self, plan: &ExecutionPlan) -> Result<Option<Box<dyn CompiledMethod>>> {
        let Some(compiler) = self.compiler else { return Ok(None) };
        if self.execution == Execution::Instructions || plan.inputs.is_empty() {
            return Ok(None);
        }
        let source = MethodSource { program: self.program, plan, external: self.external };
        match compiler.compile(&source)? {
            Compilation::Done(compiled) => Ok(Some(compiled)),
            Compilation::Unfit(reason) if self.execution == Execution::Compiled => {
                Err(RuntimeError::NotCompiled { method: plan.name.clone(), reason }.into())
            }
            Compilation::Unfit(reason) => {
                log_info!("method {} runs instruction by instruction: {reason}", plan.name);
                Ok(None)
            }
        }
    }

    /// All kernels and backends of a method, or everything that is missing.
    fn resolve(&self, plan: &ExecutionPlan) -> Result<Resolved<'_>> {
        let mut missing = Box::<Missing>::default();
        let mut kernels = Vec::with_capacity(plan.operators.len());
        for operator in &plan.operators {
            match self.kernels.get(operator) {
                Some(kernel) => kernels.push(kernel),
                None => missing.operators.push(operator.to_string()),
            }
        }
        let mut backends = Vec::with_capacity(plan.delegates.len());
        for delegate in &plan.delegates {
            match self.backends.get(&delegate.id) {
                Some(backend) => backends.push(backend),
                None if missing.backends.contains(&delegate.id) => {}
                None => missing.backends.push(delegate.id.clone()),
            }
        }
        if !missing.operators.is_empty() || !missing.backends.is_empty() {
            missing.operators.dedup();
            missing.known_operators = self.kernels.names().map(str::to_owned).collect();
            missing.delegates = self.delegate_ids();
            missing.known_backends = self.backends.describe();
            return Err(RuntimeError::Missing { method: plan.name.clone(), missing }.into());
        }
        let ids: BTreeSet<&str> = plan.delegates.iter().map(|delegate| delegate.id.as_str()).collect();
        for id in ids {
            let available = self.backends.get(id).map_or(Ok(()), |backend| backend.available());
            // The cause says why; the list of this build's backends would say it again.
            available.with_context(|| {
                format!("{id} is not available (delegates in the file: {})", self.delegate_ids().join(", "))
            })?;
        }
        Ok((kernels, backends))
    }

    fn delegate_ids(&self) -> Vec<String> {
        let ids = self.program.plans.iter().flat_map(|plan| &plan.delegates).map(|delegate| delegate.id.clone());
        ids.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn init_delegates(
        &self,
        plan: &ExecutionPlan,
        backends: &[&Arc<dyn Backend>],
        values: &[Value],
    ) -> Result<Vec<Option<Box<dyn Delegate>>>> {
        let mut delegates = Vec::with_capacity(backends.len());
        for (index, (backend, delegate)) in backends.iter().zip(&plan.delegates).enumerate() {
            let Some((_, args)) = calls(plan).find(|(called, _)| *called == index) else {
                delegates.push(None);
                continue;
            };
            let init = DelegateInit {
                method: &plan.name,
                index,
                processed: &delegate.processed,
                compile_specs: &delegate.compile_specs,
                named_data: &self.external.named_data,
                values,
                args,
            };
            let made = backend.init(&init).with_context(|| format!("preparing delegate {index} ({})", delegate.id))?;
            delegates.push(Some(made));
        }
        Ok(delegates)
    }
}

fn instructions(plan: &ExecutionPlan) -> impl Iterator<Item = &Instruction> {
    plan.chains.iter().flat_map(|chain| &chain.instructions)
}

/// Every delegate call with its arguments.
fn calls(plan: &ExecutionPlan) -> impl Iterator<Item = (usize, &[u32])> {
    instructions(plan).filter_map(|instruction| match instruction {
        Instruction::Delegate { delegate, args } => Some((*delegate as usize, &args[..])),
        _ => None,
    })
}

/// Programs also come from memory, so indices are looked at again where raw addresses hang on them.
fn check_indices(plan: &ExecutionPlan) -> Result<()> {
    let check = |what, index: u32, len: usize| {
        if (index as usize) < len {
            return Ok(());
        }
        Err(RuntimeError::OutOfRange { what, index: index.into(), len })
    };
    let value = |&index: &u32| check("value", index, plan.values.len());
    plan.inputs.iter().chain(&plan.outputs).try_for_each(value)?;
    for chain in &plan.chains {
        for instruction in &chain.instructions {
            match instruction {
                Instruction::Kernel { operator, args } => {
                    check("operator", *operator, plan.operators.len())?;
                    args.iter().try_for_each(value)?;
                }
                Instruction::Delegate { delegate, args } => {
                    check("delegate", *delegate, plan.delegates.len())?;
                    args.iter().try_for_each(value)?;
                }
                Instruction::Move { from, to } => [from, to].into_iter().try_for_each(value)?,
                Instruction::JumpFalse { condition, destination } => {
                    value(condition)?;
                    // Jumping behind the last one ends the chain.
                    check("instruction", *destination, chain.instructions.len() + 1)?;
                }
                Instruction::Free { value: freed } => value(freed)?,
            }
        }
    }
    Ok(())
}

/// A delegate is prepared for the arguments of its first call; all later ones must look the same.
fn check_calls(plan: &ExecutionPlan, values: &[Value]) -> Result<()> {
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Tensor(a), Value::Tensor(b)) => {
            a.dtype == b.dtype && a.bounds == b.bounds && a.is_constant() == b.is_constant()
        }
        (a, b) => a.kind() == b.kind(),
    };
    for (index, args) in calls(plan) {
        let first = calls(plan).find(|(called, _)| *called == index).map_or(args, |(_, first)| first);
        let alike = first.len() == args.len()
            && first.iter().zip(args).all(|(&a, &b)| a == b || same(&values[a as usize], &values[b as usize]));
        if !alike {
            let id = plan.delegates[index].id.clone();
            return Err(RuntimeError::DelegateCalls { delegate: index, id }.into());
        }
    }
    Ok(())
}

/// What happens to a method's values, by number.
struct Places {
    /// Kernel arguments and move targets: an instruction may point them elsewhere.
    repointed: BTreeSet<u32>,
    inputs: BTreeSet<u32>,
    outputs: BTreeSet<u32>,
}

impl Places {
    fn new(plan: &ExecutionPlan) -> Self {
        let mut repointed = BTreeSet::new();
        for instruction in instructions(plan) {
            match instruction {
                Instruction::Kernel { args, .. } => repointed.extend(args),
                Instruction::Move { to, .. } => repointed.extend([to]),
                _ => {}
            }
        }
        let (inputs, outputs) = (plan.inputs.iter().copied().collect(), plan.outputs.iter().copied().collect());
        Self { repointed, inputs, outputs }
    }

    fn is_io(&self, value: u32) -> bool {
        self.inputs.contains(&value) || self.outputs.contains(&value)
    }

    fn check_homes(&self, plan: &ExecutionPlan) -> Result<()> {
        for &value in calls(plan).flat_map(|(_, args)| args) {
            let unplanned = home(plan, value) == Home::Arena;
            if unplanned && !self.is_io(value) && !self.repointed.contains(&value) {
                return Err(RuntimeError::Homeless).with_context(|| retype::describe(plan, value));
            }
        }
        Ok(())
    }

    fn slots(&self, plan: &ExecutionPlan, values: &[Value]) -> (Vec<Slot>, Vec<Slot>) {
        let slot = |value: u32, home| {
            let (dtype, bytes) = match &values[value as usize] {
                Value::Tensor(tensor) => (tensor.dtype, tensor.max_byte_len()),
                _ => (DType::U8, 0),
            };
            Slot::new(value, home, dtype, bytes, self.repointed.contains(&value))
        };
        let inputs = plan.inputs.iter().map(|&value| slot(value, home(plan, value))).collect();
        let mut seen = self.inputs.clone();
        let outputs = plan.outputs.iter().map(|&value| {
            let own = home(plan, value);
            slot(value, if own == Home::Arena && !seen.insert(value) { Home::OtherSlot } else { own })
        });
        (inputs, outputs.collect())
    }
}

fn home(plan: &ExecutionPlan, value: u32) -> Home {
    match &plan.values[value as usize] {
        EValue::Tensor(tensor) => match tensor.data {
            TensorData::Unplanned => Home::Arena,
            TensorData::Planned { .. } | TensorData::ExternalMutable { .. } => Home::Planned,
            TensorData::Constant { .. } | TensorData::External => Home::Constant,
        },
        _ => Home::NoTensor,
    }
}

fn tensor_info(slot: &Slot, values: &[Value], plan: &ExecutionPlan) -> Option<TensorInfo> {
    let Value::Tensor(tensor) = &values[slot.value as usize] else { return None };
    Some(TensorInfo {
        dtype: tensor.dtype,
        dims: tensor.bounds.clone(),
        dynamic: tensor.dynamic,
        planned: home(plan, slot.value) != Home::Arena,
        encoding: tensor.encoding,
    })
}

fn lower(plan: &ExecutionPlan, kernels: &[Kernel], places: &Places, values: &[Value]) -> Vec<Vec<Step>> {
    let expected = |args: &[u32]| -> Box<[Expected]> {
        let replaceable = args.iter().enumerate().filter(|(_, value)| places.repointed.contains(value));
        let expected = replaceable.filter_map(|(arg, &value)| match &values[value as usize] {
            Value::Tensor(tensor) => {
                let (dtype, bytes) = (tensor.dtype, tensor.max_byte_len());
                Some(Expected { arg, value, dtype, bytes, writable: !tensor.is_constant() })
            }
            _ => None,
        });
        expected.collect()
    };
    let step = |instruction: &Instruction| match instruction {
        Instruction::Kernel { operator, args } => {
            Step::Kernel { kernel: kernels[*operator as usize], operator: *operator, args: args[..].into() }
        }
        Instruction::Delegate { delegate, args } => {
            Step::Delegate { delegate: *delegate, args: args[..].into(), expected: expected(args) }
        }
        &Instruction::Move { from, to } => Step::Move { from, to },
        &Instruction::JumpFalse { condition, destination } => Step::JumpFalse { condition, destination },
        &Instruction::Free { value } => {
            Step::Free { value, release: home(plan, value) == Home::Arena && !places.is_io(value) }
        }
    };
    plan.chains.iter().map(|chain| chain.instructions.iter().map(step).collect()).collect()
}
