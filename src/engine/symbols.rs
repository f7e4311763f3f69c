//! Run-time integers: their values in a run, and their bounds when the sizes of the inputs are bounded.

use super::EngineError;
use super::integers;
use crate::graph::{Int, Symbol, SymbolSource};
use crate::tensor::DType;

/// One input of a run.
#[derive(Debug, Clone, Copy)]
pub struct InputView<'a> {
    /// Sizes, outermost first.
    pub dims: &'a [usize],
    /// Elements, little-endian, row by row.
    pub bytes: &'a [u8],
}

/// Finds the value of every symbol, in order, within its bounds. `dtypes` are those of the inputs.
pub(super) fn evaluate(
    symbols: &[Symbol],
    inputs: &[InputView<'_>],
    dtypes: &[DType],
    values: &mut Vec<i64>,
) -> Result<(), EngineError> {
    values.clear();
    for symbol in symbols {
        let fail = |why| EngineError::Symbol { symbol: symbol.name.clone(), why };
        let of = |int| value_of(int, values);
        let value = match symbol.source {
            SymbolSource::InputDim { input, axis } => {
                let dim = inputs.get(input).and_then(|input| input.dims.get(axis));
                dim.and_then(|&dim| i64::try_from(dim).ok()).ok_or_else(|| fail("no input has this axis"))?
            }
            SymbolSource::InputItem { input, index } => {
                let item = inputs.get(input).zip(dtypes.get(input));
                item.and_then(|(input, &dtype)| integers::get(dtype, input.bytes, index))
                    .ok_or_else(|| fail("the input has no such element"))?
            }
            SymbolSource::Sum(a, b) => of(a).checked_add(of(b)).ok_or_else(|| fail("it overflows"))?,
            SymbolSource::Difference(a, b) => of(a).checked_sub(of(b)).ok_or_else(|| fail("it overflows"))?,
            SymbolSource::Product(a, b) => of(a).checked_mul(of(b)).ok_or_else(|| fail("it overflows"))?,
            SymbolSource::FloorQuotient(a, b) => {
                floor_quotient(of(a), of(b)).ok_or_else(|| fail("it is divided by zero or overflows"))?
            }
        };
        if value < symbol.min || value > symbol.max {
            let Symbol { name, min, max, .. } = symbol.clone();
            return Err(EngineError::SymbolOutOfBounds { symbol: name, value, min, max });
        }
        values.push(value);
    }
    Ok(())
}

/// `int` when the symbols have these values.
pub(super) fn value_of(int: Int, symbols: &[i64]) -> i64 {
    match int {
        Int::Const(value) => value,
        Int::Symbol(id) => symbols[id.0 as usize],
    }
}

/// Upper bounds of all symbols in a class of runs like the one with `values`: inputs whose dynamic sizes are at most
/// these, rounded up to powers of two, and whatever elements inputs may hold.
pub(super) fn limits(symbols: &[Symbol], values: &[i64]) -> Vec<i64> {
    let mut bounds: Vec<(i64, i64)> = Vec::with_capacity(symbols.len());
    for (symbol, &value) in symbols.iter().zip(values) {
        let of = |int| match int {
            Int::Const(value) => (value, value),
            Int::Symbol(id) => bounds[id.0 as usize],
        };
        let (low, high) = match symbol.source {
            SymbolSource::InputDim { .. } => (symbol.min, rounded(value)),
            SymbolSource::InputItem { .. } => (symbol.min, symbol.max),
            SymbolSource::Sum(a, b) => {
                let (a, b) = (of(a), of(b));
                (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
            }
            SymbolSource::Difference(a, b) => {
                let (a, b) = (of(a), of(b));
                (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0))
            }
            SymbolSource::Product(a, b) => corners(of(a), of(b), |a, b| Some(a.saturating_mul(b))),
            SymbolSource::FloorQuotient(a, b) => match of(b) {
                (low, high) if low <= 0 && high >= 0 => (symbol.min, symbol.max),
                b => corners(of(a), b, floor_quotient),
            },
        };
        bounds.push((low.max(symbol.min).min(value), high.min(symbol.max).max(value)));
    }
    bounds.into_iter().map(|(_, high)| high).collect()
}

/// The class of a dynamic size: the power of two that it rounds up to.
pub(super) fn rounded(size: i64) -> i64 {
    u64::try_from(size)
        .ok()
        .and_then(u64::checked_next_power_of_two)
        .and_then(|size| i64::try_from(size).ok())
        .unwrap_or(size)
}

fn corners(a: (i64, i64), b: (i64, i64), apply: impl Fn(i64, i64) -> Option<i64>) -> (i64, i64) {
    let all = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)].map(|(a, b)| apply(a, b).unwrap_or(i64::MAX));
    (all.into_iter().fold(i64::MAX, i64::min), all.into_iter().fold(i64::MIN, i64::max))
}

/// Rounded towards minus infinity.
fn floor_quotient(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, SymbolId};

    fn position_program() -> Graph {
        let mut graph = Graph::new("positions");
        let tokens = graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 1 }, 1, 127);
        graph.add_input("tokens", DType::I64, vec![1usize.into(), tokens]);
        graph.add_input("input_pos", DType::I64, vec![1usize.into()]);
        let position = graph.symbol("input_pos", SymbolSource::InputItem { input: 1, index: 0 }, 0, 127);
        let end = graph.symbol("end", SymbolSource::Sum(tokens, position), 1, 128);
        graph.symbol("left", SymbolSource::Difference(Int::Const(128), end), 0, 128);
        graph.symbol("half", SymbolSource::FloorQuotient(end, Int::Const(-2)), -64, 0);
        graph
    }

    fn run(graph: &Graph, tokens: usize, position: i64) -> Result<Vec<i64>, EngineError> {
        let (ids, position) = (vec![0; tokens * 8], position.to_le_bytes());
        let inputs = [InputView { dims: &[1, tokens], bytes: &ids }, InputView { dims: &[1], bytes: &position }];
        let mut values = Vec::new();
        evaluate(&graph.symbols, &inputs, &[DType::I64, DType::I64], &mut values).map(|()| values)
    }

    #[test]
    fn values_follow_from_inputs() {
        assert_eq!(run(&position_program(), 3, 10).unwrap(), [3, 10, 13, 115, -7]);
    }

    #[test]
    fn positions_beyond_the_cache_name_the_symbol() {
        for (tokens, position, symbol, value) in
            [(1, 128, "input_pos", 128), (1, -1, "input_pos", -1), (2, 127, "end", 129), (128, 0, "tokens", 128)]
        {
            match run(&position_program(), tokens, position) {
                Err(EngineError::SymbolOutOfBounds { symbol: name, value: found, .. }) => {
                    assert_eq!((name.as_str(), found), (symbol, value));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn missing_element_and_overflow_are_errors() {
        let mut graph = position_program();
        let Int::Symbol(SymbolId(id)) = graph.symbol("far", SymbolSource::InputItem { input: 1, index: 1 }, 0, 1)
        else {
            panic!()
        };
        assert!(matches!(run(&graph, 1, 0), Err(EngineError::Symbol { .. })));
        graph.symbols.truncate(id as usize);
        graph.symbol("huge", SymbolSource::Product(Int::Symbol(SymbolId(1)), Int::Const(i64::MAX)), 0, i64::MAX);
        assert!(matches!(run(&graph, 1, 2), Err(EngineError::Symbol { .. })));
    }

    #[test]
    fn limits_hold_for_every_run_of_the_class() {
        let graph = position_program();
        assert_eq!(limits(&graph.symbols, &run(&graph, 1, 5).unwrap()), [1, 127, 128, 127, -1]);
        let of_five = limits(&graph.symbols, &run(&graph, 5, 5).unwrap());
        assert_eq!(of_five[0], 8);
        for tokens in 1..=8 {
            for position in 0..=120 {
                let values = run(&graph, tokens, position).unwrap();
                assert!(values.iter().zip(&of_five).all(|(value, limit)| value <= limit), "{values:?} {of_five:?}");
            }
        }
        assert_eq!(limits(&graph.symbols, &run(&graph, 100, 5).unwrap())[0], 127);
    }
}
