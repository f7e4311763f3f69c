//! Graphs of one model, in every shape, give the same numbers as an independent forward pass.

mod defects;
mod names;
mod reference;
mod shapes;
mod stories;

use super::super::testing::{Extras, RandomWeights, dynamic, fixed, tiny_config, tiny_wide_config};
use super::super::{KvLayout, LayerWeight, MethodSpec, ModelConfig, WeightRole};
use super::build;
use crate::graph::Graph;
use crate::tensor::DType;

const CONTEXT: usize = 12;
const TOKENS: [i64; 8] = [3, 1, 4, 15, 9, 2, 6, 19];

/// Every static shape that the tests compare, and both dynamic ones.
fn all_specs() -> Vec<MethodSpec> {
    let layouts = [KvLayout::PerLayer, KvLayout::PerHead];
    let mut specs: Vec<_> =
        layouts.iter().flat_map(|&layout| [1, 4, CONTEXT].map(|ar| fixed(ar, CONTEXT, layout))).collect();
    specs.extend([true, false].map(|fused| dynamic(CONTEXT, fused)));
    specs
}

fn graph(config: &ModelConfig, weights: &RandomWeights, spec: &MethodSpec) -> Graph {
    build(config, weights, spec).unwrap()
}

/// The two small models, without and with everything that is optional.
fn models() -> [(ModelConfig, RandomWeights); 2] {
    let (plain, wide) = (tiny_config(), tiny_wide_config());
    let weights = RandomWeights::new(&plain, DType::F32, Extras::NONE);
    let wide_weights = RandomWeights::new(&wide, DType::F32, Extras::ALL);
    [(plain, weights), (wide, wide_weights)]
}
