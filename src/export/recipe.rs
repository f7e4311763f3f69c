//! Which passes an export runs, and when: the list follows from backend, mode and quantization, the order from what
//! each pass declares.

use super::options::{Backend, Mode, Options};
use crate::error::Result;
use crate::passes::{self, DeadCode, Pass, PassError, PassManager, Simplify};

/// The passes of an export.
pub struct Recipe {
    /// On float graphs, before calibration.
    pub float: PassManager,
}

impl Recipe {
    /// # Errors
    /// [`PassError`] for a pass that does not exist, or that another one cannot do without.
    pub fn of(options: &Options) -> Result<Self, PassError> {
        let manager = PassManager::new(float(options))?;
        let disabled: Vec<&str> = options.passes.disable.iter().map(String::as_str).collect();
        Ok(Self { float: manager.without(&disabled)? })
    }

    /// The names of all passes in their order.
    pub fn names(&self) -> Vec<&'static str> {
        self.float.names()
    }
}

/// The portable operators and XNNPACK know plain operations only, but for attention over a cache as one operator.
fn float(options: &Options) -> Vec<Box<dyn Pass>> {
    let keeps_attention = options.mode == Mode::Dynamic && options.custom_sdpa;
    let mut list: Vec<Box<dyn Pass>> = passes::export_decompositions();
    if keeps_attention {
        list.retain(|pass| pass.name() != "decompose-attention");
    }
    if options.backend != Backend::Qnn {
        list.push(Box::new(Simplify::FUSED));
    }
    list.push(Box::new(DeadCode));
    list
}
