//! What each step costs, when somebody wants to know.

use super::plan::PlanStep;
use std::time::Instant;

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

/// Calls and nanoseconds of each step.
#[derive(Debug)]
pub(super) struct Profile {
    steps: Vec<(u64, u64)>,
}

impl Profile {
    pub fn new(steps: usize) -> Self {
        Self { steps: vec![(0, 0); steps] }
    }

    pub fn begin(&self) -> Instant {
        Instant::now()
    }

    pub fn end(&mut self, step: usize, begin: Instant) {
        let (calls, ns) = &mut self.steps[step];
        *calls += 1;
        *ns += u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
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
