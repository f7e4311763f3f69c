//! Run-time integers, computed from the inputs before any node runs.

use super::{Data, InterpretError, Tensor};
use crate::graph::{Graph, Int, SymbolSource};

/// The value of each symbol, within its bounds.
pub(super) fn evaluate(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<i64>, InterpretError> {
    if inputs.len() != graph.inputs.len() {
        return Err(InterpretError::InputCount { have: inputs.len(), need: graph.inputs.len() });
    }
    let mut values: Vec<i64> = Vec::with_capacity(graph.symbols.len());
    for symbol in &graph.symbols {
        let fail = |why| InterpretError::Symbol { symbol: symbol.name.clone(), why };
        let of = |int| value_of(int, &values);
        let value = match symbol.source {
            SymbolSource::InputDim { input, axis } => inputs[input].shape.get(axis).map(|&dim| dim as i64),
            SymbolSource::InputItem { input, index } => match &inputs[input].data {
                Data::Integer(data) => data.get(index).copied(),
                Data::Real(_) => None,
            },
            SymbolSource::Sum(a, b) => of(a).checked_add(of(b)),
            SymbolSource::Difference(a, b) => of(a).checked_sub(of(b)),
            SymbolSource::Product(a, b) => of(a).checked_mul(of(b)),
            SymbolSource::FloorQuotient(a, b) => floor_quotient(of(a), of(b)),
        };
        let value = value.ok_or_else(|| match symbol.source {
            SymbolSource::InputDim { .. } | SymbolSource::InputItem { .. } => fail("the input does not hold it"),
            _ => fail("its arithmetic overflows or divides by zero"),
        })?;
        if value < symbol.min || value > symbol.max {
            let (symbol, min, max) = (symbol.name.clone(), symbol.min, symbol.max);
            return Err(InterpretError::SymbolOutOfBounds { symbol, value, min, max });
        }
        values.push(value);
    }
    Ok(values)
}

/// Rounded towards minus infinity.
fn floor_quotient(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

pub(super) fn value_of(int: Int, symbols: &[i64]) -> i64 {
    match int {
        Int::Const(value) => value,
        Int::Symbol(id) => symbols[id.0 as usize],
    }
}

/// The shape in this run; the error names a negative size.
pub(super) fn shape(dims: &[Int], symbols: &[i64]) -> Result<Vec<usize>, String> {
    let size = |&dim| {
        let size = value_of(dim, symbols);
        usize::try_from(size).map_err(|_| format!("a size is {size}"))
    };
    dims.iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotients_round_down() {
        for (a, b, floor) in [(7, 2, 3), (-7, 2, -4), (7, -2, -4), (-7, -2, 3), (6, -2, -3), (0, 5, 0)] {
            assert_eq!(super::floor_quotient(a, b), Some(floor), "{a} / {b}");
        }
        assert_eq!(super::floor_quotient(1, 0), None);
        assert_eq!(super::floor_quotient(i64::MIN, -1), None);
    }
}
