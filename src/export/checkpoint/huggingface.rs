//! Hugging Face's `config.json` and `generation_config.json`.

use super::error::CheckpointError;
use super::json::{Document, brief};
use crate::export::{Llama3Scaling, ModelConfig, Rope, RopeScaling};
use crate::graph::RotaryStyle;
use serde_json::Value;

/// The `model_type`s that are decoders of the Llama family and nothing else.
const ARCHITECTURES: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

/// The model that `config` describes, and whether its output head is its token embedding, where it says so.
pub(super) fn describe(
    config: &Document,
    generation: Option<&Document>,
) -> Result<(ModelConfig, Option<bool>), CheckpointError> {
    let need = |key: &str| config.count(key)?.ok_or_else(|| config.missing(key));
    let architecture = config.text("model_type")?.ok_or_else(|| config.missing("model_type"))?;
    if !ARCHITECTURES.contains(&architecture) {
        let supported = "llama, mistral, qwen2, qwen3";
        return Err(CheckpointError::Unsupported { feature: "architecture", value: architecture.into(), supported });
    }
    refuse_features(config)?;
    let (dim, heads) = (need("hidden_size")?, need("num_attention_heads")?);
    let own_eos = |document: &Document| document.ids("eos_token_id");
    let eos_ids = match generation.map(own_eos).transpose()? {
        Some(ids) if !ids.is_empty() => ids,
        _ => own_eos(config)?,
    };
    let model = ModelConfig {
        architecture: architecture.into(),
        dim,
        layers: need("num_hidden_layers")?,
        heads,
        kv_heads: config.count("num_key_value_heads")?.unwrap_or(heads),
        head_dim: config.count("head_dim")?.unwrap_or(dim / heads.max(1)),
        hidden: need("intermediate_size")?,
        vocab: need("vocab_size")?,
        norm_epsilon: config.real("rms_norm_eps")?.unwrap_or(1e-6),
        rope: rope(config)?,
        max_positions: config.count("max_position_embeddings")?,
        bos_id: config.ids("bos_token_id")?.first().copied(),
        eos_ids,
    };
    Ok((model, config.flag("tie_word_embeddings")?))
}

/// Features that change what a model computes and that this library lacks.
fn refuse_features(config: &Document) -> Result<(), CheckpointError> {
    let refuse = |feature, value: String, supported| Err(CheckpointError::Unsupported { feature, value, supported });
    let activation = config.text("hidden_act")?.unwrap_or("silu");
    if activation != "silu" {
        return refuse("activation", activation.into(), "silu");
    }
    let partial = config.real("partial_rotary_factor")?.unwrap_or(1.0);
    if partial != 1.0 {
        return refuse("partial rotary embedding", partial.to_string(), "1 (all of each head)");
    }
    for experts in ["num_local_experts", "num_experts", "n_routed_experts"] {
        if let Some(count) = config.count(experts)?.filter(|&count| count > 0) {
            return refuse("mixture of experts", count.to_string(), "dense feed-forward");
        }
    }
    // Qwen writes a window that is switched off by its own flag; Mistral's window is on unless it is null.
    let windowed = config.flag("use_sliding_window")?.unwrap_or(true);
    if let (Some(window), true) = (config.count("sliding_window")?, windowed) {
        return refuse("sliding window", window.to_string(), "attention to the whole context");
    }
    if let Some(Value::Array(kinds)) = config.get("layer_types")
        && let Some(kind) = kinds.iter().find(|kind| kind.as_str() != Some("full_attention"))
    {
        return refuse("layer type", brief(kind), "full_attention");
    }
    if let Some(quantization) = config.get("quantization_config") {
        let method = quantization.get("quant_method").unwrap_or(quantization);
        return refuse("quantized checkpoint", brief(method), "F32, F16 and BF16 weights");
    }
    Ok(())
}

/// `rope_theta` and `rope_scaling`, which transformers 5 writes together as `rope_parameters`.
fn rope(config: &Document) -> Result<Rope, CheckpointError> {
    let parameters = config.object("rope_parameters")?;
    let own_theta = parameters.as_ref().map(|parameters| parameters.real("rope_theta")).transpose()?.flatten();
    let theta = own_theta.or(config.real("rope_theta")?).unwrap_or(10_000.0);
    let scaling = match config.object("rope_scaling")?.or(parameters) {
        Some(scaling) => rope_scaling(&scaling)?,
        None => RopeScaling::None,
    };
    Ok(Rope { theta, style: RotaryStyle::Half, scaling })
}

fn rope_scaling(scaling: &Document) -> Result<RopeScaling, CheckpointError> {
    let kind = scaling.text("rope_type")?.or(scaling.text("type")?).unwrap_or("default");
    let need = |key: &str| scaling.real(key)?.ok_or_else(|| scaling.missing(key));
    match kind {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: need("factor")? }),
        "llama3" => {
            let original = "original_max_position_embeddings";
            Ok(RopeScaling::Llama3(Llama3Scaling {
                factor: need("factor")?,
                low_frequency_factor: need("low_freq_factor")?,
                high_frequency_factor: need("high_freq_factor")?,
                original_context: scaling.count(original)?.ok_or_else(|| scaling.missing(original))?,
            }))
        }
        other => {
            let supported = "default, linear, llama3";
            Err(CheckpointError::Unsupported { feature: "rope scaling", value: other.into(), supported })
        }
    }
}
