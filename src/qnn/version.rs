//! Versions, as QNN states them for its interfaces and for context binaries.

use super::sys;
use std::fmt;

/// `major.minor.patch`
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[allow(missing_docs)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl From<sys::Qnn_Version_t> for Version {
    fn from(version: sys::Qnn_Version_t) -> Self {
        Self { major: version.major, minor: version.minor, patch: version.patch }
    }
}

impl From<Version> for sys::Qnn_Version_t {
    fn from(version: Version) -> Self {
        Self { major: version.major, minor: version.minor, patch: version.patch }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
