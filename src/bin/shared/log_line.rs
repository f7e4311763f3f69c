//! Lines on stderr in the form of ExecuTorch's log, which scripts around the upstream programs grep:
//! `I 00:00:19.219108 executorch:stats.h:175] text`. Times count from the start of the program.

use llama_runner::base::log::{self, Level};
use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Starts the clock of the lines, and sends the library's lines up to `level` to stderr; `None` silences the library.
pub fn install(program: &'static str, level: Option<Level>) {
    STARTED.get_or_init(Instant::now);
    log::set_sink(
        level.map(|level| (level, Arc::new(move |level, text: &str| write(level, program, text)) as log::Sink)),
    );
}

/// Writes one line. A closed stderr is no reason to fail.
pub fn write(level: Level, origin: &str, text: &str) {
    let elapsed = STARTED.get_or_init(Instant::now).elapsed();
    let line = format(elapsed, level, origin, text);
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn format(elapsed: Duration, level: Level, origin: &str, text: &str) -> String {
    let letter = match level {
        Level::Error => 'E',
        Level::Warning => 'W',
        Level::Info => 'I',
        Level::Verbose => 'V',
        Level::Debug => 'D',
    };
    let seconds = elapsed.as_secs();
    format!(
        "{letter} {:02}:{:02}:{:02}.{:06} {origin}] {}\n",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        elapsed.subsec_micros(),
        text.replace('\n', " ")
    )
}

/// The level called `name`: `off`, `error`, `warning`, `info`, `verbose`, `debug`; the outer `None` for another word.
pub fn level(name: &str) -> Option<Option<Level>> {
    Some(match name {
        "off" => None,
        "error" => Some(Level::Error),
        "warning" => Some(Level::Warning),
        "info" => Some(Level::Info),
        "verbose" => Some(Level::Verbose),
        "debug" => Some(Level::Debug),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_looks_like_executorchs() {
        let elapsed = Duration::from_micros(((3600 + 2 * 60 + 19) * 1_000_000) + 219_108);
        assert_eq!(
            format(elapsed, Level::Info, "executorch:stats.h:175", "\tPrompt Tokens: 5"),
            "I 01:02:19.219108 executorch:stats.h:175] \tPrompt Tokens: 5\n"
        );
        assert_eq!(format(Duration::ZERO, Level::Warning, "p", "a\nb"), "W 00:00:00.000000 p] a b\n");
    }

    #[test]
    fn level_names() {
        assert_eq!(level("off"), Some(None));
        assert_eq!(level("warning"), Some(Some(Level::Warning)));
        assert_eq!(level("loud"), None);
    }
}
