//! The decoder in a few lines of plain f32, straight from its papers, to see whether weights and description go together.

use super::*;
use crate::export::LayerWeight::{self, *};
use crate::graph::RotaryStyle;

/// Rows of activations.
type Rows = Vec<Vec<f32>>;

fn linear(rows: &Rows, weight: &[f32]) -> Rows {
    let product = |row: &Vec<f32>| {
        let dot = |weight: &[f32]| weight.iter().zip(row).map(|(w, x)| w * x).sum();
        weight.chunks_exact(row.len()).map(dot).collect()
    };
    rows.iter().map(product).collect()
}

fn norm(rows: &Rows, weight: &[f32], epsilon: f32) -> Rows {
    let scaled = |row: &Vec<f32>| {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32;
        row.iter().zip(weight).map(|(x, w)| x * w / (mean + epsilon).sqrt()).collect()
    };
    rows.iter().map(scaled).collect()
}

fn add(rows: &mut Rows, more: &Rows) {
    rows.iter_mut().flatten().zip(more.iter().flatten()).for_each(|(x, y)| *x += y);
}

fn rotate(rows: &mut Rows, head_dim: usize, theta: f32, style: RotaryStyle) {
    for (position, row) in rows.iter_mut().enumerate() {
        for head in row.chunks_exact_mut(head_dim) {
            for pair in 0..head_dim / 2 {
                let (a, b) = match style {
                    RotaryStyle::Interleaved => (2 * pair, 2 * pair + 1),
                    RotaryStyle::Half => (pair, pair + head_dim / 2),
                };
                let angle = position as f32 * theta.powf(-2.0 * pair as f32 / head_dim as f32);
                let (sin, cos) = angle.sin_cos();
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
            }
        }
    }
}

fn attention(query: &Rows, key: &Rows, value: &Rows, config: &ModelConfig) -> Rows {
    let size = config.head_dim;
    let one = |position: usize, head: usize| {
        let shared = head / (config.heads / config.kv_heads) * size..;
        let query = &query[position][head * size..][..size];
        let score = |past: &Vec<f32>| -> f32 {
            past[shared.clone()][..size].iter().zip(query).map(|(k, q)| k * q).sum::<f32>() / (size as f32).sqrt()
        };
        let scores: Vec<f32> = key[..=position].iter().map(score).collect();
        let top = scores.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - top).exp()).collect();
        let sum: f32 = weights.iter().sum();
        let mut mixed = vec![0.0; size];
        for (weight, past) in weights.iter().zip(value) {
            mixed.iter_mut().zip(&past[shared.clone()]).for_each(|(x, v)| *x += weight / sum * v);
        }
        mixed
    };
    (0..query.len()).map(|position| (0..config.heads).flat_map(|head| one(position, head)).collect()).collect()
}

/// The logits at each token but the last.
fn logits(checkpoint: &Checkpoint, ids: &[u64], style: RotaryStyle) -> Rows {
    let config = checkpoint.config();
    let embedding = reals(checkpoint, WeightRole::TokenEmbedding);
    let mut rows: Rows = ids.iter().map(|&id| embedding[id as usize * config.dim..][..config.dim].to_vec()).collect();
    for layer in 0..config.layers {
        let weight = |weight: LayerWeight| reals(checkpoint, WeightRole::Layer(layer, weight));
        let normed = norm(&rows, &weight(AttentionNorm), config.norm_epsilon);
        let [mut query, mut key, value] = [Query, Key, Value].map(|kind| linear(&normed, &weight(kind)));
        rotate(&mut query, config.head_dim, config.rope.theta, style);
        rotate(&mut key, config.head_dim, config.rope.theta, style);
        add(&mut rows, &linear(&attention(&query, &key, &value, config), &weight(Output)));
        let normed = norm(&rows, &weight(FeedForwardNorm), config.norm_epsilon);
        let [mut gate, up] = [Gate, Up].map(|kind| linear(&normed, &weight(kind)));
        gate.iter_mut().flatten().zip(up.iter().flatten()).for_each(|(x, up)| *x = *x / (1.0 + (-*x).exp()) * up);
        add(&mut rows, &linear(&gate, &weight(Down)));
    }
    rows.pop();
    linear(&norm(&rows, &reals(checkpoint, WeightRole::FinalNorm), config.norm_epsilon), &embedding)
}

/// Bits of surprise at each token but the first, on the average.
pub fn mean_surprise(checkpoint: &Checkpoint, ids: &[u64], style: RotaryStyle) -> f64 {
    let logits = logits(checkpoint, ids, style);
    let bits = |(logits, &next): (&Vec<f32>, &u64)| {
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        (sum.ln() - f64::from(logits[next as usize])) / std::f64::consts::LN_2
    };
    logits.iter().zip(&ids[1..]).map(bits).sum::<f64>() / logits.len() as f64
}
