//! The operations of the graph, with the order of their operands. Broadcasting is that of PyTorch.

use super::symbol::Int;
use crate::tensor::DType;

/// Element-wise, one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum UnaryOp {
    Abs,
    Ceil,
    Cos,
    Exp,
    Floor,
    /// With the error function, not its tanh approximation.
    Gelu,
    GeluTanh,
    HardSwish,
    Log,
    LogicalNot,
    Negate,
    Reciprocal,
    Rsqrt,
    Sigmoid,
    Silu,
    Sin,
    Sqrt,
    Square,
    Tanh,
}

/// Element-wise, two operands of one type, broadcast. Integers wrap; their quotient is rounded towards zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Maximum,
    Minimum,
    /// Result is bool.
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    LogicalAnd,
    LogicalOr,
}

/// How rotary embedding pairs up the elements of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RotaryStyle {
    /// Elements 2i and 2i + 1 (Meta's checkpoints).
    Interleaved,
    /// Elements i and i + d/2 (Hugging Face's).
    Half,
}

/// Order of the axes of a key or value cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheLayout {
    /// `[batch, positions, heads, head_dim]`, as `llama::custom_sdpa` has it.
    PositionMajor,
    /// `[batch, heads, positions, head_dim]`, as exports of plain operators have it.
    HeadMajor,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    // Movement of data.
    /// `x` → the same elements in the output's shape.
    Reshape,
    /// `x` → axes permuted: output axis `i` is input axis `perm[i]`.
    Permute {
        /// A permutation.
        perm: Vec<usize>,
    },
    /// `x` → elements `start, start + step, …` along `axis`, as many as the output has.
    Slice {
        /// Which axis.
        axis: usize,
        /// First index, not negative.
        start: Int,
        /// Distance of two indices, at least 1.
        step: usize,
    },
    /// `x…` → joined along `axis`.
    Concat {
        /// Which axis.
        axis: usize,
    },
    /// `x` → broadcast to the output's shape.
    Expand,
    /// `table [n, …]`, `indices` → rows. A table with blockwise quantization is dequantized.
    Embedding,
    /// `target`, `values` → `target` with `values` written at `start` along `axis`; the rest of `target` stays.
    SliceUpdate {
        /// Which axis.
        axis: usize,
        /// First index.
        start: Int,
    },
    /// → `start, start + step, …`, as many as the output has.
    Arange {
        /// First number.
        start: Int,
        /// Distance of two numbers.
        step: i64,
    },
    /// → every element is `value`.
    Fill {
        /// The element.
        value: f64,
    },
    /// → one integer, a run-time one.
    Scalar {
        /// Its value.
        value: Int,
    },

    // Element-wise.
    /// `x`
    Unary(UnaryOp),
    /// `a`, `b`
    Binary(BinaryOp),
    /// `x` → limited to `min..=max`.
    Clamp {
        /// Lower bound.
        min: f32,
        /// Upper bound.
        max: f32,
    },
    /// `condition`, `a`, `b` → `a` where true, else `b`; broadcast.
    Where,
    /// `x` → the output's element type, by value; between quantized and real types, by (de)quantizing.
    Convert,

    // Reductions.
    /// `x` → mean over `axes`, which stay with size 1.
    Mean {
        /// Which axes.
        axes: Vec<usize>,
    },
    /// `x` → true where any element along `axis` is, which stays with size 1.
    Any {
        /// Which axis.
        axis: usize,
    },
    /// `x` → softmax along `axis`.
    Softmax {
        /// Which axis.
        axis: usize,
    },

    // Linear algebra.
    /// `x [.., in]`, `w [out, in]`, bias `[out]` if there → `[.., out]`. `x` real or `DynamicPerRow`; `w` real or
    /// quantized.
    FullyConnected,
    /// `a [.., m, k]`, `b [.., k, n]` (`[.., n, k]` when `transpose_b`) → `[.., m, n]`; leading axes broadcast.
    MatMul {
        /// Whether `b`'s last two axes are swapped.
        transpose_b: bool,
    },

    // Fused by passes, or written so by exporters.
    /// `x [.., d]`, gamma `[d]` → `x * rsqrt(mean(x²) + epsilon) * gamma`.
    RmsNorm {
        /// Added to the mean of squares.
        epsilon: f32,
    },
    /// `x [batch, tokens, heads, d]`, cos `[tokens, d/2]`, sin `[tokens, d/2]` → rotated.
    Rotary {
        /// Pairing.
        style: RotaryStyle,
    },
    /// `gate`, `up` → `silu(gate) * up`.
    SwiGlu,
    /// `x [.., in]` real, `w [out, in]` quantized, bias if there: quantizes each row of `x` to 8 bits as
    /// `DynamicPerRow` does, then `FullyConnected`.
    DynamicQuantLinear,
    /// `cache`, `new [batch, tokens, heads, head_dim]` → `cache` with `new` at positions `start..`.
    CacheUpdate {
        /// Axes of `cache`.
        layout: CacheLayout,
        /// First position.
        start: Int,
    },
    /// `q [batch, tokens, heads, d]`, `k` and `v` caches after their update, additive mask `[tokens, positions]` if
    /// there → `[batch, tokens, heads, d]`. Without a mask: causal, token `i` sees positions `..= start + i`; with one,
    /// `start` means nothing. A token that sees no position (−∞ everywhere) gets zeros. Heads of `q` are a multiple of
    /// those of `k` and `v`; query head `h` uses head `h / (heads of q / heads of k)`.
    Attention {
        /// Axes of the caches.
        layout: CacheLayout,
        /// Position of the first token.
        start: Int,
        /// Multiplies `q·k`.
        scale: f32,
    },
    /// As `Attention`, over 8-bit caches: `q` (f32), `k`, `v`, then scale and zero point of `k` and of `v`, each
    /// shaped as their cache with 1 for `head_dim` (f32 and an integer type); then of `q` where it is 8-bit too,
    /// `[batch, tokens, heads, 1]`. Causal.
    QuantizedAttention {
        /// Axes of the caches.
        layout: CacheLayout,
        /// Position of the first token.
        start: Int,
        /// Multiplies `q·k`.
        scale: f32,
    },
    /// `x [.., d]` → codes (i8 `[.., d]`), scales (f32 `[.., 1]`), zero points (`[.., 1]`): each row's own, as
    /// `quantized_decomposed::choose_qparams_per_token_asymmetric` finds them.
    QuantizePerToken {
        /// Type of the zero points.
        zero_point_dtype: DType,
    },
}

impl Op {
    /// The run-time integers among the attributes.
    pub fn ints(&self) -> impl Iterator<Item = Int> {
        match self {
            Self::Slice { start, .. }
            | Self::SliceUpdate { start, .. }
            | Self::Arange { start, .. }
            | Self::CacheUpdate { start, .. }
            | Self::Attention { start, .. }
            | Self::QuantizedAttention { start, .. } => Some(*start),
            Self::Scalar { value } => Some(*value),
            _ => None,
        }
        .into_iter()
    }
}

impl BinaryOp {
    /// True where the result is bool.
    pub fn gives_bool(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual | LogicalAnd | LogicalOr)
    }
}
