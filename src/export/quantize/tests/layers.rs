//! Layer-wise quantization.

use super::*;
use crate::export::quantize::{EmbeddingFormat, QuantizeError, WeightFormat, Windows, quantize_layerwise};
use crate::export::testing::tiny_config;
use crate::graph::{Op, ValueKind};

fn float_graph(config: &ModelConfig, weights: &dyn WeightSource, ar: usize) -> Graph {
    static_graph(config, weights, Shape { ar, context: ar, layout: KvLayout::PerLayer })
}

#[test]
fn every_layer_gets_codes_once_and_graphs_share_them() {
    let config = ModelConfig { dim: 16, hidden: 24, ..tiny_config() };
    let weights = random_weights(&config);
    let recipe = Recipe {
        linear: Some(WeightFormat::blockwise_4(8)),
        embedding: EmbeddingFormat::Blockwise { bits: 4, block: 8 },
        ..Recipe::named("8da4w", &config).unwrap()
    };
    let store = Arc::new(CodeStore::in_memory());
    let text: Vec<u64> = (0..30).map(|i| i * 7 % 20).collect();
    let mut seen = Vec::new();
    let progress = &mut |done, all| {
        seen.push((done, all));
        Ok(())
    };
    quantize_layerwise(float_graph(&config, &weights, 8), &text, &recipe, &store, progress).unwrap();
    let groups = config.layers * 4 + 1;
    assert_eq!((seen.len(), *seen.last().unwrap()), (groups + 1, (groups, groups)));

    let setup = Setup { recipe, calibration: Arc::default(), store };
    let build = |ar| {
        let mut graph = float_graph(&config, &weights, ar);
        PassManager::new(for_setup(&setup)).unwrap().run(&mut graph, None, &mut |_, _| Ok(())).unwrap();
        graph
    };
    let (one, other) = (build(4), build(5));
    let codes = |graph: &Graph| {
        let weights = graph.nodes.iter().filter(|node| matches!(node.op, Op::FullyConnected | Op::Embedding));
        let index = |op: &Op| usize::from(*op == Op::FullyConnected);
        let ids = weights.map(|node| node.inputs[index(&node.op)]).filter(|&id| graph.value(id).quantization.is_some());
        ids.map(|id| match &graph.value(id).kind {
            ValueKind::Constant(constant) => constant.data.clone(),
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>()
    };
    let pairs: Vec<_> = codes(&one).into_iter().zip(codes(&other)).collect();
    assert_eq!(pairs.len(), config.layers * 7 + 2);
    assert!(pairs.iter().all(|(a, b)| a.same_place(b)));
    let rounded = one.nodes.iter().filter(|node| node.op == Op::Convert).count();
    assert_eq!(rounded, groups, "an operand is rounded once");
}

#[test]
fn graphs_and_texts_that_cannot_calibrate_are_named() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let recipe = Recipe { linear: Some(WeightFormat::per_channel(4)), ..Recipe::none() };
    let store = Arc::new(CodeStore::in_memory());
    let run = |graph, text: &[u64]| {
        let error = quantize_layerwise(graph, text, &recipe, &store, &mut |_, _| Ok(())).unwrap_err();
        error.find::<QuantizeError>().unwrap().to_string()
    };
    let short = run(float_graph(&config, &weights, 8), &[1; 7]);
    assert_eq!(short, "calibration needs at least 8 tokens, and 7 were given");
    let unknown = run(float_graph(&config, &weights, 2), &[1, 2, 20]);
    assert_eq!(unknown, "calibration token 2 is 20, and the vocabulary has 20");
    let past = static_graph(&config, &weights, Shape { ar: 2, context: 4, layout: KvLayout::PerLayer });
    let text = Windows::new(&past).unwrap_err().to_string();
    assert_eq!(text, "calibration cannot run forward: it has a past: calibration takes the whole context at once");
}
