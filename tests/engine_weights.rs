//! Weights are packed once for all who use them, and their pages leave memory.

mod engine_common;

use engine_common::llama::{SMALL, Sizes, llama, mapped, prompt};
use engine_common::{Builder, pools};
use llama_runner::engine::{CompileOptions, Compiled, InputView, Instance, WeightCache};
use llama_runner::graph::{Graph, Int, Op};
use llama_runner::kernels::KernelSet;
use llama_runner::tensor::DType;
use std::sync::Arc;

fn compile(graph: &Graph, weights: &WeightCache) -> Instance {
    let pool = Arc::clone(&pools()[1]);
    Instance::new(Compiled::new(graph.clone(), KernelSet::best(), pool, weights, &CompileOptions::default()).unwrap())
        .unwrap()
}

fn logits(instance: &mut Instance) -> Vec<u8> {
    let inputs = prompt(&[3, 1, 4, 1, 5], 0);
    instance.run(&inputs.each_ref().map(|(dims, bytes)| InputView { dims, bytes })).unwrap();
    instance.output(0).unwrap().bytes.to_vec()
}

#[test]
fn tied_heads_and_other_programs_share_weights() {
    let weights = WeightCache::new();
    assert!(weights.is_empty());
    let mut b = Builder::new("tied", 1);
    let tokens = b.tokens(0, 0);
    let x = b.input(DType::F32, &[tokens, 32usize.into()]);
    let w = b.blockwise([32, 32], 32);
    let again = b.graph.value(w).clone();
    b.graph.values.push(again);
    let again = llama_runner::graph::ValueId(b.graph.values.len() as u32 - 1);
    let y = b.emit(Op::DynamicQuantLinear, &[x, w], DType::F32, &[tokens, Int::from(32usize)]);
    let z = b.emit(Op::DynamicQuantLinear, &[y, again], DType::F32, &[tokens, Int::from(32usize)]);
    b.output(z);
    let first = compile(&b.graph, &weights);
    assert_eq!(weights.len(), 1);
    let size = weights.size_bytes();
    assert!(size >= 32 * 16, "{size}");
    let second = compile(&b.graph, &weights);
    assert_eq!((weights.len(), weights.size_bytes()), (1, size));
    drop((first, second));
    // The same layer on plain reals needs another form.
    b.graph.nodes[0].op = Op::FullyConnected;
    compile(&b.graph, &weights);
    assert_eq!(weights.len(), 2);
    // Other bytes of the same shape are other weights.
    let mut other = Builder::new("other", 2);
    let tokens = other.tokens(0, 0);
    let x = other.input(DType::F32, &[tokens, 32usize.into()]);
    let w = other.blockwise([32, 32], 32);
    let y = other.emit(Op::DynamicQuantLinear, &[x, w], DType::F32, &[tokens, Int::from(32usize)]);
    other.output(y);
    compile(&other.graph, &weights);
    assert_eq!(weights.len(), 3);
}

#[test]
fn a_mapped_file_gives_what_owned_bytes_give_also_again() {
    let dir = tempfile::tempdir().unwrap();
    let owned = llama(SMALL, true).graph;
    let expected = logits(&mut compile(&owned, &WeightCache::default()));
    let graph = mapped(&owned, &dir.path().join("weights.bin"));
    let weights = WeightCache::new();
    assert_eq!(logits(&mut compile(&graph, &weights)), expected);
    let packed = weights.len();
    assert_eq!(logits(&mut compile(&graph, &weights)), expected);
    assert_eq!(weights.len(), packed);
    // Released pages come back for those who pack anew.
    assert_eq!(logits(&mut compile(&graph, &WeightCache::default())), expected);
}

/// Resident memory of this process, in bytes: all of it, and what no file holds.
#[cfg(target_os = "linux")]
fn resident() -> [usize; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    ["VmRSS", "RssAnon"].map(|name| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    })
}

#[test]
#[cfg(target_os = "linux")]
fn packed_weights_take_the_place_of_the_file_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let sizes =
        Sizes { layers: 4, dim: 512, heads: 8, kv_heads: 8, hidden: 4096, vocabulary: 8192, context: 4096, ..SMALL };
    let path = dir.path().join("weights.bin");
    let graph = mapped(&llama(sizes, true).graph, &path);
    let file = std::fs::metadata(&path).unwrap().len() as usize;
    let states: usize = 2 * 4 * 4096 * 512 * 4;
    assert!(states > file && file > 24 << 20, "{states} {file}");
    let [before, _] = resident();
    let weights = WeightCache::new();
    let mut instance = compile(&graph, &weights);
    let [compiled, anonymous] = resident();
    let most = weights.size_bytes() + (4 << 20);
    assert!(compiled < before + most, "{} more bytes, {} of them packed", compiled - before, weights.size_bytes());
    logits(&mut instance);
    // Caches were hardly written, and so take hardly any memory.
    let [_, run] = resident();
    assert!(run < anonymous + (4 << 20), "{} more bytes", run - anonymous);
}
