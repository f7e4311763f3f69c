//! Where the time of executions goes, operator by operator, while somebody wants to know.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most events that a profile holds; what comes after is counted only.
pub const MAX_PROFILE_EVENTS: usize = 1 << 20;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileKind {
    /// One execution of a method, everything inside included.
    Method,
    /// One call of an operator, or one step of a compiled method.
    Operator,
    /// One call of a delegate.
    Delegate,
}

/// One timed piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileEvent {
    /// What it is.
    pub kind: ProfileKind,
    /// Method, operator or backend name.
    pub name: Arc<str>,
    /// The method that it was part of.
    pub method: Arc<str>,
    /// Which instruction of the method, where it is one.
    pub instruction: Option<usize>,
    /// When it began, from the start of the recording.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// A recording.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// In the order in which they ended.
    pub events: Vec<ProfileEvent>,
    /// Events beyond [`MAX_PROFILE_EVENTS`].
    pub dropped: u64,
}

/// Makes a profile.
pub(super) struct Recorder {
    started: Instant,
    profile: Profile,
    names: BTreeSet<Arc<str>>,
}

/// What is recorded of a piece of work, its times apart.
pub(super) struct Work<'a> {
    pub(super) kind: ProfileKind,
    pub(super) name: &'a str,
    pub(super) method: &'a str,
    pub(super) instruction: Option<usize>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), profile: Profile::default(), names: BTreeSet::new() }
    }

    /// Records work that began at `began` and ends now.
    pub(super) fn record(&mut self, work: Work<'_>, began: Instant) {
        self.record_span(work, began, began.elapsed());
    }

    /// Records work that began at `began` and took `duration`.
    pub(super) fn record_span(&mut self, work: Work<'_>, began: Instant, duration: Duration) {
        if self.profile.events.len() >= MAX_PROFILE_EVENTS {
            self.profile.dropped += 1;
            return;
        }
        let (name, method) = (self.intern(work.name), self.intern(work.method));
        let start = began.saturating_duration_since(self.started);
        let Work { kind, instruction, .. } = work;
        self.profile.events.push(ProfileEvent { kind, name, method, instruction, start, duration });
    }

    /// What was recorded since the last call.
    pub(super) fn take(&mut self) -> Profile {
        std::mem::take(&mut self.profile)
    }

    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_bounded_and_counts_the_rest() {
        let mut recorder = Recorder::new();
        for instruction in 0..MAX_PROFILE_EVENTS + 3 {
            let instruction = Some(instruction);
            let work = Work { kind: ProfileKind::Operator, name: "aten::add.out", method: "forward", instruction };
            recorder.record(work, Instant::now());
        }
        let profile = recorder.take();
        assert_eq!((profile.events.len(), profile.dropped), (MAX_PROFILE_EVENTS, 3));
        assert!(Arc::ptr_eq(&profile.events[0].name, &profile.events[1].name), "names are stored once");
        assert_eq!(recorder.take(), Profile::default());
    }
}
