//! Programs that are exported for the HTP say what the float weights say: in this library's own runtime on the x86
//! simulator, in every mode of the runner, however they are cut, on every SDK, and in ExecuTorch itself.

mod common;
#[path = "common/executorch.rs"]
mod executorch;
mod export_common;
mod forward_common;

use export_common::{hybrid, stories};
use forward_common::{golden, ids};
use llama_runner::builtin::{ProgramOptions, open_program};
use llama_runner::export::checkpoint::Checkpoint;
use llama_runner::export::lower::Assets;
use llama_runner::export::lower::qnn::{self, FitBlockScales, QnnOptions};
use llama_runner::export::quantize::{
    Calibration, CodeStore, EmbeddingFormat, Recipe, WeightFormat, passes, quantize_layerwise,
};
use llama_runner::export::{KvLayout, MethodSpec, emit, model};
use llama_runner::graph::Graph;
use llama_runner::passes::PassManager;
use llama_runner::pte::Program;
use llama_runner::qnn::compiler::CompilerOptions;
use llama_runner::qnn::{LibraryOptions, QnnLibrary, Soc};
use llama_runner::runner::{EvalMode, GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::{self, TokenId};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Tokens that must be those of the float weights.
const STEPS: usize = 20;

/// What differs between exports.
#[derive(Debug, Clone)]
struct Export {
    recipe: &'static str,
    kv_bits: u8,
    layout: KvLayout,
    /// Bits of a token embedding on the CPU.
    embedding: Option<u8>,
    /// Codes that share a scale in linear weights.
    block: Option<usize>,
    shards: usize,
    sdk: PathBuf,
}

impl Export {
    fn new(recipe: &'static str) -> Self {
        let (kv_bits, layout, embedding, block) = (8, KvLayout::PerLayer, None, None);
        Self { recipe, kv_bits, layout, embedding, block, shards: 1, sdk: common::qnn_lib_dir().unwrap() }
    }

    fn recipe(&self, stories: &Checkpoint) -> Recipe {
        let mut recipe = Recipe::named(self.recipe, stories.config()).unwrap();
        recipe.kv_bits = self.kv_bits;
        if let Some(bits) = self.embedding {
            recipe.embedding = EmbeddingFormat::Blockwise { bits, block: 32 };
        }
        if let Some(block) = self.block {
            recipe.linear = Some(WeightFormat { block: Some(block), ..WeightFormat::per_channel(4) });
        }
        recipe
    }

    fn graphs(&self, specs: &[MethodSpec]) -> Vec<Graph> {
        let (stories, store) = (stories(), Arc::new(CodeStore::in_memory()));
        let recipe = self.recipe(&stories);
        let (float, text) = (whole_context(&stories, self.layout), text());
        let quantized = quantize_layerwise(float, &text, &recipe, &store, &mut |_, _| Ok(()));
        quantized.unwrap_or_else(|error| panic!("{}", error.chain()));
        let calibration = Calibration::run(&whole_context(&stories, self.layout), &text, &mut |_, _| Ok(()));
        let calibration = Arc::new(calibration.unwrap_or_else(|error| panic!("{}", error.chain())));
        let mut passes = passes::for_setup(&passes::Setup { recipe, calibration, store });
        passes.extend(qnn::decompositions());
        passes.push(Box::new(FitBlockScales));
        let passes = PassManager::new(passes).unwrap();
        specs.iter().map(|spec| graph(&stories, spec, &passes)).collect()
    }

    fn program(&self, specs: &[MethodSpec]) -> Program {
        let graphs = self.graphs(specs);
        let options = QnnOptions {
            library: library(&self.sdk),
            compiler: CompilerOptions::new(Soc::named("SM8650").unwrap()),
            shards: self.shards,
            share_spill_fill: false,
            store: Arc::new(CodeStore::in_memory()),
        };
        let mut assets = Assets::default();
        let plans = qnn::lower(&graphs, &options, &mut assets).unwrap_or_else(|error| panic!("{}", error.chain()));
        let methods: Vec<_> = specs.iter().zip(&graphs).collect();
        emit::assemble(assets, plans, emit::static_metadata(stories().config(), &methods))
    }

    /// `kv_forward` and `prefill_forward` in a file.
    fn save(&self) -> (TempDir, PathBuf) {
        let tokens = if self.embedding.is_some() { DType::I64 } else { DType::I32 };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.pte");
        let program = self.program(&hybrid(self.layout, tokens));
        program.save(&path).unwrap_or_else(|error| panic!("{}", error.chain()));
        (dir, path)
    }
}

fn graph(stories: &Checkpoint, spec: &MethodSpec, passes: &PassManager) -> Graph {
    let graph = model::build(stories.config(), stories, spec);
    let mut graph = graph.unwrap_or_else(|error| panic!("{}", error.chain()));
    passes.run(&mut graph, None, &mut |_, _| Ok(())).unwrap_or_else(|error| panic!("{}", error.chain()));
    graph
}

fn library(sdk: &Path) -> Arc<QnnLibrary> {
    let options = LibraryOptions { path: Some(sdk.to_path_buf()), ..LibraryOptions::default() };
    QnnLibrary::load(&options).unwrap()
}

/// The recorded greedy run of the float weights, and how many ids of it are the prompt's.
fn recorded() -> (Vec<i64>, usize) {
    let golden = golden(&common::shared(), "portable_s260k_fp32_kv");
    (ids(&golden, "ids_prefill"), ids(&golden, "prompt").len())
}

/// What ranges and weights are found with.
fn text() -> Vec<u64> {
    recorded().0.iter().map(|&id| id as u64).collect()
}

/// The float graph of a method that takes all of [`text`] at once.
fn whole_context(stories: &Checkpoint, layout: KvLayout) -> Graph {
    let tokens = text().len();
    let (name, dtype) = ("calibrate".into(), DType::I32);
    let spec = MethodSpec::Static { name, ar: tokens, context: tokens, layout, tokens: dtype };
    graph(stories, &spec, &PassManager::new(qnn::decompositions()).unwrap())
}

/// A token, and the FNV-1a of the row of logits that it comes from.
type Step = (i64, u64);

/// What the runner generates with the library of `sdk`.
fn generate(path: &Path, mode: EvalMode, (sdk, layout): (&Path, KvLayout)) -> Vec<Step> {
    let (want, prompt) = recorded();
    let prompt: Vec<TokenId> = want[..prompt].iter().map(|&id| id as TokenId).collect();
    let options = ProgramOptions { qnn_lib_dir: Some(sdk.to_path_buf()), ..ProgramOptions::default() };
    let module = open_program(path, &options).unwrap_or_else(|error| panic!("{}", error.chain()));
    let tokenizer = tokenizer::load(&common::model("tok512.model")).unwrap();
    let kv_updater = if layout == KvLayout::PerHead { KvUpdater::ShiftPointer } else { KvUpdater::SmartMask };
    let options = RunnerOptions { eval_mode: Some(mode), kv_updater, ..Default::default() };
    let mut runner = Runner::load(module, tokenizer, options).unwrap_or_else(|error| panic!("{}", error.chain()));
    let config = GenerationConfig { max_decode_steps: Some(STEPS - 1), ..Default::default() };
    let mut steps = Vec::new();
    let turn = runner.generate(Prompt::Tokens(&prompt), &config, &mut |event| {
        steps.push((event.token as i64, event.logits.fnv1a64()));
        ControlFlow::Continue(())
    });
    turn.unwrap_or_else(|error| panic!("{}", error.chain()));
    steps
}

/// Exports, runs both modes, which must agree bit for bit, and gives their steps.
fn run(export: &Export) -> Vec<Step> {
    let (_dir, path) = export.save();
    let [kv, hybrid] = [EvalMode::Kv, EvalMode::Hybrid].map(|mode| generate(&path, mode, (&export.sdk, export.layout)));
    assert_eq!(kv, hybrid, "{export:?}");
    kv
}

/// As [`run`], and the tokens must be those of the float weights.
fn check(export: &Export) -> Vec<Step> {
    let (want, prompt) = recorded();
    let steps = run(export);
    let tokens: Vec<i64> = steps.iter().map(|&(token, _)| token).collect();
    assert_eq!(tokens, want[prompt..][..STEPS], "{export:?}");
    steps
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn programs_in_two_shards_compute_what_whole_ones_do() {
    let whole = check(&Export::new("16a4w"));
    assert_eq!(check(&Export { shards: 2, ..Export::new("16a4w") }), whole);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn keys_and_values_of_16_bits_give_the_float_tokens() {
    check(&Export { kv_bits: 16, ..Export::new("16a4w") });
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn a_cache_for_each_head_gives_the_float_tokens() {
    check(&Export { layout: KvLayout::PerHead, ..Export::new("16a4w") });
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn an_embedding_on_the_cpu_gives_the_float_tokens() {
    check(&Export { embedding: Some(4), ..Export::new("16a4w") });
    check(&Export { embedding: Some(8), ..Export::new("16a4w") });
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn weights_of_8_bits_give_the_float_tokens() {
    check(&Export::new("16a8w"));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn activations_of_8_bits_run_alike_in_both_modes() {
    run(&Export::new("8a8w"));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn_sdks)), ignore = "needs LLR_QNN_SDK_DIRS: libQnnHtp.so of several SDKs")]
fn a_program_runs_on_its_own_sdk_and_on_every_newer_one() {
    let (want, prompt) = recorded();
    let mut sdks = common::qnn_sdk_dirs();
    sdks.sort_by_key(|dir| library(dir).info().core);
    let composes = |sdk: &Path| ["v2.47", "v2.49"].iter().any(|id| library(sdk).info().build_id.starts_with(id));
    for (index, sdk) in sdks.iter().enumerate().filter(|(_, sdk)| composes(sdk)) {
        let (_dir, path) = Export { sdk: sdk.clone(), ..Export::new("16a4w") }.save();
        for newer in &sdks[index..] {
            let tokens = generate(&path, EvalMode::Hybrid, (newer, KvLayout::PerLayer)).into_iter().map(|step| step.0);
            assert!(tokens.eq(want[prompt..][..STEPS].iter().copied()), "{} on {}", sdk.display(), newer.display());
        }
    }
}

/// ExecuTorch's backend of today works with the libraries of SDK 2.49.40 only.
#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[cfg_attr(
    all(have_shared, have_qnn, not(have_executorch)),
    ignore = "needs LLR_EXECUTORCH_DIR: ExecuTorch's headers and libraries"
)]
fn executorch_runs_what_is_exported() {
    let dirs = common::qnn_lib_dir().into_iter().chain(common::qnn_sdk_dirs());
    let sdk = dirs.into_iter().find(|dir| library(dir).info().build_id.starts_with("v2.49")).expect("SDK 2.49.40");
    let (want, prompt) = recorded();
    let folder = TempDir::new().unwrap();
    let host = executorch::Host::compile(folder.path(), &["qnn"], Some(sdk.clone()));
    let whole = Export { sdk: sdk.clone(), ..Export::new("16a4w") };
    for export in [whole.clone(), Export { embedding: Some(4), shards: 2, ..whole }] {
        let (_dir, path) = export.save();
        let ours = generate(&path, EvalMode::Hybrid, (&sdk, export.layout)).into_iter().map(|(token, _)| token);
        let all: Vec<i64> = want[..prompt].iter().copied().chain(ours).collect();
        assert_eq!(host.run(&path, &want[..prompt], STEPS), all, "{export:?}");
    }
}
