//! Shapes of results, where sizes may be known only at run time: two sizes count as equal only when they are the same
//! number or the same symbol, so that what is inferred holds in every run.

use crate::graph::{Graph, Int, SymbolSource};

/// Why operands have no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// Two sizes that would have to be equal.
    Unequal(Int, Int),
    /// Anything else.
    Why(String),
}

type Result<T, E = Misfit> = std::result::Result<T, E>;

pub(super) fn equal(a: Int, b: Int) -> Result<()> {
    if a == b { Ok(()) } else { Err(Misfit::Unequal(a, b)) }
}

/// The shape that both broadcast to.
pub(super) fn broadcast(a: &[Int], b: &[Int]) -> Result<Vec<Int>> {
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

/// `from` in the form `sizes`, of which one 0 stands for what is left.
pub(super) fn reshape(graph: &mut Graph, from: &[Int], sizes: &[usize]) -> Result<Vec<Int>> {
    let absurd = || Misfit::Why(format!("a shape {from:?} is too large"));
    let mut numbers = 1i64;
    let mut symbols = Vec::new();
    for &dim in from {
        match dim {
            Int::Const(size) => numbers = numbers.checked_mul(size).ok_or_else(absurd)?,
            symbol => symbols.push(symbol),
        }
    }
    let stated = sizes.iter().filter(|&&size| size > 0).try_fold(1i64, |all, &size| all.checked_mul(size as i64));
    let stated = stated.ok_or_else(absurd)?;
    let mut to: Vec<Int> = sizes.iter().map(|&size| size.into()).collect();
    let rest = sizes.iter().position(|&size| size == 0);
    let Some((&first, others)) = symbols.split_first() else {
        match rest {
            Some(rest) if numbers % stated == 0 => to[rest] = Int::Const(numbers / stated),
            None if numbers == stated => {}
            _ => return Err(Misfit::Why(format!("{numbers} elements cannot have shape {sizes:?}"))),
        }
        return Ok(to);
    };
    match rest {
        Some(rest) if numbers % stated == 0 => {
            let mut left = first;
            for &factor in others.iter().chain((numbers != stated).then_some(&Int::Const(numbers / stated))) {
                left = product(graph, left, factor).ok_or_else(absurd)?;
            }
            to[rest] = left;
            Ok(to)
        }
        // Holds at most for one value of a symbol: the largest, which the exporter had in mind. Of several, the inner
        // ones are the least likely to vary.
        _ => {
            let inner = others.last().copied().unwrap_or(first);
            Err(Misfit::Unequal(inner, Int::Const(graph.bounds(inner).1)))
        }
    }
}

fn product(graph: &mut Graph, a: Int, b: Int) -> Option<Int> {
    let ((a_min, a_max), (b_min, b_max)) = (graph.bounds(a), graph.bounds(b));
    let (min, max) = (a_min.checked_mul(b_min)?, a_max.checked_mul(b_max)?);
    Some(graph.symbol("product", SymbolSource::Product(a, b), min, max))
}

/// The size of two joined axes; `None` when it is absurd.
pub(super) fn sum(graph: &mut Graph, a: Int, b: Int) -> Option<Int> {
    let ((a_min, a_max), (b_min, b_max)) = (graph.bounds(a), graph.bounds(b));
    let (min, max) = (a_min.checked_add(b_min)?, a_max.checked_add(b_max)?);
    Some(graph.symbol("sum", SymbolSource::Sum(a, b), min, max))
}

/// `rows [.., m, k]` and `columns [.., k, n]` (`[.., n, k]` when `transposed`) → `[.., m, n]`.
pub(super) fn matmul(rows: &[Int], columns: &[Int], transposed: bool) -> Result<Vec<Int>> {
    let (Some((&[m, k], rows)), Some((&[mut inner, mut n], columns))) =
        (rows.split_last_chunk().map(|(a, b)| (b, a)), columns.split_last_chunk().map(|(a, b)| (b, a)))
    else {
        return Err(Misfit::Why("a matrix has two axes".into()));
    };
    if transposed {
        std::mem::swap(&mut inner, &mut n);
    }
    equal(k, inner)?;
    let mut shape = broadcast(rows, columns)?;
    shape.extend([m, n]);
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Int::Const;

    fn tokens(graph: &mut Graph) -> Int {
        graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 0 }, 1, 127)
    }

    #[test]
    fn a_symbol_is_equal_to_itself_only() {
        let t = tokens(&mut Graph::new("test"));
        assert_eq!(broadcast(&[t, Const(1)], &[Const(3)]), Ok(vec![t, Const(3)]));
        assert_eq!(broadcast(&[Const(1)], &[Const(2), t]), Ok(vec![Const(2), t]));
        assert_eq!(broadcast(&[t], &[Const(127)]), Err(Misfit::Unequal(t, Const(127))));
        assert_eq!(broadcast(&[Const(2)], &[Const(3)]), Err(Misfit::Unequal(Const(2), Const(3))));
    }

    #[test]
    fn reshape_infers_what_is_left() {
        let graph = &mut Graph::new("test");
        let t = tokens(graph);
        assert_eq!(reshape(graph, &[Const(6), Const(4)], &[3, 0]), Ok(vec![Const(3), Const(8)]));
        assert_eq!(reshape(graph, &[Const(1), t, Const(64)], &[1, 0, 8, 8]), Ok(vec![Const(1), t, Const(8), Const(8)]));
        let folded = reshape(graph, &[t, Const(64)], &[0, 16]).unwrap();
        assert_eq!(graph.bounds(folded[0]), (4, 508));
        assert_eq!(graph.symbols[1].source, SymbolSource::Product(t, Const(4)));
    }

    #[test]
    fn reshape_refuses_what_only_some_sizes_allow() {
        let graph = &mut Graph::new("test");
        let t = tokens(graph);
        assert_eq!(reshape(graph, &[t, Const(2)], &[127, 2]), Err(Misfit::Unequal(t, Const(127))));
        assert_eq!(reshape(graph, &[t, Const(2)], &[0, 4]), Err(Misfit::Unequal(t, Const(127))));
        assert!(matches!(reshape(graph, &[Const(6)], &[4, 0]), Err(Misfit::Why(_))));
        assert!(matches!(reshape(graph, &[Const(6)], &[5]), Err(Misfit::Why(_))));
        assert!(matches!(reshape(graph, &[Const(i64::MAX), Const(2)], &[0]), Err(Misfit::Why(_))));
    }

    #[test]
    fn sums_and_products_that_overflow_are_refused() {
        let graph = &mut Graph::new("test");
        assert_eq!(sum(graph, Const(i64::MAX), Const(1)), None);
        assert_eq!(product(graph, Const(i64::MAX), Const(2)), None);
        assert_eq!(sum(graph, Const(2), Const(3)), Some(Const(5)));
    }

    #[test]
    fn matrices_must_share_an_axis() {
        let t = tokens(&mut Graph::new("test"));
        let (a, b) = ([Const(8), t, Const(16)], [Const(8), Const(5), Const(16)]);
        assert_eq!(matmul(&a, &b, true), Ok(vec![Const(8), t, Const(5)]));
        assert_eq!(matmul(&a, &b, false), Err(Misfit::Unequal(Const(16), Const(5))));
        assert!(matches!(matmul(&a, &b[..1], true), Err(Misfit::Why(_))));
    }
}
