//! How an export tells its caller where it is: the library shows nothing itself.

use std::fmt;

/// A part of an export, in the order of the work. Some are left out where there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Opening the checkpoint and the tokenizer.
    Open,
    /// Building each method's graph; a step each.
    Build,
    /// Rewriting the graphs; a step for each pass and graph.
    Rewrite,
    /// Running the float graph on the calibration text; a step each token.
    Calibrate,
    /// Giving weights and activations their encodings.
    Quantize,
    /// Making delegates and instructions; a step each method or shard.
    Lower,
    /// Comparing the quantized model with the float one; a step each token.
    Compare,
    /// Writing the files.
    Save,
}

impl Stage {
    /// The stage in one word, as it is shown and as `--json` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Build => "build",
            Self::Rewrite => "rewrite",
            Self::Calibrate => "calibrate",
            Self::Quantize => "quantize",
            Self::Lower => "lower",
            Self::Compare => "compare",
            Self::Save => "save",
        }
    }
}

/// Is told how far an export is.
pub trait Progress {
    /// A stage of so many steps begins, and the one before it is over. 0: how many is not known.
    fn begin(&mut self, stage: Stage, steps: usize);

    /// One more step of the stage is done.
    fn step(&mut self);

    /// The graph of a method behind the pass that `--dump-after` or `--stop-after` names.
    fn graph(&mut self, pass: &str, graph: &dyn fmt::Display);
}

/// Listens to nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _: Stage, _: usize) {}
    fn step(&mut self) {}
    fn graph(&mut self, _: &str, _: &dyn fmt::Display) {}
}
