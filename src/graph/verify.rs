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
            self.verify_value(ValueId(index as u32), value)?;
            made[index] = !matches!(value.kind, ValueKind::Computed);
        }
        for (position, &input) in self.inputs.iter().enumerate() {
            self.in_range("graph inputs", input)?;
            if self.value(input).kind != ValueKind::Input(position) {
                return Err(self.bad_value(input, format!("it is listed as input {position}")));
            }
        }
        self.verify_states()?;
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
            for int in node.op.ints() {
                self.known_symbol(&place(), int)?;
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
                SymbolSource::InputItem { input, .. } => {
                    let value = self.values.get(self.inputs[input].0 as usize);
                    if value.is_none_or(|value| !shapes::is_integer(value)) {
                        return Err(bad("it names an element of an input without integers"));
                    }
                    continue;
                }
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

    fn verify_value(&self, id: ValueId, value: &Value) -> Result<(), VerifyError> {
        let bad = |why: String| VerifyError::Value { value: value.name.clone(), why };
        for &dim in &value.shape {
            self.known_symbol(&format!("value {}", value.name), dim)?;
            if matches!(dim, Int::Const(size) if size < 0) {
                return Err(bad(format!("a size is {}", self.bounds(dim).0)));
            }
        }
        let shape: Vec<usize> = value.shape.iter().map(|&dim| self.bounds(dim).1.max(0) as usize).collect();
        let count = element_count(&shape).map_err(|error| bad(error.to_string()))?;
        verify_codes(value).map_err(bad)?;
        match &value.kind {
            ValueKind::Constant(constant) => {
                if value.shape.iter().any(|dim| matches!(dim, Int::Symbol(_))) {
                    return Err(bad("a constant of unknown size".into()));
                }
                let need = match &value.quantization {
                    Some(quantization) if quantization.bits() < 8 => packed_bytes(&shape, quantization.bits()),
                    _ => count * value.dtype.size(),
                };
                if constant.data.len() != need {
                    return Err(bad(format!("{} bytes for a shape of {need}", constant.data.len())));
                }
                verify_quantization(&shape, value.quantization.as_ref()).map_err(bad)
            }
            ValueKind::State(state) => {
                let Some(target) = self.states.get(state.0 as usize) else {
                    return Err(self.no_state(&format!("value {}", value.name), state.0));
                };
                let same = value.shape.iter().copied().eq(target.shape.iter().map(|&dim| Int::from(dim)));
                let same = same && value.dtype == target.dtype && value.quantization.is_none();
                same.then_some(()).ok_or_else(|| bad(format!("state {} has another shape or type", target.name)))
            }
            ValueKind::Input(position) if self.inputs.get(*position) != Some(&id) => {
                Err(bad(format!("it calls itself input {position}, which is another")))
            }
            _ => Ok(()),
        }
    }

    fn verify_states(&self) -> Result<(), VerifyError> {
        for state in &self.states {
            let bad = |why: String| VerifyError::Value { value: format!("state {}", state.name), why };
            element_count(&state.shape).map_err(|error| bad(error.to_string()))?;
        }
        Ok(())
    }

    fn verify_state_updates(&self) -> Result<(), VerifyError> {
        for (index, &(state, value)) in self.state_updates.iter().enumerate() {
            let Some(target) = self.states.get(state.0 as usize) else {
                return Err(self.no_state("state updates", state.0));
            };
            if self.state_updates[..index].iter().any(|(other, _)| *other == state) {
                let value = self.value(value).name.clone();
                return Err(VerifyError::MadeTwice { place: format!("state {}", target.name), value });
            }
            let source = self.value(value);
            let same_shape = source.shape.iter().copied().eq(target.shape.iter().map(|&dim| Int::from(dim)));
            if source.dtype != target.dtype || !same_shape {
                return Err(VerifyError::StateUpdate { state: target.name.clone(), value: source.name.clone() });
            }
        }
        Ok(())
    }

    fn no_state(&self, place: &str, number: u32) -> VerifyError {
        VerifyError::OutOfRange { place: place.into(), what: "state", number, count: self.states.len() }
    }

    fn known_symbol(&self, place: &str, int: Int) -> Result<(), VerifyError> {
        let count = self.symbols.len();
        match int {
            Int::Symbol(id) if id.0 as usize >= count => {
                Err(VerifyError::OutOfRange { place: place.into(), what: "symbol", number: id.0, count })
            }
            _ => Ok(()),
        }
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

/// Codes must have as many bits as their type, or fewer in `U8`.
fn verify_codes(value: &Value) -> Result<(), String> {
    let Some(quantization) = &value.quantization else { return Ok(()) };
    let bits = quantization.bits();
    let fits = match bits {
        2 | 4 => value.dtype == DType::U8,
        _ => usize::from(bits) == 8 * value.dtype.size() && shapes::has_integer_type(value.dtype),
    };
    if !fits {
        return Err(format!("codes of {bits} bits in {}", value.dtype));
    }
    match quantization {
        Quantization::DynamicPerRow { nonbatch_dims }
            if *nonbatch_dims > value.shape.len() || value.dtype != DType::I8 =>
        {
            Err(format!("rows of {nonbatch_dims} axes in {} of rank {}", value.dtype, value.shape.len()))
        }
        _ => Ok(()),
    }
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
