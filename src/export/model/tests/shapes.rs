//! All shapes of a model's graph agree, on the interpreter and on the engine.

use super::super::super::testing::{compiled, dynamic_logits, interpreted, static_logits};
use super::*;
use crate::graph::interpret::Tensor;
use crate::graph::testing::assert_close;
use crate::graph::{Op, ValueKind};
use crate::passes;

/// Logits of all tokens; a dynamic graph gets them in pieces.
fn logits(graph: &Graph, run: impl FnMut(&[Tensor]) -> Vec<Tensor>) -> Vec<Vec<f32>> {
    if graph.states.is_empty() { static_logits(graph, run, &TOKENS) } else { dynamic_logits(run, &TOKENS, &[3, 1, 4]) }
}

#[test]
fn every_shape_of_a_method_gives_the_same_logits() {
    for (config, weights) in models() {
        let whole = graph(&config, &weights, &dynamic(CONTEXT, true));
        let need = dynamic_logits(interpreted(&whole), &TOKENS, &[8]);
        assert!(need.windows(2).all(|pair| pair[0] != pair[1]));
        for spec in all_specs() {
            let graph = graph(&config, &weights, &spec);
            assert_close(&logits(&graph, interpreted(&graph)), &need, &format!("{} {spec:?}", config.architecture));
        }
    }
}

#[test]
fn the_engine_runs_every_shape_with_weights_of_every_type() {
    for (config, extras) in [(tiny_config(), Extras::NONE), (tiny_wide_config(), Extras::ALL)] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let weights = RandomWeights::new(&config, dtype, extras);
            for spec in all_specs() {
                let graph = graph(&config, &weights, &spec);
                let need = logits(&graph, interpreted(&graph));
                let what = format!("{} {dtype} {spec:?}", config.architecture);
                assert_close(&logits(&graph, compiled(&graph)), &need, &what);
            }
        }
    }
}

#[test]
fn the_last_token_alone_has_the_last_row() {
    let [(config, weights), _] = models();
    for fused in [true, false] {
        let mut spec = dynamic(CONTEXT, fused);
        let all = dynamic_logits(interpreted(&graph(&config, &weights, &spec)), &TOKENS, &[5, 1, 2]);
        if let MethodSpec::Dynamic { full_logits, .. } = &mut spec {
            *full_logits = false;
        }
        let graph = graph(&config, &weights, &spec);
        assert_eq!(graph.max_shape(graph.outputs[0]), [1, config.vocab]);
        let have = dynamic_logits(interpreted(&graph), &TOKENS, &[5, 1, 2]);
        assert_close(&have, &[4, 5, 7].map(|row: usize| all[row].clone()), "the last token");
    }
}

#[test]
fn decompositions_change_no_number_and_the_fusions_undo_them() {
    for (config, weights) in models() {
        for spec in all_specs() {
            let mut fused = graph(&config, &weights, &spec);
            let mut plain = fused.clone();
            let need = logits(&plain, interpreted(&plain));
            let what = format!("{} {spec:?}", config.architecture);
            for pass in passes::export_decompositions() {
                pass.run(&mut plain).unwrap();
                plain.verify().unwrap();
            }
            let is_fused = |op: &Op| {
                matches!(op, Op::RmsNorm { .. } | Op::Rotary { .. } | Op::SwiGlu)
                    || matches!(op, Op::CacheUpdate { .. } | Op::Attention { .. })
            };
            assert!(!plain.nodes.iter().any(|node| is_fused(&node.op)), "{what}");
            assert_close(&logits(&plain, interpreted(&plain)), &need, &what);
            let mut again = plain;
            for graph in [&mut fused, &mut again] {
                passes::standard().run(graph, None, &mut |_, _| Ok(())).unwrap();
            }
            let nodes = |graph: &Graph| {
                let mut ops: Vec<_> = graph.nodes.iter().map(|node| format!("{:?}", node.op)).collect();
                ops.sort();
                ops
            };
            assert_eq!(nodes(&again), nodes(&fused), "{what}\n{again}");
            assert_close(&logits(&again, interpreted(&again)), &need, &what);
        }
    }
}

#[test]
fn matrices_stay_where_the_checkpoint_has_them() {
    let config = tiny_config();
    let weights = RandomWeights::new(&config, DType::BF16, Extras { tied: true, ..Extras::NONE });
    let graph = graph(&config, &weights, &fixed(1, CONTEXT, KvLayout::PerLayer));
    let constant = |name: &str| {
        let value = graph.values.iter().find(|value| value.name == name).unwrap();
        let ValueKind::Constant(constant) = &value.kind else { panic!("{name} is no constant") };
        (value.dtype, constant.data.clone())
    };
    let own = |role| super::super::super::WeightSource::weight(&weights, role).unwrap().unwrap().data;
    for (name, role) in [
        ("embedding.weight", WeightRole::TokenEmbedding),
        ("logits.weight", WeightRole::TokenEmbedding),
        ("layers.1.feed_forward.gate.weight", WeightRole::Layer(1, LayerWeight::Gate)),
    ] {
        let (dtype, data) = constant(name);
        assert!(dtype == DType::BF16 && data.same_place(&own(role)), "{name}");
    }
    assert_eq!(constant("layers.0.attention_norm.weight").0, DType::F32);
}
