//! What an export tells when it is done: how well the quantized model does, how large it is, how long it took.

pub(super) mod facts;
mod html;
mod json;
mod plot;
#[cfg(test)]
mod tests;

use super::progress::Stage;
use std::path::PathBuf;
use std::time::Duration;

/// The report of one export.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The program that was written; `None` when the export stopped behind a pass.
    pub output: Option<Written>,
    /// Files written beside it, the tokenizer's.
    pub beside: Vec<PathBuf>,
    /// The tokenizer that goes with the program; absent when there was none.
    pub tokenizer: Option<PathBuf>,
    /// What was asked for and what the model is, as names and values in the order of the report.
    pub facts: Vec<(&'static str, String)>,
    /// The program's methods.
    pub methods: Vec<Method>,
    /// The passes that ran, in their order.
    pub passes: Vec<&'static str>,
    /// How well linear layers were quantized, in the order of the model; empty for a float model.
    pub layers: Vec<Layer>,
    /// How well the calibration text is predicted; absent when there was too little of it.
    pub perplexity: Option<Perplexity>,
    /// How long each stage took, in the order of the work.
    pub timings: Vec<(Stage, Duration)>,
    /// Most memory that the process had, in bytes, where the system tells.
    pub peak_memory: Option<u64>,
}

/// The file, and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Where it is.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its parts by name, in bytes, the largest first.
    pub parts: Vec<(String, u64)>,
}

/// A method of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// `kv_forward`
    pub name: String,
    /// Nodes of its graph behind the last pass.
    pub nodes: usize,
    /// Delegates that it calls.
    pub delegates: usize,
}

/// A quantized layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The value's name in the graph, `layers.3.feed_forward.down`.
    pub name: String,
    /// Ratio of signal and quantization noise, in dB.
    pub sqnr_db: f64,
}

/// Perplexities: e to the mean of `-ln p` of each token of a text given those before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perplexity {
    /// Of the float model.
    pub float: f64,
    /// Of the quantized one.
    pub quantized: f64,
    /// Tokens that were predicted.
    pub tokens: usize,
}

impl Report {
    /// The whole time.
    pub fn elapsed(&self) -> Duration {
        self.timings.iter().map(|(_, time)| *time).sum()
    }

    /// One JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        json::value(self)
    }

    /// A page that needs nothing but itself.
    pub fn to_html(&self) -> String {
        html::page(self)
    }
}
