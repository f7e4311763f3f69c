//! A graph made ready to run: what all of its instances share.

use super::EngineError;
use super::buffers::{self, Buffer};
use super::lower::lower;
use super::plan::Plan;
use super::resolve::Resolver;
use super::weights::WeightCache;
use crate::graph::Graph;
use crate::kernels::{KernelSet, ThreadPool};
use crate::tensor::DType;
use std::sync::Arc;

/// How to compile.
#[derive(Debug, Clone)]
pub struct CompileOptions {
    /// Tokens that one run should take at most; see [`Compiled::max_chunk`].
    pub max_chunk: usize,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self { max_chunk: 128 }
    }
}

/// A graph as steps on the kernels, with its weights packed. Many [`Instance`](super::Instance)s may run it.
#[derive(Debug)]
pub struct Compiled {
    pub(super) plan: Plan,
    pub(super) buffers: Vec<Buffer>,
    pub(super) resolver: Resolver,
    pub(super) kernels: KernelSet,
    pub(super) pool: Arc<ThreadPool>,
    /// Of the graph's inputs and outputs.
    pub(super) input_dtypes: Vec<DType>,
    pub(super) output_dtypes: Vec<DType>,
    max_chunk: usize,
}

impl Compiled {
    /// Verifies `graph`, packs its weights into `weights` in parallel, and chooses its steps. The graph's constants may
    /// stay in their file; what was packed is no longer needed there.
    ///
    /// The graph should have gone through the passes: the engine fuses nothing but linear layers with their quantized
    /// inputs.
    pub fn new(
        graph: Graph,
        kernels: KernelSet,
        pool: Arc<ThreadPool>,
        weights: &WeightCache,
        options: &CompileOptions,
    ) -> Result<Arc<Self>, EngineError> {
        graph.verify()?;
        let dtypes = |values: &[crate::graph::ValueId]| values.iter().map(|&id| graph.value(id).dtype).collect();
        let (input_dtypes, output_dtypes) = (dtypes(&graph.inputs), dtypes(&graph.outputs));
        let mut plan = lower(graph, kernels, &pool, weights)?;
        let buffers = buffers::assign(&mut plan);
        let resolver = Resolver::new(&plan);
        let max_chunk = options.max_chunk.max(1);
        Ok(Arc::new(Self { plan, buffers, resolver, kernels, pool, input_dtypes, output_dtypes, max_chunk }))
    }

    /// Name of the graph.
    pub fn name(&self) -> &str {
        &self.plan.graph.name
    }

    /// Tokens that a run should take at most. Longer prompts run too, but the memory for intermediate values grows with
    /// the longest run; results do not depend on how a prompt is cut.
    pub fn max_chunk(&self) -> usize {
        self.max_chunk
    }

    /// Number of steps of a run.
    pub fn step_count(&self) -> usize {
        self.plan.steps.len()
    }

    /// Names of the states, in the graph's order.
    pub fn state_names(&self) -> impl Iterator<Item = &str> {
        self.plan.graph.states.iter().map(|state| state.name.as_str())
    }
}
