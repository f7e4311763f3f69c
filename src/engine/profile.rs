//! What each step costs, when somebody wants to know.

use super::plan::PlanStep;
use std::time::{Duration, Instant};

/// The cost of one step over many runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepProfile {
    /// Operation or kernel: `Softmax`, `qd8q4f32_gemm_12x16_avx512vnni`.
    pub name: String,
    /// Where its node came from.
    pub origin: String,
    /// Number of runs.
    pub calls: u64,
    /// Nanoseconds of all runs together.
    pub ns: u64,
}

/// One step of the last run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRun<'a> {
    /// Operation or kernel.
    pub name: &'a str,
    /// Where its node came from.
    pub origin: &'a str,
    /// When it began.
    pub begin: Instant,
    /// How long it took.
    pub duration: Duration,
}

/// Calls and nanoseconds of each step, and its last run.
#[derive(Debug)]
pub(super) struct Profile {
    steps: Vec<(u64, u64)>,
    last: Vec<(Instant, Duration)>,
}

impl Profile {
    pub fn new(steps: usize) -> Self {
        Self { steps: vec![(0, 0); steps], last: Vec::with_capacity(steps) }
    }

    pub fn begin(&self) -> Instant {
        Instant::now()
    }

    pub fn end(&mut self, step: usize, begin: Instant) {
        let duration = begin.elapsed();
        let (calls, ns) = &mut self.steps[step];
        *calls += 1;
        *ns += u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.last.truncate(step);
        self.last.push((begin, duration));
    }

    /// The steps of the last run, as far as it went.
    pub fn last<'a>(&'a self, steps: &'a [PlanStep]) -> impl Iterator<Item = StepRun<'a>> {
        let run = |(step, &(begin, duration)): (&'a PlanStep, _)| StepRun {
            name: &step.name,
            origin: &step.origin,
            begin,
            duration,
        };
        steps.iter().zip(&self.last).map(run)
    }

    pub fn of(&self, steps: &[PlanStep]) -> Vec<StepProfile> {
        let row = |(step, &(calls, ns)): (&PlanStep, _)| StepProfile {
            name: step.name.clone(),
            origin: step.origin.clone(),
            calls,
            ns,
        };
        steps.iter().zip(&self.steps).map(row).collect()
    }
}
