//! The sound programs that damage starts from: every real one, and one made with the crate's own writer.

use crate::common;
use crate::damage::Rng;
use llama_runner::pte::{
    BackendDelegate, Blob, Chain, CompileSpec, EValue, ExecutionPlan, Instruction, Program, Storage, TensorData,
    TensorValue,
};
use llama_runner::qnn::{
    BinaryInfo, COMPILE_SPEC_KEY, CompileOptions, DelegateBlob, GraphInfo, HtpOptions, QnnType, Quantization,
    TensorInfo, Version, sys,
};
use llama_runner::tensor::{DType, Encoding};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A file above this size is used once in a while only.
const LARGE: usize = 8 << 20;

/// A sound program.
pub struct Subject {
    /// The whole file.
    pub bytes: Arc<Storage>,
    pub program: Program,
    /// Where its flatbuffer lies in `bytes`.
    pub flatbuffer: Range<usize>,
    /// Where the graphs in its XNNPACK blobs lie, their headers included.
    graphs: Vec<Range<usize>>,
    /// What its context binaries hold, with their sizes.
    pub contents: Vec<(usize, BinaryInfo)>,
}

impl Subject {
    fn new(bytes: Arc<Storage>) -> Self {
        let program = Program::from_storage(Arc::clone(&bytes)).expect("a sound program");
        // The extended header says where the flatbuffer ends.
        let end = match bytes.get(8..12) {
            Some(b"eh00") => bytes[16..24].try_into().map_or(bytes.len(), |end| u64::from_le_bytes(end) as usize),
            _ => bytes.len(),
        };
        let contents = contents(&program);
        let graphs = program.plans.iter().flat_map(|plan| &plan.delegates).filter_map(|delegate| {
            let number = |at: usize| Some(u32::from_le_bytes(*delegate.processed.get(at..)?.first_chunk()?) as usize);
            let end =
                delegate.processed.get(4..8).filter(|magic| magic == b"XH00").and(Some(number(10)? + number(14)?))?;
            let start = delegate.processed.range().start;
            Some(start..start + end)
        });
        let graphs = graphs.collect();
        Self { bytes, program, flatbuffer: 0..end, graphs, contents }
    }

    /// A part whose bytes mean something: half of the time the program, else what its delegates run.
    pub fn part(&self, rng: &mut Rng) -> Range<usize> {
        match self.graphs.len() {
            0 => self.flatbuffer.clone(),
            _ if rng.one_in(2) => self.flatbuffer.clone(),
            count => self.graphs[rng.below(count)].clone(),
        }
    }
}

/// Every subject that this machine has; the written one comes first, large ones last.
pub struct Subjects(Vec<Subject>);

impl Subjects {
    pub fn load() -> Self {
        let mut subjects = vec![Subject::new(Arc::new(Storage::Owned(written().to_bytes().expect("a program"))))];
        if cfg!(have_shared) {
            for folder in ["qnn", "portable", "xnnpack", "smollm2"] {
                subjects.extend(files(&common::model(folder)));
            }
        }
        subjects.sort_by_key(|subject| subject.bytes.len() > LARGE);
        Self(subjects)
    }

    /// The subject of input `seed`: each in turn, large ones once in a hundred.
    pub fn of(&self, seed: u64) -> &Subject {
        let small = self.0.iter().filter(|subject| subject.bytes.len() <= LARGE).count();
        let large = &self.0[small..];
        match seed {
            seed if seed % 100 == 99 && !large.is_empty() => &large[seed as usize / 100 % large.len()],
            // Every other one is the written program, whose few bytes are hit more densely.
            seed if seed % 4 == 0 => &self.0[0],
            seed => &self.0[seed as usize % small],
        }
    }

    /// The subject of input `seed` among those that QNN runs.
    pub fn of_qnn(&self, seed: u64) -> &Subject {
        let qnn: Vec<&Subject> = self.0.iter().filter(|subject| !subject.contents.is_empty()).collect();
        qnn[seed as usize % qnn.len()]
    }
}

fn files(folder: &Path) -> Vec<Subject> {
    let entries = std::fs::read_dir(folder).expect("models");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pte"));
    paths.sort();
    paths.iter().map(|path| Subject::new(Storage::map(path).expect("a model"))).collect()
}

const CONTEXT_LEN: usize = 24;
/// More than the small tokenizers have.
const VOCAB: usize = 600;
const LAYERS: usize = 2;
const HEADS: usize = 2;
const HEAD_DIM: usize = 6;

/// A hybrid program of two layers whose methods share one context binary.
fn written() -> Program {
    let binary: Vec<u8> = [0u8, 0, 0, 2].into_iter().chain((0..200).map(|n| n as u8)).collect();
    let blob = Blob::from_vec(DelegateBlob::encode(0x5eed, &binary));
    let mut program = Program {
        plans: vec![method("prefill_forward", 4, &blob), method("kv_forward", 1, &blob)],
        ..Program::default()
    };
    for (name, values) in [
        ("get_n_layers", vec![EValue::Int(LAYERS as i64)]),
        ("get_max_context_len", vec![EValue::Int(CONTEXT_LEN as i64)]),
        ("get_vocab_size", vec![EValue::Int(VOCAB as i64)]),
        ("get_eos_ids", vec![EValue::Int(2), EValue::Int(3)]),
        ("get_logits_scale", vec![EValue::Double(0.001)]),
        ("get_logits_zero_point", vec![EValue::Int(30_000)]),
        ("get_kv_io_bit_width", vec![EValue::Int(8)]),
        ("use_kv_cache", vec![EValue::Bool(true)]),
        ("get_name", vec![EValue::String("written".into())]),
    ] {
        program.plans.push(ExecutionPlan::constant(name, values));
    }
    program
}

fn method(name: &str, ar: usize, blob: &Blob) -> ExecutionPlan {
    let cache_len = CONTEXT_LEN - ar;
    let mut plan = ExecutionPlan { name: name.into(), non_const_buffer_sizes: vec![0, 64], ..ExecutionPlan::default() };
    let mut tensor = |dtype, dims: &[usize]| {
        plan.push(EValue::Tensor(TensorValue::new(dtype, dims.to_vec(), TensorData::Unplanned)))
    };
    let mut inputs =
        vec![tensor(DType::I32, &[1, ar]), tensor(DType::I32, &[1, ar]), tensor(DType::U16, &[1, 1, ar, CONTEXT_LEN])];
    let mut outputs = vec![tensor(DType::U16, &[1, ar, VOCAB])];
    inputs.extend((0..LAYERS).map(|_| tensor(DType::U8, &[1, HEADS, HEAD_DIM, cache_len])));
    inputs.extend((0..LAYERS).map(|_| tensor(DType::U8, &[1, HEADS, cache_len, HEAD_DIM])));
    outputs.extend((0..LAYERS).map(|_| tensor(DType::U8, &[1, HEADS, HEAD_DIM, ar])));
    outputs.extend((0..LAYERS).map(|_| tensor(DType::U8, &[1, HEADS, ar, HEAD_DIM])));
    let options = CompileOptions {
        soc_model: Some(57),
        htp_arch: Some(75),
        vtcm_mb: Some(8),
        backend_type: Some(2),
        htp: Some(HtpOptions { performance_mode: 2, ..HtpOptions::default() }),
        log_level: Some(1),
        online_prepare: Some(false),
        ..CompileOptions::default()
    };
    plan.delegates = vec![BackendDelegate {
        id: "QnnBackend".into(),
        processed: blob.clone(),
        compile_specs: vec![CompileSpec { key: COMPILE_SPEC_KEY.into(), value: options.encode() }],
    }];
    let args = inputs.iter().chain(&outputs).copied().collect();
    plan.chains = vec![Chain { instructions: vec![Instruction::Delegate { delegate: 0, args }] }];
    (plan.inputs, plan.outputs) = (inputs, outputs);
    plan
}

/// What each context binary of `program` must hold for its methods to fit.
fn contents(program: &Program) -> Vec<(usize, BinaryInfo)> {
    let mut found: Vec<(Blob, BinaryInfo)> = Vec::new();
    for plan in &program.plans {
        for (index, delegate) in plan.delegates.iter().enumerate().filter(|(_, delegate)| delegate.id == "QnnBackend") {
            let Some(graph) = graph(plan, index as u32) else { continue };
            match found.iter_mut().find(|(blob, _)| blob.same_place(&delegate.processed)) {
                Some((_, info)) => info.graphs.push(graph),
                None => found.push((delegate.processed.clone(), info(graph))),
            }
        }
    }
    let size = |blob: &Blob| DelegateBlob::parse(blob).expect("a sound blob").payload.len();
    found.into_iter().map(|(blob, info)| (size(&blob), info)).collect()
}

fn info(graph: GraphInfo) -> BinaryInfo {
    let version = Version { major: 2, minor: 30, patch: 0 };
    BinaryInfo {
        version: 3,
        backend_id: sys::QNN_BACKEND_ID_HTP,
        build_id: "v2.49.40.260101000000_1".into(),
        core: version,
        backend: Version { major: 5, ..version },
        blob_version: Version { major: 3, ..version },
        soc_version: "V75".into(),
        soc_model: Some(57),
        graphs: vec![graph],
    }
}

/// The graph that the first call of `delegate` fits: what nothing has written before is an output.
fn graph(plan: &ExecutionPlan, delegate: u32) -> Option<GraphInfo> {
    let mut known: BTreeSet<u32> = plan.inputs.iter().copied().collect();
    for instruction in plan.chains.iter().flat_map(|chain| &chain.instructions) {
        match instruction {
            Instruction::Delegate { delegate: called, args } if *called == delegate => {
                let is_input = |&value: &u32| match &plan.values[value as usize] {
                    EValue::Tensor(TensorValue { data: TensorData::Constant { .. }, .. }) => true,
                    _ => known.contains(&value),
                };
                let tensors = |inputs: bool, name: &str, first_id| {
                    let values = args.iter().filter(|value| is_input(value) == inputs).enumerate();
                    values
                        .map(|(n, &value)| tensor(plan, value, format!("{name}_{n}_x"), first_id + n as u32))
                        .collect::<Option<Vec<_>>>()
                };
                let (inputs, outputs) = (tensors(true, "input", 0)?, tensors(false, "output", 1000)?);
                return Some(GraphInfo { name: plan.name.clone(), inputs, outputs });
            }
            Instruction::Delegate { args, .. } | Instruction::Kernel { args, .. } => known.extend(args),
            _ => {}
        }
    }
    None
}

fn tensor(plan: &ExecutionPlan, value: u32, name: String, id: u32) -> Option<TensorInfo> {
    let EValue::Tensor(tensor) = &plan.values[value as usize] else { return None };
    let data_type = QnnType(match tensor.dtype {
        DType::U8 => sys::QNN_DATATYPE_UFIXED_POINT_8,
        DType::U16 | DType::Bits16 => sys::QNN_DATATYPE_UFIXED_POINT_16,
        DType::I32 => sys::QNN_DATATYPE_INT_32,
        DType::I64 => sys::QNN_DATATYPE_INT_64,
        DType::F16 => sys::QNN_DATATYPE_FLOAT_16,
        _ => sys::QNN_DATATYPE_FLOAT_32,
    });
    let quantization = match data_type.is_quantized() {
        true => Quantization::PerTensor(Encoding { scale: 0.01, zero_point: 100 }),
        false => Quantization::None,
    };
    Some(TensorInfo { version: 2, id, name, data_type, dims: tensor.sizes.clone(), quantization })
}
