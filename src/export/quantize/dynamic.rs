//! Perplexity of dynamic methods, which the engine runs.

use super::QuantizeError;
use super::quality::Loss;
use super::segment::reals;
use super::window::check_tokens;
use crate::engine::{InputView, Instance, Resources};
use crate::error::Result;
use crate::graph::Graph;

/// Tokens of one run: large enough to be fast, few enough for their logits to be small.
const CHUNK: usize = 64;

/// Perplexity of `text` as one sequence. `graph` is a dynamic method with logits of every token, in float or quantized.
///
/// # Errors
/// [`QuantizeError::TooFewTokens`], [`QuantizeError::Token`], [`QuantizeError::Graph`] for a graph of other inputs or
/// outputs; and when the engine cannot run it: more text than its context.
pub fn perplexity(graph: &Graph, text: &[u64]) -> Result<f64> {
    if text.len() < 2 {
        return Err(QuantizeError::TooFewTokens { have: text.len(), need: 2 }.into());
    }
    let fail = |why: &str| QuantizeError::Graph { graph: graph.name.clone(), why: why.into() };
    let logits = graph.outputs.first().map(|&logits| graph.max_shape(logits));
    let Some(&[1, _, vocab]) = logits.as_deref() else {
        return Err(fail("its first output is not logits of every token").into());
    };
    if graph.inputs.len() != 2 {
        return Err(fail("its inputs are not tokens and input_pos").into());
    }
    check_tokens(text, vocab)?;
    let mut instance = Instance::new(Resources::new(None).compile(graph.clone())?)?;
    let mut loss = Loss::default();
    for (index, chunk) in text[..text.len() - 1].chunks(CHUNK).enumerate() {
        let start = index * CHUNK;
        let ids: Vec<u8> = chunk.iter().flat_map(|&token| (token as i64).to_le_bytes()).collect();
        let (position, dims) = ((start as i64).to_le_bytes(), [1, chunk.len()]);
        instance.run(&[InputView { dims: &dims, bytes: &ids }, InputView { dims: &[1], bytes: &position }])?;
        let logits = instance.output(0).map_or_else(Vec::new, |output| reals(output.bytes));
        for (row, &next) in logits.chunks_exact(vocab.max(1)).zip(&text[start + 1..]) {
            loss.add_row(row, next);
        }
    }
    Ok(loss.perplexity())
}
