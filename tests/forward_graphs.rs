//! What is left of real programs when their methods are graphs and the passes have run: the fused nodes of each layer, and
//! nothing else.

mod common;
mod forward_common;

use forward_common::STORIES;
use llama_runner::engine::Resources;
use llama_runner::graph::{Graph, Op};
use llama_runner::ops::method_graph;
use llama_runner::pte::Program;
use llama_runner::runtime::{
    BackendRegistry, Compilation, Execution, MethodCompiler, MethodSource, Module, NativeModule,
};
use llama_runner::xnnpack::XnnpackBackend;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A compiler that keeps the graphs.
struct Capture(Mutex<Vec<Result<Graph, String>>>);

impl MethodCompiler for Capture {
    fn compile(&self, source: &MethodSource<'_>) -> llama_runner::Result<Compilation> {
        self.0.lock().unwrap().push(method_graph(source)?);
        Ok(Compilation::Unfit("only the graph is wanted".into()))
    }
}

/// The graph of a program's `forward`.
fn traced(path: &Path) -> Graph {
    let capture = Arc::new(Capture(Mutex::default()));
    let mut backends = BackendRegistry::default();
    backends.register(Arc::new(XnnpackBackend::new(Resources::new(None))));
    let program = Program::open(path).unwrap();
    let module = NativeModule::new(program, llama_runner::builtin::kernels(), backends).unwrap();
    let mut module = module.with_compiler(capture.clone(), Execution::Compiled);
    assert!(module.load_method("forward").is_err());
    let graph = capture.0.lock().unwrap().pop().unwrap();
    graph.unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn fused(path: &Path) -> Graph {
    let mut graph = traced(path);
    graph.verify().unwrap_or_else(|error| panic!("{error}\n{graph}"));
    llama_runner::passes::standard().run(&mut graph, None, &mut |_, _| Ok(())).unwrap();
    graph
}

/// How often each operation is there, by its name.
fn counts(graph: &Graph) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in &graph.nodes {
        let text = match &node.op {
            Op::Unary(op) => format!("{op:?}"),
            Op::Binary(op) => format!("{op:?}"),
            op => format!("{op:?}"),
        };
        let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

/// Nodes that compute nothing: the same elements in another shape.
fn is_free(name: &str) -> bool {
    name == "Reshape"
}

/// What `layers` layers and the ends of a llama come to: an embedding, the last row where only that is wanted, a norm
/// and a linear layer.
fn expected(layers: usize, linear: &[(&str, usize)], last_row: bool) -> BTreeMap<String, usize> {
    assert_eq!(linear.iter().map(|(_, count)| count).sum::<usize>(), 7 * layers + 1);
    let all = [
        ("RmsNorm", 2 * layers + 1),
        ("Rotary", 2 * layers),
        ("CacheUpdate", 2 * layers),
        ("Attention", layers),
        ("SwiGlu", layers),
        ("Add", 2 * layers),
        ("Embedding", 1),
        // Two of rotary tables.
        ("Slice", 2 + usize::from(last_row)),
    ];
    all.into_iter().chain(linear.iter().copied()).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// The layers whose 172 inputs are no whole groups of 32 stay as they were.
const QUANTIZED: &[(&str, usize)] = &[("DynamicQuantLinear", 31), ("FullyConnected", 5)];

fn check(path: &Path, expected: &BTreeMap<String, usize>) {
    let graph = fused(path);
    let mut counts = counts(&graph);
    println!("{}: {counts:?}", path.display());
    counts.retain(|name, _| !is_free(name));
    assert_eq!(counts, *expected, "{}\n{graph}", path.display());
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn programs_come_down_to_fused_nodes_with_and_without_custom_attention() {
    for (folder, name, _) in STORIES {
        if name.ends_with("q8kv") {
            continue;
        }
        let linear = if name.contains("8da4w") { QUANTIZED } else { &[("FullyConnected", 36)] };
        check(&common::model(&format!("{folder}/{name}.pte")), &expected(5, linear, !name.ends_with("fulllogits")));
    }
    let smollm2 = common::model("smollm2/smollm2_135m_8da4w_emb432_sdpa.pte");
    check(&smollm2, &expected(30, &[("DynamicQuantLinear", 211)], true));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn eight_bit_caches_come_down_to_fused_nodes() {
    let mut expected = expected(5, QUANTIZED, true);
    expected.remove("Attention");
    // Codes, scales and zero points of keys and of values.
    expected.extend([
        ("QuantizedAttention".into(), 5),
        ("CacheUpdate".into(), 6 * 5),
        ("QuantizePerToken".into(), 3 * 5),
    ]);
    let path = common::model("xnnpack/xnn_s260k_8da4w_emb432_kv_sdpa_q8kv.pte");
    let graph = fused(&path);
    let mut counts = counts(&graph);
    println!("{counts:?}");
    counts.retain(|name, _| !is_free(name) && name != "Convert");
    assert_eq!(counts, expected, "{graph}");
}
