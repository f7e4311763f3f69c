//! How much memory a runner holds, and for what.

use super::loaded::Loaded;
use crate::runtime::ModuleMemory;

/// Bytes, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerMemory {
    /// The module's own.
    pub module: ModuleMemory,
    /// Inputs, outputs and caches of the methods, in one arena.
    pub io: u64,
    /// Keys and values. Of a static program they are a part of `io`, of another they are the module's states, a part of
    /// its planned memory.
    pub kv_cache: u64,
}

impl RunnerMemory {
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let module = loaded.module().memory();
        let (io, kv_cache) = match loaded {
            Loaded::Static { model, .. } => (model.decoder.arena.capacity(), model.kv.memory_bytes() as u64),
            Loaded::Text(model) => (model.decoder.arena.capacity(), if model.is_cached() { module.states } else { 0 }),
        };
        Self { module, io: io as u64, kv_cache }
    }

    /// What is held on the heap or mapped, all together.
    pub fn total(&self) -> u64 {
        let ModuleMemory { program, data, planned, weights, scratch, .. } = self.module;
        program + data + planned + weights + scratch + self.io
    }
}
