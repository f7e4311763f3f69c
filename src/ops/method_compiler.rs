//! Compiles methods whose instructions are all known, delegates included: one graph, fused and planned as a whole.
//!
//! Mutable buffers stay in the method's planned memory, so methods that share them still do, however each is executed.

use super::graph_forms::{Traced, trace};
use crate::engine::{InputView, Instance, Resources};
use crate::error::{Result, Status};
use crate::graph::Graph;
use crate::runtime::{Compilation, CompiledMethod, MethodCompiler, MethodSource, MethodValues, StepObserver};
use crate::{log_info, log_warning};
use std::sync::Arc;

/// The compiler. All methods that it compiles share threads and packed weights.
pub struct GraphCompiler {
    resources: Arc<Resources>,
}

impl GraphCompiler {
    /// A compiler for `resources`.
    pub fn new(resources: Arc<Resources>) -> Self {
        Self { resources }
    }
}

/// The graph of a method, before any pass; or why it has none.
///
/// # Errors
/// What stops the method however it is executed: a damaged delegate.
pub fn method_graph(source: &MethodSource<'_>) -> Result<Result<Graph, String>> {
    Ok(trace(source)?.map(|traced| traced.graph))
}

impl MethodCompiler for GraphCompiler {
    fn compile(&self, source: &MethodSource<'_>) -> Result<Compilation> {
        let Traced { graph, inputs, outputs, states } = match trace(source)? {
            Ok(traced) => traced,
            Err(why) => return Ok(Compilation::Unfit(why)),
        };
        let name = &source.plan.name;
        let instance = self.resources.compile(graph).and_then(|compiled| Ok(Instance::on_borrowed_states(compiled)?));
        let instance = match instance {
            Ok(instance) => instance,
            Err(error) if error.status() == Status::MemoryAllocationFailed => return Err(error),
            Err(error) => {
                log_warning!("method {name} has a graph that the engine refuses: {}", error.chain());
                return Ok(Compilation::Unfit(error.chain()));
            }
        };
        log_info!("method {name} is compiled: {} steps", instance.compiled().step_count());
        Ok(Compilation::Done(Box::new(CompiledGraph { instance, inputs, outputs, states })))
    }

    fn weight_bytes(&self) -> u64 {
        self.resources.weights().size_bytes() as u64
    }

    fn threads(&self) -> Option<usize> {
        self.resources.threads()
    }
}

/// A compiled method; the numbers are those of the method's values.
struct CompiledGraph {
    instance: Instance,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    states: Vec<u32>,
}

impl CompiledMethod for CompiledGraph {
    fn run(&mut self, values: &mut MethodValues<'_>, observer: Option<StepObserver<'_>>) -> Result<()> {
        let Self { instance, inputs, outputs, states } = self;
        if instance.is_profiling() != observer.is_some() {
            instance.set_profiling(observer.is_some());
        }
        let (mut states, tensors) = values.split(states, inputs)?;
        let mut views = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            views.push(InputView { dims: &tensor.dims, bytes: tensor.bytes()? });
        }
        instance.run_on(&views, &mut states)?;
        for (index, &value) in outputs.iter().enumerate() {
            let Some(output) = instance.output(index) else { continue };
            let tensor = values.tensor_mut(value)?;
            tensor.resize(output.dims)?;
            tensor.bytes_mut()?.copy_from_slice(output.bytes);
        }
        if let Some(observe) = observer {
            for step in instance.last_run() {
                observe(step.name, step.begin, step.duration);
            }
        }
        Ok(())
    }

    fn chunk(&self) -> Option<usize> {
        Some(self.instance.compiled().max_chunk())
    }

    fn scratch_bytes(&self) -> u64 {
        self.instance.arena_bytes() as u64
    }
}
