//! Keys and values of 8 or 16 bits at the border of a static method that computes in float.
//!
//! What is new is rounded before it is used, so that a token sees the same keys whether they came in this call or an
//! earlier one, and every way to cut a prompt gives the same tokens.

use crate::error::Result;
use crate::export::quantize::recipe::Recipe;
use crate::export::quantize::{Calibration, CodeType, QuantizeError};
use crate::graph::{Graph, Node, Op, ValueId};
use crate::passes::Pass;
use crate::tensor::{DType, Encoding};
use std::sync::Arc;

/// See the module. Heads of a layer share an encoding.
pub struct QuantizeKvIo {
    /// Codes of keys and values.
    pub recipe: Recipe,
    /// Ranges by name.
    pub calibration: Arc<Calibration>,
}

impl Pass for QuantizeKvIo {
    fn name(&self) -> &'static str {
        "quantize-kv-io"
    }

    fn after(&self) -> &'static [&'static str] {
        &["quantize-linear"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let Some(codes) = self.recipe.kv_codes()? else { return Ok(0) };
        let mut count = 0;
        for past in graph.inputs.clone() {
            if let Some(encoding) = self.encoding(graph, past, codes)? {
                widen_input(graph, past, codes, encoding);
                count += 1;
            }
        }
        for index in 0..graph.outputs.len() {
            if let Some(encoding) = self.encoding(graph, graph.outputs[index], codes)? {
                round_output(graph, index, codes, encoding);
                count += 1;
            }
        }
        Ok(count)
    }
}

impl QuantizeKvIo {
    /// The encoding of a value that is a key or value of the cache; `None` for others.
    fn encoding(&self, graph: &Graph, id: ValueId, codes: CodeType) -> Result<Option<Encoding>, QuantizeError> {
        let value = graph.value(id);
        let mut parts = value.name.splitn(3, '.');
        let (Some(cache @ ("k_cache" | "k_new" | "v_cache" | "v_new")), Some(layer)) = (parts.next(), parts.next())
        else {
            return Ok(None);
        };
        if value.dtype != DType::F32 {
            return Ok(None);
        }
        let new = format!("{}_new.{layer}", &cache[..1]);
        let heads = format!("{new}.");
        let seen = self.calibration.names().filter(|name| *name == new || name.starts_with(&heads));
        let names: Vec<&str> = std::iter::once(&new[..]).chain(seen).collect();
        let range = self.calibration.range(names, codes, self.recipe.range)?;
        Ok(Some(codes.encoding(range)))
    }
}

/// `id` becomes codes, and its users get them converted.
fn widen_input(graph: &mut Graph, id: ValueId, codes: CodeType, encoding: Encoding) {
    let of = graph.value(id).clone();
    let name = format!("{}.real", of.name);
    let real = graph.add_computed(name.clone(), of.dtype, of.shape);
    graph.replace_uses(id, real);
    encode(graph, id, codes, encoding);
    graph.nodes.insert(0, Node { origin: name, op: Op::Convert, inputs: vec![id], outputs: vec![real] });
}

/// Output `index` becomes codes; its users get them converted back.
fn round_output(graph: &mut Graph, index: usize, codes: CodeType, encoding: Encoding) {
    let new = graph.outputs[index];
    let of = graph.value(new).clone();
    let names = ["unrounded", "real"].map(|suffix| format!("{}.{suffix}", of.name));
    let [unrounded, real] = names.clone().map(|name| graph.add_computed(name, of.dtype, of.shape.clone()));
    graph.replace_uses(new, real);
    graph.outputs[index] = new;
    encode(graph, new, codes, encoding);
    let Some(producer) = graph.producers()[new.0 as usize] else { return };
    graph.nodes[producer].outputs.iter_mut().filter(|made| **made == new).for_each(|made| *made = unrounded);
    let [_, real_name] = names;
    let round = Node { origin: of.name, op: Op::Convert, inputs: vec![unrounded], outputs: vec![new] };
    let widen = Node { origin: real_name, op: Op::Convert, inputs: vec![new], outputs: vec![real] };
    graph.nodes.splice(producer + 1..producer + 1, [round, widen]);
}

fn encode(graph: &mut Graph, id: ValueId, codes: CodeType, encoding: Encoding) {
    let value = graph.value_mut(id);
    (value.dtype, value.quantization) = (codes.dtype(), Some(codes.quantization(encoding)));
}
