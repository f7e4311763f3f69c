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
        let mut names = names.into_iter().peekable();
        let first = names.peek().copied().unwrap_or_default();
        let ranges = names.filter_map(|name| self.by_name.get(name));
        let ranges = ranges.map(|histogram| histogram.range(method, codes.max() as u32, codes.symmetric));
        ranges.reduce(Range::union).ok_or_else(|| QuantizeError::NoRange(first.to_owned()))
    }
}
