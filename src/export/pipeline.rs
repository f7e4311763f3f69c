//! The way of one export from its options to the files and the report.

use super::checkpoint::{Checkpoint, Format, Source};
use super::clock::Clock;
use super::folder::Folder;
use super::lower::qnn::QnnOptions;
use super::lower::{self, Assets};
use super::options::{self, Backend, Mode, Options};
use super::progress::{Progress, Stage};
use super::quantize::passes::Setup;
use super::quantize::{Calibration, CodeStore, Keep, compare_static, quantize_layerwise};
use super::report::{Layer, Perplexity, Report, facts};
use super::resources::{self, Have, Need, Work};
use super::schedule;
use super::scratch::Scratch;
use super::{MethodSpec, continuation, emit, model, tokens};
use crate::base::storage::Blob;
use crate::error::{Context, Result};
use crate::graph::Graph;
use crate::passes::PassManager;
use crate::pte::ExecutionPlan;
use crate::qnn::compiler::CompilerOptions;
use crate::qnn::{LibraryOptions, QnnLibrary, Soc};
use crate::tensor::DType;
use crate::tokenizer::{TokenId, Tokenizer};
use std::path::Path;
use std::sync::Arc;

/// Most tokens that calibration reads at once: its reference interpreter keeps a mask and scores of that size squared.
const MAX_WINDOW: usize = 128;

/// Most tokens of calibration altogether.
const MAX_TOKENS: usize = 2048;

/// Most tokens that weights are quantized against; more hardly change them.
pub(super) const MAX_WEIGHT_TOKENS: usize = 1024;

/// Constants up to this many bytes stay in memory.
const SMALL: usize = 4096;

/// The names of the passes that an export of this model runs, in their order.
///
/// # Errors
/// [`PassError`](crate::passes::PassError) for a pass that does not exist, or that another one cannot do without; those
/// of opening the checkpoint.
pub fn passes(options: &Options) -> Result<Vec<&'static str>> {
    options.check()?;
    let checkpoint = open(options, None)?;
    let setup = Setup {
        recipe: schedule::recipe(options, checkpoint.config())?,
        calibration: Arc::default(),
        store: Arc::new(CodeStore::in_memory()),
    };
    Ok(schedule::all(options, &setup)?.names())
}

/// Exports. Nothing is left behind that is not whole.
///
/// # Errors
/// [`OptionsError`](super::options::OptionsError) for choices that do not go together;
/// [`ResourceError`](super::resources::ResourceError) where the machine is too small; those of the checkpoint, the
/// tokenizer, the calibration, the passes and the lowering; `AccessFailed` when a file cannot be written.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report> {
    options.check()?;
    let folder = Folder::of(&options.output)?;
    let report = export(options, &folder.path, progress)?;
    if report.output.is_some() {
        folder.keep();
    }
    Ok(report)
}

fn export(options: &Options, folder: &Path, progress: &mut dyn Progress) -> Result<Report> {
    let mut clock = Clock::new(progress);
    let mut report = Report::default();

    clock.begin(Stage::Open, 0);
    let checkpoint = open(options, Some(folder))?;
    let config = checkpoint.config();
    let tokenizer = tokens::Found::of(options, &checkpoint)?;
    tokens::check_questions(options, config, tokenizer.as_ref())?;
    report.tokenizer = tokenizer.as_ref().map(|found| found.path.clone());
    let mut setup = Setup {
        recipe: schedule::recipe(options, config)?,
        calibration: Arc::default(),
        store: Arc::new(CodeStore::new(keep(Scratch::new(folder)?))),
    };
    report.facts = facts::head(options, &checkpoint, &setup.recipe);
    report.passes = schedule::all(options, &setup)?.names();

    let has_text = tokenizer.is_some() || matches!(options.calibration, options::Calibration::TokenFile(_));
    let need = schedule::Need::of(options, &setup.recipe, has_text);
    let compares = options.compare && has_text && options.passes.stop_after.is_none();
    let work = Work {
        options,
        config,
        recipe: &setup.recipe,
        totals: checkpoint.totals(),
        widened: checkpoint.format() == Format::Gguf,
        tokens: tokenizer.as_ref().map_or(0, |found| found.tokenizer.vocab_size()),
        feedback: need.moments,
        text: need != schedule::Need::NOTHING || compares,
    };
    Have::at(folder).check(Need::of(&work), folder)?;
    let library = library(options)?;
    let calibrated = need != schedule::Need::NOTHING || compares;
    if calibrated {
        let tokenizer = tokenizer.as_ref().map(|found| &*found.tokenizer);
        let (graph, text) = for_calibration(options, &checkpoint, tokenizer, &mut clock)?;
        if need.ranges {
            let heard = &mut counted(&mut clock, Stage::Calibrate);
            setup.calibration = Arc::new(Calibration::run(&graph, &text.of_ranges, heard)?);
        }
        if need.moments {
            let heard = &mut counted(&mut clock, Stage::Quantize);
            quantize_layerwise(graph.clone(), &text.of_weights, &setup.recipe, &setup.store, heard)?;
        }
        if compares {
            clock.begin(Stage::Compare, 0);
            let mut quantized = graph.clone();
            schedule::all(options, &setup)?.run(&mut quantized, None, &mut |_, _| Ok(()))?;
            compare(&graph, &quantized, &text.of_ranges, &mut report)?;
        }
    }
    let specs = options.methods();
    clock.begin(Stage::Build, specs.len());
    let mut graphs = Vec::with_capacity(specs.len());
    for spec in &specs {
        let graph = model::build(config, &checkpoint, spec)?;
        if graphs.is_empty() && !calibrated {
            model::check_finite(&graph)?;
        }
        graphs.push(graph);
        clock.step();
    }
    rewrite(&schedule::all(options, &setup)?, options, &mut graphs, &mut clock)?;
    if options.passes.stop_after.is_some() {
        report.timings = clock.stop();
        return Ok(report);
    }

    // The library composes a context without telling how far it is.
    clock.begin(Stage::Lower, if options.backend == Backend::Qnn { 0 } else { graphs.len() });
    let (assets, plans) = lower(options, (&graphs, library), &setup.store, &mut clock)?;
    report.methods = facts::methods(&graphs, &plans);
    let metadata = match options.mode {
        Mode::Dynamic => emit::dynamic_metadata(config, &specs[0]),
        _ => emit::static_metadata(config, &specs.iter().zip(&graphs).collect::<Vec<_>>()),
    };
    drop(graphs);

    clock.begin(Stage::Save, 0);
    let program = emit::assemble(assets, plans, metadata);
    if let Some(found) = &tokenizer {
        report.beside = found.save()?;
    }
    program.save(&options.output).inspect_err(|_| {
        // A tokenizer without its program is of no use; one that cannot be removed does no harm.
        report.beside.iter().for_each(|path| _ = std::fs::remove_file(path));
    })?;
    report.output = Some(facts::file(&options.output, &program)?);
    report.peak_memory = resources::peak_memory();
    report.timings = clock.stop();
    Ok(report)
}

/// Takes large constants to the temporary file.
fn keep(scratch: Scratch) -> Keep {
    Box::new(move |bytes| match bytes.len() {
        0..=SMALL => Ok(Blob::from_vec(bytes)),
        _ => scratch.append(&bytes),
    })
}

fn open(options: &Options, scratch: Option<&Path>) -> Result<Checkpoint> {
    let (checkpoint, params) = (options.checkpoint.clone(), options.params.clone());
    let checkpoint = Checkpoint::open(&Source { checkpoint, params, scratch: scratch.map(Path::to_owned) })?;
    options.check_model(checkpoint.config())?;
    Ok(checkpoint)
}

/// What a model is calibrated on, a window or more.
struct Text {
    /// The interpreter reads it, for ranges and for the report.
    of_ranges: Vec<TokenId>,
    /// The engine reads it, for weights.
    of_weights: Vec<TokenId>,
}

/// A float graph that reads a window of tokens, and the tokens to calibrate on.
fn for_calibration(
    options: &Options,
    checkpoint: &Checkpoint,
    tokenizer: Option<&dyn Tokenizer>,
    progress: &mut dyn Progress,
) -> Result<(Graph, Text)> {
    progress.begin(Stage::Calibrate, 0);
    let config = checkpoint.config();
    // Not the context of the program, which has no say in what a model's weights and ranges are.
    let window = config.max_positions.unwrap_or(MAX_WINDOW).min(MAX_WINDOW);
    let mut texts = tokens::calibration(options, tokenizer)?;
    let mut of_ranges = MAX_TOKENS;
    if matches!(options.calibration, options::Calibration::Prompts(_)) {
        if checkpoint.totals().parameters <= continuation::MAX_PARAMETERS {
            for text in &mut texts {
                *text = continuation::extend((config, checkpoint), std::mem::take(text), window)?;
            }
        } else {
            texts.push(tokens::prose(tokenizer)?);
            of_ranges = window;
        }
    }
    let text = texts.concat();
    let first = |count: usize| text[..count.min(text.len())].to_vec();
    let text = Text { of_ranges: first(of_ranges), of_weights: first(MAX_WEIGHT_TOKENS) };
    let window = window.min(text.of_ranges.len());
    let spec = MethodSpec::Static {
        name: "calibration".into(),
        ar: window,
        context: window,
        layout: options.kv_layout,
        tokens: DType::I64,
    };
    let mut graph = model::build(config, checkpoint, &spec)?;
    model::check_finite(&graph)?;
    schedule::float(options)?.run(&mut graph, None, &mut |_, _| Ok(()))?;
    Ok((graph, text))
}

/// The noise of each layer and both perplexities, for the report; a float model has nothing to compare.
fn compare(float: &Graph, quantized: &Graph, text: &[TokenId], report: &mut Report) -> Result<()> {
    let (layers, found) = compare_static(float, quantized, text)?;
    report.layers = layers.into_iter().map(|layer| Layer { name: layer.name, sqnr_db: layer.sqnr }).collect();
    report.perplexity = Some(Perplexity { float: found.float, quantized: found.quantized, tokens: found.tokens });
    Ok(())
}

/// Tells `progress` of a stage that counts by itself.
fn counted(progress: &mut dyn Progress, stage: Stage) -> impl FnMut(usize, usize) -> Result<()> {
    move |done, all| {
        match done {
            0 => progress.begin(stage, all),
            _ => progress.step(),
        }
        Ok(())
    }
}

/// Runs the passes on every graph and shows each where that was asked for.
fn rewrite(passes: &PassManager, options: &Options, graphs: &mut [Graph], progress: &mut dyn Progress) -> Result<()> {
    let choices = &options.passes;
    progress.begin(Stage::Rewrite, graphs.len() * passes.names().len());
    for graph in graphs {
        passes.run(graph, choices.stop_after.as_deref(), &mut |pass, graph| {
            progress.step();
            if choices.dump_after.iter().chain(&choices.stop_after).any(|name| name == pass) {
                progress.graph(pass, graph);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Qualcomm's library, where it will be needed: that it is not there is to be known before the work.
fn library(options: &Options) -> Result<Option<Arc<QnnLibrary>>> {
    if options.backend != Backend::Qnn || options.passes.stop_after.is_some() {
        return Ok(None);
    }
    let place = LibraryOptions { path: options.qnn.lib_dir.clone(), ..LibraryOptions::default() };
    Ok(Some(QnnLibrary::load(&place)?))
}

/// The graphs as methods, by way of the library where there is one; what is large goes where `store` keeps its bytes.
fn lower(
    options: &Options,
    (graphs, library): (&[Graph], Option<Arc<QnnLibrary>>),
    store: &Arc<CodeStore>,
    progress: &mut dyn Progress,
) -> Result<(Assets, Vec<ExecutionPlan>)> {
    let mut assets = Assets::new(Arc::clone(store));
    if let Some(library) = library {
        let target = &options.qnn;
        let mut compiler = CompilerOptions::new(Soc::named(&target.soc_model)?);
        compiler.weight_sharing = target.weight_sharing;
        let qnn = QnnOptions {
            library,
            compiler,
            shards: target.num_sharding,
            share_spill_fill: target.num_sharding > 1,
            store: Arc::clone(store),
        };
        let plans = lower::qnn::lower(graphs, &qnn, &mut assets)?;
        return Ok((assets, plans));
    }
    let mut plans = Vec::with_capacity(graphs.len());
    for graph in graphs {
        let plan = match options.backend {
            Backend::Xnnpack => lower::xnnpack::lower(graph, &mut assets),
            _ => lower::portable::lower(graph, &mut assets),
        };
        plans.push(plan.with_context(|| format!("method {}", graph.name))?);
        progress.step();
    }
    Ok((assets, plans))
}
