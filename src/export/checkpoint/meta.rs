//! Meta's `params.json`, with the additions that ExecuTorch's exporter knows.

use super::error::CheckpointError;
use super::json::Document;
use super::naming::Naming;
use super::stored::{Stored, Tensors};
use crate::export::{LayerWeight, Llama3Scaling, ModelConfig, Rope, RopeScaling, WeightRole};
use crate::graph::RotaryStyle;

/// Llama 3's correction as Meta's code has it; the factor is that of Llama 3.1, and Llama 3.2's small models say theirs.
const LLAMA3_FACTOR: f32 = 8.0;

/// The model that `params` describes; what it leaves open is seen from the weights of all `shards`.
pub(super) fn describe(params: &Document, shards: &[Tensors]) -> Result<ModelConfig, CheckpointError> {
    let need = |key: &str| params.count(key)?.ok_or_else(|| params.missing(key));
    refuse_features(params)?;
    let (dim, heads) = (need("dim")?, need("n_heads")?);
    let rows = |role| {
        let name = Naming::Meta.name(role);
        let parts = shards.iter().filter_map(|shard| shard.get(&name)).map(Stored::elements);
        let count = parts.fold(0usize, usize::saturating_add) / dim.max(1);
        Some(count).filter(|&count| count > 0).ok_or(CheckpointError::MissingTensor { name })
    };
    let vocab = match params.integer("vocab_size")? {
        None | Some(..0) => rows(WeightRole::TokenEmbedding)?,
        Some(_) => need("vocab_size")?,
    };
    let hidden = match params.count("hidden_dim")? {
        Some(hidden) => hidden,
        None => rows(WeightRole::Layer(0, LayerWeight::Gate))?,
    };
    let scaled = params.flag("use_scaled_rope")?.unwrap_or(false);
    let style = if params.flag("use_hf_rope")?.unwrap_or(false) { RotaryStyle::Half } else { RotaryStyle::Interleaved };
    let rope = Rope {
        theta: params.real("rope_theta")?.or(params.real("rope_freq_base")?).unwrap_or(10_000.0),
        style,
        scaling: if scaled { llama3(params)? } else { RopeScaling::None },
    };
    Ok(ModelConfig {
        architecture: "llama".into(),
        dim,
        layers: need("n_layers")?,
        heads,
        kv_heads: params.count("n_kv_heads")?.unwrap_or(heads),
        head_dim: params.count("head_dim")?.unwrap_or(dim / heads.max(1)),
        hidden,
        vocab,
        norm_epsilon: params.real("norm_eps")?.unwrap_or(1e-5),
        rope,
        max_positions: params.count("max_seq_len")?,
        bos_id: params.ids("bos_idx")?.first().copied(),
        eos_ids: params.ids("eos_idx")?,
    })
}

fn llama3(params: &Document) -> Result<RopeScaling, CheckpointError> {
    Ok(RopeScaling::Llama3(Llama3Scaling {
        factor: params.real("rope_scale_factor")?.unwrap_or(LLAMA3_FACTOR),
        low_frequency_factor: 1.0,
        high_frequency_factor: params.real("high_freq_factor")?.unwrap_or(4.0),
        original_context: 8192,
    }))
}

fn refuse_features(params: &Document) -> Result<(), CheckpointError> {
    let refuse = |feature, value: String, supported| Err(CheckpointError::Unsupported { feature, value, supported });
    if params.flag("moe")?.unwrap_or(false) || params.get("num_experts").is_some() {
        return refuse("mixture of experts", "of params.json".into(), "dense feed-forward");
    }
    let partial = params.real("partial_rotary_factor")?.unwrap_or(1.0);
    if partial != 1.0 {
        return refuse("partial rotary embedding", partial.to_string(), "1 (all of each head)");
    }
    if params.flag("use_qk_norm")?.unwrap_or(false) && params.flag("qk_norm_before_rope")? == Some(false) {
        return refuse("norm of queries and keys", "behind the rotary embedding".into(), "before it");
    }
    let quantized = ["quantization_args", "lora_args"];
    match params.any(&quantized) {
        Some((key, _)) => refuse("quantized checkpoint", key.into(), "F32, F16 and BF16 weights"),
        None => Ok(()),
    }
}
