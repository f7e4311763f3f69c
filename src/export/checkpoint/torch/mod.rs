//! PyTorch's `.pt` and `.pth`: a zip of uncompressed members, of which one pickle says what the others hold.
//!
//! Sources: the zip application note (APPNOTE 6.3), Python's pickletools, `torch/serialization.py`. No code of the file
//! ever runs: the pickle machine knows the few constructors of state dictionaries and nothing else.

mod machine;
mod state;
mod value;
mod zip;

pub use machine::PickleDefect;
pub(super) use state::read;
pub use zip::ZipDefect;

/// What a zip file begins with, empty ones aside.
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";
