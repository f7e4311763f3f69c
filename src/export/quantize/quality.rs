//! How good a quantized graph is: noise of each layer against the float graph, and perplexity of both, on the same text.

use super::window::Windows;
use crate::error::Result;
use crate::graph::interpret::{Interpreter, Tensor};
use crate::graph::{Graph, Op, Quantization, ValueKind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Signal against quantization noise.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNoise {
    /// The value's name.
    pub name: String,
    /// Decibels: ten times the logarithm of signal power by noise power.
    pub sqnr: f64,
}

/// Perplexity of a text, teacher-forced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perplexity {
    /// Of the float graph.
    pub float: f64,
    /// Of the quantized graph.
    pub quantized: f64,
    /// Predicted tokens.
    pub tokens: usize,
}

/// What quantization did to a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The recipe's name.
    pub recipe: String,
    /// Noise of linear layers and residuals, in the graph's order.
    pub layers: Vec<LayerNoise>,
    /// Of the calibration text.
    pub perplexity: Option<Perplexity>,
    /// Bytes of constants by kind: `4-bit codes`, `scales`, `f32`.
    pub bytes: BTreeMap<String, u64>,
}

impl Report {
    /// For files and other programs.
    pub fn to_json(&self) -> Value {
        let layers = self.layers.iter().map(|layer| json!({"name": layer.name, "sqnr_db": layer.sqnr}));
        let perplexity = self.perplexity.map(|perplexity| {
            json!({"float": perplexity.float, "quantized": perplexity.quantized, "tokens": perplexity.tokens})
        });
        json!({
            "recipe": self.recipe,
            "layers": layers.collect::<Vec<_>>(),
            "perplexity": perplexity,
            "bytes": self.bytes,
        })
    }
}

/// Bytes of a graph's constants by kind; bytes that are shared count once.
pub fn bytes_by_kind(graph: &Graph) -> BTreeMap<String, u64> {
    let mut bytes = BTreeMap::new();
    let mut seen = std::collections::HashSet::new();
    let used = graph.use_counts();
    for (value, _) in graph.values.iter().zip(used).filter(|(_, uses)| *uses > 0) {
        let ValueKind::Constant(constant) = &value.kind else { continue };
        let kind = match &value.quantization {
            Some(quantization) => format!("{}-bit codes", quantization.bits()),
            None => value.dtype.to_string(),
        };
        let scales = match &value.quantization {
            Some(Quantization::PerChannel { scales, .. } | Quantization::Blockwise { scales, .. }) => Some(scales),
            _ => None,
        };
        let parts = [Some((kind, &constant.data)), scales.map(|scales| ("scales".to_owned(), &scales.data))];
        for (kind, data) in parts.into_iter().flatten() {
            if seen.insert(data.place()) {
                *bytes.entry(kind).or_insert(0) += data.len() as u64;
            }
        }
    }
    bytes
}

/// Compares two static whole-context graphs of one model in the reference interpreter.
///
/// # Errors
/// As [`Windows::new`] and [`Windows::cut`], and when a graph cannot be interpreted.
pub fn compare_static(float: &Graph, quantized: &Graph, text: &[u64]) -> Result<(Vec<LayerNoise>, Perplexity)> {
    let (windows, quantized_windows) = (Windows::new(float)?, Windows::new(quantized)?);
    let (mut float_run, mut quantized_run) = (Interpreter::new(float)?, Interpreter::new(quantized)?);
    let mut noise = Noise::of(float);
    let mut losses = [Loss::default(), Loss::default()];
    for window in windows.cut(text)? {
        let mut signal: HashMap<String, Vec<f32>> = HashMap::new();
        let logits = windows.run(&mut float_run, window, &mut |id, tensor: &mut Tensor| {
            let name = &float.value(id).name;
            if let Some(reals) = tensor.reals().filter(|_| noise.watches(name)) {
                signal.insert(name.clone(), reals.to_vec());
            }
        })?;
        losses[0].add(&logits, window);
        let logits = quantized_windows.run(&mut quantized_run, window, &mut |id, tensor: &mut Tensor| {
            let name = &quantized.value(id).name;
            if let (Some(signal), Some(reals)) = (signal.get(name), tensor.reals()) {
                noise.add(name, signal, reals);
            }
        })?;
        losses[1].add(&logits, window);
    }
    let [float, quantized] = losses;
    let perplexity = Perplexity { float: float.perplexity(), quantized: quantized.perplexity(), tokens: float.tokens };
    Ok((noise.layers(), perplexity))
}

/// Noise by name, in the order of a graph.
struct Noise {
    powers: Vec<(String, [f64; 2])>,
    places: HashMap<String, usize>,
}

impl Noise {
    /// Of linear layers and residuals.
    fn of(graph: &Graph) -> Self {
        let watched = graph.nodes.iter().filter_map(|node| {
            let name = &graph.value(node.outputs[0]).name;
            (node.op == Op::FullyConnected || name.ends_with("residual")).then(|| name.clone())
        });
        let powers: Vec<_> = watched.map(|name| (name, [0.0; 2])).collect();
        let places = powers.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
        Self { powers, places }
    }

    fn watches(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn add(&mut self, name: &str, signal: &[f32], have: &[f32]) {
        let Some(&place) = self.places.get(name) else { return };
        let [power, noise] = &mut self.powers[place].1;
        for (&signal, &have) in signal.iter().zip(have) {
            *power += f64::from(signal).powi(2);
            *noise += f64::from(signal - have).powi(2);
        }
    }

    fn layers(self) -> Vec<LayerNoise> {
        let decibels = |[power, noise]: [f64; 2]| 10.0 * (power / noise.max(power * 1e-30).max(1e-300)).log10();
        let seen = self.powers.into_iter().filter(|(_, [power, _])| *power > 0.0);
        seen.map(|(name, powers)| LayerNoise { name, sqnr: decibels(powers) }).collect()
    }
}

/// Sum of the negative logarithms of probabilities.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loss {
    sum: f64,
    tokens: usize,
}

impl Loss {
    /// `logits [tokens, vocab]` of all of `window`: each predicts the token after it.
    fn add(&mut self, logits: &[f32], window: &[u64]) {
        let vocab = logits.len() / window.len().max(1);
        for (row, &next) in logits.chunks_exact(vocab.max(1)).zip(&window[1..]) {
            self.add_row(row, next);
        }
    }

    /// `row [vocab]` predicts `next`.
    pub fn add_row(&mut self, row: &[f32], next: u64) {
        let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let total: f64 = row.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
        let of_next = row.get(next as usize).map_or(f64::NEG_INFINITY, |&x| f64::from(x));
        self.sum += largest + total.ln() - of_next;
        self.tokens += 1;
    }

    /// Of all that was added.
    pub fn perplexity(&self) -> f64 {
        (self.sum / self.tokens.max(1) as f64).exp()
    }
}
