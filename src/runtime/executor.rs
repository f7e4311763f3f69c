//! Runs a method's instructions.

use super::delegate::Delegate;
use super::error::RuntimeError;
use super::io_arena::IoArena;
use super::kernel::Kernel;
use super::kernel_args::KernelArgs;
use super::profile::{ProfileKind, Recorder, Work};
use super::value::Value;
use crate::error::{Error, Result};
use crate::tensor::DType;
use std::fmt::Write;
use std::time::Instant;

/// Most instructions of one `execute`. Jumps may go backwards, so a damaged program could loop for ever; the longest
/// real methods run some thousand instructions.
pub const MAX_INSTRUCTIONS: u32 = 10_000_000;

/// Most arguments that an error message lists.
const MAX_LISTED: usize = 24;

/// An instruction with everything looked up.
pub(super) enum Step {
    Kernel { kernel: Kernel, operator: u32, args: Box<[u32]> },
    Delegate { delegate: u32, args: Box<[u32]>, expected: Box<[Expected]> },
    Move { from: u32, to: u32 },
    JumpFalse { condition: u32, destination: u32 },
    Free { value: u32, release: bool },
}

/// What a delegate prepared for, of an argument that other instructions may replace.
pub(super) struct Expected {
    pub(super) arg: usize,
    pub(super) value: u32,
    pub(super) dtype: DType,
    pub(super) bytes: usize,
    pub(super) writable: bool,
}

/// A method's instructions with the kernels and delegates they call.
pub(super) struct Executor {
    pub(super) chains: Vec<Vec<Step>>,
    /// `None` for a delegate that is never called.
    pub(super) delegates: Vec<Option<Box<dyn Delegate>>>,
    /// The arena that the delegates know.
    pub(super) arena: Option<u64>,
    /// By operator index, for messages.
    pub(super) operator_names: Vec<String>,
    /// By delegate index, for messages.
    pub(super) delegate_ids: Vec<String>,
}

impl Executor {
    /// Tells the delegates of an arena that they do not know yet.
    #[inline]
    pub(super) fn share(&mut self, arena: &IoArena) {
        if self.arena.replace(arena.id()) != Some(arena.id()) {
            self.delegates.iter_mut().flatten().for_each(|delegate| delegate.share(arena.shared_memory()));
        }
    }

    /// Runs all chains once. Indices in the steps were checked when they were made.
    pub(super) fn run(
        &mut self,
        method: &str,
        values: &mut [Value],
        mut recorder: Option<&mut Recorder>,
    ) -> Result<()> {
        let Self { chains, delegates, operator_names, delegate_ids, .. } = self;
        let mut left = MAX_INSTRUCTIONS;
        for (chain, steps) in chains.iter().enumerate() {
            let mut at = 0;
            while let Some(step) = steps.get(at) {
                let done = if left == 0 { Err(RuntimeError::StepLimit(MAX_INSTRUCTIONS).into()) } else { Ok(()) };
                let began = recorder.is_some().then(Instant::now);
                let next = match done.and_then(|()| execute(step, delegates, values)) {
                    Ok(next) => next.unwrap_or(at + 1),
                    Err(error) => return Err(self.explain(method, chain, at, values, error)),
                };
                if let (Some(began), Some(recorder)) = (began, &mut recorder) {
                    let work = |kind, name| Work { kind, name, method, instruction: Some(at) };
                    match step {
                        Step::Kernel { operator, .. } => {
                            recorder.record(work(ProfileKind::Operator, &operator_names[*operator as usize]), began);
                        }
                        Step::Delegate { delegate, .. } => {
                            recorder.record(work(ProfileKind::Delegate, &delegate_ids[*delegate as usize]), began);
                        }
                        _ => {}
                    }
                }
                at = next;
                left -= 1;
            }
        }
        Ok(())
    }

    #[cold]
    fn explain(&self, method: &str, chain: usize, at: usize, values: &[Value], error: Error) -> Error {
        let mut text = format!("method {method}, instruction {at}");
        if chain > 0 {
            let _ = write!(text, " of chain {chain}");
        }
        text.push_str(": ");
        let args: &[u32] = match &self.chains[chain][at] {
            Step::Kernel { operator, args, .. } => {
                text.push_str(&self.operator_names[*operator as usize]);
                args
            }
            Step::Delegate { delegate, args, .. } => {
                let _ = write!(text, "delegate {delegate} {}", self.delegate_ids[*delegate as usize]);
                args
            }
            Step::Move { from, to } => {
                text.push_str("move");
                &[*from, *to]
            }
            Step::JumpFalse { condition, .. } => {
                text.push_str("jump-false");
                std::slice::from_ref(condition)
            }
            Step::Free { value, .. } => {
                text.push_str("free");
                std::slice::from_ref(value)
            }
        };
        let shown = args.iter().take(MAX_LISTED).map(|&index| values[index as usize].to_string());
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = match args.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        error.context(format!("{text}({shown}{more})"))
    }
}

/// Runs one step; `Some` is where to go on.
#[inline]
fn execute(step: &Step, delegates: &mut [Option<Box<dyn Delegate>>], values: &mut [Value]) -> Result<Option<usize>> {
    match step {
        Step::Kernel { kernel, args, .. } => kernel(&mut KernelArgs::new(values, args))?,
        Step::Delegate { delegate, args, expected } => {
            for expected in expected {
                check(expected, values)?;
            }
            if let Some(delegate) = &mut delegates[*delegate as usize] {
                delegate.execute(values, args)?;
            }
        }
        Step::Move { from, to } => {
            if let Ok([from, to]) = values.get_disjoint_mut([*from as usize, *to as usize]) {
                to.alias(from);
            }
        }
        Step::JumpFalse { condition, destination } => match &values[*condition as usize] {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(Some(*destination as usize)),
            Value::Tensor(tensor) if tensor.dtype == DType::Bool => {
                if tensor.bytes()?.contains(&0) {
                    return Ok(Some(*destination as usize));
                }
            }
            other => return Err(RuntimeError::ConditionNotBool(other.kind()).into()),
        },
        Step::Free { value, release } => match &mut values[*value as usize] {
            Value::Tensor(tensor) if *release => tensor.unbind(),
            Value::Tensor(_) => {}
            other => return Err(RuntimeError::FreedNotTensor(other.kind()).into()),
        },
    }
    Ok(None)
}

fn check(expected: &Expected, values: &[Value]) -> Result<()> {
    let value = &values[expected.value as usize];
    if let Value::Tensor(tensor) = value
        && tensor.dtype == expected.dtype
        && tensor.capacity() >= expected.bytes
        && tensor.byte_len() <= expected.bytes
        && !tensor.address().is_null()
        && (tensor.is_writable() || !expected.writable)
    {
        return Ok(());
    }
    let want = format!("{} in {} bytes of memory", expected.dtype, expected.bytes);
    let have = match value {
        Value::Tensor(tensor) if tensor.is_constant() => format!("constant {tensor}"),
        Value::Tensor(tensor) => format!("{tensor} in {} bytes of memory", tensor.capacity()),
        other => other.to_string(),
    };
    Err(RuntimeError::DelegateArgument { arg: expected.arg, have, want }.into())
}
