//! A model's graph in float, for any [`MethodSpec`]: what every way of export starts from.
//!
//! Activations are f32. Matrices stay the checkpoint's own bytes, in its type; vectors (norms and biases) are widened to
//! f32. RMS norms, rotary embedding and SwiGLU are single nodes, which the decompositions of [`passes`](crate::passes)
//! take apart where a backend needs that.
//!
//! # Names
//!
//! A node and its result have one name, unique in the graph, and the same in all graphs of a model. `L` is a layer, `H` a
//! key-value head, both counted from 0.
//!
//! | name | what |
//! |---|---|
//! | `tokens`, `atten_mask`, `input_pos`, `k_cache.L`, `v_cache.L` | inputs (the caches: states of a dynamic method) |
//! | `logits`, `k_new.L`, `v_new.L` | outputs |
//! | `embedding`; `rope.cos`, `rope.sin` | before the first layer |
//! | `layers.L.attention_norm`, `.attention.query`, `.attention.key`, `.attention.value`, `.attention.output` | |
//! | `layers.L.attention.query.heads`, `.norm`, `.rotated`; `key` likewise; `value.heads` | `[1, tokens, heads, head_dim]` |
//! | `layers.L.attention.query.scaled`, `.by_head`, `.grouped`; `layers.L.attention.keys`, `.values` | operands of a static attention; the last two are past and new together |
//! | `layers.L.attention.products`, `.scores`, `.masked`, `.weights`, `.weights.grouped`, `.mixed` | a static attention, step by step |
//! | `layers.L.attention.attended`, `layers.L.attention.joined` | `[1, tokens, heads, head_dim]`, `[1, tokens, heads * head_dim]` |
//! | `layers.L.attention_residual`, `layers.L.feed_forward_norm`, `.feed_forward.gate`, `.up`, `.swiglu`, `.down`, `layers.L.residual` | |
//! | `last`, `final_norm`, `logits` | after the last layer; `last` where only the last token counts |
//! | *name*`.weight`, *name*`.bias` | the constants of the value *name* |
//!
//! With [`KvLayout::PerHead`](super::KvLayout::PerHead) the names of caches end in `.L.H`, and what a static attention
//! does from `query.grouped` to `mixed` is there once for each head, as `layers.L.attention.heads.H.…`;
//! `layers.L.attention.mixed` joins them. Without a past there are no `keys` and `values`: the new ones are all.
//! Reshapes are there even where a shape stays, so that names do not depend on sizes. Attention that a dynamic method
//! spells out has the names that [`DecomposeAttention`](crate::passes::DecomposeAttention) gives.

mod builder;
mod dynamic;
mod error;
mod finite;
mod fixed;
mod rope;
#[cfg(test)]
mod tests;

pub use error::ModelError;
pub use finite::check_finite;

use super::{MethodSpec, ModelConfig, WeightSource};
use crate::error::Result;
use crate::graph::Graph;

/// The graph of one method, verified. Building reads no matrix: constants are ranges of the checkpoint.
///
/// # Errors
/// [`ModelError`] when the configuration or the method is impossible, or a weight is missing or has another shape; and
/// whatever `weights` fails with.
pub fn build(config: &ModelConfig, weights: &dyn WeightSource, spec: &MethodSpec) -> Result<Graph> {
    error::check_config(config)?;
    error::check_spec(spec)?;
    let graph = match *spec {
        MethodSpec::Static { ref name, ar, context, layout, tokens } => {
            fixed::build(config, weights, name, fixed::Sizes { ar, context, layout, tokens })
        }
        MethodSpec::Dynamic { ref name, max_seq_len, max_context_len, full_logits, fused_attention } => {
            let sizes = dynamic::Sizes { max_seq_len, max_context_len, full_logits, fused_attention };
            dynamic::build(config, weights, name, sizes)
        }
    }?;
    graph.verify()?;
    Ok(graph)
}
