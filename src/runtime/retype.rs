//! Lets delegates correct the types that a program states: a QNN delegate whose program says float may store integers.

use super::delegate::Delegate;
use super::error::RuntimeError;
use super::value::Value;
use crate::error::{Context, Result};
use crate::pte::{EValue, ExecutionPlan, Instruction, TensorData};
use crate::tensor::{DType, Encoding};
use std::collections::BTreeMap;

/// What one delegate takes a value for.
struct Claim {
    delegate: usize,
    dtype: DType,
    encoding: Option<Encoding>,
    /// Whether the delegate said so, or the program did.
    retyped: bool,
}

/// Changes the tensors of `values` to what the delegates make of them. Everybody who touches a retyped value must agree
/// on it: other delegates, and both ends of a move. Kernels look at the types when they run.
pub(super) fn apply(plan: &ExecutionPlan, delegates: &[Option<Box<dyn Delegate>>], values: &mut [Value]) -> Result<()> {
    let claims = collect(plan, delegates, values)?;
    for (&index, claims) in &claims {
        let Some(claim) = claims.iter().find(|claim| claim.retyped) else { continue };
        let name = || describe(plan, index);
        if let Some(other) = claims.iter().find(|other| !agree(claim, other)) {
            let (have, want) = (claim.to_string(), other.to_string());
            let other = format!("delegate {} ({})", other.delegate, plan.delegates[other.delegate].id);
            let conflict = RuntimeError::RetypeConflict { delegate: claim.delegate, have, other, want };
            return Err(conflict).with_context(name);
        }
        let encoding = claims.iter().find_map(|claim| claim.encoding);
        let Value::Tensor(tensor) = &mut values[index as usize] else {
            let (delegate, kind) = (claim.delegate, values[index as usize].kind());
            let id = plan.delegates[delegate].id.clone();
            return Err(RuntimeError::RetypedNotTensor { delegate, id, kind }).with_context(name);
        };
        let unplanned = matches!(
            &plan.values[index as usize],
            EValue::Tensor(value) if value.data == TensorData::Unplanned
        );
        if !unplanned && claim.dtype.size() > tensor.dtype.size() {
            let larger = RuntimeError::RetypeLarger { from: tensor.dtype, to: claim.dtype };
            return Err(larger).with_context(name);
        }
        (tensor.dtype, tensor.encoding) = (claim.dtype, encoding);
    }
    check_moves(plan, &claims, values)
}

type Claims = BTreeMap<u32, Vec<Claim>>;

fn collect(plan: &ExecutionPlan, delegates: &[Option<Box<dyn Delegate>>], values: &[Value]) -> Result<Claims> {
    let mut claims = Claims::new();
    for instruction in plan.chains.iter().flat_map(|chain| &chain.instructions) {
        let Instruction::Delegate { delegate, args } = instruction else { continue };
        let index = *delegate as usize;
        let retyped = delegates[index].as_ref().map_or(&[][..], |delegate| delegate.retyped_args());
        if let Some(far) = retyped.iter().find(|retyped| retyped.arg >= args.len()) {
            let id = plan.delegates[index].id.clone();
            return Err(RuntimeError::RetypedArgMissing { delegate: index, id, arg: far.arg, len: args.len() }.into());
        }
        for (arg, &value) in args.iter().enumerate() {
            let claim = match (retyped.iter().find(|retyped| retyped.arg == arg), &values[value as usize]) {
                (Some(new), _) => Claim { delegate: index, dtype: new.dtype, encoding: new.encoding, retyped: true },
                (None, Value::Tensor(tensor)) => {
                    Claim { delegate: index, dtype: tensor.dtype, encoding: None, retyped: false }
                }
                _ => continue,
            };
            claims.entry(value).or_default().push(claim);
        }
    }
    Ok(claims)
}

fn agree(a: &Claim, b: &Claim) -> bool {
    a.dtype == b.dtype && (a.encoding.is_none() || b.encoding.is_none() || a.encoding == b.encoding)
}

fn check_moves(plan: &ExecutionPlan, claims: &Claims, values: &[Value]) -> Result<()> {
    for instruction in plan.chains.iter().flat_map(|chain| &chain.instructions) {
        let &Instruction::Move { from, to } = instruction else { continue };
        let (Value::Tensor(source), Value::Tensor(target)) = (&values[from as usize], &values[to as usize]) else {
            continue;
        };
        for (end, have, other, want) in [(from, source, to, target), (to, target, from, source)] {
            let retyped = claims.get(&end).and_then(|claims| claims.iter().find(|claim| claim.retyped));
            if let Some(claim) = retyped
                && have.dtype != want.dtype
            {
                let other = format!("a move with value {other}");
                let (delegate, have, want) = (claim.delegate, have.dtype.to_string(), want.dtype.to_string());
                let conflict = RuntimeError::RetypeConflict { delegate, have, other, want };
                return Err(conflict).with_context(|| describe(plan, end));
            }
        }
    }
    Ok(())
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.encoding {
            Some(Encoding { scale, zero_point }) => {
                write!(f, "{} (scale {scale:e}, zero point {zero_point})", self.dtype)
            }
            None => self.dtype.fmt(f),
        }
    }
}

/// A value by number and, where it has one, its place in the method's signature.
pub(super) fn describe(plan: &ExecutionPlan, index: u32) -> String {
    let place = |list: &[u32]| list.iter().position(|&value| value == index);
    match (place(&plan.inputs), place(&plan.outputs)) {
        (Some(input), _) => format!("value {index} (input {input})"),
        (None, Some(output)) => format!("value {index} (output {output})"),
        (None, None) => format!("value {index}"),
    }
}
