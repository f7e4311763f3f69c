//! Proves that a graph is well formed; everything behind it trusts that.

use super::{Graph, Int, NodeId, Quantization, SymbolSource, Value, ValueId, ValueKind, shapes};
use crate::error::{Error, Status};
use crate::tensor::{DType, element_count};

/// What is wrong with a graph, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// A number that names no value, symbol or state.
    #[error("{place} names {what} {number}, and there are {count}")]
    OutOfRange {
        /// Where it was used.
        place: String,
        /// `value`, `symbol` or `state`.
        what: &'static str,
        /// The number.
        number: u32,
        /// How many exist.
        count: usize,
    },
    /// A value is used before a node made it.
    #[error("{place} uses value {value} before it is made")]
    UsedBeforeMade {
        /// Where.
        place: String,
        /// The value.
        value: String,
    },
    /// A value is made twice, or one that no node may make.
    #[error("{place} makes value {value}, which is made already")]
    MadeTwice {
        /// Where.
        place: String,
        /// The value.
        value: String,
    },
    /// A value whose bytes or bounds do not fit its shape.
    #[error("value {value}: {why}")]
    Value {
        /// The value.
        value: String,
        /// What is wrong.
        why: String,
    },
    /// A node whose operands, results or attributes do not fit each other.
    #[error("node {id} ({origin}): {why}")]
    Node {
        /// Its number.
        id: NodeId,
        /// Where it came from.
        origin: String,
        /// What is wrong.
        why: String,
    },
    /// A state update of another shape or type.
    #[error("state {state} is updated with {value}, which has another shape or type")]
    StateUpdate {
        /// The state.
        state: String,
        /// The value.
        value: String,
    },
}

impl From<VerifyError> for Error {
    fn from(error: VerifyError) -> Self {
        Error::from_source(Status::InvalidProgram, error)
    }
}

impl Graph {
    /// Checks the whole graph: numbers in range, single assignment, order, constants as long as their shapes say, and
    /// operands that fit each operation.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.verify_symbols()?;
        let mut made = vec![false; self.values.len()];
        for (index, value) in self.values.iter().enumerate() {
            self.verify_value(value)?;
            made[index] = !matches!(value.kind, ValueKind::Computed);
        }
        for (position, &input) in self.inputs.iter().enumerate() {
            self.in_range("graph inputs", input)?;
            if self.value(input).kind != ValueKind::Input(position) {
                return Err(self.bad_value(input, format!("it is listed as input {position}")));
            }
        }
        for (id, node) in self.nodes.iter().enumerate() {
            let place = || format!("node {id} ({})", node.origin);
            for &input in &node.inputs {
                self.in_range(&place(), input)?;
                if !made[input.0 as usize] {
                    return Err(VerifyError::UsedBeforeMade { place: place(), value: self.value(input).name.clone() });
                }
            }
            for &output in &node.outputs {
                self.in_range(&place(), output)?;
                if std::mem::replace(&mut made[output.0 as usize], true) {
                    return Err(VerifyError::MadeTwice { place: place(), value: self.value(output).name.clone() });
                }
            }
            let fail = |why| VerifyError::Node { id, origin: node.origin.clone(), why };
            shapes::check(self, node).map_err(fail)?;
        }
        let results = self.outputs.iter().chain(self.state_updates.iter().map(|(_, value)| value));
        for &result in results {
            self.in_range("graph results", result)?;
            if !made[result.0 as usize] {
                let value = self.value(result).name.clone();
                return Err(VerifyError::UsedBeforeMade { place: "graph results".into(), value });
            }
        }
        self.verify_state_updates()
    }

    fn verify_symbols(&self) -> Result<(), VerifyError> {
        for (id, symbol) in self.symbols.iter().enumerate() {
            let bad = |why: &str| VerifyError::Value { value: format!("symbol {}", symbol.name), why: why.into() };
            if symbol.min > symbol.max {
                return Err(bad("its bounds are empty"));
            }
            let operands = match symbol.source {
                SymbolSource::InputDim { input, axis } => {
                    let rank =
                        self.inputs.get(input).and_then(|id| self.values.get(id.0 as usize)).map(|v| v.shape.len());
                    if rank.is_none_or(|rank| axis >= rank) {
                        return Err(bad("it names an axis that no input has"));
                    }
                    continue;
                }
                SymbolSource::InputItem { input, .. } if input >= self.inputs.len() => {
                    return Err(bad("it names an input that does not exist"));
                }
                SymbolSource::InputItem { .. } => continue,
                SymbolSource::Sum(a, b)
                | SymbolSource::Difference(a, b)
                | SymbolSource::Product(a, b)
                | SymbolSource::FloorQuotient(a, b) => [a, b],
            };
            if operands.iter().any(|int| matches!(int, Int::Symbol(other) if other.0 as usize >= id)) {
                return Err(bad("it uses a later symbol"));
            }
        }
        Ok(())
    }

    fn verify_value(&self, value: &Value) -> Result<(), VerifyError> {
        let bad = |why: String| VerifyError::Value { value: value.name.clone(), why };
        for dim in &value.shape {
            match dim {
                Int::Symbol(id) if id.0 as usize >= self.symbols.len() => {
                    return Err(VerifyError::OutOfRange {
                        place: format!("value {}", value.name),
                        what: "symbol",
                        number: id.0,
                        count: self.symbols.len(),
                    });
                }
                Int::Const(size) if *size < 0 => return Err(bad(format!("a size is {size}"))),
                _ => {}
            }
        }
        let shape: Vec<usize> = value.shape.iter().map(|&dim| self.bounds(dim).1.max(0) as usize).collect();
        let count = element_count(&shape).map_err(|error| bad(error.to_string()))?;
        match &value.kind {
            ValueKind::Constant(constant) => {
                let need = match &value.quantization {
                    Some(quantization) if quantization.bits() < 8 => packed_bytes(&shape, quantization.bits()),
                    _ => count * value.dtype.size(),
                };
                if constant.data.len() != need {
                    return Err(bad(format!("{} bytes for a shape of {need}", constant.data.len())));
                }
                verify_quantization(&shape, value.quantization.as_ref()).map_err(bad)
            }
            ValueKind::State(id) if id.0 as usize >= self.states.len() => Err(VerifyError::OutOfRange {
                place: format!("value {}", value.name),
                what: "state",
                number: id.0,
                count: self.states.len(),
            }),
            _ => Ok(()),
        }
    }

    fn verify_state_updates(&self) -> Result<(), VerifyError> {
        for &(state, value) in &self.state_updates {
            let Some(target) = self.states.get(state.0 as usize) else {
                let count = self.states.len();
                return Err(VerifyError::OutOfRange {
                    place: "state updates".into(),
                    what: "state",
                    number: state.0,
                    count,
                });
            };
            let source = self.value(value);
            let same_shape = source.shape.iter().copied().eq(target.shape.iter().map(|&dim| Int::from(dim)));
            if source.dtype != target.dtype || !same_shape {
                return Err(VerifyError::StateUpdate { state: target.name.clone(), value: source.name.clone() });
            }
        }
        Ok(())
    }

    fn in_range(&self, place: &str, id: ValueId) -> Result<(), VerifyError> {
        if (id.0 as usize) < self.values.len() {
            return Ok(());
        }
        Err(VerifyError::OutOfRange { place: place.into(), what: "value", number: id.0, count: self.values.len() })
    }

    fn bad_value(&self, id: ValueId, why: String) -> VerifyError {
        VerifyError::Value { value: self.value(id).name.clone(), why }
    }
}

/// Bytes of sub-byte codes: each row of the last axis starts at a byte.
fn packed_bytes(shape: &[usize], bits: u8) -> usize {
    let columns = shape.last().copied().unwrap_or(1);
    let rows: usize = shape.iter().rev().skip(1).product();
    rows * (columns * usize::from(bits)).div_ceil(8)
}

fn verify_quantization(shape: &[usize], quantization: Option<&Quantization>) -> Result<(), String> {
    let columns = shape.last().copied().unwrap_or(1);
    let rows: usize = shape.iter().rev().skip(1).product();
    let need = |what: &str, have: usize, need: usize| {
        (have == need).then_some(()).ok_or_else(|| format!("{have} bytes of {what} where {need} are needed"))
    };
    match quantization {
        None | Some(Quantization::PerTensor { .. }) => Ok(()),
        Some(Quantization::DynamicPerRow { .. }) => Err("a constant cannot be quantized dynamically".into()),
        Some(Quantization::PerChannel { axis, scales, .. }) => {
            let channels = shape.get(*axis).ok_or_else(|| format!("axis {axis} of its scales does not exist"))?;
            need("scales", scales.data.len(), channels * 4)
        }
        Some(Quantization::Blockwise { block, scales, scale_dtype, zero_points, .. }) => {
            if !matches!(scale_dtype, DType::F32 | DType::BF16) {
                return Err(format!("scales of type {scale_dtype}"));
            }
            if *block == 0 || !columns.is_multiple_of(*block) {
                return Err(format!("{columns} columns are not whole blocks of {block}"));
            }
            let blocks = rows * (columns / block);
            need("scales", scales.data.len(), blocks * scale_dtype.size())?;
            zero_points.as_ref().map_or(Ok(()), |points| need("zero points", points.data.len(), blocks))
        }
    }
}
