//! What a context is compiled for.

use crate::base::log::Level;
use crate::qnn::Soc;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompilerOptions {
    /// The target.
    pub soc: Soc,
    /// On-chip memory that graphs may use, in MB; all that the SoC has without it.
    pub vtcm_mb: Option<u32>,
    /// How hard the library tries: 1 to 3.
    pub optimization_level: u8,
    /// Whether graphs of the context share equal weights. The x86 simulator loads no binary that does.
    pub weight_sharing: bool,
    /// Up to which level QNN's lines go to the log sink.
    pub log_level: Level,
}

impl CompilerOptions {
    /// For `soc`, with the options that upstream's exporter takes.
    pub fn new(soc: Soc) -> Self {
        Self { soc, vtcm_mb: None, optimization_level: 3, weight_sharing: false, log_level: Level::Error }
    }

    /// On-chip memory that graphs may use, in MB.
    pub fn vtcm_mb(&self) -> u32 {
        self.vtcm_mb.unwrap_or(self.soc.vtcm_mb)
    }
}
