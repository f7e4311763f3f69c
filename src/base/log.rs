//! Where the library's log lines go: to a sink that the host installs, nowhere by default. The library never prints.

use parking_lot::RwLock;
use std::fmt;
use std::sync::Arc;

/// How grave a line is. The numbers are part of the C API and equal QNN's log levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something is not as asked, and the work goes on.
    Warning = 2,
    /// Milestones: which library, which method, which mode.
    Info = 3,
    /// Details for someone who looks for a fault.
    Verbose = 4,
    /// Everything.
    Debug = 5,
}

/// Receives every line at or below the installed level. Called from any thread, possibly from several at once.
pub type Sink = Arc<dyn Fn(Level, &str) + Send + Sync>;

static SINK: RwLock<Option<(Level, Sink)>> = RwLock::new(None);

/// Installs `sink` for the whole process, replacing any other; `None` silences the library.
pub fn set_sink(sink: Option<(Level, Sink)>) {
    *SINK.write() = sink;
}

/// The level up to which lines are wanted, `None` when nobody listens.
pub fn level() -> Option<Level> {
    SINK.read().as_ref().map(|(level, _)| *level)
}

/// Sends one line. The sink is called without a lock held, so it may install another.
pub fn write(level: Level, line: fmt::Arguments<'_>) {
    let sink = match &*SINK.read() {
        Some((limit, sink)) if level <= *limit => Arc::clone(sink),
        _ => return,
    };
    sink(level, &line.to_string());
}

/// An [`Level::Error`] line.
#[macro_export]
#[doc(hidden)]
macro_rules! log_error { ($($t:tt)*) => { $crate::base::log::write($crate::base::log::Level::Error, format_args!($($t)*)) } }
/// A [`Level::Warning`] line.
#[macro_export]
#[doc(hidden)]
macro_rules! log_warning { ($($t:tt)*) => { $crate::base::log::write($crate::base::log::Level::Warning, format_args!($($t)*)) } }
/// An [`Level::Info`] line.
#[macro_export]
#[doc(hidden)]
macro_rules! log_info { ($($t:tt)*) => { $crate::base::log::write($crate::base::log::Level::Info, format_args!($($t)*)) } }
