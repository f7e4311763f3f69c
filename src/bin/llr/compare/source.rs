//! A side as the comparison uses it, running or recorded: both give the steps of a turn.

use super::comparison::{Hash, Step};
use super::live::Live;
use super::logits::{Logits, Unit, Values};
use super::recording::{Recorded, RecordedStep, RecordedTurn};
use super::wire::{End, Hello, Request};
use llama_runner::Result;
use llama_runner::error::Context;
use llama_runner::tokenizer::Tokenizer;
use std::sync::Arc;

/// Where a side's steps come from.
#[derive(Debug)]
pub enum Origin {
    /// A child process, and what it is.
    Live(Box<Live>, Hello),
    /// Files.
    Recorded(Vec<Recorded>),
}

/// A side.
pub struct Source {
    /// `A` or `B`.
    pub label: char,
    /// What the report calls it.
    pub name: String,
    /// Where its steps come from.
    pub origin: Origin,
    /// Its tokenizer; a recorded side borrows the other's.
    pub tokenizer: Option<Arc<dyn Tokenizer>>,
}

impl Source {
    /// What it is, where it runs.
    pub fn hello(&self) -> Option<&Hello> {
        match &self.origin {
            Origin::Live(_, hello) => Some(hello),
            Origin::Recorded(_) => None,
        }
    }

    /// The recorded turn, where it is recorded.
    pub fn recorded(&self, conversation: usize, turn: usize) -> Option<&RecordedTurn> {
        match &self.origin {
            Origin::Live(..) => None,
            Origin::Recorded(runs) => runs.get(conversation)?.turns.get(turn),
        }
    }

    /// Gives the steps of a turn: runs `request`, or reads the recorded turn as counting in the codes of `other`.
    pub fn run(
        &mut self,
        place: (usize, usize),
        request: &Request,
        other: Option<&Hello>,
        on_step: &mut dyn FnMut(Step) -> Result<()>,
    ) -> Result<Option<End>> {
        if let Some(turn) = self.recorded(place.0, place.1) {
            turn.steps.iter().try_for_each(|step| on_step(recorded_step(step, other)))?;
            return Ok(None);
        }
        let Origin::Live(live, hello) = &mut self.origin else { return Ok(None) };
        let unit = unit(&hello.dtype, hello.encoding.is_some());
        let end = live.run(request, &mut |token, fnv, row| {
            let logits = Some(Logits { unit: unit.clone(), values: Values::All(row) });
            on_step(Step { token, hash: Some(Hash { dtype: hello.dtype.clone(), fnv }), logits })
        });
        end.map(Some).with_context(|| format!("side {}", self.label))
    }
}

/// What the numbers of a row are.
fn unit(dtype: &str, encoded: bool) -> Unit {
    let float = ["f32", "f16", "bf16"].contains(&dtype);
    if float || encoded { Unit::Real } else { Unit::Codes(dtype.to_owned()) }
}

/// A recorded step. Recorded codes stand for what `other`'s codes of the same type do.
fn recorded_step(step: &RecordedStep, other: Option<&Hello>) -> Step {
    let dtype = step.dtype.as_deref().unwrap_or("f32");
    let encoding = other.filter(|hello| hello.dtype == dtype).and_then(|hello| hello.encoding);
    let real = |code: f32| encoding.map_or(code, |encoding| encoding.dequantize(code as i32));
    let values = step.row.as_ref().map(|row| match row {
        Values::All(row) => Values::All(row.iter().map(|&code| real(code)).collect()),
        Values::Largest(known) => Values::Largest(known.iter().map(|&(id, code)| (id, real(code))).collect()),
    });
    let hash = step.hash.map(|fnv| Hash { dtype: dtype.to_owned(), fnv });
    let unit = unit(dtype, encoding.is_some());
    Step { token: step.token, hash, logits: values.map(|values| Logits { unit, values }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llama_runner::tensor::Encoding;

    #[test]
    fn recorded_codes_stand_for_what_the_running_sides_codes_do() {
        let step = RecordedStep {
            token: 3,
            hash: Some(9),
            dtype: Some("u16".into()),
            row: Some(Values::Largest(vec![(3, 12.0), (1, 8.0)])),
        };
        let hello = Hello {
            description: String::new(),
            vocab: 4,
            dtype: "u16".into(),
            encoding: Some(Encoding { scale: 0.5, zero_point: 10 }),
            load_ms: 0,
        };
        let largest = |known| Some(Values::Largest(known));
        let with = |other: Option<&Hello>| recorded_step(&step, other).logits.map(|row| (row.unit, Some(row.values)));
        assert_eq!(with(Some(&hello)), Some((Unit::Real, largest(vec![(3, 1.0), (1, -1.0)]))));
        let codes = Some((Unit::Codes("u16".into()), largest(vec![(3, 12.0), (1, 8.0)])));
        assert_eq!(with(None), codes);
        assert_eq!(with(Some(&Hello { dtype: "f32".into(), encoding: None, ..hello })), codes);
        assert_eq!(recorded_step(&step, None).hash, Some(Hash { dtype: "u16".into(), fnv: 9 }));
    }
}
