//! Programs with a method `forward(tokens, input_pos)`, and ExecuTorch's recorded runs of them.
#![allow(dead_code)] // Each test program uses its own part.

use llama_runner::builtin::{ProgramOptions, open_program};
use llama_runner::runtime::{Execution, IoArena, IoSlice, MethodId, Module};
use serde_json::Value;
use std::num::NonZeroUsize;
use std::path::Path;

/// The recorded programs of the small story model: folder, name, largest distance from the recorded logits relative to
/// the row's largest.
pub const STORIES: [(&str, &str, f32); 7] = [
    ("portable", "portable_s260k_fp32_kv", 1e-4),
    ("portable", "portable_s260k_fp32_kv_sdpa_fulllogits", 1e-4),
    ("xnnpack", "xnn_s260k_fp32_kv", 1e-4),
    ("xnnpack", "xnn_s260k_fp32_kv_sdpa", 1e-4),
    ("xnnpack", "xnn_s260k_8da4w_emb432_kv", 2e-3),
    ("xnnpack", "xnn_s260k_8da4w_emb432_kv_sdpa", 2e-3),
    ("xnnpack", "xnn_s260k_8da4w_emb432_kv_sdpa_q8kv", 2e-3),
];

/// A loaded program with its buffers.
pub struct Model {
    pub module: Box<dyn Module>,
    pub method: MethodId,
    arena: IoArena,
    tokens: IoSlice,
    position: IoSlice,
    pub vocab: usize,
}

impl Model {
    pub fn open(path: &Path, execution: Execution) -> Self {
        Self::open_with(path, execution, None)
    }

    /// With so many threads.
    pub fn open_with(path: &Path, execution: Execution, threads: Option<usize>) -> Self {
        let cpu_threads = threads.and_then(NonZeroUsize::new);
        let options = ProgramOptions { execution, cpu_threads, ..ProgramOptions::default() };
        let mut module = open_program(path, &options).unwrap_or_else(|error| panic!("{}", error.chain()));
        let method = module.load_method("forward");
        let method = method.unwrap_or_else(|error| panic!("{}: {}", path.display(), error.chain()));
        let info = module.method_info(method);
        let lens = [0, 1].map(|input| info.inputs[input].as_ref().unwrap().byte_len());
        let output = info.outputs[0].as_ref().unwrap();
        let vocab = *output.dims.last().unwrap();
        let logits = (!output.planned).then(|| output.byte_len());
        let sizes = lens.into_iter().chain(logits);
        let mut arena = IoArena::new(sizes.map(IoArena::footprint).sum()).unwrap();
        let [tokens, position] = lens.map(|len| arena.alloc(len).unwrap());
        module.bind_input(method, 0, &arena, tokens).unwrap();
        module.bind_input(method, 1, &arena, position).unwrap();
        if let Some(len) = logits {
            let slice = arena.alloc(len).unwrap();
            module.bind_output(method, 0, &arena, slice).unwrap();
        }
        Self { module, method, arena, tokens, position, vocab }
    }

    /// Rows of logits after `ids` at `position`: of all ids, or of the last.
    pub fn try_forward(&mut self, ids: &[i64], position: usize) -> llama_runner::Result<Vec<Vec<f32>>> {
        self.module.resize_input(self.method, 0, &[1, ids.len()])?;
        self.arena.typed_mut::<i64>(self.tokens)[..ids.len()].copy_from_slice(ids);
        self.arena.typed_mut::<i64>(self.position)[0] = position as i64;
        self.module.execute(self.method, &mut self.arena)?;
        let (dims, bytes) = self.module.output(self.method, 0, &self.arena)?;
        assert_eq!(dims.last(), Some(&self.vocab));
        let logits: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        Ok(logits.chunks_exact(self.vocab).map(<[f32]>::to_vec).collect())
    }

    pub fn forward(&mut self, ids: &[i64], position: usize) -> Vec<Vec<f32>> {
        self.try_forward(ids, position).unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// The last row.
    pub fn last(&mut self, ids: &[i64], position: usize) -> Vec<f32> {
        self.forward(ids, position).pop().unwrap()
    }
}

/// The first of the largest logits.
pub fn greedy(row: &[f32]) -> i64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&logit| logit == largest).unwrap() as i64
}

pub fn golden(shared: &Path, name: &str) -> Value {
    let path = shared.join(format!("goldens/executorch/{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn ids(golden: &Value, field: &str) -> Vec<i64> {
    golden[field].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// The recorded rows of `field`, however deep the list is.
pub fn rows(golden: &Value, field: &str) -> Vec<Vec<f32>> {
    let row = |row: &Value| row.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap() as f32).collect();
    let mut rows = golden[field]["rows"].as_array().unwrap();
    while rows[0][0].is_array() {
        assert_eq!(rows.len(), 1);
        rows = rows[0].as_array().unwrap();
    }
    rows.iter().map(row).collect()
}

/// Whether `id` is the largest logit, or so near it that rounding decides: within `part` of the row's range.
pub fn is_choice(row: &[f32], id: i64, part: f32) -> bool {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let smallest = row.iter().copied().fold(f32::INFINITY, f32::min);
    greedy(row) == id || largest - row[id as usize] <= part * (largest - smallest)
}

/// Largest distance of two rows, relative to the second's largest element.
pub fn distance(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
    let far = got.iter().zip(want).fold(0.0f32, |far, (got, want)| far.max((got - want).abs()));
    assert!(got.iter().all(|logit| logit.is_finite()), "{got:?}");
    far / largest
}
