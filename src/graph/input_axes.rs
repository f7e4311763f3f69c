//! Which sizes of a graph's inputs vary, found by trying: every size that may vary starts as a symbol of its own, and each
//! refusal of two sizes that must be equal makes them so, until nothing is refused.
//!
//! This ends with the most general shapes that make every node fit. An axis that shares its symbol with an earlier one,
//! or has a fixed size, is checked by whoever binds the inputs: a value's shape states it.

use super::{Graph, Int, SymbolSource};

/// What is known of the axes of all inputs.
#[derive(Debug, Clone)]
pub struct InputAxes {
    /// Of each input, of each axis: the largest size, and the first axis that is always as long.
    axes: Vec<Vec<(usize, Sized)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sized {
    /// Always the largest size.
    Fixed,
    /// As axis `.1` of input `.0`, which may be this one.
    Like(usize, usize),
}

impl InputAxes {
    /// Largest sizes of each input, and whether they may be smaller. A size of 1 never is.
    pub fn new<'a>(inputs: impl IntoIterator<Item = (&'a [usize], bool)>) -> Self {
        let axes = |(input, (dims, dynamic)): (usize, (&[usize], bool))| {
            let sized = |axis, dim| if dynamic && dim > 1 { Sized::Like(input, axis) } else { Sized::Fixed };
            dims.iter().enumerate().map(|(axis, &dim)| (dim, sized(axis, dim))).collect()
        };
        Self { axes: inputs.into_iter().enumerate().map(axes).collect() }
    }

    /// The shape of input `input`, with symbols of `graph`.
    pub fn shape(&self, graph: &mut Graph, input: usize) -> Vec<Int> {
        let axes = self.axes.get(input).map_or(&[][..], Vec::as_slice);
        axes.iter()
            .map(|&(dim, sized)| match sized {
                Sized::Fixed => dim.into(),
                Sized::Like(input, axis) => {
                    let source = SymbolSource::InputDim { input, axis };
                    graph.symbol(format!("input{input}.dim{axis}"), source, 1, dim as i64)
                }
            })
            .collect()
    }

    /// Makes two sizes of `graph` equal from now on, where all runs that are worth anything have them equal: two axes
    /// share a symbol, or an axis has the one number that it is compared with. False when that is not so.
    pub fn unite(&mut self, graph: &Graph, left: Int, right: Int) -> bool {
        match (self.axis(graph, left), self.axis(graph, right)) {
            (Some(left), Some(right)) if self.dim(left) == self.dim(right) => {
                let (first, second) = (left.min(right), left.max(right));
                self.replace(Sized::Like(second.0, second.1), Sized::Like(first.0, first.1));
                true
            }
            (Some(axis), None) | (None, Some(axis)) => {
                let other = if self.axis(graph, left).is_some() { right } else { left };
                let equal = other == Int::from(self.dim(axis));
                if equal {
                    self.replace(Sized::Like(axis.0, axis.1), Sized::Fixed);
                }
                equal
            }
            _ => false,
        }
    }

    /// As [`Self::unite`]; where a size is computed from others, it makes every size the largest, at which alone the
    /// two may be equal. False when they cannot be.
    pub fn make_equal(&mut self, graph: &Graph, left: Int, right: Int) -> bool {
        if self.unite(graph, left, right) {
            return true;
        }
        let known = |size| matches!(size, Int::Const(_));
        let both_axes = self.axis(graph, left).is_some() && self.axis(graph, right).is_some();
        if both_axes || (known(left) && known(right)) || graph.bounds(left).1 != graph.bounds(right).1 {
            return false;
        }
        self.fix_all();
        true
    }

    /// The axis that a symbol is the size of.
    fn axis(&self, graph: &Graph, size: Int) -> Option<(usize, usize)> {
        let Int::Symbol(id) = size else { return None };
        match graph.symbols[id.0 as usize].source {
            SymbolSource::InputDim { input, axis } => Some((input, axis)),
            _ => None,
        }
    }

    fn dim(&self, (input, axis): (usize, usize)) -> usize {
        self.axes[input][axis].0
    }

    fn replace(&mut self, old: Sized, new: Sized) {
        self.axes.iter_mut().flatten().filter(|(_, sized)| *sized == old).for_each(|(_, sized)| *sized = new);
    }

    /// Makes every size the largest.
    pub fn fix_all(&mut self) {
        self.axes.iter_mut().flatten().for_each(|(_, sized)| *sized = Sized::Fixed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    /// A graph with inputs [1, 8], [8, 4] and the symbol 2 · the first's second size.
    fn graph(axes: &InputAxes) -> (Graph, Vec<Vec<Int>>, Int) {
        let mut graph = Graph::new("g");
        let shapes: Vec<_> = (0..2).map(|input| axes.shape(&mut graph, input)).collect();
        for shape in &shapes {
            graph.add_input("x", DType::F32, shape.clone());
        }
        let double = graph.symbol("double", SymbolSource::Product(shapes[0][1], Int::Const(2)), 2, 16);
        (graph, shapes, double)
    }

    #[test]
    fn axes_share_a_symbol_or_get_their_number() {
        let mut axes = InputAxes::new([(&[1usize, 8][..], true), (&[8, 4], true), (&[5], false)]);
        let (first, shapes, double) = graph(&axes);
        assert_eq!((shapes[0][0], axes.shape(&mut Graph::new("g"), 2)), (Int::Const(1), vec![Int::Const(5)]));
        let [tokens, rows, columns] = [shapes[0][1], shapes[1][0], shapes[1][1]];
        assert!(!axes.unite(&first, tokens, columns) && !axes.unite(&first, tokens, Int::Const(7)));
        assert!(!axes.unite(&first, tokens, double) && !axes.make_equal(&first, tokens, double));
        assert!(axes.unite(&first, rows, tokens) && axes.unite(&first, Int::Const(4), columns));
        let (second, shapes, double) = graph(&axes);
        assert_eq!(shapes[1], [shapes[0][1], Int::Const(4)]);
        assert!(!axes.unite(&second, double, Int::Const(16)));
        assert!(axes.make_equal(&second, double, Int::Const(16)));
        assert_eq!(graph(&axes).1[0], [Int::Const(1), Int::Const(8)]);
    }
}
