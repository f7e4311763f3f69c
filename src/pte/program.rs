//! The data model of a program. Field names follow ExecuTorch's `program.fbs`.

use crate::base::storage::Blob;
use crate::tensor::{DType, Dims, element_count};
use std::collections::BTreeMap;

/// A whole program. Programs are equal when they mean the same; how a file lays them out in segments does not count.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Schema version; 0 in every file seen.
    pub version: u32,
    /// One plan a method.
    pub plans: Vec<ExecutionPlan>,
    /// Constant buffers; index 0 means "no constant" and is empty. The file stores only where each begins, so the
    /// reader makes each as long as the longest tensor that uses it, and empty when none does.
    pub constants: Vec<Blob>,
    /// Initial contents of mutable buffers: segments of sub-ranges, as `mutable_data_segments` lists them. Index 0 of
    /// each segment means "none"; lengths are as those of the constants.
    pub mutable_data: Vec<Vec<Blob>>,
    /// Blobs that delegates ask for by key.
    pub named_data: BTreeMap<String, Blob>,
    /// The file's segments in order, for inspection. The writer makes its own.
    pub segments: Vec<Blob>,
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        let Self { version, plans, constants, mutable_data, named_data, segments: _ } = self;
        *version == other.version
            && *plans == other.plans
            && *constants == other.constants
            && *mutable_data == other.mutable_data
            && *named_data == other.named_data
    }
}

impl Program {
    /// The plan of method `name`.
    pub fn plan(&self, name: &str) -> Option<&ExecutionPlan> {
        self.plans.iter().find(|plan| plan.name == name)
    }

    /// Adds a constant and returns its index, for [`TensorData::Constant`].
    pub fn add_constant(&mut self, bytes: Vec<u8>) -> u32 {
        if self.constants.is_empty() {
            self.constants.push(Blob::from_vec(Vec::new()));
        }
        self.constants.push(Blob::from_vec(bytes));
        (self.constants.len() - 1) as u32
    }
}

/// One method: its values, how they flow, what it calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExecutionPlan {
    /// Method name.
    pub name: String,
    /// Every value the method knows; all other fields index this list.
    pub values: Vec<EValue>,
    /// Values that the caller gives, in order.
    pub inputs: Vec<u32>,
    /// Values that the caller gets, in order.
    pub outputs: Vec<u32>,
    /// Instruction lists; real files have one.
    pub chains: Vec<Chain>,
    /// Operators by the index that kernel calls use.
    pub operators: Vec<OperatorName>,
    /// Delegates by the index that delegate calls use.
    pub delegates: Vec<BackendDelegate>,
    /// Sizes in bytes of the planned memory buffers, at most 1 TiB together; index 0 is unused.
    pub non_const_buffer_sizes: Vec<u64>,
}

impl ExecutionPlan {
    /// A method without inputs and instructions that returns `values`: how programs carry their metadata.
    pub fn constant(name: impl Into<String>, values: Vec<EValue>) -> Self {
        Self {
            name: name.into(),
            outputs: (0..values.len() as u32).collect(),
            values,
            chains: vec![Chain::default()],
            non_const_buffer_sizes: vec![0],
            ..Self::default()
        }
    }

    /// Adds a value and returns its index.
    pub fn push(&mut self, value: EValue) -> u32 {
        self.values.push(value);
        (self.values.len() - 1) as u32
    }
}

/// A value of a method.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum EValue {
    Null,
    Int(i64),
    Bool(bool),
    Double(f64),
    Tensor(TensorValue),
    String(String),
    /// Elements are indices of `Int` values: ExecuTorch stores integer lists as lists of values.
    IntList(Vec<u32>),
    DoubleList(Vec<f64>),
    BoolList(Vec<bool>),
    /// Indices of tensor values.
    TensorList(Vec<u32>),
    /// Indices of tensor values; `None` where the file says -1 or names a null value.
    OptionalTensorList(Vec<Option<u32>>),
}

/// Whether a tensor's shape may change at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeDynamism {
    /// Never.
    Static,
    /// Within the sizes of the file.
    DynamicBound,
    /// Without a limit.
    DynamicUnbound,
}

/// A tensor value: type, shape and where its bytes are.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorValue {
    /// Element type.
    pub dtype: DType,
    /// Sizes; upper bounds where the shape is dynamic.
    pub sizes: Dims,
    /// Order of the dimensions in memory, outermost first; a permutation of `0..rank`.
    pub dim_order: Vec<u8>,
    /// Whether the shape may change.
    pub dynamism: ShapeDynamism,
    /// Where the bytes are.
    pub data: TensorData,
    /// The name of a tensor that an external `.ptd` file holds, or of a mutable buffer.
    pub fully_qualified_name: Option<String>,
}

impl TensorValue {
    /// A tensor of fixed shape with the dimensions in memory order.
    pub fn new(dtype: DType, sizes: Dims, data: TensorData) -> Self {
        let dim_order = (0..sizes.len()).map(|dim| dim as u8).collect();
        Self { dtype, sizes, dim_order, dynamism: ShapeDynamism::Static, data, fully_qualified_name: None }
    }

    /// Bytes of a tensor of these sizes.
    pub fn byte_len(&self) -> usize {
        // `None` cannot be in a verified program.
        self.checked_byte_len().unwrap_or(usize::MAX)
    }

    /// `None` when the product of the sizes is beyond [`MAX_ELEMENTS`](crate::tensor::MAX_ELEMENTS).
    pub(super) fn checked_byte_len(&self) -> Option<usize> {
        element_count(&self.sizes).ok()?.checked_mul(self.dtype.size())
    }
}

/// Where a tensor's bytes are.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData {
    /// The caller gives the memory (method inputs and outputs without a plan).
    Unplanned,
    /// `Program::constants[index]`, `index` > 0; long enough for the tensor, and at a multiple of the element size
    /// from the start of the file.
    Constant {
        /// Index into the program's constants.
        index: u32,
    },
    /// `offset` bytes into planned buffer `buffer`; the tensor, at the sizes of the file, fits.
    Planned {
        /// Index into `non_const_buffer_sizes`, > 0.
        buffer: u32,
        /// Byte offset; a multiple of the element size.
        offset: u64,
        /// Initial contents, for mutable buffers whose state is stored: `(segment, index)` of `Program::mutable_data`.
        initial: Option<(u32, u32)>,
    },
    /// In an external data file, under the tensor's fully qualified name, which is not empty.
    External,
    /// Planned, as above; the initial contents are in an external data file, under the tensor's fully qualified name,
    /// which is not empty.
    ExternalMutable {
        /// Index into `non_const_buffer_sizes`, > 0.
        buffer: u32,
        /// Byte offset; a multiple of the element size.
        offset: u64,
    },
}

/// `namespace::name.overload`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorName {
    /// `aten::add`
    pub name: String,
    /// `out`, possibly empty.
    pub overload: String,
}

impl OperatorName {
    /// The operator `full`, as `aten::add.out`: the overload is what follows the first point.
    pub fn parse(full: &str) -> Self {
        let (name, overload) = full.split_once('.').unwrap_or((full, ""));
        Self { name: name.into(), overload: overload.into() }
    }
}

impl std::fmt::Display for OperatorName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.overload.as_str() {
            "" => f.write_str(&self.name),
            overload => write!(f, "{}.{overload}", self.name),
        }
    }
}

/// A list of instructions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    /// Run in order, from the first.
    pub instructions: Vec<Instruction>,
}

/// One step of a chain. All indices are in range.
#[derive(Debug, Clone, PartialEq)]
pub enum Instruction {
    /// Calls `operators[operator]` with `values[args]`.
    Kernel {
        /// Index into the plan's operators.
        operator: u32,
        /// Value indices, outputs last.
        args: Vec<u32>,
    },
    /// Calls `delegates[delegate]`.
    Delegate {
        /// Index into the plan's delegates.
        delegate: u32,
        /// Value indices, inputs then outputs.
        args: Vec<u32>,
    },
    /// `values[to] = values[from]`.
    Move {
        /// Source value.
        from: u32,
        /// Destination value.
        to: u32,
    },
    /// Goes to instruction `destination` when `values[condition]` is false.
    JumpFalse {
        /// A `Bool` value, or a tensor of bools, which is true when all its elements are.
        condition: u32,
        /// Index into the chain's instructions, or their count to end the chain. Nothing keeps a program from
        /// jumping in circles.
        destination: u32,
    },
    /// Releases the memory of a dynamic tensor.
    Free {
        /// A tensor value.
        value: u32,
    },
}

/// A subgraph given to a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendDelegate {
    /// `QnnBackend`, `XnnpackBackend`, …
    pub id: String,
    /// The backend's own blob. Two delegates of the same bytes have blobs at the same place.
    pub processed: Blob,
    /// Options that the exporter gave, opaque here.
    pub compile_specs: Vec<CompileSpec>,
}

/// One option of a delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileSpec {
    /// `qnn_compile_spec`
    pub key: String,
    /// Bytes with a meaning of the backend's own.
    pub value: Vec<u8>,
}
