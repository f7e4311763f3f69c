//! A row of logits as it is known – whole, or its largest – and how far two of them are apart.

use llama_runner::tokenizer::TokenId;

/// How many of the largest are shown, and recorded.
pub const SHOWN: usize = 5;

/// What the numbers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unit {
    /// Real logits.
    Real,
    /// Codes of this type, of which nothing says what they stand for.
    Codes(String),
}

/// What is known of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Every logit, `[vocab]`.
    All(Vec<f32>),
    /// The largest, with their ids, largest first.
    Largest(Vec<(TokenId, f32)>),
}

/// A row of logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// What its numbers are.
    pub unit: Unit,
    /// The numbers.
    pub values: Values,
}

/// How far one token is before another in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap {
    /// Difference of their logits; 0 where the other is not behind.
    pub logits: f32,
    /// The same as a part of the row's range (largest less smallest), where that is known.
    pub part: Option<f32>,
    /// The other's logit is not known: the gap is this or more.
    pub at_least: bool,
}

/// How far two rows are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// Largest difference of two logits of the same token.
    pub largest: f32,
    /// That token.
    pub at: TokenId,
    /// Tokens whose logits both rows know.
    pub over: usize,
    /// Kullback-Leibler divergence of B's distribution from A's, in nats; of whole rows of real logits only.
    pub kl: Option<f64>,
}

impl Logits {
    /// The largest with their ids, largest first, the smaller id first among equals.
    pub fn largest(&self) -> Vec<(TokenId, f32)> {
        match &self.values {
            Values::Largest(known) => known.iter().copied().take(SHOWN).collect(),
            Values::All(row) => {
                let mut found: Vec<(TokenId, f32)> = Vec::with_capacity(SHOWN + 1);
                for (id, &logit) in (0..).zip(row).filter(|(_, logit)| !logit.is_nan()) {
                    let place = found.partition_point(|&(_, other)| other >= logit);
                    if place < SHOWN {
                        found.insert(place, (id, logit));
                        found.truncate(SHOWN);
                    }
                }
                found
            }
        }
    }

    /// The token that greedy decoding takes: the first of the largest, as the runner finds it.
    pub fn choice(&self) -> Option<TokenId> {
        self.largest().first().map(|&(id, _)| id)
    }

    /// The logit of a token, if it is known.
    pub fn get(&self, id: TokenId) -> Option<f32> {
        match &self.values {
            Values::All(row) => usize::try_from(id).ok().and_then(|id| row.get(id)).copied(),
            Values::Largest(known) => known.iter().find(|&&(other, _)| other == id).map(|&(_, logit)| logit),
        }
    }

    /// Largest less smallest, of a whole row.
    fn range(&self) -> Option<f32> {
        let Values::All(row) = &self.values else { return None };
        let least = row.iter().copied().fold(f32::INFINITY, f32::min);
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Some(most - least).filter(|range| range.is_finite() && *range > 0.0)
    }

    /// How far `first` is before `second` here. Where this row is known in part, its range is taken to be `other`'s.
    pub fn gap(&self, first: TokenId, second: TokenId, other: Option<&Self>) -> Option<Gap> {
        let ahead = self.get(first)?;
        let (behind, at_least) = match (self.get(second), &self.values) {
            (Some(logit), _) => (logit, false),
            (None, Values::Largest(known)) => (known.last()?.1, true),
            (None, Values::All(_)) => return None,
        };
        let of_other = || other.filter(|other| other.unit == self.unit).and_then(Self::range);
        let range = self.range().or_else(of_other);
        let logits = (ahead - behind).max(0.0);
        Some(Gap { logits, part: range.map(|range| logits / range), at_least })
    }

    /// How far `b` is from this row; `None` where they know no token in common or count in different units.
    pub fn distance(&self, b: &Self) -> Option<Distance> {
        if self.unit != b.unit {
            return None;
        }
        let pairs: Vec<(TokenId, f32, f32)> = match (&self.values, &b.values) {
            (Values::All(rows), Values::All(others)) => {
                (0..).zip(rows).zip(others).map(|((id, &a), &b)| (id, a, b)).collect()
            }
            (Values::Largest(known), _) => {
                known.iter().filter_map(|&(id, logit)| Some((id, logit, b.get(id)?))).collect()
            }
            (_, Values::Largest(known)) => {
                known.iter().filter_map(|&(id, logit)| Some((id, self.get(id)?, logit))).collect()
            }
        };
        // Equal infinities are no distance; anything else that is no number is the largest there is.
        let apart = |a: f32, b: f32| match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false => Some((a - b).abs()).filter(|apart| !apart.is_nan()).unwrap_or(f32::INFINITY),
        };
        let mut pairs_apart = pairs.iter().map(|&(id, a, b)| (id, apart(a, b)));
        let first = pairs_apart.next()?;
        let (at, largest) = pairs_apart.fold(first, |most, next| if next.1 > most.1 { next } else { most });
        let kl = match (&self.unit, &self.values, &b.values) {
            (Unit::Real, Values::All(a), Values::All(b)) => divergence(a, b),
            _ => None,
        };
        Some(Distance { largest, at, over: pairs.len(), kl })
    }
}

/// `KL(softmax(a) || softmax(b))`; `None` where it is no number.
fn divergence(a: &[f32], b: &[f32]) -> Option<f64> {
    let log_sum = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        f64::from(most) + row.iter().map(|&logit| f64::from(logit - most).exp()).sum::<f64>().ln()
    };
    let (all_a, all_b) = (log_sum(a), log_sum(b));
    let terms = a.iter().zip(b).map(|(&a, &b)| {
        let (a, b) = (f64::from(a) - all_a, f64::from(b) - all_b);
        if a == f64::NEG_INFINITY { 0.0 } else { a.exp() * (a - b) }
    });
    // Rounding may leave it a hair below zero.
    Some(terms.sum::<f64>()).filter(|kl| kl.is_finite()).map(|kl| kl.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(row: &[f32]) -> Logits {
        Logits { unit: Unit::Real, values: Values::All(row.to_vec()) }
    }

    fn some(known: &[(TokenId, f32)]) -> Logits {
        Logits { unit: Unit::Real, values: Values::Largest(known.to_vec()) }
    }

    #[test]
    fn the_largest_come_in_order_and_the_first_of_equals_is_the_choice() {
        let row = all(&[1.0, 7.0, f32::NAN, 3.0, 7.0, -2.0, 5.0, 3.0]);
        assert_eq!(row.largest(), [(1, 7.0), (4, 7.0), (6, 5.0), (3, 3.0), (7, 3.0)]);
        assert_eq!(row.choice(), Some(1));
        assert_eq!(all(&[]).choice(), None);
    }

    #[test]
    fn a_gap_is_a_part_of_the_rows_range() {
        let row = all(&[-6.0, 4.0, 3.0]);
        let gap = Gap { logits: 1.0, part: Some(0.1), at_least: false };
        assert_eq!(row.gap(1, 2, None), Some(gap));
        // A token that is not behind at all is no distance behind.
        assert_eq!(row.gap(2, 1, None), Some(Gap { logits: 0.0, part: Some(0.0), ..gap }));
        assert_eq!(row.gap(1, 3, None), None);
        let known = some(&[(1, 4.0), (2, 2.0)]);
        assert_eq!(known.gap(1, 2, None), Some(Gap { logits: 2.0, part: None, at_least: false }));
        assert_eq!(known.gap(1, 0, Some(&row)), Some(Gap { logits: 2.0, part: Some(0.2), at_least: true }));
    }

    #[test]
    fn rows_are_as_far_apart_as_their_farthest_logits() {
        let (a, b) = (all(&[0.0, 1.0, 2.0]), all(&[0.5, 1.0, 1.0]));
        let apart = a.distance(&b).unwrap();
        assert_eq!((apart.largest, apart.at, apart.over), (1.0, 2, 3));
        // Over softmax([0,1,2]) and softmax([0.5,1,1]), worked out by hand.
        let p = [0.090_030_573, 0.244_728_471, 0.665_240_956_f64];
        let q = [0.232_701_4, 0.383_649_3, 0.383_649_3];
        let want: f64 = p.iter().zip(q).map(|(p, q): (&f64, f64)| p * (p / q).ln()).sum();
        assert!((apart.kl.unwrap() - want).abs() < 1e-5, "{apart:?}, {want}");
        assert_eq!(a.distance(&a).unwrap().kl, Some(0.0));
        assert_eq!(
            some(&[(2, 2.5), (0, 0.0)]).distance(&b).unwrap(),
            Distance { largest: 1.5, at: 2, over: 2, kl: None }
        );
        assert_eq!(b.distance(&some(&[(2, 2.5)])).unwrap().largest, 1.5);
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        let codes = Logits { unit: Unit::Codes("u16".into()), ..all(&[1.0]) };
        assert_eq!(all(&[1.0]).distance(&codes), None);
        assert_eq!(some(&[(0, 1.0)]).distance(&some(&[(1, 1.0)])), None);
        let odd = all(&[f32::NEG_INFINITY, 0.0, f32::NAN]);
        assert_eq!(odd.distance(&odd).unwrap().largest, 0.0);
        assert_eq!(odd.distance(&all(&[0.0, 0.0, f32::NAN])).unwrap().largest, f32::INFINITY);
    }
}
