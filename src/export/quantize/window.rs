//! Calibration text as inputs of a static graph: windows of as many tokens as the graph takes, each from position 0.

use super::QuantizeError;
use crate::error::Result;
use crate::graph::interpret::{Data, Hook, Interpreter, Tensor};
use crate::graph::{Graph, Op, ValueId};

/// What an [`atten_mask`](crate::export::MethodSpec::Static) holds where a token does not see a column.
pub const MASKED: f32 = -255.0;

/// A static whole-context graph, about to be run on text.
#[derive(Debug, Clone, Copy)]
pub struct Windows<'g> {
    graph: &'g Graph,
    tokens: ValueId,
    mask: ValueId,
    positions: ValueId,
    size: usize,
    vocab: usize,
}

impl<'g> Windows<'g> {
    /// # Errors
    /// [`QuantizeError::Graph`] for a graph without `tokens`, `atten_mask` and `input_pos`, or with a past.
    pub fn new(graph: &'g Graph) -> Result<Self, QuantizeError> {
        let fail = |why: String| QuantizeError::Graph { graph: graph.name.clone(), why };
        let input = |name: &str| {
            let found = graph.inputs.iter().copied().find(|&id| graph.value(id).name == name);
            found.ok_or_else(|| fail(format!("it has no input {name}")))
        };
        let (tokens, mask, positions) = (input("tokens")?, input("atten_mask")?, input("input_pos")?);
        if graph.inputs.len() > 3 {
            return Err(fail("it has a past: calibration takes the whole context at once".into()));
        }
        let size = graph.max_shape(tokens).iter().product();
        let looked_up = graph.nodes.iter().find(|node| node.op == Op::Embedding && node.inputs[1] == tokens);
        let vocab = looked_up.map_or(usize::MAX, |node| graph.max_shape(node.inputs[0])[0]);
        Ok(Self { graph, tokens, mask, positions, size, vocab })
    }

    /// Cuts `text` into windows; the last one ends where the text does and overlaps the one before.
    ///
    /// # Errors
    /// [`QuantizeError::TooFewTokens`] for less text than one window, [`QuantizeError::Token`] for unknown tokens.
    pub fn cut<'t>(&self, text: &'t [u64]) -> Result<Vec<&'t [u64]>, QuantizeError> {
        let need = self.size.max(2);
        if text.len() < need {
            return Err(QuantizeError::TooFewTokens { have: text.len(), need });
        }
        check_tokens(text, self.vocab)?;
        let whole = text.chunks_exact(self.size);
        let rest = !whole.remainder().is_empty();
        Ok(whole.chain(rest.then(|| &text[text.len() - self.size..])).collect())
    }

    /// Tokens of a window.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Runs one window; every value passes `hook`. Returns the logits, `[tokens, vocab]`.
    ///
    /// # Errors
    /// When the graph cannot be interpreted, or has no real output.
    pub fn run(&self, interpreter: &mut Interpreter<'g>, window: &[u64], hook: Hook<'_>) -> Result<Vec<f32>> {
        let inputs: Vec<Tensor> = self.graph.inputs.iter().map(|&id| self.input(id, window)).collect();
        let logits = interpreter.run_with(&inputs, hook)?.into_iter().next();
        match logits.map(|tensor| tensor.data) {
            Some(Data::Real(logits)) => Ok(logits),
            _ => {
                let why = "its first output is not logits".into();
                Err(QuantizeError::Graph { graph: self.graph.name.clone(), why }.into())
            }
        }
    }

    /// The bytes of the input called `name` for one window; `None` for any other name.
    pub(super) fn input_bytes(&self, name: &str, window: &[u64]) -> Option<Vec<u8>> {
        let id = self.graph.inputs.iter().copied().find(|&id| self.graph.value(id).name == name)?;
        Some(self.input(id, window).to_bytes())
    }

    fn input(&self, id: ValueId, window: &[u64]) -> Tensor {
        let (shape, dtype) = (self.graph.max_shape(id), self.graph.value(id).dtype);
        let data = if id == self.tokens {
            Data::Integer(window.iter().map(|&token| token as i64).collect())
        } else if id == self.positions {
            Data::Integer((0..self.size as i64).collect())
        } else {
            debug_assert_eq!(id, self.mask);
            let sees = |index: usize| index % self.size <= index / self.size;
            Data::Real((0..self.size * self.size).map(|i| if sees(i) { 0.0 } else { MASKED }).collect())
        };
        Tensor { dtype, shape, data }
    }
}

/// # Errors
/// [`QuantizeError::Token`] for the first token that is not below `vocab`.
pub(super) fn check_tokens(text: &[u64], vocab: usize) -> Result<(), QuantizeError> {
    match text.iter().position(|&token| token >= vocab as u64) {
        Some(place) => Err(QuantizeError::Token { place, token: text[place], vocab }),
        None => Ok(()),
    }
}
