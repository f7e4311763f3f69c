//! Backends: they take a delegate's blob and run it.

use super::value::Value;
use crate::error::Result;
use crate::pte::{Blob, CompileSpec};
use crate::tensor::{DType, Encoding};
use std::collections::BTreeMap;

/// A kind of delegate, by the id that programs name it.
pub trait Backend: Send + Sync {
    /// `QnnBackend`
    fn id(&self) -> &'static str;

    /// Whether delegates can be made at all; the error says what is missing.
    fn available(&self) -> Result<()>;

    /// Prepares one delegate of a method.
    fn init(&self, init: &DelegateInit<'_>) -> Result<Box<dyn Delegate>>;
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
    /// The method's values: types and shapes of the arguments.
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

    /// Runs on `values[args]`, whose tensors are all bound.
    fn execute(&mut self, values: &mut [Value], args: &[u32]) -> Result<()>;
}
