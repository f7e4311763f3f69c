//! QNN delegates: each part of a graph is one graph of a context that it shares with the same part of the program's
//! other methods. The CPU looks up tokens in a table that is quantized by blocks; everything else is the HTP's.

use super::{Assets, Part, lower as lower_parts};
use crate::base::fnv::fnv1a64;
use crate::base::storage::Blob;
use crate::error::{Context, Error, Result, Status};
use crate::export::quantize::CodeStore;
use crate::export::shard::{self, Piece};
use crate::graph::{Graph, Node, Op, Quantization};
use crate::passes::{DecomposeRotary, DecomposeSwiGlu, Pass};
use crate::pte::{BackendDelegate, CompileSpec, ExecutionPlan};
use crate::qnn::compiler::{self, CompilerOptions};
use crate::qnn::{COMPILE_SPEC_KEY, CompileOptions, DelegateBlob, HtpOptions, QnnLibrary};
use std::sync::Arc;

/// How methods become delegates.
pub struct QnnOptions {
    /// What composes them.
    pub library: Arc<QnnLibrary>,
    /// Target and options of the composition.
    pub compiler: CompilerOptions,
    /// Contexts that the layers are spread over, at least 1.
    pub shards: usize,
    /// Whether the contexts share one buffer for what does not fit on the chip.
    pub share_spill_fill: bool,
    /// Where the finished blobs stay.
    pub store: Arc<CodeStore>,
}

/// `BackendType` of HTP in the compile spec.
const HTP_BACKEND: u32 = 2;
/// Performance mode of the device while it runs.
const BURST: u32 = 2;

/// The passes that a graph needs before it is annotated, so that every step in between has an encoding.
pub fn decompositions() -> Vec<Box<dyn Pass>> {
    vec![Box::new(DecomposeRotary), Box::new(DecomposeSwiGlu)]
}

/// Gives blockwise weights scales that the HTP has: [`compiler::fit_block_scales`] as a pass.
pub struct FitBlockScales;

impl Pass for FitBlockScales {
    fn name(&self) -> &'static str {
        "fit-block-scales"
    }

    fn after(&self) -> &'static [&'static str] {
        &["quantize-linear"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        compiler::fit_block_scales(graph)
    }
}

/// The methods of `graphs`, which are quantized and of one model: their parts share contexts.
///
/// # Errors
/// Those of [`compiler::compile`] and [`super::lower`]; graphs that are cut into different numbers of parts.
pub fn lower(graphs: &[Graph], options: &QnnOptions, assets: &mut Assets) -> Result<Vec<ExecutionPlan>> {
    let pieces: Vec<Vec<Piece>> =
        graphs.iter().map(|graph| shard::cut(graph, options.shards, |node| !is_for_cpu(graph, node))).collect();
    let count = pieces.first().map_or(0, Vec::len);
    if let Some(index) = pieces.iter().position(|pieces| pieces.len() != count) {
        let (have, name) = (pieces[index].len(), &graphs[index].name);
        let message = format!("{name} has {have} shards, {} has {count}", graphs[0].name);
        return Err(Error::new(Status::InvalidArgument, message));
    }
    let contexts = (0..count).map(|shard| {
        let parts: Vec<Graph> = graphs.iter().zip(&pieces).map(|(graph, pieces)| pieces[shard].graph(graph)).collect();
        context(&parts, options).with_context(|| format!("shard {shard} of {count}"))
    });
    let contexts = contexts.collect::<Result<Vec<SharedContext>>>()?;
    let spec = CompileSpec { key: COMPILE_SPEC_KEY.to_owned(), value: compile_spec(&contexts, options) };
    let plan = |(graph, pieces): (&Graph, Vec<Piece>)| {
        let for_cpu = graph.nodes.iter().enumerate().filter(|(_, node)| is_for_cpu(graph, node));
        let mut parts: Vec<Part> = for_cpu.map(|(id, _)| Part::Node(id)).collect();
        parts.extend(pieces.into_iter().zip(&contexts).map(|(piece, context)| Part::Delegate {
            delegate: BackendDelegate {
                id: "QnnBackend".to_owned(),
                processed: context.blob.clone(),
                compile_specs: vec![spec.clone()],
            },
            inputs: piece.inputs,
            outputs: piece.outputs,
        }));
        Ok(lower_parts(graph, parts, assets)?)
    };
    graphs.iter().zip(pieces).map(plan).collect()
}

/// True for look-ups in tables that are quantized by blocks.
fn is_for_cpu(graph: &Graph, node: &Node) -> bool {
    let by_blocks =
        |node: &Node| matches!(graph.value(node.inputs[0]).quantization, Some(Quantization::Blockwise { .. }));
    node.op == Op::Embedding && by_blocks(node)
}

/// One part of every method.
struct SharedContext {
    blob: Blob,
    spill_fill: u64,
}

fn context(parts: &[Graph], options: &QnnOptions) -> Result<SharedContext> {
    let binary = compiler::compile(&options.library, parts, &options.compiler)?;
    let spill_fill =
        if options.share_spill_fill { crate::qnn::spill_fill_bytes(&options.library, &binary)? } else { 0 };
    let signature = fnv1a64(&binary).cast_signed();
    let blob = DelegateBlob::encode(signature, &binary);
    drop(binary);
    Ok(SharedContext { blob: options.store.keep(blob)?, spill_fill })
}

fn compile_spec(contexts: &[SharedContext], options: &QnnOptions) -> Vec<u8> {
    let compiler = &options.compiler;
    let largest = contexts.iter().map(|context| context.spill_fill).max().unwrap_or(0);
    let htp = HtpOptions {
        max_spill_fill: u32::try_from(largest).unwrap_or(0),
        performance_mode: BURST,
        use_multi_contexts: options.share_spill_fill && contexts.len() > 1,
        use_weight_sharing: compiler.weight_sharing,
        ..HtpOptions::default()
    };
    let spec = CompileOptions {
        soc_model: Some(compiler.soc.model),
        htp_arch: Some(compiler.soc.htp_arch),
        vtcm_mb: Some(compiler.vtcm_mb()),
        backend_type: Some(HTP_BACKEND),
        htp: Some(htp),
        log_level: Some(1),
        online_prepare: Some(false),
        shared_buffer: Some(false),
        from_context_binary: Some(false),
        use_mha2sha: Some(false),
        graph_names: Vec::new(),
    };
    spec.encode()
}
