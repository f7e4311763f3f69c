//! What the runner runs on: a loaded program whose methods take and give tensors in an [`IoArena`].

use super::io_arena::{IoArena, IoSlice};
use super::profile::Profile;
use super::value::Value;
use crate::error::Result;
use crate::tensor::{DType, Dims, Encoding, element_count};

/// A loaded method of a [`Module`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MethodId(pub usize);

/// What a method takes or gives at one place.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Element type. Where the program says float for what its delegate stores as integers, the delegate's type.
    pub dtype: DType,
    /// Sizes; upper bounds where dynamic.
    pub dims: Dims,
    /// Whether the sizes may be smaller at run time.
    pub dynamic: bool,
    /// Whether the program has memory for it. The caller then need not bind it; a binding copies in or out.
    pub planned: bool,
    /// How its integers stand for reals, when the delegate says so.
    pub encoding: Option<Encoding>,
}

impl TensorInfo {
    /// Size in bytes at the upper bound.
    pub fn byte_len(&self) -> usize {
        // Dims were checked when the program was read.
        element_count(&self.dims).expect("checked dims") * self.dtype.size()
    }
}

/// What a loaded method looks like from outside. `None` stands for an input or output that is no tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodInfo {
    /// Method name.
    pub name: String,
    /// In the caller's order.
    pub inputs: Vec<Option<TensorInfo>>,
    /// In the caller's order.
    pub outputs: Vec<Option<TensorInfo>>,
}

/// Memory that a module holds, in bytes; 0 for what is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModuleMemory {
    /// The program, weights included.
    pub program: u64,
    /// Whether the program is a mapped file, whose pages come in as they are touched and can be dropped again.
    pub program_mapped: bool,
    /// External data files, mapped likewise.
    pub data: u64,
    /// Planned memory of the loaded methods, each buffer once.
    pub planned: u64,
    /// What lives from one execution to the next, a part of `planned`; see [`Module::visit_states`].
    pub states: u64,
    /// Constants that were copied because they lie unaligned in the file, and weights packed for the kernels.
    pub weights: u64,
    /// Intermediate values of compiled methods.
    pub scratch: u64,
}

/// A program that can be run. Implemented by `NativeModule` and, for hosts, by `HostModule`.
///
/// Inputs and outputs without planned memory must be bound before the first `execute`; they stay bound. A binding names
/// a range of the arena that is then lent to `execute`, and only that arena may be lent. Binding is cheap: it may be
/// done for every input and output before every `execute`.
pub trait Module: Send {
    /// Names of all methods, in the program's order.
    fn method_names(&self) -> Vec<String>;

    /// Prepares a method. Loading one twice gives the same id.
    fn load_method(&mut self, name: &str) -> Result<MethodId>;

    /// What a loaded method takes and gives.
    fn method_info(&self, method: MethodId) -> &MethodInfo;

    /// The outputs of a method that takes nothing and only returns constants (`get_n_layers`); `None` when the program
    /// has no such method.
    fn constant(&mut self, name: &str) -> Result<Option<Vec<Value>>>;

    /// Makes input `index` read from `slice`, whose length must be [`TensorInfo::byte_len`], the size in bytes at the
    /// upper bound, and whose offset must be aligned to the element.
    fn bind_input(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()>;

    /// Makes output `index` write to `slice`, under the same rules. Outputs may not overlap inputs or each other; this
    /// is the caller's care, it is not checked here.
    fn bind_output(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()>;

    /// Sets the current sizes of a dynamic input, within its upper bounds; the binding shrinks with it.
    fn resize_input(&mut self, method: MethodId, index: usize, dims: &[usize]) -> Result<()>;

    /// Runs the method once.
    fn execute(&mut self, method: MethodId, arena: &mut IoArena) -> Result<()>;

    /// Current sizes and bytes of output `index`, after an `execute`; works for planned outputs too. The bytes are
    /// aligned to the element.
    fn output<'a>(&'a self, method: MethodId, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])>;

    /// How many tokens a call of a loaded method should take at most: longer calls work, but take more memory and no
    /// less time for it. `None` when it makes no difference, or is not known.
    fn chunk(&self, _method: MethodId) -> Option<usize> {
        None
    }

    /// Shows each piece of memory that the loaded methods keep from one execution to the next – the caches of a
    /// `forward(tokens, input_pos)` program are among them –, in an order that the program alone decides: its name with
    /// type and sizes, and its bytes, to read or to write. False, and nothing shown, where that cannot be done.
    fn visit_states(&mut self, _visit: &mut dyn FnMut(&str, &mut [u8])) -> bool {
        false
    }

    /// A number that tells this program from others, the weights included, without reading all of them; never 0. `None`
    /// where the program's bytes are not known.
    fn fingerprint(&self) -> Option<u64> {
        None
    }

    /// Threads that compute what runs on the CPU; `None` when none were made, or it is not known.
    fn cpu_threads(&self) -> Option<usize> {
        None
    }

    /// Memory that the module holds.
    fn memory(&self) -> ModuleMemory {
        ModuleMemory::default()
    }

    /// Begins or ends to record where the time of executions goes. Does nothing where that cannot be recorded.
    fn set_profiling(&mut self, _on: bool) {}

    /// What was recorded since the last call; `None` when nothing is recorded.
    fn take_profile(&mut self) -> Option<Profile> {
        None
    }
}
