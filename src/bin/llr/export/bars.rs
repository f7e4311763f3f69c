//! Progress bars, on a terminal only; graphs that were asked for go to stdout.

use indicatif::{ProgressBar, ProgressStyle};
use llama_runner::export::progress::{Progress, Stage};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Shows each stage on stderr until the next begins.
pub struct Bars {
    shown: bool,
    bar: ProgressBar,
    graphs: Box<dyn Write>,
}

impl Bars {
    /// Shows nothing when `quiet`, or when stderr is no terminal. Graphs go to `graphs`.
    pub fn new(quiet: bool, graphs: Box<dyn Write>) -> Self {
        Self { shown: !quiet && std::io::stderr().is_terminal(), bar: ProgressBar::hidden(), graphs }
    }
}

impl Progress for Bars {
    fn begin(&mut self, stage: Stage, steps: usize) {
        self.bar.finish_and_clear();
        if !self.shown {
            return;
        }
        let (bar, template) = match steps {
            0 => (ProgressBar::new_spinner(), "{msg:>10} {spinner} {elapsed}"),
            steps => (ProgressBar::new(steps as u64), "{msg:>10} [{bar:40}] {pos}/{len} {elapsed}"),
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar = bar.with_style(style).with_message(stage.name());
        self.bar.enable_steady_tick(Duration::from_millis(100));
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
