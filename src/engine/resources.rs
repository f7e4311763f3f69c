//! What everything that is compiled for one program shares: kernels, threads, packed weights.

use super::compiled::{CompileOptions, Compiled};
use super::weights::WeightCache;
use crate::error::{Context, Result};
use crate::graph::Graph;
use crate::kernels::{KernelSet, ThreadPool, fast_cores};
use crate::log_warning;
use crate::passes;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

/// See the module.
#[derive(Debug)]
pub struct Resources {
    threads: Option<NonZeroUsize>,
    /// Made when the first graph is compiled: programs for other processors need none.
    pool: OnceLock<Arc<ThreadPool>>,
    weights: Arc<WeightCache>,
}

impl Resources {
    /// With this many threads; `None`: as many as this machine has fast cores.
    pub fn new(threads: Option<NonZeroUsize>) -> Arc<Self> {
        Arc::new(Self { threads, pool: OnceLock::new(), weights: WeightCache::new() })
    }

    /// The threads.
    pub fn pool(&self) -> &Arc<ThreadPool> {
        self.pool.get_or_init(|| {
            let Some(asked) = self.threads else { return Arc::new(ThreadPool::new(fast_cores())) };
            let pool = ThreadPool::new(asked.get());
            if let Ok(cores) = std::thread::available_parallelism()
                && asked > cores
            {
                let made = pool.threads();
                log_warning!("cpu_threads is {asked}, this machine has {cores} cores: {made} threads slow each other");
            }
            Arc::new(pool)
        })
    }

    /// Number of threads, once there are any.
    pub fn threads(&self) -> Option<usize> {
        self.pool.get().map(|pool| pool.threads())
    }

    /// The packed weights.
    pub fn weights(&self) -> &Arc<WeightCache> {
        &self.weights
    }

    /// Optimises and compiles `graph`.
    pub fn compile(&self, mut graph: Graph) -> Result<Arc<Compiled>> {
        graph.verify().with_context(|| format!("graph {}", graph.name))?;
        passes::standard().run(&mut graph, None, &mut |_, _| Ok(()))?;
        let options = CompileOptions::default();
        Ok(Compiled::new(graph, KernelSet::best(), Arc::clone(self.pool()), &self.weights, &options)?)
    }
}
