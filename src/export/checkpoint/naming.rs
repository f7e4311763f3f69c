//! What the three families of checkpoints call the weights of a decoder, and which of them a model must have.

use super::error::CheckpointError;
use super::stored::{Stored, Tensors};
use crate::export::{LayerWeight, ModelConfig, WeightRole};
use std::collections::BTreeMap;

/// Weights by what they are for, with their names.
pub(super) type Assigned = BTreeMap<WeightRole, (String, Stored)>;

/// Who names the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// `model.layers.0.self_attn.q_proj.weight`
    HuggingFace,
    /// `layers.0.attention.wq.weight`
    Meta,
    /// `blk.0.attn_q.weight`
    Gguf,
}

use LayerWeight::*;

/// Every weight of a layer, as Hugging Face, Meta and GGUF call it behind the layer's prefix.
const LAYER: [(LayerWeight, [&str; 3]); 14] = [
    (AttentionNorm, ["input_layernorm.weight", "attention_norm.weight", "attn_norm.weight"]),
    (Query, ["self_attn.q_proj.weight", "attention.wq.weight", "attn_q.weight"]),
    (Key, ["self_attn.k_proj.weight", "attention.wk.weight", "attn_k.weight"]),
    (Value, ["self_attn.v_proj.weight", "attention.wv.weight", "attn_v.weight"]),
    (QueryBias, ["self_attn.q_proj.bias", "attention.wq.bias", "attn_q.bias"]),
    (KeyBias, ["self_attn.k_proj.bias", "attention.wk.bias", "attn_k.bias"]),
    (ValueBias, ["self_attn.v_proj.bias", "attention.wv.bias", "attn_v.bias"]),
    (QueryNorm, ["self_attn.q_norm.weight", "attention.q_norm_fn.weight", "attn_q_norm.weight"]),
    (KeyNorm, ["self_attn.k_norm.weight", "attention.k_norm_fn.weight", "attn_k_norm.weight"]),
    (Output, ["self_attn.o_proj.weight", "attention.wo.weight", "attn_output.weight"]),
    (FeedForwardNorm, ["post_attention_layernorm.weight", "ffn_norm.weight", "ffn_norm.weight"]),
    (Gate, ["mlp.gate_proj.weight", "feed_forward.w1.weight", "ffn_gate.weight"]),
    (Up, ["mlp.up_proj.weight", "feed_forward.w3.weight", "ffn_up.weight"]),
    (Down, ["mlp.down_proj.weight", "feed_forward.w2.weight", "ffn_down.weight"]),
];

impl Naming {
    /// Seen from the names that are there.
    pub fn of(tensors: &Tensors) -> Result<Self, CheckpointError> {
        let all = [Self::HuggingFace, Self::Meta, Self::Gguf];
        let found = all.into_iter().find(|naming| tensors.contains_key(&naming.name(WeightRole::TokenEmbedding)));
        found.ok_or_else(|| {
            let [hugging_face, meta, _] = all.map(|naming| naming.name(WeightRole::TokenEmbedding));
            CheckpointError::MissingTensor { name: format!("{hugging_face} or {meta}") }
        })
    }

    fn prefix(self, layer: usize) -> String {
        match self {
            Self::HuggingFace => format!("model.layers.{layer}."),
            Self::Meta => format!("layers.{layer}."),
            Self::Gguf => format!("blk.{layer}."),
        }
    }

    /// A weight's name.
    pub fn name(self, role: WeightRole) -> String {
        let fixed = |names: [&str; 3]| names[self as usize].to_owned();
        match role {
            WeightRole::TokenEmbedding => {
                fixed(["model.embed_tokens.weight", "tok_embeddings.weight", "token_embd.weight"])
            }
            WeightRole::FinalNorm => fixed(["model.norm.weight", "norm.weight", "output_norm.weight"]),
            WeightRole::OutputHead => fixed(["lm_head.weight", "output.weight", "output.weight"]),
            WeightRole::Layer(layer, weight) => {
                let row = LAYER.iter().find(|(known, _)| *known == weight);
                format!("{}{}", self.prefix(layer), row.map_or("", |(_, names)| names[self as usize]))
            }
        }
    }

    /// Tensors that hold nothing which the model's description does not say too: tables of the rotary embedding.
    fn is_redundant(self, name: &str) -> bool {
        match self {
            Self::HuggingFace => name.ends_with("rotary_emb.inv_freq"),
            Self::Meta => ["rope.freqs", "freqs_cos", "freqs_sin"].contains(&name),
            Self::Gguf => name == "rope_freqs.weight",
        }
    }
}

/// Gives each tensor its role; every shard of a tensor-parallel checkpoint has all names. `tied`: the output head is the
/// token embedding, whatever else the file holds.
///
/// Shapes are checked, tensors that must be there are, and tensors without a role are refused.
pub(super) fn assign(
    naming: Naming,
    mut shards: Vec<Tensors>,
    config: &ModelConfig,
    tied: Option<bool>,
) -> Result<Assigned, CheckpointError> {
    let mut assigned = Assigned::new();
    for role in roles(config) {
        let name = naming.name(role);
        let parts: Vec<_> = shards.iter_mut().filter_map(|shard| shard.remove(&name)).collect();
        if parts.is_empty() {
            if must_be(role, config, tied) {
                return Err(CheckpointError::MissingTensor { name });
            }
            continue;
        }
        if role == WeightRole::OutputHead && tied == Some(true) {
            continue;
        }
        if parts.len() < shards.len() {
            return Err(CheckpointError::MissingTensor { name: format!("{name} of every file") });
        }
        let stored = Stored::join(&name, parts, &shape(role, config))?;
        assigned.insert(role, (name, stored));
    }
    match shards.iter().flat_map(Tensors::keys).find(|name| !naming.is_redundant(name)) {
        Some(name) => Err(CheckpointError::UnknownTensor { name: name.clone() }),
        None => Ok(assigned),
    }
}

pub(super) fn roles(config: &ModelConfig) -> impl Iterator<Item = WeightRole> {
    let outer = [WeightRole::TokenEmbedding, WeightRole::FinalNorm, WeightRole::OutputHead];
    let layer = |layer| LAYER.iter().map(move |(weight, _)| WeightRole::Layer(layer, *weight));
    outer.into_iter().chain((0..config.layers).flat_map(layer))
}

fn must_be(role: WeightRole, config: &ModelConfig, tied: Option<bool>) -> bool {
    match role {
        WeightRole::OutputHead => tied == Some(false),
        WeightRole::Layer(_, QueryBias | KeyBias | ValueBias) => config.architecture == "qwen2",
        WeightRole::Layer(_, QueryNorm | KeyNorm) => config.architecture == "qwen3",
        _ => true,
    }
}

/// The shape that a model's weight has.
pub(super) fn shape(role: WeightRole, config: &ModelConfig) -> Vec<usize> {
    let (dim, hidden) = (config.dim, config.hidden);
    let (query, key) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    match role {
        WeightRole::TokenEmbedding | WeightRole::OutputHead => vec![config.vocab, dim],
        WeightRole::FinalNorm => vec![dim],
        WeightRole::Layer(_, weight) => match weight {
            AttentionNorm | FeedForwardNorm => vec![dim],
            Query => vec![query, dim],
            Key | Value => vec![key, dim],
            QueryBias => vec![query],
            KeyBias | ValueBias => vec![key],
            QueryNorm | KeyNorm => vec![config.head_dim],
            Output => vec![dim, query],
            Gate | Up => vec![hidden, dim],
            Down => vec![dim, hidden],
        },
    }
}
