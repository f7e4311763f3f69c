//! What a checkpoint says of its model, in one form for all formats.

use crate::graph::RotaryStyle;

/// A decoder of the Llama family: RMS norms before attention and feed-forward, rotary embedding, grouped queries, SwiGLU.
/// Whether there are biases or norms of queries and keys is seen from the weights that are there.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The architecture's name in its checkpoint: `llama`, `qwen2`, `qwen3`, `stories`.
    pub architecture: String,
    /// Width of the residual stream.
    pub dim: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of one head, even; `heads * head_dim` may differ from `dim`.
    pub head_dim: usize,
    /// Width of the feed-forward block.
    pub hidden: usize,
    /// Rows of the token embedding.
    pub vocab: usize,
    /// Added to the mean of squares in each norm.
    pub norm_epsilon: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// Longest context the model was trained for, where the checkpoint says.
    pub max_positions: Option<usize>,
    /// Begins a text, where the checkpoint says.
    pub bos_id: Option<u64>,
    /// End a text; empty where the checkpoint does not say.
    pub eos_ids: Vec<u64>,
}

/// Rotary embedding: element pair `i` of a head turns by `position * theta^(-2i / head_dim)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Which elements are a pair; follows from how the checkpoint orders the rows of its query and key weights.
    pub style: RotaryStyle,
    /// Correction of the frequencies.
    pub scaling: RopeScaling,
}

/// How frequencies are corrected for contexts longer than those of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All divided by the factor.
    Linear {
        /// At least 1.
        factor: f32,
    },
    /// As Llama 3.1 and later do.
    Llama3(Llama3Scaling),
}

/// Llama 3's correction: wavelengths above `original_context / low_frequency_factor` are divided by `factor`, those
/// below `original_context / high_frequency_factor` stay, and between them the two are blended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3Scaling {
    /// At least 1.
    pub factor: f32,
    /// Below `high_frequency_factor`.
    pub low_frequency_factor: f32,
    /// Above `low_frequency_factor`.
    pub high_frequency_factor: f32,
    /// Context of the first training.
    pub original_context: usize,
}
