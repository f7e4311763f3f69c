//! Operators that a `.pte` calls by name, one family a file.
//!
//! QNN programs need few: everything else is inside their delegates.

mod embedding;
mod error;
mod fallback;
mod prim;
#[cfg(test)]
mod testing;

pub use error::OpError;

use crate::runtime::KernelRegistry;

/// Adds every operator of this library.
pub fn register(registry: &mut KernelRegistry) {
    embedding::register(registry);
    fallback::register(registry);
    prim::register(registry);
}
