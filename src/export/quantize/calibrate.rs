//! What calibration text does to a float graph: the distribution of every value, by its name.

use super::histogram::{Histogram, Range, RangeMethod};
use super::window::Windows;
use super::{CodeType, QuantizeError};
use crate::error::Result;
use crate::graph::Graph;
use crate::graph::interpret::Interpreter;
use std::collections::BTreeMap;

/// Distributions by the names of values; every graph of the model names the same values alike.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calibration {
    by_name: BTreeMap<String, Histogram>,
    tokens: usize,
}

impl Calibration {
    /// Runs `graph`, a static whole-context graph in float after its decompositions, on `text`; `progress` hears how
    /// many of how many windows are done, and its error ends the run.
    ///
    /// # Errors
    /// As [`Windows::new`] and [`Windows::cut`], when the graph cannot be interpreted, and those of `progress`.
    pub fn run(graph: &Graph, text: &[u64], progress: &mut dyn FnMut(usize, usize) -> Result<()>) -> Result<Self> {
        let windows = Windows::new(graph)?;
        let mut interpreter = Interpreter::new(graph)?;
        let mut calibration = Self { by_name: BTreeMap::new(), tokens: text.len() };
        let all = windows.cut(text)?;
        for (done, window) in all.iter().enumerate() {
            progress(done, all.len())?;
            let observe = &mut |id, tensor: &mut crate::graph::interpret::Tensor| {
                if let Some(reals) = tensor.reals() {
                    calibration.observe(&graph.value(id).name, reals);
                }
            };
            windows.run(&mut interpreter, window, observe)?;
        }
        progress(all.len(), all.len())?;
        Ok(calibration)
    }

    /// Adds elements of the value called `name`.
    pub fn observe(&mut self, name: &str, reals: &[f32]) {
        match self.by_name.get_mut(name) {
            Some(histogram) => histogram.add(reals),
            None => {
                if let Some(histogram) = Histogram::of(reals) {
                    self.by_name.insert(name.to_owned(), histogram);
                }
            }
        }
    }

    /// How many tokens it has seen.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Names of all values that were seen.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The distribution of the value called `name`.
    pub fn histogram(&self, name: &str) -> Option<&Histogram> {
        self.by_name.get(name)
    }

    /// The range that `codes` must cover for all the values called `names` together.
    ///
    /// # Errors
    /// [`QuantizeError::NoRange`] when none of them was seen; names the first.
    pub fn range<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
        codes: CodeType,
        method: RangeMethod,
    ) -> Result<Range, QuantizeError> {
        let names: Vec<&str> = names.into_iter().collect();
        let range = |histogram: &Histogram| histogram.range(method, codes.max() as u32, codes.symmetric);
        let seen = names.iter().filter_map(|&name| self.by_name.get(name)).map(range).reduce(Range::union);
        let parts = || names.iter().filter_map(|name| self.by_name.get(&of_all_heads(name))).map(range);
        seen.or_else(|| parts().reduce(Range::union))
            .ok_or_else(|| QuantizeError::NoRange(names.first().copied().unwrap_or_default().to_owned()))
    }
}

/// What the value of one head is called where all heads are one value: `layers.3.attention.heads.1.products` is a part
/// of `layers.3.attention.products`, and `k_new.3.1` of `k_new.3`.
fn of_all_heads(name: &str) -> String {
    let mut parts: Vec<&str> = name.split('.').collect();
    match parts.iter().position(|&part| part == "heads").filter(|at| at + 2 < parts.len()) {
        Some(at) => drop(parts.drain(at..at + 2)),
        None if parts.len() == 3 => drop(parts.pop()),
        None => {}
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_head_has_the_range_of_all_where_it_was_not_seen_alone() {
        let mut calibration = Calibration::default();
        calibration.observe("layers.0.attention.products", &[-1.0, 3.0]);
        calibration.observe("k_new.0", &[5.0]);
        calibration.observe("k_new.0.1", &[6.0]);
        let range = |name| calibration.range([name], CodeType::asymmetric(8), RangeMethod::MinMax);
        assert_eq!(range("layers.0.attention.heads.1.products"), Ok(Range { min: -1.0, max: 3.0 }));
        assert_eq!(range("k_new.0.0"), Ok(Range { min: 5.0, max: 5.0 }));
        assert_eq!(range("k_new.0.1"), Ok(Range { min: 6.0, max: 6.0 }));
        assert_eq!(
            range("layers.1.attention.products"),
            Err(QuantizeError::NoRange("layers.1.attention.products".into()))
        );
    }
}
