//! How far loading has come, told to whoever waits for it; that one may also call it off.

use super::error::RunnerError;
use std::ops::ControlFlow;

/// What loading is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum LoadStage {
    /// Opens the program.
    Program = 1,
    /// Reads the tokenizer.
    Tokenizer = 2,
    /// Loads a method: prepares its delegates, packs its weights. Takes the longest.
    Method = 3,
    /// Has the methods, and takes memory for inputs, outputs and caches.
    Memory = 4,
    /// Is done.
    Done = 5,
}

/// One step of loading, as it begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadProgress<'a> {
    /// What begins.
    pub stage: LoadStage,
    /// How much of the whole is done, 0 to 1; never less than before. An estimate by steps, not by time.
    pub fraction: f32,
    /// Which file or method.
    pub detail: &'a str,
}

/// Told of each step; may call loading off.
pub type OnProgress<'a> = dyn FnMut(&LoadProgress<'_>) -> ControlFlow<()> + 'a;

/// Tells of the steps in order.
pub struct LoadObserver<'a> {
    tell: &'a mut OnProgress<'a>,
    methods: usize,
    /// Methods told of so far; the last one may be named twice, for it is loaded once.
    begun: Vec<String>,
}

/// Share of the whole after which methods are loaded, and until which.
const METHODS: [f32; 2] = [0.1, 0.95];

impl<'a> LoadObserver<'a> {
    /// Tells `tell`.
    pub fn new(tell: &'a mut OnProgress<'a>) -> Self {
        Self { tell, methods: 1, begun: Vec::new() }
    }

    /// A step other than a method begins.
    pub fn stage(&mut self, stage: LoadStage, detail: &str) -> Result<(), RunnerError> {
        let fraction = match stage {
            LoadStage::Program => 0.0,
            LoadStage::Tokenizer => METHODS[0] / 2.0,
            LoadStage::Method => METHODS[0],
            LoadStage::Memory => METHODS[1],
            LoadStage::Done => 1.0,
        };
        self.tell(LoadProgress { stage, fraction, detail })
    }

    /// So many methods will be loaded at most.
    pub(crate) fn expect_methods(&mut self, count: usize) {
        self.methods = count.max(1);
    }

    /// A method begins.
    pub(crate) fn method(&mut self, name: &str) -> Result<(), RunnerError> {
        if self.begun.iter().any(|begun| begun == name) {
            return Ok(());
        }
        let done = self.begun.len().min(self.methods) as f32 / self.methods as f32;
        self.begun.push(name.to_owned());
        let fraction = METHODS[0] + (METHODS[1] - METHODS[0]) * done;
        self.tell(LoadProgress { stage: LoadStage::Method, fraction, detail: name })
    }

    fn tell(&mut self, progress: LoadProgress<'_>) -> Result<(), RunnerError> {
        match (self.tell)(&progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(RunnerError::LoadCancelled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_grow_and_a_method_is_told_of_once() {
        let mut seen = Vec::new();
        let mut tell = |progress: &LoadProgress<'_>| {
            seen.push((progress.stage, progress.fraction, progress.detail.to_owned()));
            ControlFlow::Continue(())
        };
        let mut observer = LoadObserver::new(&mut tell);
        observer.stage(LoadStage::Program, "m.pte").unwrap();
        observer.stage(LoadStage::Tokenizer, "t.bin").unwrap();
        observer.expect_methods(2);
        for name in ["prefill", "prefill", "decode", "third"] {
            observer.method(name).unwrap();
        }
        observer.stage(LoadStage::Memory, "").unwrap();
        observer.stage(LoadStage::Done, "").unwrap();
        assert_eq!(seen.len(), 7);
        assert!(seen.is_sorted_by_key(|(_, fraction, _)| *fraction));
        assert_eq!((seen[0].1, seen[6].1, seen[3].2.as_str()), (0.0, 1.0, "decode"));
    }

    #[test]
    fn whoever_waits_may_call_it_off() {
        let mut tell = |_: &LoadProgress<'_>| ControlFlow::Break(());
        let mut observer = LoadObserver::new(&mut tell);
        assert_eq!(observer.method("forward"), Err(RunnerError::LoadCancelled));
    }
}
