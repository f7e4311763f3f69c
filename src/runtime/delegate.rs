//! Backends: they take a delegate's blob and run it.

use super::shared_memory::SharedMemory;
use super::value::Value;
use crate::error::Result;
use crate::pte::{Blob, CompileSpec};
use crate::tensor::{DType, Encoding};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A kind of delegate, by the id that programs name it.
pub trait Backend: Send + Sync {
    /// `QnnBackend`
    fn id(&self) -> &'static str;

    /// Whether delegates can be made at all; the error says what is missing.
    fn available(&self) -> Result<()>;

    /// Prepares one delegate of a method.
    fn init(&self, init: &DelegateInit<'_>) -> Result<Box<dyn Delegate>>;
}

/// The backends of a build.
#[derive(Default, Clone)]
pub struct BackendRegistry {
    backends: Vec<Arc<dyn Backend>>,
}

impl BackendRegistry {
    /// Adds a backend; a later one of the same id replaces an earlier one.
    pub fn register(&mut self, backend: Arc<dyn Backend>) {
        self.backends.retain(|known| known.id() != backend.id());
        self.backends.push(backend);
    }

    /// The backend that programs call `id`.
    pub fn get(&self, id: &str) -> Option<&Arc<dyn Backend>> {
        self.backends.iter().find(|backend| backend.id() == id)
    }

    /// Each backend with whether it is available, for messages: `QnnBackend: not available (…)`.
    pub fn describe(&self) -> Vec<String> {
        let line = |backend: &Arc<dyn Backend>| match backend.available() {
            Ok(()) => format!("{}: available", backend.id()),
            Err(error) => format!("{}: not available ({})", backend.id(), error.chain()),
        };
        self.backends.iter().map(line).collect()
    }
}

/// What a backend gets to prepare a delegate.
pub struct DelegateInit<'a> {
    /// The method that calls it; QNN graphs are named so.
    pub method: &'a str,
    /// Which delegate of the method this is.
    pub index: usize,
    /// The backend's blob. Delegates of the same bytes have blobs at the same place.
    pub processed: &'a Blob,
    /// The exporter's options.
    pub compile_specs: &'a [CompileSpec],
    /// The program's named blobs.
    pub named_data: &'a BTreeMap<String, Blob>,
    /// The method's values: types and shapes of the arguments, as the program says them. Constants are bound already.
    pub values: &'a [Value],
    /// The values of the delegate's first call, inputs then outputs.
    pub args: &'a [u32],
}

/// The real type of a delegate's argument, where the backend knows better than the program.
#[derive(Debug, Clone, PartialEq)]
pub struct RetypedArg {
    /// Index into the call's arguments.
    pub arg: usize,
    /// Real element type.
    pub dtype: DType,
    /// Real quantization.
    pub encoding: Option<Encoding>,
}

/// A prepared delegate.
pub trait Delegate: Send {
    /// Arguments whose element type or encoding the backend knows better. Asked once, after `init`.
    fn retyped_args(&self) -> &[RetypedArg] {
        &[]
    }

    /// Says, before the first execution on an arena, what memory shared with the DSP that arena lies in. Arguments may
    /// lie in it or elsewhere. Memory of an arena before is to be given up.
    fn share(&mut self, _memory: Option<&Arc<SharedMemory>>) {}

    /// Runs on `values[args]`.
    ///
    /// Every argument that was a tensor at `init` is one with the type it had then (or was retyped to), has memory for
    /// at least the bytes of its upper bounds, and is writable unless it was a constant at `init`: a backend needs to
    /// check once, at `init`, that no output `is_constant`. Only the current sizes may be smaller than the bounds.
    /// `args` may be another list than at `init` when a program calls a delegate in several places; the number of
    /// arguments and their types are the same.
    fn execute(&mut self, values: &mut [Value], args: &[u32]) -> Result<()>;
}
