//! What a step sees of memory: its results, each to write alone, and then everything else to read.
//!
//! Results are carved out of the arena and the states by splitting slices, so that a plan which let a result overlap an
//! operand would be found out here, by the borrow of that very step, and not by wrong numbers.

use super::constant::ConstantBytes;
use super::symbols::value_of;
use crate::graph::{Int, ValueId};
use crate::kernels::{KernelSet, QuantizedRows, ThreadPool};
use bytemuck::Pod;

/// A step's own reason to fail; the run adds where.
pub(super) type StepResult<T = ()> = Result<T, String>;

/// The piece of memory that a value lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// The arena of intermediate values.
    Arena,
    /// A state.
    State(usize),
    /// What the caller gave.
    Input(usize),
    /// A constant.
    Constant(usize),
}

/// Where a value lies in this run, and its sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub region: Region,
    pub start: usize,
    pub len: usize,
    pub dims: usize,
    pub rank: usize,
}

impl Slot {
    pub const NOWHERE: Self = Self { region: Region::Arena, start: 0, len: 0, dims: 0, rank: 0 };
}

/// What stays the same during a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared<'a> {
    pub slots: &'a [Slot],
    pub dims: &'a [usize],
    pub symbols: &'a [i64],
    pub inputs: &'a [&'a [u8]],
    pub constants: &'a [ConstantBytes],
    pub kernels: KernelSet,
    pub pool: &'a ThreadPool,
}

/// Memory as a step finds it.
#[derive(Debug)]
pub(super) struct Frame<'a, 's> {
    pub shared: Shared<'a>,
    pub arena: &'a mut [u8],
    pub states: &'a mut [&'s mut [u8]],
    pub rows: &'a mut QuantizedRows,
}

/// Most results of one step.
pub(super) const MAX_WRITES: usize = 4;

/// A part of a slice, from an index on.
type Part<'a, T> = (usize, &'a [T]);

/// What is left to read when a step's results are carved out.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub shared: Shared<'a>,
    pub rows: &'a mut QuantizedRows,
    arena: [Part<'a, u8>; MAX_WRITES + 1],
    states: [Part<'a, &'a mut [u8]>; MAX_WRITES + 1],
}

impl<'a> Shared<'a> {
    pub fn slot(&self, value: ValueId) -> &'a Slot {
        &self.slots[value.0 as usize]
    }

    /// The sizes of `value` in this run.
    pub fn dims(&self, value: ValueId) -> &'a [usize] {
        let slot = self.slot(value);
        &self.dims[slot.dims..slot.dims + slot.rank]
    }

    pub fn int(&self, int: Int) -> i64 {
        value_of(int, self.symbols)
    }

    /// True when both lie at the same place, so that a step works in place.
    pub fn same_place(&self, a: ValueId, b: ValueId) -> bool {
        let (a, b) = (self.slot(a), self.slot(b));
        a.region == b.region && a.start == b.start
    }
}

impl<'a> Frame<'a, '_> {
    /// Carves out the bytes of `results`, in any order.
    pub fn split<const N: usize>(self, results: [ValueId; N]) -> StepResult<([&'a mut [u8]; N], Reader<'a>)> {
        const { assert!(N <= MAX_WRITES) };
        let Self { shared, arena, states, rows } = self;
        let mut order: [usize; N] = std::array::from_fn(|i| i);
        let slot = |i: usize| shared.slot(results[i]);
        order.sort_unstable_by_key(|&i| match slot(i).region {
            Region::State(state) => (1, state),
            _ => (0, slot(i).start),
        });
        let mut outs: [&'a mut [u8]; N] = std::array::from_fn(|_| Default::default());
        let (mut arena, mut states) = (Carver::new(arena), Carver::new(states));
        for i in order {
            let Slot { region, start, len, .. } = *slot(i);
            let bytes = match region {
                _ if len == 0 => continue,
                Region::Arena => arena.take(start, len)?,
                Region::State(state) => {
                    let all = &mut **states.take(state, 1)?.first_mut().ok_or("a state is missing")?;
                    all.get_mut(start..start + len).ok_or("a state is too short")?
                }
                Region::Input(_) | Region::Constant(_) => {
                    return Err("a result lies in memory that is not written".into());
                }
            };
            outs[i] = bytes;
        }
        Ok((outs, Reader { shared, rows, arena: arena.finish(), states: states.finish() }))
    }

    /// As [`Self::split`], for one result, as numbers.
    pub fn write<T: Pod>(self, result: ValueId) -> StepResult<(&'a mut [T], Reader<'a>)> {
        let ([out], reader) = self.split([result])?;
        Ok((numbers_mut(out)?, reader))
    }
}

impl<'a> Reader<'a> {
    /// The bytes of an operand.
    pub fn bytes(&self, value: ValueId) -> StepResult<&'a [u8]> {
        let Slot { region, start, len, .. } = *self.shared.slot(value);
        let range = start..start + len;
        let found = match region {
            _ if len == 0 => Some(Default::default()),
            Region::Arena => find(&self.arena, start, len),
            Region::State(state) => find(&self.states, state, 1).and_then(|state| state[0].get(range)),
            Region::Input(input) => self.shared.inputs[input].get(range),
            Region::Constant(constant) => self.shared.constants[constant].get(range),
        };
        found.ok_or_else(|| "an operand overlaps a result".into())
    }

    /// An operand as numbers.
    pub fn numbers<T: Pod>(&self, value: ValueId) -> StepResult<&'a [T]> {
        let bytes = self.bytes(value)?;
        // Nothing lies anywhere, and need not be aligned.
        if bytes.is_empty() { Ok(&[]) } else { bytemuck::try_cast_slice(bytes).map_err(|error| error.to_string()) }
    }

    /// An operand's reals.
    pub fn reals(&self, value: ValueId) -> StepResult<&'a [f32]> {
        self.numbers(value)
    }
}

/// Bytes as numbers.
pub(super) fn numbers_mut<T: Pod>(bytes: &mut [u8]) -> StepResult<&mut [T]> {
    if bytes.is_empty() { Ok(&mut []) } else { bytemuck::try_cast_slice_mut(bytes).map_err(|error| error.to_string()) }
}

fn find<'a, T>(parts: &[Part<'a, T>], start: usize, len: usize) -> Option<&'a [T]> {
    parts.iter().find_map(|&(first, part)| {
        let start = start.checked_sub(first)?;
        part.get(start..start.checked_add(len)?)
    })
}

/// Takes ranges out of a slice, from left to right.
struct Carver<'a, T> {
    parts: [Part<'a, T>; MAX_WRITES + 1],
    count: usize,
    rest: &'a mut [T],
    first: usize,
}

impl<'a, T> Carver<'a, T> {
    fn new(all: &'a mut [T]) -> Self {
        Self { parts: [(0, &[]); MAX_WRITES + 1], count: 0, rest: all, first: 0 }
    }

    fn take(&mut self, start: usize, len: usize) -> StepResult<&'a mut [T]> {
        let rest = std::mem::take(&mut self.rest);
        let skip = start.checked_sub(self.first).ok_or("two results overlap")?;
        let (before, rest) = rest.split_at_mut_checked(skip).ok_or("a result leaves its memory")?;
        let (taken, rest) = rest.split_at_mut_checked(len).ok_or("a result leaves its memory")?;
        self.parts[self.count] = (self.first, before);
        self.count += 1;
        (self.rest, self.first) = (rest, start + len);
        Ok(taken)
    }

    fn finish(mut self) -> [Part<'a, T>; MAX_WRITES + 1] {
        self.parts[self.count] = (self.first, self.rest);
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(region: Region, start: usize, len: usize) -> Slot {
        Slot { region, start, len, dims: 0, rank: 0 }
    }

    /// Runs `check` on an arena whose byte i is i, a state of nines, and slots.
    fn with_frame(slots: &[Slot], check: impl FnOnce(Frame<'_, '_>)) {
        let mut arena: Vec<u8> = (0..100).collect();
        let (mut zeros, mut nines) = ([0u8; 8], [9u8; 8]);
        let mut states = [&mut zeros[..], &mut nines[..]];
        let pool = ThreadPool::new(1);
        let (kernels, constants) = (KernelSet::best(), []);
        let shared = Shared {
            slots,
            dims: &[],
            symbols: &[],
            inputs: &[&[1, 2, 3, 4]],
            constants: &constants,
            kernels,
            pool: &pool,
        };
        check(Frame { shared, arena: &mut arena, states: &mut states, rows: &mut QuantizedRows::new() });
    }

    const IDS: [ValueId; 4] = [ValueId(0), ValueId(1), ValueId(2), ValueId(3)];

    #[test]
    fn results_come_in_the_order_asked_and_the_rest_is_read() {
        let slots = [
            slot(Region::Arena, 40, 10),
            slot(Region::Arena, 10, 5),
            slot(Region::Arena, 20, 3),
            slot(Region::Input(0), 1, 2),
        ];
        with_frame(&slots, |frame| {
            let ([a, b], reader) = frame.split([IDS[0], IDS[1]]).unwrap();
            assert_eq!((a[0], a.len(), b[0], b.len()), (40, 10, 10, 5));
            assert_eq!(reader.bytes(IDS[2]).unwrap(), [20, 21, 22]);
            assert_eq!(reader.bytes(IDS[3]).unwrap(), [2, 3]);
            assert!(reader.bytes(IDS[1]).is_err());
        });
    }

    #[test]
    fn one_state_is_written_while_another_is_read() {
        let slots = [slot(Region::State(0), 4, 4), slot(Region::State(1), 0, 8), slot(Region::State(0), 0, 4)];
        with_frame(&slots, |frame| {
            let ([out], reader) = frame.split([IDS[0]]).unwrap();
            assert_eq!(out, [0; 4]);
            assert_eq!(reader.bytes(IDS[1]).unwrap(), [9; 8]);
            assert!(reader.bytes(IDS[2]).is_err());
        });
    }

    #[test]
    fn overlap_is_refused() {
        let arena = |start, len| slot(Region::Arena, start, len);
        for slots in [
            [arena(10, 10), arena(19, 5)],
            [arena(10, 10), arena(10, 10)],
            [arena(96, 4), arena(99, 2)],
            [arena(0, 4), slot(Region::Input(0), 0, 4)],
            [slot(Region::State(1), 0, 4), slot(Region::State(1), 4, 4)],
            [slot(Region::State(1), 4, 8), arena(0, 1)],
            [slot(Region::State(7), 0, 1), arena(0, 1)],
        ] {
            with_frame(&slots, |frame| assert!(frame.split([IDS[0], IDS[1]]).is_err(), "{slots:?}"));
        }
        with_frame(&[arena(10, 10), arena(15, 10)], |frame| {
            let (_, reader) = frame.split([IDS[0]]).unwrap();
            assert!(reader.bytes(IDS[1]).is_err());
        });
    }

    #[test]
    fn empty_values_overlap_nothing() {
        with_frame(&[slot(Region::Arena, 10, 10), slot(Region::Arena, 15, 0)], |frame| {
            let ([_, empty], reader) = frame.split([IDS[0], IDS[1]]).unwrap();
            assert!(empty.is_empty() && reader.bytes(IDS[1]).unwrap().is_empty());
        });
    }
}
