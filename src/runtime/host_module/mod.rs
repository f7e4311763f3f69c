//! A module that a host runs: programs of its own runtime, seen through a C table of callbacks.

mod adapter;
mod calls;
mod error;
mod table;

pub use adapter::open_adapter;
pub use calls::Host;
pub use error::{HostError, HostPlace};
pub use table::{
    HostTable, HostTensor, HostValue, HostValueKind, LLR_MODULE_MAX_RANK, LLR_MODULE_NO_TENSOR,
    LLR_MODULE_TABLE_VERSION, LLR_MODULE_TENSOR_DYNAMIC, LLR_MODULE_TENSOR_PLANNED, LLR_MODULE_TENSOR_QUANTIZED,
    OpenHostModule,
};

use super::error::{RuntimeError, Side};
use super::io_arena::{IoArena, IoSlice};
use super::module::{MethodId, MethodInfo, Module, TensorInfo};
use super::value::Value;
use crate::base::fingerprint::fingerprint;
use crate::base::storage::Storage;
use crate::error::Result;
use crate::log_warning;
use crate::tensor::{Dims, element_count};
use calls::{Binding, Lease, SlotId, describe};
use std::sync::Arc;

/// The [`Module`] on a [`Host`].
///
/// * Binding to another arena takes all bindings to the one before away first, and so does dropping the module: a host
///   never keeps an address beyond its memory.
/// * What the host's runtime makes of planned inputs that nobody bound is its own affair.
#[derive(Debug)]
pub struct HostModule {
    lease: Lease,
    names: Vec<String>,
    methods: Vec<Loaded>,
    /// The program's own, and its external data, when they are known.
    files: Vec<Arc<Storage>>,
}

/// A loaded method.
#[derive(Debug)]
struct Loaded {
    /// The host's number.
    id: u32,
    info: MethodInfo,
    inputs: Vec<Binding>,
    outputs: Vec<Binding>,
    /// Slots that need memory and have none.
    open: usize,
}

/// Whether the caller must give memory.
fn is_needed(info: &Option<TensorInfo>) -> bool {
    info.as_ref().is_some_and(|info| !info.planned)
}

impl Loaded {
    fn new((id, info): (u32, MethodInfo)) -> Self {
        let unbound = |infos: &[Option<TensorInfo>]| infos.iter().map(|_| Binding::default()).collect();
        let open = info.inputs.iter().chain(&info.outputs).filter(|info| is_needed(info)).count();
        Self { id, inputs: unbound(&info.inputs), outputs: unbound(&info.outputs), info, open }
    }

    fn slot(&self, side: Side, index: usize) -> SlotId<'_> {
        SlotId { method: (self.id, &self.info.name), side, index }
    }

    fn infos(&self, side: Side) -> &[Option<TensorInfo>] {
        match side {
            Side::Input => &self.info.inputs,
            Side::Output => &self.info.outputs,
        }
    }

    /// The tensor of a slot.
    fn tensor(&self, side: Side, index: usize) -> Result<&TensorInfo, RuntimeError> {
        let (method, infos) = (|| self.info.name.clone(), self.infos(side));
        match infos.get(index) {
            Some(Some(info)) => Ok(info),
            Some(None) => Err(RuntimeError::NotATensor { method: method(), side, index, kind: "something else" }),
            None => Err(RuntimeError::NoSuchSlot { method: method(), side, index, len: infos.len() }),
        }
    }

    fn bind(&mut self, lease: &mut Lease, (side, index): (Side, usize), to: (&IoArena, IoSlice)) -> Result<()> {
        let info = self.tensor(side, index)?;
        let (need, have) = (info.byte_len(), to.1.len);
        if need != have {
            let (method, tensor) = (self.info.name.clone(), describe(info.dtype, &info.dims));
            return Err(RuntimeError::BindLength { method, side, index, tensor, need, have }.into());
        }
        let (dtype, needed) = (info.dtype, !info.planned);
        let slot = SlotId { method: (self.id, &self.info.name), side, index };
        let binding = match side {
            Side::Input => &mut self.inputs[index],
            Side::Output => &mut self.outputs[index],
        };
        let before = binding.slice().is_some();
        let result = lease.bind(slot, binding, to, dtype);
        self.open -= usize::from(needed && !before && binding.slice().is_some());
        result
    }

    fn unbind(&mut self, lease: &mut Lease) -> Result<()> {
        let Self { id, info, inputs, outputs, open } = self;
        for (side, infos, bindings) in [(Side::Input, &info.inputs, inputs), (Side::Output, &info.outputs, outputs)] {
            for (index, binding) in bindings.iter_mut().enumerate().filter(|(_, binding)| binding.slice().is_some()) {
                lease.unbind(SlotId { method: (*id, &info.name), side, index }, binding)?;
                *open += usize::from(is_needed(&infos[index]));
            }
        }
        Ok(())
    }

    /// Whether everything that needs memory has it.
    fn check(&self) -> Result<()> {
        if self.open == 0 {
            return Ok(());
        }
        for (side, bindings) in [(Side::Input, &self.inputs), (Side::Output, &self.outputs)] {
            let infos = self.infos(side);
            let index = (0..infos.len()).find(|&index| is_needed(&infos[index]) && bindings[index].slice().is_none());
            if let Some(index) = index {
                let info = self.tensor(side, index)?;
                let (method, tensor) = (self.info.name.clone(), describe(info.dtype, &info.dims));
                return Err(RuntimeError::Unbound { method, side, index, tensor }.into());
            }
        }
        Ok(())
    }
}

impl HostModule {
    /// Takes the module until this is dropped, and asks for its methods.
    ///
    /// # Errors
    /// [`HostError::InUse`] while another one has it; what the host says when its program cannot be loaded.
    pub fn open(host: &Arc<Host>) -> Result<Self> {
        let mut lease = host.lease()?;
        let names = lease.method_names()?;
        Ok(Self { lease, names, methods: Vec::new(), files: Vec::new() })
    }

    /// The same module, known to run the program in the first of `files`, with external data in the others.
    pub fn of_files(mut self, files: Vec<Arc<Storage>>) -> Self {
        self.files = files;
        self
    }

    fn method(&self, id: MethodId) -> Result<&Loaded> {
        self.methods.get(id.0).ok_or_else(|| RuntimeError::NoSuchMethodId(id.0).into())
    }

    fn bind(&mut self, id: MethodId, slot: (Side, usize), arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.method(id)?.tensor(slot.0, slot.1)?;
        if !self.lease.is_at(arena) {
            self.unbind_all()?;
        }
        self.methods[id.0].bind(&mut self.lease, slot, (arena, slice))
    }

    fn unbind_all(&mut self) -> Result<()> {
        self.methods.iter_mut().try_for_each(|method| method.unbind(&mut self.lease))
    }
}

impl Drop for HostModule {
    fn drop(&mut self) {
        if let Err(error) = self.unbind_all() {
            log_warning!("the host's module keeps addresses of memory that goes: {}", error.chain());
        }
    }
}

impl Module for HostModule {
    fn fingerprint(&self) -> Option<u64> {
        (!self.files.is_empty()).then(|| fingerprint(&self.files))
    }

    fn method_names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn load_method(&mut self, name: &str) -> Result<MethodId> {
        if let Some(loaded) = self.methods.iter().position(|method| method.info.name == name) {
            return Ok(MethodId(loaded));
        }
        if !self.names.iter().any(|known| known == name) {
            return Err(RuntimeError::NoSuchMethod { name: name.to_owned(), known: self.names.clone() }.into());
        }
        self.methods.push(Loaded::new(self.lease.load_method(name)?));
        Ok(MethodId(self.methods.len() - 1))
    }

    /// Panics when `method` is of another module.
    fn method_info(&self, method: MethodId) -> &MethodInfo {
        &self.methods[method.0].info
    }

    fn constant(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        match self.names.iter().any(|known| known == name) {
            true => Ok(Some(self.lease.evaluate(name)?)),
            false => Ok(None),
        }
    }

    fn bind_input(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.bind(method, (Side::Input, index), arena, slice)
    }

    fn bind_output(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.bind(method, (Side::Output, index), arena, slice)
    }

    fn resize_input(&mut self, method: MethodId, index: usize, dims: &[usize]) -> Result<()> {
        let Self { lease, methods, .. } = self;
        let loaded = methods.get(method.0).ok_or(RuntimeError::NoSuchMethodId(method.0))?;
        let info = loaded.tensor(Side::Input, index)?;
        let (name, asked, bounds) = (|| loaded.info.name.clone(), || dims.to_vec(), || info.dims.clone());
        if !info.dynamic {
            return match dims == info.dims {
                true => Ok(()),
                false => Err(RuntimeError::FixedSizes { method: name(), index, have: bounds(), asked: asked() }.into()),
            };
        }
        let fits = matches!((element_count(dims), element_count(&info.dims)), (Ok(n), Ok(most)) if n <= most);
        if dims.len() != info.dims.len() || !fits {
            let (bounds, asked) = (bounds(), asked());
            return Err(RuntimeError::SizesTooLarge { method: name(), index, bounds, asked }.into());
        }
        Ok(lease.resize(loaded.slot(Side::Input, index), dims)?)
    }

    fn execute(&mut self, method: MethodId, arena: &mut IoArena) -> Result<()> {
        let Self { lease, methods, .. } = self;
        let loaded = methods.get(method.0).ok_or(RuntimeError::NoSuchMethodId(method.0))?;
        loaded.check()?;
        lease.execute((loaded.id, &loaded.info.name), arena)
    }

    fn output<'a>(&'a self, method: MethodId, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        let loaded = self.method(method)?;
        let info = loaded.tensor(Side::Output, index)?;
        let bound = loaded.outputs[index].slice();
        let slot = loaded.slot(Side::Output, index);
        let (dims, len, lent) = self.lease.output(slot, info, bound.is_some())?;
        // A bound output is in the arena, whatever address the host gives.
        match bound.and_then(|slice| slice.part(0..len)) {
            Some(_) if !self.lease.is_at(arena) => {
                Err(RuntimeError::ForeignArena { method: loaded.info.name.clone() }.into())
            }
            Some(slice) => Ok((dims, arena.bytes(slice))),
            None => Ok((dims, lent)),
        }
    }
}
