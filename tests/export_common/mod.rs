//! Programs of the small story model for the CPU, by the way that `llr export` goes.
#![allow(dead_code)] // Each test program uses its own part.

use super::common;
use super::forward_common::{Model, greedy};
use llama_runner::export::checkpoint::{Checkpoint, Source};
use llama_runner::export::lower::{Assets, portable, xnnpack};
use llama_runner::export::quantize::passes::{Setup, for_setup};
use llama_runner::export::quantize::{
    Calibration, CodeStore, EmbeddingFormat, LinearRule, Recipe, WeightFormat, quantize_layerwise,
};
use llama_runner::export::{KvLayout, MethodSpec, emit, model};
use llama_runner::graph::Graph;
use llama_runner::passes::PassManager;
use llama_runner::pte::Program;
use llama_runner::runtime::Execution;
use llama_runner::tensor::DType;
use std::path::Path;
use std::sync::Arc;

pub const CONTEXT: usize = 128;

/// Who computes linear layers, and from what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Portable,
    PortableInt8,
    XnnpackFp32,
    Xnnpack8da4w,
}

pub const BACKENDS: [Backend; 3] = [Backend::Portable, Backend::XnnpackFp32, Backend::Xnnpack8da4w];

/// What differs between exports of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub backend: Backend,
    /// Bits of keys and values at the border of static methods.
    pub kv_bits: u8,
    /// Bits of the token embedding.
    pub embedding: Option<u8>,
}

impl From<Backend> for Options {
    fn from(backend: Backend) -> Self {
        Self { backend, kv_bits: 32, embedding: None }
    }
}

pub fn dynamic(fused_attention: bool, full_logits: bool) -> MethodSpec {
    let (max_seq_len, max_context_len) = (CONTEXT, CONTEXT);
    MethodSpec::Dynamic { name: "forward".into(), max_seq_len, max_context_len, full_logits, fused_attention }
}

fn fixed(name: &str, ar: usize, layout: KvLayout, tokens: DType) -> MethodSpec {
    MethodSpec::Static { name: name.into(), ar, context: CONTEXT, layout, tokens }
}

/// `kv_forward`, and `prefill_forward` of 16 tokens.
pub fn hybrid(layout: KvLayout, tokens: DType) -> [MethodSpec; 2] {
    [("kv_forward", 1), ("prefill_forward", 16)].map(|(name, ar)| fixed(name, ar, layout, tokens))
}

pub fn stories() -> Checkpoint {
    let checkpoint = common::model("stories260K.bin");
    Checkpoint::open(&Source { checkpoint, ..Source::default() }).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The story model's program of these methods. `text` is for calibration, where there are codes.
pub fn export(specs: &[MethodSpec], options: impl Into<Options>, text: &[u64]) -> Program {
    let (options, stories) = (options.into(), stories());
    let recipe =
        Recipe::named(if options.backend == Backend::Xnnpack8da4w { "8da4w" } else { "none" }, stories.config());
    // Its rows, of 172 columns, are not whole blocks.
    let down = LinearRule::everywhere("feed_forward.down", WeightFormat::per_channel(8));
    let mut recipe = Recipe { kv_bits: options.kv_bits, ..recipe.unwrap() };
    match options.backend {
        Backend::Xnnpack8da4w => recipe.rules.push(down),
        Backend::PortableInt8 => recipe.linear = Some(WeightFormat::per_channel(8)),
        Backend::Portable | Backend::XnnpackFp32 => {}
    }
    if let Some(bits) = options.embedding {
        recipe.embedding = EmbeddingFormat::Blockwise { bits, block: 32 };
    }
    let calibration = if options.kv_bits < 32 { calibrate(&stories, text) } else { Calibration::default() };
    let store = Arc::new(CodeStore::in_memory());
    if recipe.linear.is_some() {
        let graph = whole_context(&stories, text.len());
        quantize_layerwise(graph, text, &recipe, &store, &mut |_, _| Ok(())).unwrap();
    }
    let setup = Setup { recipe, calibration: Arc::new(calibration), store: Arc::clone(&store) };
    let mut passes = for_setup(&setup);
    passes.extend(portable::decompositions());
    let passes = PassManager::new(passes).unwrap();
    let graphs: Vec<Graph> = specs.iter().map(|spec| graph(&stories, spec, &passes)).collect();
    let mut assets = Assets::new(store);
    let lower = |graph| match options.backend {
        Backend::Portable | Backend::PortableInt8 => portable::lower(graph, &mut assets),
        Backend::XnnpackFp32 | Backend::Xnnpack8da4w => xnnpack::lower(graph, &mut assets),
    };
    let plans = graphs.iter().map(lower).collect::<Result<Vec<_>, _>>().unwrap_or_else(|error| panic!("{error}"));
    let methods: Vec<_> = specs.iter().zip(&graphs).collect();
    let metadata = match &specs[0] {
        spec @ MethodSpec::Dynamic { .. } => emit::dynamic_metadata(stories.config(), spec),
        MethodSpec::Static { .. } => emit::static_metadata(stories.config(), &methods),
    };
    emit::assemble(assets, plans, metadata)
}

fn graph(stories: &Checkpoint, spec: &MethodSpec, passes: &PassManager) -> Graph {
    let graph = model::build(stories.config(), stories, spec);
    let mut graph = graph.unwrap_or_else(|error| panic!("{}", error.chain()));
    passes.run(&mut graph, None, &mut |_, _| Ok(())).unwrap_or_else(|error| panic!("{}", error.chain()));
    graph
}

fn calibrate(stories: &Checkpoint, text: &[u64]) -> Calibration {
    let graph = whole_context(stories, text.len());
    Calibration::run(&graph, text, &mut |_, _| Ok(())).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// A graph that takes a text of this length at once.
fn whole_context(stories: &Checkpoint, length: usize) -> Graph {
    let spec = MethodSpec::Static {
        name: "calibrate".into(),
        ar: length,
        context: length,
        layout: KvLayout::PerLayer,
        tokens: DType::I32,
    };
    let passes = PassManager::new(portable::decompositions()).unwrap();
    graph(stories, &spec, &passes)
}

/// The prompt in one call, then token by token.
pub fn forward(path: &Path, way: Execution, prompt: &[i64], steps: usize) -> Vec<i64> {
    let mut model = Model::open(path, way);
    let mut ids = prompt.to_vec();
    let mut next = greedy(&model.last(prompt, 0));
    while ids.len() < prompt.len() + steps {
        ids.push(next);
        next = greedy(&model.last(&[next], ids.len() - 1));
    }
    ids
}
