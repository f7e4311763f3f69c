//! Dynamic methods, run by the engine on text: perplexity, and text that continues a prompt.

use super::QuantizeError;
use super::quality::Loss;
use super::segment::reals;
use super::window::check_tokens;
use crate::engine::{InputView, Instance, Resources};
use crate::error::Result;
use crate::graph::Graph;

/// Tokens of one run: large enough to be fast, few enough for their logits to be small.
const CHUNK: usize = 64;

/// A dynamic method with logits of every token, ready to run from position 0 on.
struct Dynamic {
    instance: Instance,
    vocab: usize,
    position: usize,
}

impl Dynamic {
    fn new(graph: &Graph) -> Result<Self> {
        let fail = |why: &str| QuantizeError::Graph { graph: graph.name.clone(), why: why.into() };
        let logits = graph.outputs.first().map(|&logits| graph.max_shape(logits));
        let Some(&[1, _, vocab]) = logits.as_deref() else {
            return Err(fail("its first output is not logits of every token").into());
        };
        if graph.inputs.len() != 2 {
            return Err(fail("its inputs are not tokens and input_pos").into());
        }
        let instance = Instance::new(Resources::new(None).compile(graph.clone())?)?;
        Ok(Self { instance, vocab, position: 0 })
    }

    /// Logits `[tokens, vocab]` of the next tokens.
    fn logits(&mut self, tokens: &[u64]) -> Result<Vec<f32>> {
        let ids: Vec<u8> = tokens.iter().flat_map(|&token| (token as i64).to_le_bytes()).collect();
        let position = (self.position as i64).to_le_bytes();
        let dims = [1, tokens.len()];
        self.instance.run(&[InputView { dims: &dims, bytes: &ids }, InputView { dims: &[1], bytes: &position }])?;
        self.position += tokens.len();
        Ok(self.instance.output(0).map_or_else(Vec::new, |output| reals(output.bytes)))
    }
}

/// Perplexity of `text` as one sequence. `graph` is a dynamic method with logits of every token, in float or quantized.
///
/// # Errors
/// [`QuantizeError::TooFewTokens`], [`QuantizeError::Token`], [`QuantizeError::Graph`] for a graph of other inputs or
/// outputs; and when the engine cannot run it: more text than its context.
pub fn perplexity(graph: &Graph, text: &[u64]) -> Result<f64> {
    if text.len() < 2 {
        return Err(QuantizeError::TooFewTokens { have: text.len(), need: 2 }.into());
    }
    let mut model = Dynamic::new(graph)?;
    check_tokens(text, model.vocab)?;
    let mut loss = Loss::default();
    for (index, chunk) in text[..text.len() - 1].chunks(CHUNK).enumerate() {
        let logits = model.logits(chunk)?;
        for (row, &next) in logits.chunks_exact(model.vocab.max(1)).zip(&text[index * CHUNK + 1..]) {
            loss.add_row(row, next);
        }
    }
    Ok(loss.perplexity())
}

/// `prompt` and the most likely tokens after it, `length` tokens in all: calibration text where there is only a prompt,
/// as upstream's exporter makes it. It ends early after a token of `ends`. `graph` as for [`perplexity`].
///
/// # Errors
/// As [`perplexity`].
pub fn continuation(graph: &Graph, prompt: &[u64], length: usize, ends: &[u64]) -> Result<Vec<u64>> {
    if prompt.is_empty() {
        return Err(QuantizeError::TooFewTokens { have: 0, need: 1 }.into());
    }
    let mut model = Dynamic::new(graph)?;
    check_tokens(prompt, model.vocab)?;
    let mut text = prompt.to_vec();
    let mut logits = Vec::new();
    for chunk in prompt.chunks(CHUNK) {
        logits = model.logits(chunk)?;
    }
    while text.len() < length {
        let last = &logits[logits.len().saturating_sub(model.vocab)..];
        let best = last.iter().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
        let Some((token, _)) = best else { break };
        text.push(token as u64);
        if ends.contains(&(token as u64)) || text.len() == length {
            break;
        }
        logits = model.logits(&[token as u64])?;
    }
    Ok(text)
}
