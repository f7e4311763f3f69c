//! A running program: a compiled graph, the contents of its states, and memory for intermediate values.

use super::compiled::Compiled;
use super::constant::AlignedBytes;
use super::layout::Layout;
use super::memory::{Frame, Region, Shared, Slot};
use super::profile::{Profile, StepProfile, StepRun};
use super::resolve::Resolved;
use super::symbols::{self, InputView};
use super::{EngineError, reals};
use crate::base::aligned::ZeroedBytes;
use crate::graph::{Int, State, StateId, SymbolSource};
use crate::kernels::QuantizedRows;
use crate::tensor::{DType, element_count};
use std::sync::Arc;

/// One output of the last run.
#[derive(Debug, Clone, Copy)]
pub struct OutputView<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub dims: &'a [usize],
    /// Elements, little-endian, row by row, at a multiple of the element's size.
    pub bytes: &'a [u8],
}

/// Memory for intermediate values. It holds nothing between runs but the outputs of the last one, so programs that run
/// one after the other can share it: see [`Instance::exchange_scratch`].
#[derive(Debug)]
pub struct Scratch {
    arena: ZeroedBytes,
    rows: QuantizedRows,
}

impl Scratch {
    /// Without memory as yet; it grows with the largest run.
    pub fn new() -> Result<Self, EngineError> {
        Ok(Self { arena: allocate(ARENA, 0)?, rows: QuantizedRows::new() })
    }

    fn grow(&mut self, len: usize) -> Result<(), EngineError> {
        if len > self.arena.len() {
            // First the old one goes, so that both are never held.
            self.arena = allocate(ARENA, 0)?;
            self.arena = allocate(ARENA, len)?;
        }
        Ok(())
    }
}

const ARENA: &str = "intermediate values";

/// Most layouts that are kept: one for each class of input sizes met.
const MAX_LAYOUTS: usize = 16;

/// A [`Compiled`] graph with states of its own, or with those that each run is given.
#[derive(Debug)]
pub struct Instance {
    compiled: Arc<Compiled>,
    /// None when they are the caller's.
    states: Vec<ZeroedBytes>,
    scratch: Scratch,
    layouts: Vec<(Vec<i64>, Layout)>, // by class
    /// The layout that `resolved` was made for.
    current: Option<usize>,
    resolved: Resolved,
    symbols: Vec<i64>,
    class: Vec<i64>,
    staging: Vec<Option<AlignedBytes>>,
    profile: Option<Profile>,
    has_outputs: bool,
}

impl Instance {
    /// States are zero. Their memory is taken as it is first written.
    pub fn new(compiled: Arc<Compiled>) -> Result<Self, EngineError> {
        let states = compiled.plan.graph.states.iter().map(zeroed).collect::<Result<_, _>>()?;
        Self::with_states(compiled, states)
    }

    /// Without states: those are given to [`Self::run_on`].
    ///
    /// # Errors
    /// `Unsupported` for a state of reals that are not f32: the engine would hold it otherwise than its type says.
    pub fn on_borrowed_states(compiled: Arc<Compiled>) -> Result<Self, EngineError> {
        for state in &compiled.plan.graph.states {
            if state_bytes(state) != state.shape.iter().product::<usize>() * state.dtype.size() {
                let why = format!("a state of {} that is the caller's", state.dtype);
                return Err(EngineError::Unsupported { place: state.name.clone(), why });
            }
        }
        Self::with_states(compiled, Vec::new())
    }

    fn with_states(compiled: Arc<Compiled>, states: Vec<ZeroedBytes>) -> Result<Self, EngineError> {
        let staging = compiled.plan.graph.inputs.iter().map(|_| None).collect();
        Ok(Self {
            compiled,
            states,
            staging,
            scratch: Scratch::new()?,
            layouts: Vec::new(),
            current: None,
            resolved: Resolved::default(),
            symbols: Vec::new(),
            class: Vec::new(),
            profile: None,
            has_outputs: false,
        })
    }

    /// The graph it runs.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Zeroes all states of its own, as by making a new instance.
    pub fn reset(&mut self) -> Result<(), EngineError> {
        // New memory costs less than clearing a long cache that was hardly used.
        if !self.states.is_empty() {
            self.states = self.compiled.plan.graph.states.iter().map(zeroed).collect::<Result<_, _>>()?;
        }
        self.has_outputs = false;
        Ok(())
    }

    /// Runs the graph once. An error about inputs or symbols leaves the states as they were; after an error of a node
    /// ([`EngineError::Node`]) states that are updated have unspecified contents until they are written again.
    pub fn run(&mut self, inputs: &[InputView<'_>]) -> Result<(), EngineError> {
        let mut own = std::mem::take(&mut self.states);
        let mut states: Vec<&mut [u8]> = own.iter_mut().map(|state| &mut state[..]).collect();
        let result = self.run_on(inputs, &mut states);
        self.states = own;
        result
    }

    /// As [`Self::run`], with the caller's states, in the graph's order, each as its type and shape say and at a
    /// multiple of the element's size.
    pub fn run_on(&mut self, inputs: &[InputView<'_>], states: &mut [&mut [u8]]) -> Result<(), EngineError> {
        self.has_outputs = false;
        let compiled = Arc::clone(&self.compiled);
        let graph = &compiled.plan.graph;
        admit_states(&graph.states, states)?;
        if inputs.len() != graph.inputs.len() {
            return Err(EngineError::InputCount { have: inputs.len(), need: graph.inputs.len() });
        }
        symbols::evaluate(&graph.symbols, inputs, &compiled.input_dtypes, &mut self.symbols)?;
        for (index, input) in inputs.iter().enumerate() {
            admit(&compiled, index, input, &self.symbols)?;
        }
        let layout = self.layout()?;
        self.scratch.grow(self.layouts[layout].1.len)?;
        compiled.resolver.resolve(&compiled.plan, &self.layouts[layout].1, &self.symbols, &mut self.resolved)?;

        for (index, input) in inputs.iter().enumerate() {
            let size = compiled.input_dtypes[index].size();
            self.staging[index] = match input.bytes.as_ptr().addr().is_multiple_of(size) {
                true => None,
                false => {
                    let (what, bytes) = ("an input", input.bytes.len());
                    let copy = AlignedBytes::of(input.bytes);
                    Some(copy.map_err(|_| EngineError::OutOfMemory { what, bytes })?)
                }
            };
        }
        let staged = inputs.iter().zip(&self.staging);
        let inputs: Vec<&[u8]> = staged.map(|(input, copy)| copy.as_deref().unwrap_or(input.bytes)).collect();
        let shared = Shared {
            slots: &self.resolved.slots,
            dims: &self.resolved.dims,
            symbols: &self.symbols,
            inputs: &inputs,
            constants: &compiled.plan.constants,
            kernels: compiled.kernels,
            pool: &compiled.pool,
        };
        for (index, step) in compiled.plan.steps.iter().enumerate() {
            let begin = self.profile.as_ref().map(Profile::begin);
            let frame =
                Frame { shared, arena: &mut self.scratch.arena, states: &mut *states, rows: &mut self.scratch.rows };
            let fail = |why| EngineError::Node { origin: step.origin.clone(), why };
            step.step.run(frame).map_err(fail)?;
            if let (Some(profile), Some(begin)) = (&mut self.profile, begin) {
                profile.end(index, begin);
            }
        }
        self.has_outputs = true;
        Ok(())
    }

    /// Output `index` of the last run; `None` before a run has ended well, or when there is no such output.
    pub fn output(&self, index: usize) -> Option<OutputView<'_>> {
        let &value = self.compiled.plan.outputs.get(index).filter(|_| self.has_outputs)?;
        let slot = self.resolved.slots.get(value.0 as usize)?;
        let dims = &self.resolved.dims[slot.dims..slot.dims + slot.rank];
        let dtype = self.compiled.output_dtypes[index];
        Some(OutputView { dtype, dims, bytes: self.bytes(slot)? })
    }

    /// Number of outputs.
    pub fn output_count(&self) -> usize {
        self.compiled.plan.outputs.len()
    }

    fn bytes(&self, slot: &Slot) -> Option<&[u8]> {
        let range = slot.start..slot.start + slot.len;
        match slot.region {
            _ if slot.len == 0 => Some(&[]),
            Region::Arena => self.scratch.arena.get(range),
            Region::Constant(constant) => self.compiled.plan.constants.get(constant)?.get(range),
            Region::State(state) => self.states.get(state)?.get(range),
            // Outputs that lie there are copied.
            Region::Input(_) => None,
        }
    }

    /// The contents of a state: elements of its type, except that reals of any type are f32.
    pub fn state(&self, id: StateId) -> Option<&[u8]> {
        self.states.get(id.0 as usize).map(|state| &state[..])
    }

    /// As [`Self::state`], to change: to restore what was saved.
    pub fn state_mut(&mut self, id: StateId) -> Option<&mut [u8]> {
        self.states.get_mut(id.0 as usize).map(|state| &mut state[..])
    }

    /// Exchanges the contents of all states that both programs have under one name, type and shape, without copying
    /// them: how two methods of a program share their caches. Returns how many there were.
    pub fn exchange_states(&mut self, other: &mut Self) -> usize {
        (self.has_outputs, other.has_outputs) = (false, false);
        let mut count = 0;
        for (state, mine) in self.compiled.plan.graph.states.iter().zip(&mut self.states) {
            if let Some(index) = other.compiled.plan.graph.states.iter().position(|theirs| theirs == state) {
                std::mem::swap(mine, &mut other.states[index]);
                count += 1;
            }
        }
        count
    }

    /// Bytes of the memory for intermediate values.
    pub fn arena_bytes(&self) -> usize {
        self.scratch.arena.len()
    }

    /// Exchanges the memory for intermediate values with `scratch`: before a run, to borrow it, and after its outputs
    /// have been read, to give it back. Outputs go with it.
    pub fn exchange_scratch(&mut self, scratch: &mut Scratch) {
        std::mem::swap(&mut self.scratch, scratch);
        self.has_outputs = false;
    }

    /// Begins, or ends and forgets, to measure steps.
    pub fn set_profiling(&mut self, on: bool) {
        self.profile = on.then(|| Profile::new(self.compiled.step_count()));
    }

    /// What steps cost since profiling began; empty when it is off.
    pub fn profile(&self) -> Vec<StepProfile> {
        self.profile.as_ref().map_or_else(Vec::new, |profile| profile.of(&self.compiled.plan.steps))
    }

    /// The steps of the last run; none when profiling is off.
    pub fn last_run(&self) -> impl Iterator<Item = StepRun<'_>> {
        self.profile.iter().flat_map(|profile| profile.last(&self.compiled.plan.steps))
    }

    /// Whether steps are measured.
    pub fn is_profiling(&self) -> bool {
        self.profile.is_some()
    }

    /// The layout for runs like this one.
    fn layout(&mut self) -> Result<usize, EngineError> {
        let graph = &self.compiled.plan.graph;
        self.class.clear();
        let sizes = graph.symbols.iter().zip(&self.symbols).filter_map(|(symbol, &value)| match symbol.source {
            SymbolSource::InputDim { .. } => Some(symbols::rounded(value)),
            _ => None,
        });
        self.class.extend(sizes);
        let known = self.current.filter(|&current| self.layouts[current].0 == self.class);
        if let Some(known) = known {
            return Ok(known);
        }
        let index = match self.layouts.iter().position(|(class, _)| *class == self.class) {
            Some(index) => index,
            None => {
                let limits = symbols::limits(&graph.symbols, &self.symbols);
                let layout = Layout::new(&self.compiled.plan, &self.compiled.buffers, &limits);
                let layout = layout.ok_or(EngineError::OutOfMemory { what: ARENA, bytes: usize::MAX })?;
                if self.layouts.len() == MAX_LAYOUTS {
                    self.layouts.clear();
                }
                self.layouts.push((self.class.clone(), layout));
                self.layouts.len() - 1
            }
        };
        self.current = None;
        self.resolved.forget();
        self.current = Some(index);
        Ok(index)
    }
}

/// Checks an input against the graph.
fn admit(compiled: &Compiled, index: usize, input: &InputView<'_>, symbols: &[i64]) -> Result<(), EngineError> {
    let value = compiled.plan.graph.value(compiled.plan.graph.inputs[index]);
    let fits = |(dim, &size): (&Int, &usize)| usize::try_from(symbols::value_of(*dim, symbols)) == Ok(size);
    let same = value.shape.len() == input.dims.len() && value.shape.iter().zip(input.dims).all(fits);
    let fail = |why: String| EngineError::Input { index, name: value.name.clone(), why };
    if !same {
        let need: Vec<i64> = value.shape.iter().map(|&dim| symbols::value_of(dim, symbols)).collect();
        return Err(fail(format!("its shape is {:?} where {need:?} is needed", input.dims)));
    }
    let elements = element_count(input.dims).map_err(|error| fail(error.to_string()))?;
    let need = elements * value.dtype.size();
    if input.bytes.len() != need {
        return Err(fail(format!("{} bytes where {need} are needed", input.bytes.len())));
    }
    Ok(())
}

fn admit_states(graph: &[State], states: &[&mut [u8]]) -> Result<(), EngineError> {
    if graph.len() != states.len() {
        return Err(EngineError::StateCount { have: states.len(), need: graph.len() });
    }
    for (state, bytes) in graph.iter().zip(states) {
        let size = if reals::is_real_type(state.dtype) { 4 } else { state.dtype.size() };
        if bytes.len() != state_bytes(state) || !bytes.as_ptr().addr().is_multiple_of(size) {
            return Err(EngineError::State { name: state.name.clone(), have: bytes.len(), need: state_bytes(state) });
        }
    }
    Ok(())
}

/// Size of a state as the engine holds it.
fn state_bytes(state: &State) -> usize {
    let count: usize = state.shape.iter().product();
    count * if reals::is_real_type(state.dtype) { 4 } else { state.dtype.size() }
}

fn zeroed(state: &State) -> Result<ZeroedBytes, EngineError> {
    allocate("states", state_bytes(state))
}

fn allocate(what: &'static str, bytes: usize) -> Result<ZeroedBytes, EngineError> {
    ZeroedBytes::new(bytes).map_err(|_| EngineError::OutOfMemory { what, bytes })
}
