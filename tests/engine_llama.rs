//! A small llama, fused and in plain operators: equal to the interpreter, the same bits however the prompt is cut and
//! whatever the number of threads.

mod engine_common;

use engine_common::llama::{SMALL, Sizes, llama, prompt};
use engine_common::{check, pools};
use llama_runner::engine::{EngineError, InputView, Instance, Scratch};
use llama_runner::graph::{Graph, Op, StateId};
use llama_runner::passes;

fn optimized(mut graph: Graph) -> Graph {
    passes::standard().run(&mut graph, None, &mut |_, _| Ok(())).unwrap();
    graph
}

fn feed(instance: &mut Instance, ids: &[i64], position: usize) -> Result<Vec<Vec<u8>>, EngineError> {
    let inputs = prompt(ids, position as i64);
    instance.run(&inputs.each_ref().map(|(dims, bytes)| InputView { dims, bytes }))?;
    let logits = instance.output(0).unwrap();
    let row = logits.bytes.len() / ids.len();
    Ok(logits.bytes.chunks_exact(row).map(<[u8]>::to_vec).collect())
}

/// Logits of every token, and the caches at the end, with the prompt cut into parts of these lengths.
fn cut(graph: &Graph, threads: usize, ids: &[i64], parts: &[usize]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut instance = engine_common::compile(graph, &pools()[threads - 1]).unwrap();
    let mut logits = Vec::new();
    for &part in parts {
        let position = logits.len();
        logits.extend(feed(&mut instance, &ids[position..position + part], position).unwrap());
    }
    assert_eq!(logits.len(), ids.len());
    let states = (0..graph.states.len()).map(|i| instance.state(StateId(i as u32)).unwrap().to_vec()).collect();
    (logits, states)
}

#[test]
fn equals_the_interpreter_step_by_step_and_in_parts() {
    for fused in [true, false] {
        let mut builder = llama(SMALL, fused);
        let runs: Vec<_> = [(5, 0), (1, 5), (1, 6), (24, 7), (1, 39)].map(|(t, p)| builder.inputs(t, p)).into();
        check(&format!("fused: {fused}"), &builder.graph, &runs, 2e-3);
        check(&format!("fused: {fused}, passes"), &optimized(builder.graph), &runs, 2e-3);
    }
}

#[test]
fn the_prompt_may_be_cut_anywhere_with_any_number_of_threads() {
    let ids: Vec<i64> = (0..24).map(|i| (i * 7 + 3) % 50).collect();
    let plain = llama(SMALL, false).graph;
    for graph in [llama(SMALL, true).graph, optimized(plain.clone()), plain] {
        let whole = cut(&graph, 1, &ids, &[24]);
        for threads in [1, 2] {
            for parts in [&[1; 24][..], &[24], &[5, 1, 17, 1], &[12, 12]] {
                assert!(cut(&graph, threads, &ids, parts) == whole, "{threads} threads, {parts:?}");
            }
        }
    }
}

#[test]
fn passes_leave_few_steps() {
    let graph = optimized(llama(SMALL, false).graph);
    let attentions = graph.nodes.iter().filter(|node| matches!(node.op, Op::Attention { .. })).count();
    assert_eq!(attentions, SMALL.layers, "{graph}");
    let instance = engine_common::compile(&graph, &pools()[0]).unwrap();
    let fused = engine_common::compile(&llama(SMALL, true).graph, &pools()[0]).unwrap();
    // Embedding, norm and head; for each layer 14 steps, and two states that are in place.
    assert_eq!(fused.compiled().step_count(), 3 + SMALL.layers * 16);
    assert!(instance.compiled().step_count() <= 3 + SMALL.layers * 20, "{graph}");
}

#[test]
fn caches_are_written_in_place() {
    let sizes = Sizes { context: 400, ..SMALL };
    let mut instance = engine_common::compile(&llama(sizes, true).graph, &pools()[0]).unwrap();
    feed(&mut instance, &[1, 2, 3], 0).unwrap();
    // The arena holds a few rows, and no copy of a cache.
    let cache = sizes.context * sizes.kv_heads * sizes.dim / sizes.heads * 4;
    assert!(instance.arena_bytes() < cache, "{} {cache}", instance.arena_bytes());
    feed(&mut instance, &[1; 24], 3).unwrap();
    let of_24 = instance.arena_bytes();
    feed(&mut instance, &[4], 27).unwrap();
    assert_eq!(instance.arena_bytes(), of_24);
}

#[test]
fn reset_forgets_and_positions_beyond_the_cache_are_refused() {
    let graph = llama(SMALL, true).graph;
    let mut instance = engine_common::compile(&graph, &pools()[1]).unwrap();
    let first = feed(&mut instance, &[7, 8, 9], 0).unwrap();
    let other = feed(&mut instance, &[1, 2, 3, 4], 0).unwrap();
    assert_ne!(first[..], other[..3]);
    for (ids, position, symbol) in [(&[1i64][..], 40, "position"), (&[1, 2], 39, "end"), (&[1; 25], 0, "tokens")] {
        match feed(&mut instance, ids, position) {
            Err(EngineError::SymbolOutOfBounds { symbol: name, .. }) => assert_eq!(name, symbol),
            other => panic!("{other:?}"),
        }
        assert!(instance.output(0).is_none());
    }
    instance.reset().unwrap();
    assert!((0..graph.states.len()).all(|i| instance.state(StateId(i as u32)).unwrap().iter().all(|&b| b == 0)));
    assert_eq!(feed(&mut instance, &[7, 8, 9], 0).unwrap(), first);
}

#[test]
fn two_programs_share_caches_by_exchanging_them() {
    let graph = llama(SMALL, true).graph;
    let [mut prefill, mut decode, mut alone] = [0, 1, 0].map(|i| engine_common::compile(&graph, &pools()[i]).unwrap());
    feed(&mut alone, &[1, 2, 3], 0).unwrap();
    let expected = feed(&mut alone, &[4], 3).unwrap();
    feed(&mut prefill, &[1, 2, 3], 0).unwrap();
    assert_eq!(prefill.exchange_states(&mut decode), 2 * SMALL.layers);
    assert_eq!(feed(&mut decode, &[4], 3).unwrap(), expected);
    let saved = decode.state(StateId(0)).unwrap().to_vec();
    prefill.state_mut(StateId(0)).unwrap().copy_from_slice(&saved);
    assert_eq!(prefill.state(StateId(0)).unwrap(), saved);
}

#[test]
fn programs_that_take_turns_share_one_scratch() {
    let graph = llama(SMALL, true).graph;
    let [mut first, mut second, mut alone] = [0; 3].map(|i| engine_common::compile(&graph, &pools()[i]).unwrap());
    let mut scratch = Scratch::new().unwrap();
    for position in [0, 3, 6] {
        let expected = feed(&mut alone, &[5, 6, 7], position).unwrap();
        for instance in [&mut first, &mut second] {
            instance.exchange_scratch(&mut scratch);
            assert_eq!(feed(instance, &[5, 6, 7], position).unwrap(), expected);
            instance.exchange_scratch(&mut scratch);
            assert!(instance.output(0).is_none());
            assert_eq!(instance.arena_bytes(), 0);
        }
    }
}

#[test]
fn profile_counts_the_runs_of_each_step() {
    let mut instance = engine_common::compile(&llama(SMALL, true).graph, &pools()[0]).unwrap();
    feed(&mut instance, &[1], 0).unwrap();
    assert!(instance.profile().is_empty());
    instance.set_profiling(true);
    feed(&mut instance, &[1], 1).unwrap();
    feed(&mut instance, &[1, 2], 2).unwrap();
    let profile = instance.profile();
    assert_eq!(profile.len(), instance.compiled().step_count());
    assert!(profile.iter().all(|step| step.calls == 2 && !step.origin.is_empty()));
    assert!(profile.iter().any(|step| step.name.starts_with("qd8q4f32_gemm") && step.ns > 0));
    assert!(profile.iter().any(|step| step.name == "RmsNorm"));
    instance.set_profiling(false);
    assert!(instance.profile().is_empty());
}
