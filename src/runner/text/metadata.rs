//! What a program says of itself in its constant methods.

use crate::error::Result;
use crate::runner::decoder_runner::{constant, constant_ints};
use crate::runner::error::RunnerError;
use crate::runtime::{Module, Value};

/// What is stated; `None` where nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    /// `get_max_context_len`: positions of the cache.
    pub max_context_len: Option<usize>,
    /// `get_max_seq_len`: most tokens of a call.
    pub max_seq_len: Option<usize>,
    /// `get_max_prefill_chunk`: the same, where calls must be shorter.
    pub max_prefill_chunk: Option<usize>,
    /// `use_kv_cache`.
    pub use_kv_cache: Option<bool>,
    /// `enable_dynamic_shape`: whether a call may have more than one token.
    pub enable_dynamic_shape: Option<bool>,
    /// `get_eos_id` and `get_eos_ids`.
    pub eos_ids: Vec<i64>,
}

impl Metadata {
    pub fn read(module: &mut dyn Module) -> Result<Self> {
        let mut eos_ids = constant_ints(module, "get_eos_id")?;
        eos_ids.extend(constant_ints(module, "get_eos_ids")?);
        Ok(Self {
            max_context_len: length(module, "get_max_context_len")?,
            max_seq_len: length(module, "get_max_seq_len")?,
            max_prefill_chunk: length(module, "get_max_prefill_chunk")?,
            use_kv_cache: flag(module, "use_kv_cache")?,
            enable_dynamic_shape: flag(module, "enable_dynamic_shape")?,
            eos_ids,
        })
    }
}

/// A number of tokens: above 0 and within 31 bits.
fn length(module: &mut dyn Module, name: &'static str) -> Result<Option<usize>> {
    let Some(&stated) = constant_ints(module, name)?.first() else { return Ok(None) };
    match i32::try_from(stated) {
        Ok(length) if length > 0 => Ok(Some(length as usize)),
        _ => Err(RunnerError::StatedLength { name, stated }.into()),
    }
}

/// A boolean; older programs state it as an integer.
fn flag(module: &mut dyn Module, name: &str) -> Result<Option<bool>> {
    Ok(match constant(module, name)?.first() {
        Some(Value::Bool(stated)) => Some(*stated),
        Some(Value::Int(stated)) => Some(*stated != 0),
        _ => None,
    })
}
