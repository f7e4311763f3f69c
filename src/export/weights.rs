//! The weights of a model by what they are for, whatever their checkpoint calls them.

use crate::base::storage::Blob;
use crate::error::Result;
use crate::tensor::DType;

/// What a weight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightRole {
    /// `[vocab, dim]`
    TokenEmbedding,
    /// `[dim]`
    FinalNorm,
    /// `[vocab, dim]`; a model without one uses its token embedding.
    OutputHead,
    /// A weight of the layer with this number.
    Layer(usize, LayerWeight),
}

/// What a layer's weight is for. Linear weights are `[out, in]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerWeight {
    /// `[dim]`
    AttentionNorm,
    /// `[heads * head_dim, dim]`
    Query,
    /// `[kv_heads * head_dim, dim]`
    Key,
    /// `[kv_heads * head_dim, dim]`
    Value,
    /// `[heads * head_dim]`, in some families (Qwen2).
    QueryBias,
    /// `[kv_heads * head_dim]`, in some families.
    KeyBias,
    /// `[kv_heads * head_dim]`, in some families.
    ValueBias,
    /// `[head_dim]`: RMS norm of each query head before its rotation, in some families (Qwen3).
    QueryNorm,
    /// `[head_dim]`: likewise of each key head.
    KeyNorm,
    /// `[dim, heads * head_dim]`
    Output,
    /// `[dim]`
    FeedForwardNorm,
    /// `[hidden, dim]`: its result goes through SiLU.
    Gate,
    /// `[hidden, dim]`
    Up,
    /// `[dim, hidden]`
    Down,
}

/// A weight: row-major reals.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// Its name in the checkpoint, for messages.
    pub name: String,
    /// `F32`, `F16` or `BF16`.
    pub dtype: DType,
    /// Sizes, as [`WeightRole`] gives them.
    pub shape: Vec<usize>,
    /// The elements, in the mapped checkpoint wherever they can stay there: asking twice gives the same place.
    pub data: Blob,
}

/// Gives weights one by one, so that no more than one need be in memory.
pub trait WeightSource {
    /// The weight for `role`, with the shape that the model's configuration asks for; `None` where the model has none.
    ///
    /// # Errors
    /// When it is damaged or has another shape; names the weight.
    fn weight(&self, role: WeightRole) -> Result<Option<Weight>>;
}
