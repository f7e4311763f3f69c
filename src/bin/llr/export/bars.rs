//! Progress bars, on a terminal only; graphs that were asked for go to stdout.

use crate::bar;
use indicatif::ProgressBar;
use llama_runner::export::progress::{Progress, Stage};
use std::fmt;
use std::io::Write;

/// Shows each stage on stderr until the next begins.
pub struct Bars {
    shown: bool,
    bar: ProgressBar,
    graphs: Box<dyn Write>,
}

impl Bars {
    /// Shows nothing when `quiet`. Graphs go to `graphs`.
    pub fn new(quiet: bool, graphs: Box<dyn Write>) -> Self {
        Self { shown: !quiet, bar: ProgressBar::hidden(), graphs }
    }
}

impl Progress for Bars {
    fn begin(&mut self, stage: Stage, steps: usize) {
        self.bar.finish_and_clear();
        if self.shown {
            self.bar = bar::of(stage.name(), steps);
        }
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }

    fn graph(&mut self, pass: &str, graph: &dyn fmt::Display) {
        let Self { bar, graphs, .. } = self;
        // A reader that closes the pipe has seen enough.
        bar.suspend(|| {
            let _ = writeln!(graphs, "; after {pass}\n{graph}");
        });
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
