//! Inputs, outputs and values have the names and shapes that others rely on.

use super::*;
use crate::graph::{Value, ValueId, ValueKind};
use crate::passes;
use std::collections::BTreeSet;

fn listed(graph: &Graph, ids: &[ValueId]) -> Vec<String> {
    let text = |&id: &ValueId| {
        let value = graph.value(id);
        format!("{} {}{:?}", value.name, value.dtype, graph.max_shape(id))
    };
    ids.iter().map(text).collect()
}

#[test]
fn a_static_method_takes_and_gives_what_the_runners_know() {
    let (config, weights) = (tiny_config(), RandomWeights::new(&tiny_config(), DType::F32, Extras::NONE));
    let per_layer = graph(&config, &weights, &fixed(4, CONTEXT, KvLayout::PerLayer));
    let inputs = [
        "tokens i32[1, 4]",
        "atten_mask f32[1, 1, 4, 12]",
        "input_pos i32[1, 4]",
        "k_cache.0 f32[1, 2, 4, 8]",
        "k_cache.1 f32[1, 2, 4, 8]",
        "v_cache.0 f32[1, 2, 8, 4]",
        "v_cache.1 f32[1, 2, 8, 4]",
    ];
    let outputs = [
        "logits f32[1, 4, 20]",
        "k_new.0 f32[1, 2, 4, 4]",
        "k_new.1 f32[1, 2, 4, 4]",
        "v_new.0 f32[1, 2, 4, 4]",
        "v_new.1 f32[1, 2, 4, 4]",
    ];
    assert_eq!(listed(&per_layer, &per_layer.inputs), inputs);
    assert_eq!(listed(&per_layer, &per_layer.outputs), outputs);

    let per_head = graph(&config, &weights, &fixed(1, CONTEXT, KvLayout::PerHead));
    let caches = |name: &str, shape: &str| {
        ["0.0", "0.1", "1.0", "1.1"].map(|place| format!("{name}.{place} f32{shape}")).to_vec()
    };
    let first = ["tokens i32[1, 1]", "atten_mask f32[1, 1, 12]", "input_pos i32[1, 1]"].map(String::from).to_vec();
    let inputs = [first, caches("k_cache", "[1, 4, 11]"), caches("v_cache", "[1, 11, 4]")].concat();
    let logits = vec!["logits f32[1, 1, 20]".to_owned()];
    let outputs = [logits, caches("k_new", "[1, 4, 1]"), caches("v_new", "[1, 1, 4]")].concat();
    assert_eq!(listed(&per_head, &per_head.inputs), inputs);
    assert_eq!(listed(&per_head, &per_head.outputs), outputs);

    for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
        let whole = graph(&config, &weights, &fixed(CONTEXT, CONTEXT, layout));
        assert_eq!((whole.inputs.len(), whole.outputs.len()), (3, if layout == KvLayout::PerLayer { 5 } else { 9 }));
    }
}

#[test]
fn a_dynamic_method_takes_tokens_and_their_position() {
    let (config, weights) = (tiny_config(), RandomWeights::new(&tiny_config(), DType::F32, Extras::NONE));
    for fused in [true, false] {
        let graph = graph(&config, &weights, &dynamic(CONTEXT, fused));
        assert_eq!(listed(&graph, &graph.inputs), ["tokens i64[1, 11]", "input_pos i64[1]"]);
        assert_eq!(listed(&graph, &graph.outputs), ["logits f32[1, 11, 20]"]);
        let states: Vec<_> = graph.states.iter().map(|state| (state.name.as_str(), state.shape.clone())).collect();
        let shape = if fused { vec![1, 12, 2, 4] } else { vec![1, 2, 12, 4] };
        let names = ["k_cache.0", "v_cache.0", "k_cache.1", "v_cache.1"];
        assert_eq!(states, names.map(|name| (name, shape.clone())));
        assert_eq!(graph.state_updates.len(), 4);
    }
}

#[test]
fn names_are_unique_even_when_taken_apart() {
    for (config, weights) in models() {
        for spec in all_specs() {
            let mut graph = graph(&config, &weights, &spec);
            for pass in [None].into_iter().chain(passes::export_decompositions().into_iter().map(Some)) {
                if let Some(pass) = pass {
                    pass.run(&mut graph).unwrap();
                }
                graph.compact();
                let mut seen = BTreeSet::new();
                let twice: Vec<_> = graph.values.iter().filter(|value| !seen.insert(&value.name)).collect();
                assert!(twice.is_empty(), "{spec:?}: {twice:?}");
            }
        }
    }
}

#[test]
fn values_of_one_layout_have_the_same_names_whatever_the_shape() {
    for (config, weights) in models() {
        for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
            let names = |ar| {
                let graph = graph(&config, &weights, &fixed(ar, CONTEXT, layout));
                let computed = |value: &&Value| value.kind == ValueKind::Computed;
                graph.values.iter().filter(computed).map(|value| value.name.clone()).collect::<BTreeSet<_>>()
            };
            let (decode, block, whole) = (names(1), names(4), names(CONTEXT));
            assert_eq!(decode, block);
            let only_with_a_past: Vec<_> = decode.difference(&whole).collect();
            assert!(whole.is_subset(&decode), "{layout:?}");
            assert!(only_with_a_past.iter().all(|name| name.ends_with(".keys") || name.ends_with(".values")));
        }
    }
}
