//! Operators that a program calls by name.

use super::kernel_args::KernelArgs;
use crate::error::Result;
use crate::pte::OperatorName;
use std::collections::BTreeMap;

/// An operator's implementation: reads and writes the values that its call names.
pub type Kernel = fn(&mut KernelArgs<'_>) -> Result<()>;

/// Operators by full name, `aten::add.out`.
#[derive(Default, Clone)]
pub struct KernelRegistry {
    kernels: BTreeMap<String, Kernel>,
}

impl KernelRegistry {
    /// Adds an operator; a later one of the same name replaces an earlier one.
    pub fn register(&mut self, name: &str, kernel: Kernel) {
        self.kernels.insert(name.to_owned(), kernel);
    }

    /// The implementation of `name`.
    pub fn get(&self, name: &OperatorName) -> Option<Kernel> {
        self.kernels.get(&name.to_string()).copied()
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }
}
