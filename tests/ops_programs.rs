//! Real programs of portable operators, instruction by instruction, against ExecuTorch's own runs of them.

mod common;

use llama_runner::builtin::{ProgramOptions, open_program};
use llama_runner::pte::Program;
use llama_runner::runtime::{Execution, IoArena, IoSlice, MethodId, Module};
use serde_json::Value;
use std::collections::BTreeSet;

/// Largest distance from the recorded logits, relative to the row's largest.
const TOLERANCE: f32 = 1e-4;

const PORTABLE: [&str; 2] = ["portable_s260k_fp32_kv", "portable_s260k_fp32_kv_sdpa_fulllogits"];

struct Model {
    module: Box<dyn Module>,
    method: MethodId,
    arena: IoArena,
    tokens: IoSlice,
    position: IoSlice,
    vocab: usize,
}

impl Model {
    fn open(name: &str) -> Self {
        let path = common::model(&format!("portable/{name}.pte"));
        let options = ProgramOptions { execution: Execution::Instructions, ..ProgramOptions::default() };
        let mut module = open_program(&path, &options).unwrap();
        let method = module.load_method("forward").unwrap();
        let info = module.method_info(method);
        let lens = [0, 1].map(|input| info.inputs[input].as_ref().unwrap().byte_len());
        let vocab = *info.outputs[0].as_ref().unwrap().dims.last().unwrap();
        let mut arena = IoArena::new(lens.into_iter().map(IoArena::footprint).sum()).unwrap();
        let [tokens, position] = lens.map(|len| arena.alloc(len).unwrap());
        module.bind_input(method, 0, &arena, tokens).unwrap();
        module.bind_input(method, 1, &arena, position).unwrap();
        Self { module, method, arena, tokens, position, vocab }
    }

    /// Rows of logits after `ids` at `position`: of all ids, or of the last.
    fn forward(&mut self, ids: &[i64], position: usize) -> Vec<Vec<f32>> {
        self.module.resize_input(self.method, 0, &[1, ids.len()]).unwrap();
        self.arena.typed_mut::<i64>(self.tokens)[..ids.len()].copy_from_slice(ids);
        self.arena.typed_mut::<i64>(self.position)[0] = position as i64;
        self.module.execute(self.method, &mut self.arena).unwrap();
        let (dims, bytes) = self.module.output(self.method, 0, &self.arena).unwrap();
        assert_eq!(dims.last(), Some(&self.vocab));
        let logits: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        logits.chunks_exact(self.vocab).map(<[f32]>::to_vec).collect()
    }

    fn last(&mut self, ids: &[i64], position: usize) -> Vec<f32> {
        self.forward(ids, position).pop().unwrap()
    }
}

fn greedy(row: &[f32]) -> i64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter().position(|&logit| logit == largest).unwrap() as i64
}

fn golden(name: &str) -> Value {
    let path = common::shared().join(format!("goldens/executorch/{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn ids(golden: &Value, field: &str) -> Vec<i64> {
    golden[field].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

fn row(row: &Value) -> Vec<f32> {
    row.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap() as f32).collect()
}

/// The recorded rows of `field`, however deep the list is.
fn rows(golden: &Value, field: &str) -> Vec<Vec<f32>> {
    let mut rows = golden[field]["rows"].as_array().unwrap();
    while rows[0][0].is_array() {
        assert_eq!(rows.len(), 1);
        rows = rows[0].as_array().unwrap();
    }
    rows.iter().map(row).collect()
}

fn assert_close(got: &[f32], want: &[f32], place: &str) {
    assert_eq!(got.len(), want.len(), "{place}");
    let largest = want.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
    for (id, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= TOLERANCE * largest, "{place}, id {id}: {got} for {want}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_operator_of_the_programs_is_there() {
    let kernels = llama_runner::builtin::kernels();
    let (mut files, mut missing) = (0, BTreeSet::new());
    for folder in ["portable", "xnnpack", "smollm2", "story"] {
        for entry in std::fs::read_dir(common::model(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "pte") {
                continue;
            }
            let program = Program::open(&path).unwrap();
            let operators = program.plans.iter().flat_map(|plan| &plan.operators);
            missing.extend(operators.filter(|name| kernels.get(name).is_none()).map(ToString::to_string));
            files += 1;
        }
    }
    assert!(files >= 7, "{files} files");
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn step_by_step_is_executorchs_run() {
    for name in PORTABLE {
        let (golden, mut model) = (golden(name), Model::open(name));
        let (prompt, want) = (ids(&golden, "prompt"), ids(&golden, "ids_step1"));
        let recorded = rows(&golden, "logits_step1_first32");
        assert_eq!((want.len(), recorded.len()), (100, 8));
        let mut fed = prompt.clone();
        for position in 0..want.len() - 1 {
            let logits = model.last(&fed[position..=position], position);
            if let Some(recorded) = recorded.get(position) {
                assert_close(&logits, recorded, &format!("{name}, step {position}"));
            }
            if fed.len() == position + 1 {
                fed.push(greedy(&logits));
            }
        }
        assert_eq!(fed, want, "{name}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn prefill_in_one_call_is_executorchs_run() {
    for name in PORTABLE {
        let (golden, mut model) = (golden(name), Model::open(name));
        let (mut fed, want) = (ids(&golden, "prompt"), ids(&golden, "ids_prefill"));
        let logits = model.forward(&fed, 0);
        let recorded = rows(&golden, "prefill_last_row_logits");
        assert_eq!(logits.len(), recorded.len(), "{name}: all rows, or the last");
        for (place, (got, want)) in logits.iter().zip(&recorded).enumerate() {
            assert_close(got, want, &format!("{name}, prefill row {place}"));
        }
        let after = rows(&golden, "logits_after_prefill_first16");
        fed.push(greedy(&logits[logits.len() - 1]));
        while fed.len() < want.len() {
            let position = fed.len() - 1;
            let logits = model.last(&fed[position..], position);
            let step = fed.len() - 1 - ids(&golden, "prompt").len();
            if let Some(recorded) = after.get(step) {
                assert_close(&logits, recorded, &format!("{name}, step {step} after prefill"));
            }
            fed.push(greedy(&logits));
        }
        assert_eq!(fed, want, "{name}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn prefill_in_chunks_and_at_the_end_of_the_context() {
    for name in PORTABLE {
        let (golden, mut model) = (golden(name), Model::open(name));
        let want = ids(&golden, "ids_prefill");
        let mut whole = Model::open(name);
        let at_once = whole.last(&want[..20], 0);
        model.forward(&want[..7], 0);
        model.forward(&want[7..8], 7);
        let in_chunks = model.last(&want[8..20], 8);
        assert_close(&in_chunks, &at_once, name);
        // The caches have 128 positions, a call takes up to 127 ids.
        let long: Vec<i64> = want.iter().copied().cycle().take(128).collect();
        model.forward(&long[..127], 0);
        let last = model.last(&long[127..], 127);
        whole.forward(&long[..64], 0);
        assert_close(&whole.last(&long[64..], 64), &last, name);
        model.module.resize_input(model.method, 0, &[1, 1]).unwrap();
        model.arena.typed_mut::<i64>(model.position)[0] = 128;
        let error = model.module.execute(model.method, &mut model.arena).unwrap_err();
        assert!(error.chain().starts_with("method forward, instruction "), "{}", error.chain());
    }
}
