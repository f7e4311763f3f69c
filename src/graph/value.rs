//! Values and where they come from.

use super::quant::Quantization;
use super::symbol::Int;
use crate::base::storage::Blob;
use crate::tensor::DType;

/// A value's number in [`Graph::values`](super::Graph::values).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A state's number in [`Graph::states`](super::Graph::states).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// A tensor in the graph. All tensors are row-major and dense.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// For messages and dumps.
    pub name: String,
    /// Element type of the codes, or of the reals when `quantization` is `None`. Four-bit codes have dtype `U8` and
    /// `bits() == 4` in their quantization; `shape` counts codes, two of them share a byte, the lower nibble first
    /// unless the quantization says otherwise.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<Int>,
    /// How codes stand for reals.
    pub quantization: Option<Quantization>,
    /// Where its contents come from.
    pub kind: ValueKind,
}

/// Where a value's contents come from.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueKind {
    /// The caller: position in [`Graph::inputs`](super::Graph::inputs).
    Input(usize),
    /// A file.
    Constant(Constant),
    /// The contents of a state before the run.
    State(StateId),
    /// A node.
    Computed,
}

/// Contents known when the graph is built: a range of a mapped file, never a copy of it.
#[derive(Debug, Clone)]
pub struct Constant {
    /// Row-major elements, exactly as many bytes as the value's shape and type need.
    pub data: Blob,
}

impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        self.data.same_place(&other.data) || *self.data == *other.data
    }
}

/// A mutable buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// For messages and dumps: `k_cache_3`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, all known.
    pub shape: Vec<usize>,
}
