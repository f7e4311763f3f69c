//! A QNN library without QNN, for tests and for measuring what the host costs: tables of functions that count what is
//! created and freed, fail when told, log when told, and execute what they are given, or nothing. Composing makes no
//! graph either: it only sees that each call gets what earlier calls made.
//!
//! C functions carry no state, so there is one fake at a time in a process; [`Fake::new`] waits for its turn.

mod compose;
mod memory;
mod raw_info;
mod state;
mod table;

use super::binary_info::BinaryInfo;
use super::library::{LibraryInfo, QnnLibrary};
use super::result::{QnnApi, SystemApi};
use super::version::Version;
use crate::base::log::Level;
use state::{Claim, with_state};
use std::path::PathBuf;
use std::sync::Arc;

pub use raw_info::RawInfo;

/// A function of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Call {
    BackendGetBuildId,
    LogCreate,
    LogFree,
    BackendCreate,
    BackendFree,
    DeviceCreate,
    DeviceFree,
    ContextCreateFromBinary,
    ContextFree,
    GraphRetrieve,
    GraphExecute,
    SystemContextCreate,
    SystemContextGetMetaData,
    SystemContextFree,
    ContextCreate,
    ContextGetBinarySize,
    ContextGetBinary,
    GraphCreate,
    GraphAddNode,
    GraphFinalize,
    TensorCreate,
    MemRegister,
    MemDeRegister,
}

/// What a graph does: gets its name and the inputs' bytes, writes the outputs' bytes, both in the description's order.
pub type Executor = Box<dyn FnMut(&str, &[&[u8]], &mut [&mut [u8]]) + Send>;

/// What a binary holds, or `None` for bytes that are none.
pub type Model = Box<dyn Fn(&[u8]) -> Option<BinaryInfo> + Send>;

/// The process's fake. Its settings go with it and with the libraries made of it.
pub struct Fake {
    claim: Arc<Claim>,
}

impl Fake {
    /// Waits until no other fake lives. A thread that asks for a second one waits for ever.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { claim: Arc::new(Claim::wait()) }
    }

    /// A library of the fake's own backend and system functions.
    pub fn library(&self) -> Arc<QnnLibrary> {
        self.library_with_system(table::system())
    }

    /// A library of the fake's backend functions that asks `system`, a real one, what binaries hold.
    pub fn library_with_system(&self, system: SystemApi) -> Arc<QnnLibrary> {
        let version = |minor| Version { major: 2, minor, patch: 0 };
        let info = LibraryInfo {
            path: PathBuf::new(),
            build_id: "v2.49.40.fake".into(),
            provider: "FAKE".into(),
            core: version(38),
            backend: Version { major: 5, ..version(49) },
            system: None,
        };
        let keep: Box<Arc<Claim>> = Box::new(Arc::clone(&self.claim));
        QnnLibrary::from_tables(self.api(), Some(system), info, Some(keep))
    }

    /// The backend functions alone.
    pub fn api(&self) -> QnnApi {
        table::backend()
    }

    /// What binaries hold from now on. Before that every binary is accepted, and every graph name.
    pub fn set_model(&self, model: impl Fn(&[u8]) -> Option<BinaryInfo> + Send + 'static) {
        with_state(|state| state.model = Some(Box::new(model)));
    }

    /// The structure version in which binaries are described, 3 if not set.
    pub fn set_info_version(&self, version: u32) {
        with_state(|state| state.info_version = version);
    }

    /// What graphs do from now on. Before that they leave their outputs alone.
    pub fn set_executor(&self, executor: impl FnMut(&str, &[&[u8]], &mut [&mut [u8]]) + Send + 'static) {
        with_state(|state| state.executor = Some(Box::new(executor)));
    }

    /// Whether a place in shared memory has one handle from now on, however often it is registered.
    pub fn set_one_handle_a_place(&self, on: bool) {
        with_state(|state| state.one_handle_a_place = on);
    }

    /// Whether `graphExecute` returns at once, without looking at anything.
    pub fn set_null_device(&self, on: bool) {
        table::set_null_device(on);
    }

    /// Makes the next `call` return `code`.
    pub fn fail(&self, call: Call, code: u64) {
        self.fail_later(call, 0, code);
    }

    /// Makes `call` return `code` once, after `successes` calls that do not.
    pub fn fail_later(&self, call: Call, successes: u32, code: u64) {
        with_state(|state| state.faults.push(state::Fault { call, successes, code }));
    }

    /// Makes the next `call` first send `lines` to the log callback, each from a thread of its own, in order.
    pub fn log_at(&self, call: Call, lines: &[(Level, &str)]) {
        let lines = lines.iter().map(|&(level, line)| (level as i32 as u32, line.to_owned()));
        with_state(|state| state.lines.push((call, lines.collect())));
    }

    /// How often `call` has been made.
    pub fn calls(&self, call: Call) -> usize {
        with_state(|state| state.calls.get(&call).copied().unwrap_or(0))
    }

    /// What has been created and not freed, by kind.
    pub fn live(&self) -> Vec<&'static str> {
        with_state(|state| state.objects.values().map(state::Object::kind).collect())
    }

    /// Calls that a real library would have crashed on: foreign handles, parents freed before children.
    pub fn misuse(&self) -> Vec<String> {
        with_state(|state| state.misuse.clone())
    }
}
