//! The methods that a program can have: their shapes, before any graph exists.

use crate::tensor::DType;

/// How a static method exchanges keys and values with its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvLayout {
    /// One K `[1, kv_heads, head_dim, past]` and one V `[1, kv_heads, past, head_dim]` a layer, mask `[1, 1, AR, CL]`:
    /// upstream from 2026-07 on.
    PerLayer,
    /// One K `[1, head_dim, past]` and one V `[1, past, head_dim]` a layer and head, mask `[1, AR, CL]`: upstream PR 10578.
    PerHead,
}

/// What a method takes and gives. The names of a graph's inputs, outputs and values are part of the contract of
/// export: all graphs of one model name the same things alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodSpec {
    /// A fixed number of tokens with the cache outside, as `qnn_llama_runner` wants it. Inputs in order: `tokens`
    /// `[1, AR]`, `atten_mask` (f32, 0 where a token sees a column, far below 0 where not: upstream's runner writes −65535,
    /// and 16-bit codes reach to −255; columns `0..CL − AR` are the past, the last AR the new tokens), `input_pos` i32 `[1, AR]`, then every `k_cache.<layer>` and every `v_cache.<layer>`
    /// (`….<layer>.<head>` per head). Outputs: `logits` `[1, AR, vocab]`, then `k_new.…` and `v_new.…` likewise, of AR
    /// columns instead of the past.
    Static {
        /// `kv_forward`, `prefill_forward`, `forward`.
        name: String,
        /// Tokens a call (AR-N).
        ar: usize,
        /// Columns of the mask (CL). With `ar == context` there is no past: no cache inputs.
        context: usize,
        /// Keys and values.
        layout: KvLayout,
        /// `I32`, or `I64` where the embedding runs as an operator on the CPU.
        tokens: DType,
    },
    /// `forward(tokens i64 [1, ≤ max_seq_len − 1], input_pos i64 [1])` → `[1, vocab]` of the last token, or
    /// `[1, tokens, vocab]`; the cache is inside, as `llama_main` wants it.
    Dynamic {
        /// `forward`
        name: String,
        /// Most tokens in one call, plus one.
        max_seq_len: usize,
        /// Positions of the cache.
        max_context_len: usize,
        /// Logits of every token, not only the last.
        full_logits: bool,
        /// Attention as one operation over a position-major cache (`llama::custom_sdpa`, `llama::update_cache`), or
        /// spelled out in plain operations, which run in every ExecuTorch build.
        fused_attention: bool,
    },
}

impl MethodSpec {
    /// The method's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Static { name, .. } | Self::Dynamic { name, .. } => name,
        }
    }
}
