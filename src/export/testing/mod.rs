//! Small models with random weights, and runs of their graphs, for the tests of every room of export.

mod runs;

pub(crate) use runs::{compiled, dynamic_logits, interpreted, static_logits};

use super::{KvLayout, LayerWeight, MethodSpec, ModelConfig, Rope, RopeScaling, Weight, WeightRole, WeightSource};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::RotaryStyle;
use crate::graph::testing::Rng;
use crate::tensor::DType;
use half::{bf16, f16};
use std::collections::BTreeMap;

/// Two layers, four heads over two key-value heads, interleaved pairs.
pub(crate) fn tiny_config() -> ModelConfig {
    ModelConfig {
        architecture: "llama".into(),
        dim: 16,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 4,
        hidden: 24,
        vocab: 20,
        norm_epsilon: 1e-5,
        rope: Rope { theta: 100.0, style: RotaryStyle::Interleaved, scaling: RopeScaling::None },
        max_positions: Some(16),
        bos_id: Some(1),
        eos_ids: vec![2],
    }
}

/// As [`tiny_config`], with what other families have: heads wider than `dim` divided by their number, paired by halves.
pub(crate) fn tiny_wide_config() -> ModelConfig {
    let rope = Rope { theta: 500.0, style: RotaryStyle::Half, scaling: RopeScaling::None };
    ModelConfig { architecture: "qwen3".into(), head_dim: 6, rope, ..tiny_config() }
}

/// A static method with i32 tokens.
pub(crate) fn fixed(ar: usize, context: usize, layout: KvLayout) -> MethodSpec {
    MethodSpec::Static { name: "kv_forward".into(), ar, context, layout, tokens: DType::I32 }
}

/// A dynamic method with the logits of every token.
pub(crate) fn dynamic(context: usize, fused_attention: bool) -> MethodSpec {
    MethodSpec::Dynamic {
        name: "forward".into(),
        max_seq_len: context,
        max_context_len: context,
        full_logits: true,
        fused_attention,
    }
}

/// Which optional weights a random model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Biases of query, key and value.
    pub biases: bool,
    /// Norms of query and key heads.
    pub head_norms: bool,
    /// The token embedding is the head.
    pub tied: bool,
}

impl Extras {
    pub const NONE: Self = Self { biases: false, head_norms: false, tied: false };
    pub const ALL: Self = Self { biases: true, head_norms: true, tied: true };
}

/// Weights that are the same in every run.
#[derive(Debug, Clone)]
pub(crate) struct RandomWeights {
    weights: BTreeMap<WeightRole, Weight>,
}

impl RandomWeights {
    /// All weights of `config`, in `dtype`.
    pub fn new(config: &ModelConfig, dtype: DType, extras: Extras) -> Self {
        let mut rng = Rng(11);
        let weights = shapes(config, extras)
            .into_iter()
            .map(|(role, shape)| {
                let count = shape.iter().product();
                let gain = if shape.len() == 2 { 1.7 / (shape[1] as f32).sqrt() } else { 0.5 };
                let center = if is_norm(role) { 1.0 } else { 0.0 };
                let data: Vec<f32> = rng.reals(count).into_iter().map(|x| center + gain * x).collect();
                let name = format!("{role:?}");
                (role, Weight { name, dtype, shape, data: blob(dtype, &data) })
            })
            .collect();
        Self { weights }
    }

    /// The weight for `role`, to change or take away.
    pub fn get_mut(&mut self, role: WeightRole) -> &mut Weight {
        self.weights.get_mut(&role).expect("a weight of this model")
    }

    /// Forgets the weight for `role`.
    pub fn remove(&mut self, role: WeightRole) {
        self.weights.remove(&role).expect("a weight of this model");
    }

    /// The elements for `role`, as f32; `None` where the model has none.
    pub fn reals(&self, role: WeightRole) -> Option<Vec<f32>> {
        let Weight { dtype, data, shape, .. } = self.weights.get(&role)?;
        let tensor = crate::graph::interpret::Tensor::from_bytes(*dtype, shape, data).expect("as long as its shape");
        tensor.reals().map(<[f32]>::to_vec)
    }
}

impl WeightSource for RandomWeights {
    fn weight(&self, role: WeightRole) -> Result<Option<Weight>> {
        Ok(self.weights.get(&role).cloned())
    }
}

fn is_norm(role: WeightRole) -> bool {
    use LayerWeight::*;
    let norms = [AttentionNorm, FeedForwardNorm, QueryNorm, KeyNorm];
    role == WeightRole::FinalNorm || matches!(role, WeightRole::Layer(_, weight) if norms.contains(&weight))
}

fn shapes(config: &ModelConfig, extras: Extras) -> Vec<(WeightRole, Vec<usize>)> {
    use LayerWeight::*;
    let ModelConfig { dim, hidden, vocab, head_dim, .. } = *config;
    let (queries, keys) = (config.heads * head_dim, config.kv_heads * head_dim);
    let mut shapes = vec![(WeightRole::TokenEmbedding, vec![vocab, dim]), (WeightRole::FinalNorm, vec![dim])];
    if !extras.tied {
        shapes.push((WeightRole::OutputHead, vec![vocab, dim]));
    }
    for layer in 0..config.layers {
        let mut all = vec![
            (AttentionNorm, vec![dim]),
            (Query, vec![queries, dim]),
            (Key, vec![keys, dim]),
            (Value, vec![keys, dim]),
            (Output, vec![dim, queries]),
            (FeedForwardNorm, vec![dim]),
            (Gate, vec![hidden, dim]),
            (Up, vec![hidden, dim]),
            (Down, vec![dim, hidden]),
        ];
        if extras.biases {
            all.extend([(QueryBias, vec![queries]), (KeyBias, vec![keys]), (ValueBias, vec![keys])]);
        }
        if extras.head_norms {
            all.extend([(QueryNorm, vec![head_dim]), (KeyNorm, vec![head_dim])]);
        }
        shapes.extend(all.into_iter().map(|(weight, shape)| (WeightRole::Layer(layer, weight), shape)));
    }
    shapes
}

/// `data` in `dtype`.
pub(crate) fn blob(dtype: DType, data: &[f32]) -> Blob {
    let bytes = |&x: &f32| match dtype {
        DType::F16 => f16::from_f32(x).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(x).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    Blob::from_vec(data.iter().flat_map(bytes).collect())
}
