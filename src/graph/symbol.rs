//! Integers that are known only when the graph runs: the number of tokens, the position.

/// A symbol's number in [`Graph::symbols`](super::Graph::symbols).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolId(pub u32);

/// An integer: written in the graph, or a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Int {
    /// Known now.
    Const(i64),
    /// Known at run time.
    Symbol(SymbolId),
}

impl From<usize> for Int {
    fn from(value: usize) -> Self {
        Self::Const(value as i64)
    }
}

/// A run-time integer with its bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Symbol {
    /// For messages and dumps: `tokens`, `input_pos`.
    pub name: String,
    /// Where it comes from.
    pub source: SymbolSource,
    /// Smallest value it may take; a run outside the bounds is refused.
    pub min: i64,
    /// Largest value it may take.
    pub max: i64,
}

/// Where a symbol's value comes from. Everything is known before the first node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SymbolSource {
    /// Current size of axis `axis` of graph input `input`.
    InputDim {
        input: usize,
        axis: usize,
    },
    /// Element `index` of the integer tensor that is graph input `input`.
    InputItem {
        input: usize,
        index: usize,
    },
    Sum(Int, Int),
    Difference(Int, Int),
    Product(Int, Int),
    /// Rounded towards minus infinity.
    FloorQuotient(Int, Int),
}
