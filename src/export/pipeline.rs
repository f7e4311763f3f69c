//! The way of one export from its options to the files and the report.

use super::checkpoint::{Checkpoint, Format, Source};
use super::clock::Clock;
use super::lower::{self, Assets};
use super::options::{Backend, Choice, Mode, Options};
use super::progress::{Progress, Stage};
use super::recipe::Recipe;
use super::report::{Method, Report, Written};
use super::resources::{self, Have, Need};
use super::tokens;
use super::{MethodSpec, model};
use crate::error::{Context, Error, Result, Status};
use crate::graph::Graph;
use crate::pte::{ExecutionPlan, Program};
use std::path::{Path, PathBuf};

/// The names of the passes that an export with these options runs, in their order.
///
/// # Errors
/// [`PassError`](crate::passes::PassError) for a pass that does not exist, or that another one cannot do without.
pub fn passes(options: &Options) -> Result<Vec<&'static str>> {
    Ok(Recipe::of(options)?.names())
}

/// Exports. Nothing is left behind that is not whole.
///
/// # Errors
/// [`OptionsError`](super::options::OptionsError) for choices that do not go together;
/// [`ResourceError`](super::resources::ResourceError) where the machine is too small; those of the checkpoint, the
/// tokenizer, the calibration, the passes and the lowering; `AccessFailed` when a file cannot be written.
pub fn run(options: &Options, progress: &mut dyn Progress) -> Result<Report> {
    options.check()?;
    let recipe = Recipe::of(options)?;
    let mut clock = Clock::new(progress);
    let mut report = Report::default();

    clock.begin(Stage::Open, 0);
    let folder = folder(&options.output)?;
    let checkpoint = Checkpoint::open(&Source {
        checkpoint: options.checkpoint.clone(),
        params: options.params.clone(),
        scratch: Some(folder.clone()),
    })?;
    options.check_model(checkpoint.config())?;
    let tokenizer = tokens::Found::of(options, &checkpoint)?;
    let widened = if checkpoint.format() == Format::Gguf { 4 * checkpoint.totals().parameters } else { 0 };
    Have::at(&folder).check(Need::of(options, checkpoint.config(), widened), &folder)?;
    report.facts = facts(options, &checkpoint);
    report.tokenizer = tokenizer.as_ref().map(|found| found.path.clone());

    let specs = options.methods();
    clock.begin(Stage::Build, specs.len());
    let mut graphs = Vec::with_capacity(specs.len());
    for spec in &specs {
        graphs.push(model::build(checkpoint.config(), &checkpoint, spec)?);
        clock.step();
    }
    report.passes = recipe.names();
    rewrite(&recipe, options, &mut graphs, &mut clock)?;
    if options.passes.stop_after.is_some() {
        report.timings = clock.stop();
        return Ok(report);
    }

    clock.begin(Stage::Lower, graphs.len());
    let mut assets = Assets::default();
    let mut plans = Vec::with_capacity(graphs.len());
    for graph in &graphs {
        let plan = lower_one(options.backend, graph, &mut assets).with_context(|| format!("method {}", graph.name))?;
        report.methods.push(Method {
            name: graph.name.clone(),
            nodes: graph.nodes.len(),
            delegates: plan.delegates.len(),
        });
        plans.push(plan);
        clock.step();
    }
    drop(graphs);

    clock.begin(Stage::Save, 0);
    let program = assets.into_program(plans);
    program.save(&options.output)?;
    report.beside = match &tokenizer {
        Some(found) => found.save()?,
        None => Vec::new(),
    };
    report.output = Some(written(&options.output, &program)?);
    report.peak_memory = resources::peak_memory();
    report.timings = clock.stop();
    Ok(report)
}

/// The folder of the output, made where it is not there.
fn folder(output: &Path) -> Result<PathBuf> {
    let folder = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if output.is_dir() {
        return Err(Error::new(Status::InvalidArgument, format!("the output {} is a folder", output.display())));
    }
    std::fs::create_dir_all(&folder).map_err(|error| {
        Error::new(Status::AccessFailed, format!("cannot make the folder {}: {error}", folder.display()))
    })?;
    Ok(folder)
}

/// Runs the passes on every graph and shows each where that was asked for.
fn rewrite(recipe: &Recipe, options: &Options, graphs: &mut [Graph], progress: &mut dyn Progress) -> Result<()> {
    let choices = &options.passes;
    let shown = choices.dump_after.iter().chain(&choices.stop_after);
    let shown: Vec<&str> = shown.map(String::as_str).collect();
    progress.begin(Stage::Rewrite, graphs.len() * recipe.float.names().len());
    for graph in graphs {
        recipe.float.run(graph, choices.stop_after.as_deref(), &mut |pass, graph| {
            progress.step();
            if shown.contains(&pass) {
                progress.graph(pass, graph);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn lower_one(backend: Backend, graph: &Graph, assets: &mut Assets) -> Result<ExecutionPlan> {
    match backend {
        Backend::Portable => Ok(lower::portable::lower(graph, assets)?),
        Backend::Xnnpack => Ok(lower::xnnpack::lower(graph, assets)?),
        Backend::Qnn => Err(Error::new(Status::NotSupported, "not wired")),
    }
}

/// What was written, by its parts.
fn written(path: &Path, program: &Program) -> Result<Written> {
    let bytes = std::fs::metadata(path).map(|of| of.len()).map_err(|error| {
        Error::new(Status::AccessFailed, format!("cannot look at {}: {error}", path.display()))
    })?;
    let total = |blobs: &mut dyn Iterator<Item = usize>| blobs.map(|len| len as u64).sum::<u64>();
    let delegates = program.plans.iter().flat_map(|plan| &plan.delegates);
    let mut parts = vec![
        ("constants of operators".to_owned(), total(&mut program.constants.iter().map(|blob| blob.len()))),
        ("weights of delegates".to_owned(), total(&mut program.named_data.values().map(|blob| blob.len()))),
        ("delegates".to_owned(), total(&mut delegates.map(|delegate| delegate.processed.len()))),
    ];
    let known: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    parts.push(("plans and padding".to_owned(), bytes.saturating_sub(known)));
    parts.retain(|(_, bytes)| *bytes > 0);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Ok(Written { path: path.to_owned(), bytes, parts })
}

/// The head of the report.
fn facts(options: &Options, checkpoint: &Checkpoint) -> Vec<(&'static str, String)> {
    let config = checkpoint.config();
    let totals = checkpoint.totals();
    let embedding = options.embedding.map_or("float".into(), |of| match of.group {
        0 => format!("{} bits, a scale a row", of.bits),
        group => format!("{} bits, groups of {group}", of.bits),
    });
    let methods = options.methods();
    let names: Vec<&str> = methods.iter().map(MethodSpec::name).collect();
    let mut facts = vec![
        ("Checkpoint", format!("{} ({})", options.checkpoint.display(), checkpoint.format().name())),
        (
            "Model",
            format!(
                "{}, {} layers, dim {}, {} heads over {}, vocabulary {}, {:.1} M parameters",
                config.architecture,
                config.layers,
                config.dim,
                config.heads,
                config.kv_heads,
                config.vocab,
                totals.parameters as f64 / 1e6
            ),
        ),
        ("Backend", options.backend.name().to_owned()),
        ("Mode", format!("{}: {}", options.mode.name(), names.join(", "))),
        ("Context", options.lengths.context().to_string()),
        ("Quantization", options.ptq.name().to_owned()),
        ("Embedding", embedding),
    ];
    if options.mode != Mode::Dynamic {
        facts.push(("Keys and values", format!("{} bits, {}", options.kv_bits.name(), options.kv_layout.name())));
    }
    if options.backend == Backend::Qnn {
        facts.push(("SoC", format!("{}, {} shards", options.qnn.soc_model, options.qnn.num_sharding)));
    }
    facts
}
