//! A [`Progress`] that also measures: how long each stage took, for the report.

use super::progress::{Progress, Stage};
use std::fmt;
use std::time::{Duration, Instant};

/// Passes everything on, and keeps the time.
pub(super) struct Clock<'p> {
    progress: &'p mut dyn Progress,
    running: Option<(Stage, Instant)>,
    timings: Vec<(Stage, Duration)>,
}

impl<'p> Clock<'p> {
    pub fn new(progress: &'p mut dyn Progress) -> Self {
        Self { progress, running: None, timings: Vec::new() }
    }

    /// The time of each stage, the running one included, in the order in which they first began.
    pub fn stop(mut self) -> Vec<(Stage, Duration)> {
        self.finish();
        self.timings
    }

    fn finish(&mut self) {
        let Some((stage, began)) = self.running.take() else { return };
        match self.timings.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, time)) => *time += began.elapsed(),
            None => self.timings.push((stage, began.elapsed())),
        }
    }
}

impl Progress for Clock<'_> {
    fn begin(&mut self, stage: Stage, steps: usize) {
        self.finish();
        self.running = Some((stage, Instant::now()));
        self.progress.begin(stage, steps);
    }

    fn step(&mut self) {
        self.progress.step();
    }

    fn graph(&mut self, pass: &str, graph: &dyn fmt::Display) {
        self.progress.graph(pass, graph);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::progress::Silent;

    #[test]
    fn a_stage_that_comes_again_is_one_line() {
        let mut silent = Silent;
        let mut clock = Clock::new(&mut silent);
        for stage in [Stage::Open, Stage::Build, Stage::Open] {
            clock.begin(stage, 0);
        }
        let stages: Vec<Stage> = clock.stop().into_iter().map(|(stage, _)| stage).collect();
        assert_eq!(stages, [Stage::Open, Stage::Build]);
    }
}
