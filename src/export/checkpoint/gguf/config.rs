//! The model that a GGUF file's metadata describe.

use super::metadata::{Metadata, Value};
use crate::error::Result;
use crate::export::checkpoint::error::CheckpointError;
use crate::export::checkpoint::stored::{Encoding, Layout, Stored, Tensors};
use crate::export::{Llama3Scaling, ModelConfig, Rope, RopeScaling};
use crate::graph::RotaryStyle;
use crate::tensor::DType;

/// Tokens that end a turn of the models of the field, beside the one that the file names.
const END_OF_TURN: [&str; 2] = ["<|eot_id|>", "<|im_end|>"];

/// What messages call the file's description.
const FILE: &str = "GGUF";

/// The metadata of one architecture.
struct Fields<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

/// The model; the size of the vocabulary is that of the token embedding.
pub(in crate::export::checkpoint) fn describe(
    metadata: &Metadata,
    tensors: &Tensors,
) -> Result<ModelConfig, CheckpointError> {
    let missing = |field: &str| CheckpointError::MissingField { file: FILE.into(), field: field.into() };
    let architecture = metadata.text("general.architecture").ok_or_else(|| missing("general.architecture"))?;
    let style = match architecture {
        // Converters of this architecture reorder the rows of queries and keys; the others leave them.
        "llama" => RotaryStyle::Interleaved,
        "qwen2" | "qwen3" => RotaryStyle::Half,
        other => {
            let (value, supported) = (other.into(), "llama, qwen2, qwen3");
            return Err(CheckpointError::Unsupported { feature: "architecture", value, supported });
        }
    };
    let fields = Fields { metadata, architecture };
    fields.refuse_features()?;
    let need = |key: &str| fields.count(key)?.ok_or_else(|| missing(&fields.key(key)));
    let (dim, heads) = (need("embedding_length")?, need("attention.head_count")?);
    let head_dim = fields.count("attention.key_length")?.unwrap_or(dim / heads.max(1));
    fields.same("attention.value_length", head_dim, "head sizes of keys and values")?;
    fields.same("rope.dimension_count", head_dim, "partial rotary embedding")?;
    let theta = fields.real("rope.freq_base")?.unwrap_or(10_000.0);
    let embedding = tensors.get("token_embd.weight");
    let vocab = embedding.and_then(|stored| stored.shape.first()).copied();
    let factors = tensors.get("rope_freqs.weight");
    let scaling = match factors {
        Some(factors) => fields.scaling_of_factors(factors, theta, head_dim)?,
        None => fields.scaling()?,
    };
    Ok(ModelConfig {
        architecture: architecture.into(),
        dim,
        layers: need("block_count")?,
        heads,
        kv_heads: fields.count("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        hidden: need("feed_forward_length")?,
        vocab: vocab.ok_or(CheckpointError::MissingTensor { name: "token_embd.weight".into() })?,
        norm_epsilon: fields
            .real("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| missing(&fields.key("attention.layer_norm_rms_epsilon")))?,
        rope: Rope { theta, style, scaling },
        max_positions: fields.count("context_length")?,
        bos_id: metadata.count("tokenizer.ggml.bos_token_id"),
        eos_ids: ends(metadata),
    })
}

/// Tokens that end a text: those that the file names, and the field's ends of turn.
fn ends(metadata: &Metadata) -> Vec<u64> {
    let named = ["eos", "eot", "eom"].map(|name| metadata.count(&format!("tokenizer.ggml.{name}_token_id")));
    let mut ends: Vec<u64> = named.into_iter().flatten().collect();
    let tokens = metadata.texts("tokenizer.ggml.tokens").unwrap_or_default();
    let known = tokens.iter().enumerate().filter(|(_, token)| END_OF_TURN.contains(token));
    ends.extend(known.map(|(id, _)| id as u64));
    let mut seen = std::collections::HashSet::new();
    ends.retain(|&id| seen.insert(id));
    ends
}

impl Fields<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn wrong(&self, key: &str, expected: &'static str) -> CheckpointError {
        let value = format!("{:?}", self.metadata.get(&self.key(key)));
        CheckpointError::Field { file: FILE.into(), field: self.key(key), value, expected }
    }

    /// A count, which may be written once for each layer where all are equal.
    fn count(&self, key: &str) -> Result<Option<usize>, CheckpointError> {
        let wrong = || self.wrong(key, "a whole number, the same for each layer");
        let value = match self.metadata.get(&self.key(key)) {
            None => return Ok(None),
            Some(Value::Integer(value)) => usize::try_from(*value).ok(),
            Some(Value::List(_)) => {
                let numbers = self.metadata.numbers(&self.key(key)).unwrap_or_default();
                let first = numbers.first().copied().filter(|first| numbers.iter().all(|number| number == first));
                first.filter(|number| *number >= 0.0 && number.fract() == 0.0).map(|number| number as usize)
            }
            Some(_) => None,
        };
        value.map(Some).ok_or_else(wrong)
    }

    fn real(&self, key: &str) -> Result<Option<f32>, CheckpointError> {
        match self.metadata.get(&self.key(key)) {
            None => Ok(None),
            Some(Value::Real(value)) => Ok(Some(*value as f32)),
            Some(Value::Integer(value)) => Ok(Some(*value as f32)),
            Some(_) => Err(self.wrong(key, "a number")),
        }
    }

    /// Refuses another value than the one that the family has.
    fn same(&self, key: &str, value: usize, feature: &'static str) -> Result<(), CheckpointError> {
        match self.count(key)?.filter(|&other| other != value) {
            Some(other) => {
                let value = format!("{} {other} beside {value}", self.key(key));
                Err(CheckpointError::Unsupported { feature, value, supported: "one head size for all" })
            }
            None => Ok(()),
        }
    }

    fn refuse_features(&self) -> Result<(), CheckpointError> {
        let refused = |feature, value: usize, supported| {
            Err(CheckpointError::Unsupported { feature, value: value.to_string(), supported })
        };
        if let Some(experts) = self.count("expert_count")?.filter(|&count| count > 0) {
            return refused("mixture of experts", experts, "dense feed-forward");
        }
        if let Some(window) = self.count("attention.sliding_window")?.filter(|&window| window > 0) {
            return refused("sliding window", window, "attention to the whole context");
        }
        match self.metadata.count("split.count").filter(|&count| count > 1) {
            Some(count) => refused("GGUF split into files", count as usize, "one file"),
            None => Ok(()),
        }
    }

    fn scaling(&self) -> Result<RopeScaling, CheckpointError> {
        let kind = self.metadata.text(&self.key("rope.scaling.type")).unwrap_or("none");
        let factor = self.real("rope.scaling.factor")?.or(self.real("rope.scale_linear")?);
        match (kind, factor) {
            ("none", None) => Ok(RopeScaling::None),
            ("none", Some(factor)) | ("linear", Some(factor)) if factor > 0.0 => Ok(RopeScaling::Linear { factor }),
            ("none" | "linear", _) => Err(self.wrong("rope.scaling.factor", "a number above 0")),
            (other, _) => {
                let (value, supported) = (other.into(), "none, linear, and Llama 3's table of factors");
                Err(CheckpointError::Unsupported { feature: "rope scaling", value, supported })
            }
        }
    }

    /// Files of Llama 3.1 and later hold a divisor for each frequency instead of the numbers that it came from. The
    /// largest divisor is the factor; the other numbers are the same in all these models, and whether they fit is seen.
    fn scaling_of_factors(&self, stored: &Stored, theta: f32, head_dim: usize) -> Result<RopeScaling, CheckpointError> {
        let feature = "rope scaling";
        let supported = "the factors of Llama 3.1 and later";
        let refused = || CheckpointError::Unsupported { feature, value: "of rope_freqs.weight".into(), supported };
        let (Encoding::Plain(DType::F32), Layout::Dense(blob)) = (&stored.encoding, &stored.layout) else {
            return Err(refused());
        };
        let factors: Vec<f32> = blob.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let original = self.count("rope.scaling.original_context_length")?.unwrap_or(8192);
        let factor = factors.iter().copied().fold(1.0, f32::max);
        let scaling =
            Llama3Scaling { factor, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original_context: original };
        let near = |(i, &found): (usize, &f32)| {
            let expected = divisor(&scaling, f64::from(theta).powf(2.0 * i as f64 / head_dim as f64));
            (f64::from(found) / expected - 1.0).abs() < 1e-3
        };
        if factors.len() != head_dim / 2 || !factors.iter().enumerate().all(near) {
            return Err(refused());
        }
        Ok(if factor == 1.0 { RopeScaling::None } else { RopeScaling::Llama3(scaling) })
    }
}

/// What Llama 3 divides a frequency by; `period` is the number of positions per radian.
fn divisor(scaling: &Llama3Scaling, period: f64) -> f64 {
    let wavelength = std::f64::consts::TAU * period;
    let (low, high) = (f64::from(scaling.low_frequency_factor), f64::from(scaling.high_frequency_factor));
    let turns = scaling.original_context as f64 / wavelength;
    let factor = f64::from(scaling.factor);
    let smooth = (turns - low) / (high - low);
    if turns > high {
        1.0
    } else if turns < low {
        factor
    } else {
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}
