//! A progress bar on stderr, where that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar of so many steps, or one that only shows that it goes on for 0; it shows nothing on what is no terminal.
pub fn of(name: &'static str, steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match steps {
        0 => (ProgressBar::new_spinner(), "{msg:>10} {spinner} {elapsed}"),
        steps => (ProgressBar::new(steps as u64), "{msg:>10} [{bar:40}] {pos}/{len} {elapsed}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = bar.with_style(style).with_message(name);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
