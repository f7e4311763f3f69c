//! Delegates as a part of their method's graph.

use super::call::Call;
use super::{Fit, Unfit};
use crate::error::{Context, Result};
use crate::runtime::MethodSource;
use crate::xnnpack::{Model, XnnpackBackend, XnnpackError, decode_delegate, lower_into};

/// A delegate of the method.
#[derive(Debug)]
pub(super) enum Decoded {
    Xnnpack(Box<Model>),
    /// Of a backend whose graphs are not known.
    Other(String),
}

/// All delegates of the method.
pub(super) fn decode(source: &MethodSource<'_>) -> Result<Vec<Decoded>> {
    let delegates = source.plan.delegates.iter().enumerate();
    let decode = |(index, delegate): (usize, &crate::pte::BackendDelegate)| {
        if delegate.id != XnnpackBackend::ID {
            return Ok(Decoded::Other(delegate.id.clone()));
        }
        let model = decode_delegate(&delegate.processed, source.named_data());
        let model = model.with_context(|| format!("preparing delegate {index} ({})", delegate.id))?;
        Ok(Decoded::Xnnpack(Box::new(model)))
    };
    delegates.map(decode).collect()
}

/// (inputs…, outputs…)
pub(super) fn lower(call: &mut Call<'_, '_>, delegate: u32, decoded: &Decoded) -> Fit {
    let model = match decoded {
        Decoded::Xnnpack(model) => model,
        Decoded::Other(id) => return Unfit::why(format!("the graph of a delegate of {id} is not known")),
    };
    let arg = |index: usize| model.values[index].external.map_or(0, |external| external.arg);
    let inputs = model.inputs().into_iter().map(|index| call.tensor(arg(index))).collect::<Fit<Vec<_>>>()?;
    let made = lower_into(call.graph(), model, &format!("XNNPACK delegate {delegate}"), &inputs);
    let outputs = made.map_err(|error| match error {
        XnnpackError::UnequalSizes { left, right, .. } => Unfit::Unequal(left, right),
        error => Unfit::Why(error.to_string()),
    })?;
    call.method().index_new_nodes();
    for (index, output) in model.outputs().into_iter().zip(outputs) {
        // A scalar is of shape [1] in the blob.
        let value = call.arg(arg(index))?;
        let is_scalar = call.method().plan_tensor(value)?.sizes.is_empty();
        let output = if is_scalar { call.reshaped(output, Vec::new()) } else { output };
        call.set(arg(index), output)?;
    }
    Ok(())
}
