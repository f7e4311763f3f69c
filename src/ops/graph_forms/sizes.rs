//! Arithmetic on sizes and positions that may be known only when the method runs.

use super::{Fit, Unfit};
use crate::graph::{Graph, Int, SymbolSource};

/// A range of integers.
type Bounds = (i64, i64);

fn bounded(graph: &mut Graph, name: &str, source: SymbolSource, (min, max): Bounds) -> Fit<Int> {
    let known = matches!(
        source,
        SymbolSource::Sum(Int::Const(_), Int::Const(_))
            | SymbolSource::Difference(Int::Const(_), Int::Const(_))
            | SymbolSource::Product(Int::Const(_), Int::Const(_))
            | SymbolSource::FloorQuotient(Int::Const(_), Int::Const(_))
    );
    match graph.symbol(name, source, min, max) {
        Int::Symbol(_) if known => Unfit::why(format!("a {name} of known integers that overflows")),
        int => Ok(int),
    }
}

/// `a + b`
pub(super) fn sum(graph: &mut Graph, a: Int, b: Int) -> Fit<Int> {
    match (a, b) {
        (Int::Const(0), other) | (other, Int::Const(0)) => return Ok(other),
        // One order, so that equal sums are one symbol.
        (Int::Const(_), Int::Symbol(_)) => return sum(graph, b, a),
        (Int::Symbol(x), Int::Symbol(y)) if y < x => return sum(graph, b, a),
        _ => {}
    }
    // (x - b) + b
    if let Some(SymbolSource::Difference(x, y)) = source(graph, a)
        && y == b
    {
        return Ok(x);
    }
    let (left, right) = (graph.bounds(a), graph.bounds(b));
    let bounds = (left.0.saturating_add(right.0), left.1.saturating_add(right.1));
    bounded(graph, "sum", SymbolSource::Sum(a, b), bounds)
}

/// `a - b`
pub(super) fn difference(graph: &mut Graph, a: Int, b: Int) -> Fit<Int> {
    if b == Int::Const(0) {
        return Ok(a);
    }
    if a == b {
        return Ok(Int::Const(0));
    }
    if let Some(SymbolSource::Sum(x, y)) = source(graph, a) {
        if x == b {
            return Ok(y);
        }
        if y == b {
            return Ok(x);
        }
    }
    let (left, right) = (graph.bounds(a), graph.bounds(b));
    let bounds = (left.0.saturating_sub(right.1), left.1.saturating_sub(right.0));
    bounded(graph, "difference", SymbolSource::Difference(a, b), bounds)
}

/// `a · b`
pub(super) fn product(graph: &mut Graph, a: Int, b: Int) -> Fit<Int> {
    match (a, b) {
        (Int::Const(1), other) | (other, Int::Const(1)) => return Ok(other),
        (Int::Const(_), Int::Symbol(_)) => return product(graph, b, a),
        (Int::Symbol(x), Int::Symbol(y)) if y < x => return product(graph, b, a),
        _ => {}
    }
    let (left, right) = (graph.bounds(a), graph.bounds(b));
    let corners = [(left.0, right.0), (left.0, right.1), (left.1, right.0), (left.1, right.1)];
    let corners = corners.map(|(a, b)| a.saturating_mul(b));
    let bounds = (corners.into_iter().fold(i64::MAX, i64::min), corners.into_iter().fold(i64::MIN, i64::max));
    bounded(graph, "product", SymbolSource::Product(a, b), bounds)
}

/// `a / b`, rounded down, for a positive `b`.
pub(super) fn floor_quotient(graph: &mut Graph, a: Int, b: i64) -> Fit<Int> {
    if b < 1 {
        return Unfit::why(format!("a division by {b}"));
    }
    if b == 1 {
        return Ok(a);
    }
    let (min, max) = graph.bounds(a);
    let bounds = (min.div_euclid(b), max.div_euclid(b));
    bounded(graph, "quotient", SymbolSource::FloorQuotient(a, Int::Const(b)), bounds)
}

fn source(graph: &Graph, int: Int) -> Option<SymbolSource> {
    match int {
        Int::Const(_) => None,
        Int::Symbol(id) => Some(graph.symbols[id.0 as usize].source),
    }
}

/// Restricts every run to those in which `int` is within `bounds`: in all others the method's operators would fail.
pub(super) fn restrict(graph: &mut Graph, int: Int, (low, high): Bounds) -> Fit {
    match int {
        Int::Const(value) if (low..=high).contains(&value) => Ok(()),
        Int::Const(value) => Unfit::why(format!("{value} where {low}..={high} is possible")),
        Int::Symbol(id) => {
            let symbol = &mut graph.symbols[id.0 as usize];
            (symbol.min, symbol.max) = (symbol.min.max(low), symbol.max.min(high));
            if symbol.min > symbol.max {
                return Unfit::why(format!("{} is never within {low}..={high}", symbol.name));
            }
            Ok(())
        }
    }
}

/// Demands that `a` and `b` are equal in every run.
pub(super) fn equal(a: Int, b: Int) -> Fit {
    if a == b { Ok(()) } else { Err(Unfit::Unequal(a, b)) }
}

/// The shape that both broadcast to.
pub(super) fn broadcast(a: &[Int], b: &[Int]) -> Fit<Vec<Int>> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut shape = long.to_vec();
    for (to, &from) in shape.iter_mut().rev().zip(short.iter().rev()) {
        if *to == Int::Const(1) {
            *to = from;
        } else if from != Int::Const(1) {
            equal(*to, from)?;
        }
    }
    Ok(shape)
}

/// `sizes` with its -1, if there is one, replaced by what is left of the elements of `from`; both must have as many.
pub(super) fn reshape(graph: &mut Graph, from: &[Int], sizes: &[Int]) -> Fit<Vec<Int>> {
    let mut shape = sizes.to_vec();
    let open = sizes.iter().position(|&size| size == Int::Const(-1));
    let others = sizes.iter().enumerate().filter(|(axis, _)| Some(*axis) != open).map(|(_, &size)| size);
    let (mut known, mut unknown) = volume(from)?;
    let (needed, symbols) = volume(&others.collect::<Vec<_>>())?;
    for symbol in symbols {
        match unknown.iter().position(|&other| other == symbol) {
            Some(place) => {
                unknown.swap_remove(place);
            }
            // Holds for one value of the symbol at most.
            None => return Err(Unfit::Unequal(symbol, Int::Const(graph.bounds(symbol).1))),
        }
    }
    match open {
        Some(open) if needed > 0 && known % needed == 0 => {
            known /= needed;
            unknown.sort_by_key(|int| match int {
                Int::Symbol(id) => id.0,
                Int::Const(_) => 0,
            });
            let mut left = Int::Const(known);
            for symbol in unknown {
                left = product(graph, symbol, left)?;
            }
            shape[open] = left;
            Ok(shape)
        }
        None if known == needed => match unknown.first() {
            None => Ok(shape),
            Some(&symbol) => Err(Unfit::Unequal(symbol, Int::Const(1))),
        },
        _ => match unknown.first() {
            Some(&symbol) => Err(Unfit::Unequal(symbol, Int::Const(graph.bounds(symbol).1))),
            None => Unfit::why(format!("{known} elements in the shape {sizes:?}")),
        },
    }
}

/// Number of elements, as a known factor and unknown ones.
fn volume(dims: &[Int]) -> Fit<(i64, Vec<Int>)> {
    let (mut known, mut unknown) = (1i64, Vec::new());
    for &dim in dims {
        match dim {
            Int::Const(size) if size < 0 => return Unfit::why(format!("a size of {size}")),
            Int::Const(size) => match known.checked_mul(size) {
                Some(product) => known = product,
                None => return Unfit::why(format!("a tensor of shape {dims:?}")),
            },
            symbol => unknown.push(symbol),
        }
    }
    Ok((known, unknown))
}

/// `dim` of a tensor of `rank` dimensions, counted from the end when it is negative.
pub(super) fn axis(dim: i64, rank: usize) -> Fit<usize> {
    let found = if dim < 0 { dim.checked_add(rank as i64) } else { Some(dim) };
    match found.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank) {
        Some(axis) => Ok(axis),
        None => Unfit::why(format!("dimension {dim} of {rank}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Int::Const;

    fn symbols() -> (Graph, Int, Int) {
        let mut graph = Graph::new("g");
        let tokens = graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 1 }, 1, 127);
        let start = graph.symbol("start", SymbolSource::InputItem { input: 1, index: 0 }, i64::MIN, i64::MAX);
        (graph, tokens, start)
    }

    #[test]
    fn the_end_less_the_start_is_the_number_of_tokens() {
        let (mut graph, tokens, start) = symbols();
        let end = sum(&mut graph, start, tokens).unwrap();
        assert_eq!(sum(&mut graph, tokens, start), Ok(end));
        assert_eq!(difference(&mut graph, end, start), Ok(tokens));
        assert_eq!(difference(&mut graph, end, tokens), Ok(start));
        let last = difference(&mut graph, tokens, Const(1)).unwrap();
        assert_eq!((graph.bounds(last), sum(&mut graph, last, Const(1))), ((0, 126), Ok(tokens)));
        assert_eq!(difference(&mut graph, start, start), Ok(Const(0)));
        assert_eq!(floor_quotient(&mut graph, Const(-7), 2), Ok(Const(-4)));
        assert!(sum(&mut graph, Const(i64::MAX), Const(1)).is_err());
        assert!(floor_quotient(&mut graph, tokens, 0).is_err());
    }

    #[test]
    fn restrictions_meet() {
        let (mut graph, tokens, start) = symbols();
        restrict(&mut graph, start, (0, 127)).unwrap();
        restrict(&mut graph, start, (i64::MIN, 100)).unwrap();
        assert_eq!(graph.bounds(start), (0, 100));
        assert!(restrict(&mut graph, start, (101, 200)).is_err());
        assert!(restrict(&mut graph, tokens, (1, 127)).is_ok());
        assert!(restrict(&mut graph, Const(3), (4, 5)).is_err());
    }

    #[test]
    fn reshapes_keep_what_is_unknown() {
        let (mut graph, tokens, _) = symbols();
        let mut shape = |from: &[Int], to: &[Int]| reshape(&mut graph, from, to);
        assert_eq!(
            shape(&[Const(1), tokens, Const(64)], &[Const(1), tokens, Const(8), Const(-1)]),
            Ok(vec![Const(1), tokens, Const(8), Const(8)])
        );
        assert_eq!(shape(&[tokens, Const(64)], &[Const(-1), Const(64)]), Ok(vec![tokens, Const(64)]));
        assert_eq!(shape(&[tokens, Const(64)], &[Const(64), tokens]), Ok(vec![Const(64), tokens]));
        assert_eq!(shape(&[tokens, Const(2)], &[Const(127), Const(2)]), Err(Unfit::Unequal(tokens, Const(127))));
        assert_eq!(shape(&[Const(127), Const(2)], &[tokens, Const(2)]), Err(Unfit::Unequal(tokens, Const(127))));
        assert!(shape(&[Const(6)], &[Const(4), Const(-1)]).is_err());
        assert!(shape(&[Const(6)], &[Const(0), Const(-1)]).is_err());
        let folded = shape(&[tokens, Const(64)], &[Const(-1), Const(16)]).unwrap();
        assert_eq!(graph.bounds(folded[0]), (4, 508));
    }
}
