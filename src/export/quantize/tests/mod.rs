//! Whole graphs through the passes of this room.

mod layers;
mod static_graphs;
mod stories;
mod weights;

use super::passes::{Setup, for_setup};
use super::{Calibration, CodeStore, Recipe};
use crate::export::testing::{Extras, RandomWeights};
use crate::export::{KvLayout, MethodSpec, ModelConfig, WeightSource, model};
use crate::graph::Graph;
use crate::passes::{DecomposeRotary, DecomposeSwiGlu, Pass, PassManager};
use crate::tensor::DType;
use std::sync::Arc;

/// Shape of a static method.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub ar: usize,
    pub context: usize,
    pub layout: KvLayout,
}

/// A static graph in float, taken apart as accelerators need it.
pub(super) fn static_graph(config: &ModelConfig, weights: &dyn WeightSource, shape: Shape) -> Graph {
    let Shape { ar, context, layout } = shape;
    let spec = MethodSpec::Static { name: "forward".into(), ar, context, layout, tokens: DType::I32 };
    let mut graph = model::build(config, weights, &spec).unwrap();
    let passes: Vec<Box<dyn Pass>> = vec![Box::new(DecomposeRotary), Box::new(DecomposeSwiGlu)];
    PassManager::new(passes).unwrap().run(&mut graph, None, &mut |_, _| Ok(())).unwrap();
    graph
}

/// A calibration of whole contexts of `context` tokens of `text`.
pub(super) fn calibrate(
    config: &ModelConfig,
    weights: &dyn WeightSource,
    context: usize,
    text: &[u64],
) -> Arc<Calibration> {
    let shape = Shape { ar: context, context, layout: KvLayout::PerLayer };
    let graph = static_graph(config, weights, shape);
    Arc::new(Calibration::run(&graph, text, &mut |_, _| Ok(())).unwrap())
}

pub(super) fn run_passes(graph: &mut Graph, recipe: &Recipe, calibration: &Arc<Calibration>) {
    let calibration = Arc::clone(calibration);
    let setup = Setup { recipe: recipe.clone(), calibration, store: Arc::new(CodeStore::in_memory()) };
    PassManager::new(for_setup(&setup)).unwrap().run(graph, None, &mut |_, _| Ok(())).unwrap();
    graph.compact();
}

pub(super) fn random_weights(config: &ModelConfig) -> RandomWeights {
    RandomWeights::new(config, DType::F32, Extras::NONE)
}
