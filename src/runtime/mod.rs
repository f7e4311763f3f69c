//! Executes a program: values, memory, kernel and delegate registries, methods, and [`Module`] – the trait the runner
//! runs on.

mod delegate;
mod io_arena;
mod kernel;
mod module;
mod tensor;
mod value;

pub use delegate::{Backend, Delegate, DelegateInit, RetypedArg};
pub use io_arena::{IoArena, IoSlice};
pub use kernel::{Kernel, KernelArgs, KernelRegistry};
pub use module::{MethodId, MethodInfo, Module, TensorInfo};
pub use tensor::Tensor;
pub use value::Value;
