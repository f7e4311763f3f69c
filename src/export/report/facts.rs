//! What a report says of the model, the program and its file.

use super::{Method, Written};
use crate::base::storage::Blob;
use crate::error::{Error, Result, Status};
use crate::export::MethodSpec;
use crate::export::checkpoint::Checkpoint;
use crate::export::options::{Backend, Choice, Mode, Options};
use crate::export::quantize::{EmbeddingFormat, Recipe};
use crate::graph::Graph;
use crate::pte::{ExecutionPlan, Program};
use std::path::Path;

/// The head of the report: what was asked for, and of which model.
pub(in crate::export) fn head(
    options: &Options,
    checkpoint: &Checkpoint,
    recipe: &Recipe,
) -> Vec<(&'static str, String)> {
    let config = checkpoint.config();
    let totals = checkpoint.totals();
    let embedding = match recipe.embedding {
        EmbeddingFormat::Float => "float".into(),
        EmbeddingFormat::PerTensor(codes) => format!("{} bits, one scale", codes.bits),
        EmbeddingFormat::Blockwise { bits, block } if block == config.dim => format!("{bits} bits, a scale a row"),
        EmbeddingFormat::Blockwise { bits, block } => format!("{bits} bits, groups of {block}"),
    };
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
        facts.push(("Keys and values", format!("{} bits, {}", recipe.kv_bits, options.kv_layout.name())));
    }
    if options.backend == Backend::Qnn {
        facts.push(("SoC", format!("{}, {} shards", options.qnn.soc_model, options.qnn.num_sharding)));
    }
    facts
}

/// The methods as they are in the program.
pub(in crate::export) fn methods(graphs: &[Graph], plans: &[ExecutionPlan]) -> Vec<Method> {
    let method = |(graph, plan): (&Graph, &ExecutionPlan)| Method {
        name: graph.name.clone(),
        nodes: graph.nodes.len(),
        delegates: plan.delegates.len(),
    };
    graphs.iter().zip(plans).map(method).collect()
}

/// What was written, by its parts.
///
/// # Errors
/// `AccessFailed` when the file is gone.
pub(in crate::export) fn file(path: &Path, program: &Program) -> Result<Written> {
    let bytes = std::fs::metadata(path)
        .map(|of| of.len())
        .map_err(|error| Error::new(Status::AccessFailed, format!("cannot look at {}: {error}", path.display())))?;
    let total = |blobs: &mut dyn Iterator<Item = usize>| blobs.map(|len| len as u64).sum::<u64>();
    // Both methods of a QNN program name the same blobs, which are written once.
    let mut delegates: Vec<&Blob> = Vec::new();
    for blob in program.plans.iter().flat_map(|plan| &plan.delegates).map(|delegate| &delegate.processed) {
        if !delegates.iter().any(|other| other.same_place(blob)) {
            delegates.push(blob);
        }
    }
    // A float table that is also the head is in the file as a constant alone.
    let is_constant = |blob: &&Blob| program.constants.iter().any(|constant| constant.same_place(blob));
    let mut of_delegates = program.named_data.values().filter(|blob| !is_constant(blob)).map(|blob| blob.len());
    let mut parts = vec![
        ("constants of operators".to_owned(), total(&mut program.constants.iter().map(|blob| blob.len()))),
        ("weights of delegates".to_owned(), total(&mut of_delegates)),
        ("delegates".to_owned(), total(&mut delegates.iter().map(|blob| blob.len()))),
    ];
    let known: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    parts.push(("plans and padding".to_owned(), bytes.saturating_sub(known)));
    parts.retain(|(_, bytes)| *bytes > 0);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Ok(Written { path: path.to_owned(), bytes, parts })
}
