//! What lies outside a program: the tensors and blobs of its external data files, by name, beside its own named blobs.

use super::error::RuntimeError;
use crate::error::Result;
use crate::pte::{Blob, FlatTensor, NamedBlob, Program, TensorLayout, TensorValue};
use std::collections::BTreeMap;

/// Everything that a program or its delegates may ask for by name.
#[derive(Default)]
pub(super) struct External {
    tensors: BTreeMap<String, NamedBlob>,
    /// The program's own and those of the files, for delegates.
    pub(super) named_data: BTreeMap<String, Blob>,
}

impl External {
    /// A key may be there twice when it means the same both times.
    pub(super) fn new(program: &Program, files: Vec<FlatTensor>) -> Result<Self> {
        let mut named_data = program.named_data.clone();
        let mut tensors = BTreeMap::<String, NamedBlob>::new();
        for (key, entry) in files.into_iter().flat_map(|file| file.entries) {
            let differs = named_data.get(&key).is_some_and(|known| *known != entry.blob)
                || tensors.get(&key).is_some_and(|known| known.layout != entry.layout);
            if differs {
                return Err(RuntimeError::ExternalTwice { name: key }.into());
            }
            named_data.insert(key.clone(), entry.blob.clone());
            tensors.insert(key, entry);
        }
        Ok(Self { tensors, named_data })
    }

    /// Bytes of the files' tensors and blobs.
    pub(super) fn bytes(&self) -> u64 {
        self.tensors.values().map(|entry| entry.blob.len() as u64).sum()
    }

    /// The bytes of an external tensor of the program, of its type and shape.
    pub(super) fn tensor(&self, value: &TensorValue) -> Result<&Blob, RuntimeError> {
        let name = || value.fully_qualified_name.clone().unwrap_or_default();
        let entry = value.fully_qualified_name.as_ref().and_then(|name| self.tensors.get(name));
        let entry = entry.ok_or_else(|| RuntimeError::ExternalData { name: name() })?;
        let layout = entry.layout.as_ref().ok_or_else(|| RuntimeError::ExternalNoTensor { name: name() })?;
        let want = TensorLayout { dtype: value.dtype, sizes: value.sizes.clone(), dim_order: value.dim_order.clone() };
        if *layout != want {
            let text =
                |layout: &TensorLayout| format!("{}{:?}, order {:?}", layout.dtype, layout.sizes, layout.dim_order);
            return Err(RuntimeError::ExternalLayout { name: name(), have: text(layout), want: text(&want) });
        }
        Ok(&entry.blob)
    }
}
