//! Executes a program: values, memory, kernel and delegate registries, methods, and [`Module`] – the trait the runner
//! runs on.

mod binding;
mod compiled;
mod delegate;
mod error;
mod executor;
mod external;
mod host_module;
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
mod rpc_mem;
mod shared_buffers;
mod shared_memory;
mod state;
mod tensor;
mod value;

pub use compiled::{
    Compilation, CompiledMethod, Execution, MethodCompiler, MethodSource, MethodValues, Split, StepObserver,
};
pub use delegate::{Backend, BackendRegistry, Delegate, DelegateInit, RetypedArg};
pub use error::{Missing, RuntimeError, Side};
pub use executor::MAX_INSTRUCTIONS;
pub use host_module::{
    Host, HostError, HostModule, HostPlace, HostTable, HostTensor, HostValue, HostValueKind, LLR_MODULE_MAX_RANK,
    LLR_MODULE_NO_TENSOR, LLR_MODULE_TABLE_VERSION, LLR_MODULE_TENSOR_DYNAMIC, LLR_MODULE_TENSOR_PLANNED,
    LLR_MODULE_TENSOR_QUANTIZED, OpenHostModule, open_adapter,
};
pub use io_arena::{IoArena, IoSlice};
pub use kernel::{Kernel, KernelRegistry};
pub use kernel_args::{Inputs, KernelArgs};
pub use memory::MAX_PLANNED_BYTES;
pub use module::{MethodId, MethodInfo, Module, ModuleMemory, TensorInfo};
pub use native::NativeModule;
pub use profile::{MAX_PROFILE_EVENTS, Profile, ProfileEvent, ProfileKind};
pub use rpc_mem::{RpcMem, RpcMemError};
pub use shared_memory::{SharedMemory, Unshared};
pub use tensor::Tensor;
pub use value::Value;
