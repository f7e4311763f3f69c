//! Tables of rotary embedding, with the corrections of its frequencies (Su et al., RoFormer; Llama 3.1's scaling as in
//! Meta's `llama-models`).

use super::super::{ModelConfig, Rope, RopeScaling};
use std::f64::consts::TAU;

/// Cosines and sines, each `[positions, head_dim / 2]`, row by row.
pub(super) struct RopeTable {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
}

/// The tables for positions `0..positions`. Angles are computed in f64 and rounded once.
pub(super) fn rope_tables(config: &ModelConfig, positions: usize) -> RopeTable {
    let frequencies = frequencies(&config.rope, config.head_dim);
    let table = |f: fn(f64) -> f64| {
        let row = |position: usize| frequencies.iter().map(move |frequency| f(position as f64 * frequency) as f32);
        (0..positions).flat_map(row).collect()
    };
    RopeTable { cos: table(f64::cos), sin: table(f64::sin) }
}

/// Radians a position, of each pair.
pub(super) fn frequencies(rope: &Rope, head_dim: usize) -> Vec<f64> {
    let plain = |pair: usize| f64::from(rope.theta).powf(-2.0 * pair as f64 / head_dim as f64);
    (0..head_dim / 2).map(|pair| scaled(plain(pair), rope.scaling)).collect()
}

fn scaled(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / f64::from(factor),
        RopeScaling::Llama3(scaling) => {
            let [factor, low, high] =
                [scaling.factor, scaling.low_frequency_factor, scaling.high_frequency_factor].map(f64::from);
            // Wavelengths that the first training's context holds: `low` of them or fewer are scaled, `high` or more stay.
            let waves = scaling.original_context as f64 * frequency / TAU;
            let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
            kept * frequency + (1.0 - kept) * frequency / factor
        }
    }
}
