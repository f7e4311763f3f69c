//! A forward pass of the Llama family in f64, written from the papers alone.

use super::super::super::testing::{dynamic_logits, interpreted, static_logits};
use super::super::super::{Llama3Scaling, Rope, RopeScaling};
use super::*;
use crate::graph::RotaryStyle;
use crate::graph::testing::assert_close;
use LayerWeight::*;

struct Reference<'a> {
    config: &'a ModelConfig,
    weights: &'a RandomWeights,
}

impl Reference<'_> {
    fn reals(&self, role: WeightRole) -> Option<Vec<f64>> {
        Some(self.weights.reals(role)?.into_iter().map(f64::from).collect())
    }

    fn linear(&self, x: &[f64], weight: WeightRole, bias: Option<WeightRole>) -> Vec<f64> {
        let weights = self.reals(weight).unwrap();
        let bias = bias.and_then(|role| self.reals(role));
        let product = |(row, weights): (usize, &[f64])| {
            weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias.as_ref().map_or(0.0, |bias| bias[row])
        };
        weights.chunks(x.len()).enumerate().map(product).collect()
    }

    fn norm(&self, x: &[f64], role: WeightRole) -> Vec<f64> {
        let gamma = self.reals(role).unwrap();
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let root = (mean + f64::from(self.config.norm_epsilon)).sqrt();
        x.iter().zip(gamma).map(|(x, gamma)| x / root * gamma).collect()
    }

    /// One head, turned to its position.
    fn rotate(&self, head: &mut [f64], position: usize) {
        let d = head.len();
        for pair in 0..d / 2 {
            let [a, b] = match self.config.rope.style {
                RotaryStyle::Interleaved => [2 * pair, 2 * pair + 1],
                RotaryStyle::Half => [pair, pair + d / 2],
            };
            let angle = position as f64 / f64::from(self.config.rope.theta).powf((2 * pair) as f64 / d as f64);
            let (x, y) = (head[a], head[b]);
            head[a] = x * angle.cos() - y * angle.sin();
            head[b] = y * angle.cos() + x * angle.sin();
        }
    }

    fn heads(&self, x: &[f64], layer: usize, [weight, bias, norm]: [LayerWeight; 3], position: usize) -> Vec<Vec<f64>> {
        let role = |weight| WeightRole::Layer(layer, weight);
        let flat = self.linear(x, role(weight), Some(role(bias)));
        let turn = |head: &[f64]| {
            let mut head = head.to_vec();
            if weight != Value {
                if self.reals(role(norm)).is_some() {
                    head = self.norm(&head, role(norm));
                }
                self.rotate(&mut head, position);
            }
            head
        };
        flat.chunks(self.config.head_dim).map(turn).collect()
    }

    fn logits(&self) -> Vec<Vec<f32>> {
        let config = self.config;
        let table = self.reals(WeightRole::TokenEmbedding).unwrap();
        let mut caches: Vec<Vec<[Vec<Vec<f64>>; 2]>> = vec![Vec::new(); config.layers]; // [layer][position][k, v][head]
        let step = |(position, &token): (usize, &i64)| {
            let add = |x: &mut [f64], y: Vec<f64>| x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            let mut x = table[token as usize * config.dim..][..config.dim].to_vec();
            for (layer, cache) in caches.iter_mut().enumerate() {
                let role = |weight| WeightRole::Layer(layer, weight);
                let normed = self.norm(&x, role(AttentionNorm));
                let queries = self.heads(&normed, layer, [Query, QueryBias, QueryNorm], position);
                let keys = self.heads(&normed, layer, [Key, KeyBias, KeyNorm], position);
                cache.push([keys, self.heads(&normed, layer, [Value, ValueBias, Value], position)]);
                let mut attended = Vec::new();
                for (head, query) in queries.iter().enumerate() {
                    let shared = head / (config.heads / config.kv_heads);
                    let dot = |key: &[f64]| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
                    let root = (config.head_dim as f64).sqrt();
                    let powers: Vec<f64> = cache.iter().map(|[k, _]| (dot(&k[shared]) / root).exp()).collect();
                    let sum: f64 = powers.iter().sum();
                    let mix = |element: usize| {
                        let weighted = cache.iter().zip(&powers).map(|([_, v], power)| v[shared][element] * power);
                        weighted.sum::<f64>() / sum
                    };
                    attended.extend((0..config.head_dim).map(mix));
                }
                add(&mut x, self.linear(&attended, role(Output), None));
                let normed = self.norm(&x, role(FeedForwardNorm));
                let [gate, up] = [Gate, Up].map(|weight| self.linear(&normed, role(weight), None));
                let hidden: Vec<f64> =
                    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
                add(&mut x, self.linear(&hidden, role(Down), None));
            }
            let normed = self.norm(&x, WeightRole::FinalNorm);
            let own = self.reals(WeightRole::OutputHead).is_some();
            let head = if own { WeightRole::OutputHead } else { WeightRole::TokenEmbedding };
            self.linear(&normed, head, None).into_iter().map(|x| x as f32).collect()
        };
        TOKENS.iter().enumerate().map(step).collect()
    }
}

#[test]
fn graphs_compute_the_model() {
    for (config, extras) in [
        (tiny_config(), Extras::NONE),
        (tiny_config(), Extras { tied: true, ..Extras::NONE }),
        (tiny_wide_config(), Extras { biases: true, ..Extras::NONE }),
        (tiny_wide_config(), Extras { head_norms: true, ..Extras::NONE }),
        (ModelConfig { kv_heads: 1, ..tiny_config() }, Extras::ALL),
        (ModelConfig { kv_heads: 4, ..tiny_wide_config() }, Extras::ALL),
    ] {
        let weights = RandomWeights::new(&config, DType::F16, extras);
        let need = Reference { config: &config, weights: &weights }.logits();
        let what = format!("{} {extras:?}", config.architecture);
        let graph = |spec: &MethodSpec| graph(&config, &weights, spec);
        let whole = graph(&dynamic(CONTEXT, true));
        assert_close(&dynamic_logits(interpreted(&whole), &TOKENS, &[8]), &need, &what);
        for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
            let decode = graph(&fixed(1, CONTEXT, layout));
            assert_close(&static_logits(&decode, interpreted(&decode), &TOKENS), &need, &what);
        }
    }
}

#[test]
fn pairs_by_halves_are_interleaved_pairs_with_the_rows_in_another_order() {
    let interleaved = tiny_config();
    let extras = Extras { biases: true, ..Extras::NONE };
    let mut weights = RandomWeights::new(&interleaved, DType::F32, extras);
    let logits = |config: &ModelConfig, weights: &RandomWeights| {
        dynamic_logits(interpreted(&graph(config, weights, &dynamic(CONTEXT, true))), &TOKENS, &[8])
    };
    let need = logits(&interleaved, &weights);
    let rope = Rope { style: RotaryStyle::Half, ..interleaved.rope };
    let halves = ModelConfig { rope, ..interleaved };
    let d = halves.head_dim;
    for layer in 0..halves.layers {
        for part in [Query, Key, QueryBias, KeyBias] {
            let weight = weights.get_mut(WeightRole::Layer(layer, part));
            let row_bytes = weight.data.len() / weight.shape[0];
            let from = |row: usize| row / d * d + 2 * (row % d % (d / 2)) + row % d / (d / 2);
            let rows = (0..weight.shape[0]).flat_map(|row| &weight.data[from(row) * row_bytes..][..row_bytes]);
            let rows: Vec<u8> = rows.copied().collect();
            weight.data = crate::base::storage::Blob::from_vec(rows);
        }
    }
    assert_close(&logits(&halves, &weights), &need, "halves");
}

/// Llama 3.1's correction as Meta and Hugging Face publish it: by wavelength, in three cases.
fn published(frequency: f64, scaling: Llama3Scaling) -> f64 {
    let [factor, low, high] =
        [scaling.factor, scaling.low_frequency_factor, scaling.high_frequency_factor].map(f64::from);
    let original = scaling.original_context as f64;
    let wavelength = 2.0 * std::f64::consts::PI / frequency;
    if wavelength < original / high {
        frequency
    } else if wavelength > original / low {
        frequency / factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

#[test]
fn frequencies_are_corrected_as_published() {
    let llama3 =
        Llama3Scaling { factor: 8.0, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original_context: 8192 };
    let rope = |scaling| Rope { theta: 500_000.0, style: RotaryStyle::Half, scaling };
    let plain = super::super::rope::frequencies(&rope(RopeScaling::None), 128);
    let linear = super::super::rope::frequencies(&rope(RopeScaling::Linear { factor: 4.0 }), 128);
    let corrected = super::super::rope::frequencies(&rope(RopeScaling::Llama3(llama3)), 128);
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b;
    let mut kinds = [0; 3];
    for (pair, &frequency) in plain.iter().enumerate() {
        assert!(close(frequency, 1.0 / 500_000f64.powf(2.0 * pair as f64 / 128.0)), "pair {pair}");
        assert!(close(linear[pair], frequency / 4.0), "pair {pair}");
        assert!(close(corrected[pair], published(frequency, llama3)), "pair {pair}");
        let kept = corrected[pair] / frequency;
        kinds[if kept == 1.0 { 0 } else { 1 + usize::from(close(kept, 0.125)) }] += 1;
    }
    assert!(kinds.iter().all(|&count| count > 3), "{kinds:?}");
    assert_eq!(plain[0], 1.0);
}
