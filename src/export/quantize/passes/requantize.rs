//! Places where a quantized graph must change encodings, as conversions that change nothing yet: keys and values on
//! their way to a matrix product of other codes, rows of the token embedding, the operand of the head.

use super::roles::{self, Roles};
use crate::error::Result;
use crate::export::quantize::recipe::{Activations, EmbeddingFormat, Recipe};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::passes::Pass;
use std::collections::BTreeMap;

/// See the module.
pub struct InsertRequantize {
    recipe: Recipe,
}

impl InsertRequantize {
    /// For graphs quantized by `recipe`.
    pub fn new(recipe: &Recipe) -> Self {
        Self { recipe: recipe.clone() }
    }
}

impl Pass for InsertRequantize {
    fn name(&self) -> &'static str {
        "insert-requantize"
    }

    fn after(&self) -> &'static [&'static str] {
        &["decompose-rotary", "decompose-swiglu", "decompose-attention"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let Activations::Static { codes, logits } = self.recipe.activations else { return Ok(0) };
        let roles = Roles::of(graph);
        // A value that is made, its conversion's suffix, and the nodes that take the converted one.
        let mut cuts: BTreeMap<ValueId, (&str, Vec<usize>)> = BTreeMap::new();
        if self.recipe.kv_codes()?.is_some_and(|kv| kv.bits != codes.bits) {
            for (value, users) in roles.cache_borders(graph) {
                cuts.entry(value).or_insert(("requantized", Vec::new())).1.extend(users);
            }
        }
        if let Some(head) = roles.head.filter(|_| logits.bits != codes.bits) {
            cuts.entry(graph.nodes[head].inputs[0]).or_insert(("requantized", Vec::new())).1.push(head);
        }
        let mut count = insert(graph, &cuts);
        if self.recipe.embedding != EmbeddingFormat::Float {
            count += split_embedding(graph);
        }
        Ok(count)
    }
}

/// Puts a conversion behind each value of `cuts`, for the users named there.
fn insert(graph: &mut Graph, cuts: &BTreeMap<ValueId, (&str, Vec<usize>)>) -> usize {
    let mut converted = BTreeMap::new();
    for (&value, (suffix, users)) in cuts {
        let of = graph.value(value).clone();
        let new = graph.add_computed(format!("{}.{suffix}", of.name), of.dtype, of.shape);
        converted.insert(value, new);
        for &user in users {
            graph.nodes[user].inputs.iter_mut().filter(|input| **input == value).for_each(|input| *input = new);
        }
    }
    graph.rewrite(|graph, before, id| {
        let node = &before.nodes()[id];
        let (&value, &new) = converted.iter().find(|(value, _)| node.outputs.contains(value))?;
        let origin = graph.value(new).name.clone();
        Some(vec![node.clone(), Node { origin, op: Op::Convert, inputs: vec![value], outputs: vec![new] }])
    })
}

/// `table`, `tokens` → rows → a conversion that makes what the look-up made.
fn split_embedding(graph: &mut Graph) -> usize {
    graph.rewrite(|graph, before, id| {
        let node = &before.nodes()[id];
        if !roles::is_token_embedding(graph, node) {
            return None;
        }
        let of = graph.value(node.outputs[0]).clone();
        let rows = graph.add_computed(format!("{}.rows", of.name), of.dtype, of.shape);
        let look_up = Node { outputs: vec![rows], ..node.clone() };
        Some(vec![
            look_up,
            Node { origin: of.name, op: Op::Convert, inputs: vec![rows], outputs: node.outputs.clone() },
        ])
    })
}
