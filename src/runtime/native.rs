//! The [`Module`] that runs programs itself, with this build's kernels and backends.

use super::compiled::{Execution, MethodCompiler};
use super::delegate::BackendRegistry;
use super::error::{RuntimeError, Side};
use super::external::External;
use super::io_arena::{IoArena, IoSlice};
use super::kernel::KernelRegistry;
use super::loader::Loader;
use super::memory::Common;
use super::method::Method;
use super::module::{MethodId, MethodInfo, Module, ModuleMemory};
use super::profile::{Profile, Recorder};
use super::shared_buffers::kept_apart;
use super::state::{States, held, program_bytes, storages};
use super::value::Value;
use crate::base::fingerprint::fingerprint;
use crate::base::storage::Storage;
use crate::error::Result;
use crate::log_warning;
use crate::pte::{ExecutionPlan, FlatTensor, Program};
use crate::tensor::Dims;
use std::sync::{Arc, OnceLock};

/// A program with the kernels and backends to run it.
///
/// * A planned input that is bound is copied in at each `execute`; unbound it keeps what its memory holds. A planned
///   or constant output that is bound is copied out after each `execute`.
/// * Binding to another arena releases all bindings of the method to the one before.
/// * Inputs that are no tensors cannot be bound; they keep the program's value.
/// * Slices of one method may overlap: that is not looked for, and the result is whatever order the instructions touch
///   the bytes in. Kernels of this crate refuse arguments that overlap their output.
/// * Methods that place the same named mutable buffers at the same offsets of a planned buffer share that buffer: what
///   one leaves in a cache the other finds there.
/// * After an error from `execute` the method can be executed again; what its outputs hold is not defined.
pub struct NativeModule {
    program: Arc<Program>,
    kernels: KernelRegistry,
    backends: BackendRegistry,
    external: External,
    /// What the fingerprint is of.
    files: Vec<Arc<Storage>>,
    fingerprint: OnceLock<u64>,
    compiler: Option<Arc<dyn MethodCompiler>>,
    execution: Execution,
    methods: Vec<Method>,
    common: Common,
    recorder: Option<Recorder>,
}

impl NativeModule {
    /// A module of `program`. Nothing is loaded yet; what a method lacks is reported when it is loaded.
    pub fn new(program: Program, kernels: KernelRegistry, backends: BackendRegistry) -> Result<Self> {
        Self::with_data(program, Vec::new(), kernels, backends)
    }

    /// The same for a program whose weights, or some of them, are in external data files.
    ///
    /// # Errors
    /// `InvalidProgram` for a program without methods, `InvalidExternalData` for a key with two meanings.
    pub fn with_data(
        program: Program,
        data: Vec<FlatTensor>,
        kernels: KernelRegistry,
        backends: BackendRegistry,
    ) -> Result<Self> {
        if program.plans.is_empty() {
            return Err(RuntimeError::NoMethods.into());
        }
        let files = storages(&program, &data);
        let external = External::new(&program, data)?;
        let (program, methods, common) = (Arc::new(program), Vec::new(), Common::default());
        let (compiler, execution, recorder) = (None, Execution::Auto, None);
        let fingerprint = OnceLock::new();
        Ok(Self {
            program,
            kernels,
            backends,
            external,
            files,
            fingerprint,
            compiler,
            execution,
            methods,
            common,
            recorder,
        })
    }

    /// The same module, whose methods are compiled by `compiler` as `execution` says. Without a compiler they run
    /// instruction by instruction.
    pub fn with_compiler(self, compiler: Arc<dyn MethodCompiler>, execution: Execution) -> Self {
        Self { compiler: Some(compiler), execution, ..self }
    }

    fn states(&self) -> States {
        let plan = |method: &Method| self.program.plan(&method.info.name);
        States::new(self.methods.iter().filter_map(|method| Some((plan(method)?, &method.memory))))
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
        let program = Arc::clone(&self.program);
        let Some(plan) = program.plan(name) else {
            return Err(RuntimeError::NoSuchMethod { name: name.to_owned(), known: self.method_names() }.into());
        };
        let Self { external, kernels, backends, common, execution, .. } = self;
        let (compiler, execution) = (self.compiler.as_deref(), *execution);
        let loader = Loader { program: &program, external, kernels, backends, compiler, execution };
        let method = loader.load(plan, common)?;
        for other in self.methods.iter().filter_map(|method| self.program.plan(&method.info.name)) {
            if let Some(buffer) = kept_apart(plan, other) {
                log_warning!("methods {} and {} each have a {buffer} of their own", other.name, plan.name);
            }
        }
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
        method.execute(&mut IoArena::new(0)?, None)?;
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
        let loaded = self.methods.get_mut(method.0).ok_or(RuntimeError::NoSuchMethodId(method.0))?;
        loaded.execute(arena, self.recorder.as_mut())
    }

    fn output<'a>(&'a self, method: MethodId, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        self.method(method)?.output(index, arena)
    }

    fn chunk(&self, method: MethodId) -> Option<usize> {
        self.method(method).ok()?.chunk()
    }

    fn visit_states(&mut self, visit: &mut dyn FnMut(&str, &mut [u8])) -> bool {
        self.states().visit(visit);
        true
    }

    fn fingerprint(&self) -> Option<u64> {
        Some(*self.fingerprint.get_or_init(|| fingerprint(&self.files)))
    }

    fn memory(&self) -> ModuleMemory {
        let (program, program_mapped) = program_bytes(&self.program);
        let (planned, copies) = held(self.methods.iter().map(|method| &method.memory));
        let packed = self.compiler.as_ref().map_or(0, |compiler| compiler.weight_bytes());
        let scratch = self.methods.iter().map(Method::scratch_bytes).sum();
        let (data, states) = (self.external.bytes(), self.states().bytes());
        ModuleMemory { program, program_mapped, data, planned, states, weights: copies + packed, scratch }
    }

    fn cpu_threads(&self) -> Option<usize> {
        self.compiler.as_ref()?.threads()
    }

    fn set_profiling(&mut self, on: bool) {
        self.recorder = on.then(Recorder::new);
    }

    fn take_profile(&mut self) -> Option<Profile> {
        self.recorder.as_mut().map(Recorder::take)
    }
}
