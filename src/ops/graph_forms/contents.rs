//! What memory holds while a method is traced: the same bytes hold one value after the other, and several tensors of a
//! program may be views of the same bytes.

use crate::graph::ValueId;
use std::collections::BTreeMap;

/// The memory of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Of this value alone: it has no plan.
    Own(u32),
    /// A range of a planned buffer.
    Planned { buffer: u32, start: u64, end: u64 },
    /// Of a constant.
    Constant(u32),
}

/// What was found at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// This, and nothing else.
    Value(ValueId),
    /// Nothing has been written there.
    Untouched,
    /// Other values have been, at least to a part of it.
    Overwritten,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Contents {
    values: BTreeMap<Place, ValueId>,
    /// Planned ranges that were ever written.
    touched: Vec<Place>,
}

impl Contents {
    pub fn at(&self, place: Place) -> Found {
        match self.values.get(&place) {
            Some(&value) => Found::Value(value),
            None if self.touched.iter().any(|&other| overlap(place, other)) => Found::Overwritten,
            None => Found::Untouched,
        }
    }

    /// Writes `value` to all of `place`; what else lay there is lost.
    pub fn write(&mut self, place: Place, value: ValueId) {
        if let Place::Planned { .. } = place {
            self.values.retain(|&other, _| other == place || !overlap(place, other));
            if !self.touched.contains(&place) {
                self.touched.push(place);
            }
        }
        self.values.insert(place, value);
    }
}

pub(super) fn overlap(a: Place, b: Place) -> bool {
    match (a, b) {
        (
            Place::Planned { buffer, start, end },
            Place::Planned { buffer: other, start: other_start, end: other_end },
        ) => buffer == other && start < other_end && other_start < end,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(start: u64, end: u64) -> Place {
        Place::Planned { buffer: 1, start, end }
    }

    #[test]
    fn memory_holds_what_was_written_last() {
        let mut contents = Contents::default();
        let [a, b, c] = [0, 1, 2].map(ValueId);
        contents.write(planned(0, 8), a);
        contents.write(planned(16, 24), b);
        assert_eq!(contents.at(planned(0, 8)), Found::Value(a));
        assert_eq!(contents.at(planned(8, 16)), Found::Untouched);
        assert_eq!(contents.at(planned(0, 4)), Found::Overwritten, "a part is not the whole");
        contents.write(planned(4, 12), c);
        assert_eq!(contents.at(planned(0, 8)), Found::Overwritten);
        assert_eq!(contents.at(planned(16, 24)), Found::Value(b));
        contents.write(planned(0, 8), b);
        assert_eq!((contents.at(planned(0, 8)), contents.at(planned(4, 12))), (Found::Value(b), Found::Overwritten));
        let other = Place::Planned { buffer: 2, start: 0, end: 8 };
        assert_eq!((contents.at(other), contents.at(Place::Own(7))), (Found::Untouched, Found::Untouched));
        contents.write(Place::Own(7), c);
        assert_eq!(contents.at(Place::Own(7)), Found::Value(c));
    }

    #[test]
    fn empty_ranges_overlap_nothing() {
        let mut contents = Contents::default();
        contents.write(planned(4, 4), ValueId(0));
        contents.write(planned(0, 8), ValueId(1));
        assert_eq!(contents.at(planned(4, 4)), Found::Value(ValueId(0)));
    }
}
