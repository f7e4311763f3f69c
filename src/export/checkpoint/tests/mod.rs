//! What checkpoints must be, one test a defect, and real files of each format.

mod real;

use super::*;
use std::path::PathBuf;

/// A file of `../shared/models`.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/models").join(name)
}

fn open_at(path: impl Into<PathBuf>) -> Result<Checkpoint> {
    Checkpoint::open(&Source { checkpoint: path.into(), ..Source::default() })
}
