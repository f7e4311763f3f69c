//! What the fake remembers between calls.

use super::{Call, Executor, Model, RawInfo};
use crate::qnn::{BinaryInfo, sys};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ffi::c_void;

static STATE: Mutex<State> = Mutex::new(State::new());
static FREED: Condvar = Condvar::new();

pub(super) fn with_state<T>(work: impl FnOnce(&mut State) -> T) -> T {
    work(&mut STATE.lock())
}

/// The right to be the process's fake.
pub(super) struct Claim(());

impl Claim {
    pub(super) fn wait() -> Self {
        let mut state = STATE.lock();
        FREED.wait_while(&mut state, |state| state.claimed);
        *state = State::new();
        state.claimed = true;
        Self(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        super::table::set_null_device(false);
        *STATE.lock() = State::new();
        FREED.notify_one();
    }
}

pub(super) struct Fault {
    pub(super) call: Call,
    pub(super) successes: u32,
    pub(super) code: u64,
}

/// What a handle stands for. Numbers are the handles of parents.
pub(super) enum Object {
    Log {
        callback: sys::QnnLog_Callback_t,
        level: u32,
    },
    Backend {
        log: usize,
    },
    Device {
        log: usize,
    },
    Context {
        backend: usize,
        device: usize,
        info: Option<BinaryInfo>,
    },
    Graph {
        context: usize,
        name: String,
    },
    /// A graph that is composed, with the number of its tensors.
    Composed {
        context: usize,
        tensors: u32,
        finalized: bool,
    },
    System {
        _info: Option<RawInfo>,
    },
    Memory(Memory),
}

/// A tensor's place in shared memory.
#[derive(Clone, PartialEq)]
pub(super) struct Memory {
    pub(super) context: usize,
    pub(super) fd: i32,
    pub(super) offset: u64,
    pub(super) data_type: u32,
    pub(super) dims: Vec<u32>,
}

impl Object {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Log { .. } => "log",
            Self::Backend { .. } => "backend",
            Self::Device { .. } => "device",
            Self::Context { .. } => "context",
            Self::Graph { .. } | Self::Composed { .. } => "graph",
            Self::System { .. } => "system context",
            Self::Memory(_) => "memory",
        }
    }

    fn has_parent(&self, handle: usize) -> bool {
        match *self {
            Self::Log { .. } | Self::System { .. } => false,
            Self::Backend { log } | Self::Device { log } => log == handle,
            Self::Context { backend, device, .. } => backend == handle || device == handle,
            Self::Memory(Memory { context, .. }) => context == handle,
            // Graphs go with their context.
            Self::Graph { .. } | Self::Composed { .. } => false,
        }
    }
}

pub(super) struct State {
    claimed: bool,
    next: usize,
    pub(super) objects: BTreeMap<usize, Object>,
    pub(super) calls: BTreeMap<Call, usize>,
    pub(super) faults: Vec<Fault>,
    pub(super) lines: Vec<(Call, Vec<(u32, String)>)>,
    pub(super) misuse: Vec<String>,
    pub(super) model: Option<Model>,
    pub(super) info_version: u32,
    pub(super) executor: Option<Executor>,
    pub(super) one_handle_a_place: bool,
}

impl State {
    const fn new() -> Self {
        Self {
            claimed: false,
            next: 0,
            objects: BTreeMap::new(),
            calls: BTreeMap::new(),
            faults: Vec::new(),
            lines: Vec::new(),
            misuse: Vec::new(),
            model: None,
            info_version: 3,
            executor: None,
            one_handle_a_place: false,
        }
    }

    /// A new handle; no address of anything.
    pub(super) fn create(&mut self, object: Object) -> *mut c_void {
        self.next += 0x10;
        self.objects.insert(self.next, object);
        std::ptr::without_provenance_mut(self.next)
    }

    /// Notes a handle that is not a live `kind`.
    pub(super) fn expect(&mut self, call: Call, handle: *mut c_void, kind: &'static str) -> usize {
        let number = handle.addr();
        if self.objects.get(&number).map(Object::kind) != Some(kind) {
            self.misuse.push(format!("{call:?} got {number:#x}, which is no live {kind}"));
        }
        number
    }

    pub(super) fn free(&mut self, call: Call, handle: *mut c_void, kind: &'static str) {
        let number = self.expect(call, handle, kind);
        if let Some(child) = self.objects.values().find(|object| object.has_parent(number)) {
            self.misuse.push(format!("{call:?} while a {} of it lives", child.kind()));
        }
        self.objects.remove(&number);
        let goes_with_it = |object: &Object| match object {
            Object::Graph { context, .. } | Object::Composed { context, .. } => *context == number,
            _ => false,
        };
        self.objects.retain(|_, object| !goes_with_it(object));
    }

    /// The code that `call` must return now, if any.
    pub(super) fn take_fault(&mut self, call: Call) -> Option<u64> {
        let index = self.faults.iter().position(|fault| fault.call == call)?;
        match self.faults[index].successes.checked_sub(1) {
            Some(left) => {
                self.faults[index].successes = left;
                None
            }
            None => Some(self.faults.remove(index).code),
        }
    }

    /// Lines that `call` must log now, and whom to.
    pub(super) fn take_lines(&mut self, call: Call) -> Vec<(sys::QnnLog_Callback_t, u32, String)> {
        let Some(index) = self.lines.iter().position(|(at, _)| *at == call) else {
            return Vec::new();
        };
        let lines = self.lines.remove(index).1;
        let log = self.objects.values().find_map(|object| match object {
            Object::Log { callback, level } => Some((*callback, *level)),
            _ => None,
        });
        let wanted = |(number, line): (u32, String)| {
            log.filter(|&(_, level)| number <= level).map(|(callback, _)| (callback, number, line))
        };
        lines.into_iter().filter_map(wanted).collect()
    }
}
