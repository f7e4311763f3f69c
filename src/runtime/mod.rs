//! Executes a program: values, memory, kernel and delegate registries, methods, and [`Module`] – the trait the runner
//! runs on.

mod binding;
mod compiled;
mod delegate;
mod error;
mod executor;
mod external;
mod io_arena;
mod kernel;
mod kernel_args;
mod loader;
mod memory;
mod method;
mod module;
mod native;
mod profile;
mod retype;
mod shared_buffers;
mod state;
mod tensor;
mod value;

pub use compiled::{
    Compilation, CompiledMethod, Execution, MethodCompiler, MethodSource, MethodValues, Split, StepObserver,
};
pub use delegate::{Backend, BackendRegistry, Delegate, DelegateInit, RetypedArg};
pub use error::{Missing, RuntimeError, Side};
pub use executor::MAX_INSTRUCTIONS;
pub use io_arena::{IoArena, IoSlice};
pub use kernel::{Kernel, KernelRegistry};
pub use kernel_args::{Inputs, KernelArgs};
pub use memory::MAX_PLANNED_BYTES;
pub use module::{MethodId, MethodInfo, Module, ModuleMemory, TensorInfo};
pub use native::NativeModule;
pub use profile::{MAX_PROFILE_EVENTS, Profile, ProfileEvent, ProfileKind};
pub use tensor::Tensor;
pub use value::Value;
