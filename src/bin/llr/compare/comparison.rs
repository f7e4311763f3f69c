//! The comparison itself: step by step, what two sides chose, from which logits, and whether it is the same.

use super::logits::{Distance, Gap, Logits};
use llama_runner::tokenizer::TokenId;

/// What counts as the same.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rules {
    /// Two choices are a close call when each side has the other's no further behind its own than this part of the row's
    /// range. `None`: there are no close calls.
    pub max_gap: Option<f32>,
    /// Side B was fed side A's tokens, so that every step compares, whatever was chosen before.
    pub forced: bool,
}

/// Tells one row of raw bytes from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hash {
    /// Element type of the row; hashes of different types say nothing about each other.
    pub dtype: String,
    /// FNV-1a 64.
    pub fnv: u64,
}

/// A choice and what it was made from, as far as that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The chosen token.
    pub token: TokenId,
    /// The row's hash.
    pub hash: Option<Hash>,
    /// The row.
    pub logits: Option<Logits>,
}

/// What a side has at the step where the sides part.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Its token; `None` where it has ended.
    pub token: Option<TokenId>,
    /// The largest logits of its row.
    pub largest: Vec<(TokenId, f32)>,
    /// How far its token is before the other side's.
    pub gap: Option<Gap>,
}

/// A step at which the sides chose differently.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    /// From 0.
    pub step: usize,
    /// Side A.
    pub a: Choice,
    /// Side B.
    pub b: Choice,
    /// How far the two rows are apart.
    pub distance: Option<Distance>,
    /// Whether it is a close call.
    pub close: bool,
}

/// What was found in a turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Steps at which both sides chose.
    pub compared: usize,
    /// Steps at which they did not choose the same, the end of one side included.
    pub differing: usize,
    /// Of these, close calls.
    pub close: usize,
    /// Steps whose rows are known to be, or not to be, the same bits.
    pub hashed: usize,
    /// Of these, those that are.
    pub same_bits: usize,
    /// The step with the largest distance among those at which the same was chosen.
    pub farthest: Option<(usize, Distance)>,
    /// The first divergence that is no close call; without one, the first close call.
    pub first: Option<Divergence>,
}

impl Found {
    /// Whether something differs that is no close call.
    pub fn diverged(&self) -> bool {
        self.differing > self.close
    }

    /// Tokens before the sides part for the first time.
    pub fn until(&self) -> usize {
        self.first.as_ref().map_or(self.compared, |divergence| divergence.step)
    }
}

/// Takes the steps of a turn one after the other.
#[derive(Debug)]
pub struct Comparison {
    rules: Rules,
    found: Found,
}

impl Comparison {
    /// Nothing is compared yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, found: Found::default() }
    }

    /// Whether further steps say nothing any more, for the sides have gone different ways.
    pub fn is_over(&self) -> bool {
        self.found.differing > 0 && !self.rules.forced
    }

    /// The next step of both sides.
    pub fn step(&mut self, a: &Step, b: &Step) {
        if self.is_over() {
            return;
        }
        let step = self.found.compared;
        self.found.compared += 1;
        let same_bits = match (&a.hash, &b.hash) {
            (Some(a), Some(b)) if a.dtype == b.dtype => Some(a.fnv == b.fnv),
            _ => None,
        };
        self.found.hashed += usize::from(same_bits.is_some());
        self.found.same_bits += usize::from(same_bits == Some(true));
        let distance = a.logits.as_ref().zip(b.logits.as_ref()).and_then(|(a, b)| a.distance(b));
        if a.token == b.token {
            let farther = |than: &Distance| self.found.farthest.is_none_or(|(_, far)| than.largest > far.largest);
            if let Some(distance) = distance.filter(farther) {
                self.found.farthest = Some((step, distance));
            }
            return;
        }
        let choice = |own: &Step, other: &Step| Choice {
            token: Some(own.token),
            largest: own.logits.as_ref().map(Logits::largest).unwrap_or_default(),
            gap: own.logits.as_ref().and_then(|row| row.gap(own.token, other.token, other.logits.as_ref())),
        };
        let (a, b) = (choice(a, b), choice(b, a));
        let close = self.rules.max_gap.is_some_and(|most| {
            let within = |gap: Option<Gap>| gap.is_some_and(|gap| !gap.at_least && gap.part.is_some_and(|p| p <= most));
            within(a.gap) && within(b.gap)
        });
        self.differs(Divergence { step, a, b, distance, close });
    }

    /// Both sides have made all their tokens; one that goes on when the other has ended differs from it there.
    pub fn end(mut self, a: Option<&Step>, b: Option<&Step>) -> Found {
        if !self.is_over() && a.is_some() != b.is_some() {
            let choice = |step: Option<&Step>| Choice {
                token: step.map(|step| step.token),
                largest: step.and_then(|step| step.logits.as_ref()).map(Logits::largest).unwrap_or_default(),
                gap: None,
            };
            let (a, b) = (choice(a), choice(b));
            self.differs(Divergence { step: self.found.compared, a, b, distance: None, close: false });
        }
        self.found
    }

    fn differs(&mut self, divergence: Divergence) {
        self.found.differing += 1;
        self.found.close += usize::from(divergence.close);
        let replaces = self.found.first.as_ref().is_none_or(|first| first.close && !divergence.close);
        if replaces {
            self.found.first = Some(divergence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::logits::{Unit, Values};
    use super::*;

    /// A step that chose the largest of `row`.
    fn step(row: &[f32]) -> Step {
        let logits = Logits { unit: Unit::Real, values: Values::All(row.to_vec()) };
        let fnv = row.iter().fold(0u64, |hash, logit| hash.rotate_left(9) ^ u64::from(logit.to_bits()));
        let hash = Some(Hash { dtype: "f32".into(), fnv });
        Step { token: logits.choice().unwrap(), hash, logits: Some(logits) }
    }

    fn compare(rules: Rules, a: &[Step], b: &[Step]) -> Found {
        let mut comparison = Comparison::new(rules);
        a.iter().zip(b).for_each(|(a, b)| comparison.step(a, b));
        let both = a.len().min(b.len());
        comparison.end(a.get(both), b.get(both))
    }

    #[test]
    fn equal_sides_are_equal_and_their_farthest_rows_are_known() {
        let a = [step(&[0.0, 2.0, 1.0]), step(&[3.0, 0.0, 1.0]), step(&[0.0, 0.0, 1.0])];
        let b = [step(&[0.0, 2.0, 1.0]), step(&[3.0, 0.25, 1.0]), step(&[0.0, 0.0, 1.0])];
        let found = compare(Rules::default(), &a, &b);
        assert_eq!((found.compared, found.hashed, found.same_bits, found.until()), (3, 3, 2, 3));
        assert!(!found.diverged() && found.first.is_none());
        let (at, far) = found.farthest.unwrap();
        assert_eq!((at, far.largest, far.at), (1, 0.25, 1));
    }

    #[test]
    fn the_first_divergence_has_both_rows_and_nothing_behind_it_counts() {
        let a = [step(&[0.0, 2.0]), step(&[3.0, 1.0]), step(&[3.0, 1.0])];
        let b = [step(&[0.0, 2.0]), step(&[2.0, 2.5]), step(&[0.0, 1.0])];
        let found = compare(Rules::default(), &a, &b);
        assert_eq!((found.compared, found.differing, found.close, found.until()), (2, 1, 0, 1));
        let first = found.first.as_ref().unwrap();
        assert_eq!((first.step, first.a.token, first.b.token), (1, Some(0), Some(1)));
        assert_eq!(first.a.largest, [(0, 3.0), (1, 1.0)]);
        assert_eq!(first.b.largest, [(1, 2.5), (0, 2.0)]);
        assert_eq!((first.a.gap.unwrap().logits, first.b.gap.unwrap().logits), (2.0, 0.5));
        assert_eq!(first.distance.unwrap().largest, 1.5);
        assert!(found.diverged());
    }

    #[test]
    fn a_close_call_is_one_on_both_sides() {
        let rules = |max_gap| Rules { max_gap: Some(max_gap), forced: false };
        // Ranges are 10: A is 0.1 (1 %) ahead, B 0.2 (2 %).
        let (a, b) = ([step(&[5.1, 5.0, -4.9])], [step(&[4.8, 5.0, -5.0])]);
        assert!(compare(rules(0.01), &a, &b).diverged());
        let close = compare(rules(0.021), &a, &b);
        assert!(!close.diverged() && close.close == 1 && close.first.unwrap().close);
        assert!(compare(Rules::default(), &a, &b).diverged());
        // What is not known is not close.
        let mut unknown = b.clone();
        unknown[0].logits = None;
        assert!(compare(rules(1.0), &a, &unknown).diverged());
    }

    #[test]
    fn forced_sides_compare_at_every_step_and_the_gravest_is_shown() {
        let a = [step(&[5.1, 5.0, -4.9]), step(&[5.0, 1.0, -5.0]), step(&[1.0, 0.0, 0.0])];
        let b = [step(&[5.0, 5.05, -4.9]), step(&[1.0, 5.0, -5.0]), step(&[1.0, 0.0, 0.0])];
        let found = compare(Rules { max_gap: Some(0.02), forced: true }, &a, &b);
        assert_eq!((found.compared, found.differing, found.close), (3, 2, 1));
        assert_eq!(found.first.unwrap().step, 1);
    }

    #[test]
    fn a_side_that_ends_first_differs_there() {
        let a = [step(&[0.0, 2.0]), step(&[3.0, 1.0])];
        let found = compare(Rules { max_gap: Some(1.0), forced: false }, &a, &a[..1]);
        let first = found.first.as_ref().unwrap();
        assert_eq!((first.step, first.a.token, first.b.token), (1, Some(0), None));
        assert!(found.diverged() && found.until() == 1);
    }

    #[test]
    fn hashes_of_different_types_say_nothing() {
        let a = step(&[0.0, 2.0]);
        let b = Step { hash: Some(Hash { dtype: "u16".into(), fnv: 1 }), ..a.clone() };
        assert_eq!(compare(Rules::default(), &[a], &[b]).hashed, 0);
    }
}
