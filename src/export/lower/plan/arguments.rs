//! Arguments of calls that are no tensors: literals, of which one of each is enough, and integers known at run time.

use super::super::symbols;
use super::PlanBuilder;
use crate::graph::{Int, SymbolId, SymbolSource};
use crate::pte::EValue;

/// Values that never change, so that one of each is enough.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Literal {
    Null,
    Int(i64),
    Bool(bool),
    /// As bits.
    Double(u64),
    Text(&'static str),
    /// Elements are values of the plan.
    Ints(Vec<u32>),
}

impl PlanBuilder<'_, '_> {
    fn literal(&mut self, literal: Literal) -> u32 {
        if let Some(&index) = self.literals.get(&literal) {
            return index;
        }
        let index = self.plan.push(match literal.clone() {
            Literal::Null => EValue::Null,
            Literal::Int(int) => EValue::Int(int),
            Literal::Bool(bool) => EValue::Bool(bool),
            Literal::Double(bits) => EValue::Double(f64::from_bits(bits)),
            Literal::Text(text) => EValue::String(text.to_owned()),
            Literal::Ints(items) => EValue::IntList(items),
        });
        self.literals.insert(literal, index);
        index
    }

    /// Nothing, for an optional argument.
    pub fn null(&mut self) -> u32 {
        self.literal(Literal::Null)
    }

    /// An integer argument.
    pub fn int(&mut self, int: i64) -> u32 {
        self.literal(Literal::Int(int))
    }

    /// A truth value.
    pub fn bool(&mut self, bool: bool) -> u32 {
        self.literal(Literal::Bool(bool))
    }

    /// A real number.
    pub fn double(&mut self, real: f64) -> u32 {
        self.literal(Literal::Double(real.to_bits()))
    }

    /// A text.
    pub fn text(&mut self, text: &'static str) -> u32 {
        self.literal(Literal::Text(text))
    }

    /// A list of integers.
    pub fn ints(&mut self, ints: &[i64]) -> u32 {
        let items = ints.iter().map(|&int| self.int(int)).collect();
        self.literal(Literal::Ints(items))
    }

    /// A list of integers that may be known only at run time.
    pub fn sizes(&mut self, ints: &[Int]) -> u32 {
        let items = ints.iter().map(|&int| self.integer(int)).collect();
        self.literal(Literal::Ints(items))
    }

    /// A list of tensors.
    pub(in crate::export::lower) fn tensors(&mut self, items: Vec<u32>) -> u32 {
        self.plan.push(EValue::TensorList(items))
    }

    /// A list of tensors of which some are missing.
    pub(in crate::export::lower) fn optional_tensors(&mut self, items: Vec<Option<u32>>) -> u32 {
        self.plan.push(EValue::OptionalTensorList(items))
    }

    /// An integer of the graph; a symbol is computed where it is first used.
    pub fn integer(&mut self, int: Int) -> u32 {
        match int {
            Int::Const(int) => self.int(int),
            Int::Symbol(id) => match self.symbols[id.0 as usize] {
                Some(index) => index,
                None => {
                    let index = symbols::compute(self, self.graph.symbols[id.0 as usize].source);
                    self.symbols[id.0 as usize] = Some(index);
                    index
                }
            },
        }
    }

    /// An integer that the graph has no symbol for, or may have one for.
    pub(in crate::export::lower) fn derived(&mut self, source: SymbolSource) -> u32 {
        if let Some(symbol) = self.graph.symbols.iter().position(|symbol| symbol.source == source) {
            return self.integer(Int::Symbol(SymbolId(symbol as u32)));
        }
        if let Some((_, index)) = self.derived.iter().find(|(known, _)| *known == source) {
            return *index;
        }
        let index = symbols::compute(self, source);
        self.derived.push((source, index));
        index
    }

    /// The tensor that holds `start..start + count`, if [`Self::remember_range`] named one.
    pub(in crate::export::lower) fn range(&self, start: Int, count: Int) -> Option<u32> {
        self.ranges.get(&(start, count)).copied()
    }

    /// Says that tensor `index` holds numbers from the first of the pair on, as many as the second says.
    pub(in crate::export::lower) fn remember_range(&mut self, range: (Int, Int), index: u32) {
        self.ranges.insert(range, index);
    }

    /// An integer that instructions set.
    pub(in crate::export::lower) fn integer_result(&mut self) -> u32 {
        self.plan.push(EValue::Int(0))
    }
}
