//! Sizes and places of all values in a run. What does not depend on symbols that changed since the last run stays.

use super::EngineError;
use super::layout::Layout;
use super::memory::{Region, Slot};
use super::plan::{Home, Plan, View};
use super::steps::movement::place;
use super::symbols::value_of;
use crate::graph::{Int, ValueId};

/// How to find the slots of a plan's values.
#[derive(Debug)]
pub(super) struct Resolver {
    rules: Vec<Rule>, // a value comes after the one it lies in
    sizes: Vec<Int>,  // of all values, one after the other
    dims: usize,
}

#[derive(Debug)]
struct Rule {
    value: ValueId,
    home: Home,
    element: usize,
    first: usize,
    rank: usize,
    /// Symbols that its size or place follows from; the last bit stands for all from 63 on.
    depends: u64,
}

/// Sizes and places of values, as of the last run.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub slots: Vec<Slot>,
    pub dims: Vec<usize>,
    symbols: Option<Vec<i64>>,
}

impl Resolved {
    /// Makes the next run find everything anew.
    pub fn forget(&mut self) {
        self.symbols = None;
    }
}

impl Resolver {
    pub fn new(plan: &Plan) -> Self {
        let mut this = Self { rules: Vec::new(), sizes: Vec::new(), dims: 0 };
        let mut depends: Vec<Option<u64>> = vec![None; plan.homes.len()];
        for index in 0..plan.homes.len() {
            // The values that this one lies in, innermost first.
            let mut chain = vec![ValueId(index as u32)];
            while let Home::View(View { of, .. }) = plan.home(chain[chain.len() - 1]) {
                chain.push(of);
            }
            while let Some(value) = chain.pop() {
                if depends[value.0 as usize].is_none() && plan.home(value) != Home::Nowhere {
                    depends[value.0 as usize] = Some(this.add(plan, value, &depends));
                }
            }
        }
        this.dims = this.sizes.len();
        this
    }

    fn add(&mut self, plan: &Plan, value: ValueId, depends: &[Option<u64>]) -> u64 {
        let shape = &plan.graph.value(value).shape;
        let (first, rank) = (self.sizes.len(), shape.len());
        self.sizes.extend(shape);
        let mut mask = shape.iter().map(|&dim| bit(dim)).fold(0, |mask, bit| mask | bit);
        let home = plan.home(value);
        if let Home::View(View { of, start }) = home {
            mask |= depends[of.0 as usize].unwrap_or(u64::MAX) | start.map_or(0, |(_, start)| bit(start));
        }
        let element = plan.sizes[value.0 as usize];
        self.rules.push(Rule { value, home, element, first, rank, depends: mask });
        mask
    }

    /// Brings `resolved` up to date with `symbols`.
    pub fn resolve(
        &self,
        plan: &Plan,
        layout: &Layout,
        symbols: &[i64],
        resolved: &mut Resolved,
    ) -> Result<(), EngineError> {
        let changed = match resolved.symbols.take() {
            Some(mut old) => {
                let differ = old.iter().zip(symbols).enumerate().filter(|(_, (old, new))| old != new);
                let changed = differ.fold(0, |mask, (index, _)| mask | 1 << index.min(63));
                old.clear();
                old.extend_from_slice(symbols);
                resolved.symbols = Some(old);
                changed
            }
            None => {
                resolved.slots.clear();
                resolved.slots.resize(plan.homes.len(), Slot::NOWHERE);
                resolved.dims.clear();
                resolved.dims.resize(self.dims, 0);
                resolved.symbols = Some(symbols.to_vec());
                u64::MAX
            }
        };
        let all = changed == u64::MAX;
        for rule in self.rules.iter().filter(|rule| all || rule.depends & changed != 0) {
            if let Err(why) = self.apply(rule, layout, symbols, resolved) {
                resolved.forget();
                let name = plan.graph.value(rule.value).name.clone();
                let origin = plan.origins.get(&rule.value).unwrap_or(&plan.graph.name).clone();
                return Err(EngineError::Shape { origin, value: name, why });
            }
        }
        Ok(())
    }

    fn apply(&self, rule: &Rule, layout: &Layout, symbols: &[i64], resolved: &mut Resolved) -> Result<(), String> {
        let mut count = 1;
        for axis in rule.first..rule.first + rule.rank {
            let size = value_of(self.sizes[axis], symbols);
            let size = usize::try_from(size).map_err(|_| format!("a size is {size}"))?;
            resolved.dims[axis] = size;
            count *= size;
        }
        let len = count * rule.element;
        let (region, start) = match rule.home {
            Home::Buffer(buffer) => (Region::Arena, layout.offsets[buffer]),
            Home::Input(input) => (Region::Input(input), 0),
            Home::State(state) => (Region::State(state), 0),
            Home::Constant(constant) => (Region::Constant(constant), 0),
            Home::Nowhere => (Region::Arena, 0),
            Home::View(View { of, start }) => {
                let base = resolved.slots[of.0 as usize];
                match start {
                    None if len != base.len => {
                        let dims = &resolved.dims[base.dims..base.dims + base.rank];
                        return Err(format!("{count} elements where {dims:?} are given"));
                    }
                    None => (base.region, base.start),
                    Some((axis, start)) => {
                        let dims = &resolved.dims[base.dims..base.dims + base.rank];
                        let at = place(value_of(start, symbols), resolved.dims[rule.first + axis], 1, dims[axis])?;
                        let inner: usize = dims[axis + 1..].iter().product();
                        (base.region, base.start + at * inner * rule.element)
                    }
                }
            }
        };
        resolved.slots[rule.value.0 as usize] = Slot { region, start, len, dims: rule.first, rank: rule.rank };
        Ok(())
    }
}

fn bit(int: Int) -> u64 {
    match int {
        Int::Const(_) => 0,
        Int::Symbol(id) => 1 << id.0.min(63),
    }
}
