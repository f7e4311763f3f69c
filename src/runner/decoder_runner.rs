//! DecoderRunner: the module and the arena it runs on. It knows methods, bindings and time, and nothing of what the
//! tensors hold.

use super::config::EvalMode;
use super::error::RunnerError;
use super::io::MethodIo;
use super::logits::LogitsFormat;
use super::text;
use crate::error::{Context, Error, Result, Status};
use crate::runtime::{IoArena, IoSlice, MethodId, Module, Profile, Value};
use crate::tensor::{Dims, Encoding};
use std::time::{Duration, Instant};

/// Loads method `name` for `mode` and finds out what its tensors are for.
pub(crate) fn load_method(module: &mut dyn Module, name: &str, mode: EvalMode) -> Result<MethodIo> {
    let id = module.load_method(name).with_context(|| format!("loading method {name}"))?;
    if text::is_text(module.method_info(id)) {
        let signature = text::describe(module.method_info(id));
        return Err(RunnerError::TextMethod { signature, mode }.into());
    }
    let mut io = MethodIo::resolve(id, module.method_info(id))?;
    io.format = LogitsFormat { encoding: logits_encoding(module)?.or(io.format.encoding), ..io.format };
    Ok(io)
}

/// What the program says of its logits: `get_logits_scale`, `get_logits_zero_point`.
pub(crate) fn logits_encoding(module: &mut dyn Module) -> Result<Option<Encoding>> {
    let Some(Value::Double(scale)) = constant(module, "get_logits_scale")?.pop() else { return Ok(None) };
    let zero_point = constant_ints(module, "get_logits_zero_point")?.first().copied().unwrap_or(0);
    match (scale as f32, i32::try_from(zero_point)) {
        (scale, Ok(zero_point)) if scale > 0.0 && scale.is_finite() => Ok(Some(Encoding { scale, zero_point })),
        _ => Err(Error::new(
            Status::InvalidProgram,
            format!("get_logits_scale {scale} and get_logits_zero_point {zero_point} make no encoding"),
        )),
    }
}

/// The outputs of constant method `name`; none when the program lacks it.
pub(crate) fn constant(module: &mut dyn Module, name: &str) -> Result<Vec<Value>> {
    let values = module.constant(name).with_context(|| format!("reading {name}"))?;
    Ok(values.unwrap_or_default())
}

/// The integers that constant method `name` gives; none when the program lacks it.
pub(crate) fn constant_ints(module: &mut dyn Module, name: &str) -> Result<Vec<i64>> {
    let int = |value| match value {
        Value::Int(int) => Some(int),
        _ => None,
    };
    Ok(constant(module, name)?.into_iter().filter_map(int).collect())
}

/// A module with the memory that its methods are bound to.
pub(crate) struct DecoderRunner {
    module: Box<dyn Module>,
    pub arena: IoArena,
    executing: Duration,
}

impl DecoderRunner {
    pub fn new(module: Box<dyn Module>, arena: IoArena) -> Self {
        Self { module, arena, executing: Duration::ZERO }
    }

    pub fn bind_input(&mut self, method: MethodId, index: usize, slice: IoSlice) -> Result<()> {
        self.module.bind_input(method, index, &self.arena, slice)
    }

    pub fn bind_output(&mut self, method: MethodId, index: usize, slice: IoSlice) -> Result<()> {
        self.module.bind_output(method, index, &self.arena, slice)
    }

    pub fn resize_input(&mut self, method: MethodId, index: usize, dims: &[usize]) -> Result<()> {
        self.module.resize_input(method, index, dims)
    }

    /// Sizes and bytes of an output of the last step.
    pub fn output(&self, method: MethodId, index: usize) -> Result<(Dims, &[u8])> {
        self.module.output(method, index, &self.arena)
    }

    pub fn visit_states(&mut self, visit: &mut dyn FnMut(&str, &mut [u8])) -> bool {
        self.module.visit_states(visit)
    }

    pub fn module(&self) -> &dyn Module {
        &*self.module
    }

    pub fn set_profiling(&mut self, on: bool) {
        self.module.set_profiling(on);
    }

    pub fn take_profile(&mut self) -> Option<Profile> {
        self.module.take_profile()
    }

    /// Runs a method once.
    pub fn step(&mut self, method: MethodId) -> Result<()> {
        let began = Instant::now();
        let result = self.module.execute(method, &mut self.arena);
        self.executing += began.elapsed();
        result
    }

    /// Time spent in methods since the last call.
    pub fn take_execution_time(&mut self) -> Duration {
        std::mem::take(&mut self.executing)
    }
}
