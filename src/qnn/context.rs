//! A context: the graphs of one context binary, loaded on a device. Delegates whose blobs are the same share one.

use super::binary_info::BinaryInfo;
use super::blob::DelegateBlob;
use super::handles::{Device, report};
use super::lock::QnnLock;
use super::mem_api::SharedPlace;
use super::result::QnnError;
use super::stdout;
use super::sys;
use crate::pte::Blob;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

/// A loaded context binary. It keeps the bytes, which the library may go on reading.
pub struct Context {
    handle: sys::Qnn_ContextHandle_t,
    device: Arc<Device>,
    info: BinaryInfo,
    header: DelegateBlob,
    blob: Blob,
    /// Users of each memory handle: the library may give one place one handle, however often it is registered.
    handles: Mutex<BTreeMap<usize, usize>>,
}

// SAFETY: the handle is only given to the library under `QnnLock`, which makes calls one at a time; the library does
// not care from which thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Loads the binary that `header` finds in `blob`, whose contents are `info`.
    pub(super) fn load(
        device: &Arc<Device>,
        blob: &Blob,
        header: DelegateBlob,
        info: BinaryInfo,
    ) -> Result<Arc<Self>, QnnError> {
        let lock = QnnLock::acquire();
        let api = device.library().api();
        let (backend, raw_device) = device.raw();
        let binary = &blob[header.payload.clone()];
        // SAFETY: backend and device are live, and the new context will hold both the device and the bytes.
        let handle =
            stdout::on_stderr(&lock, || unsafe { api.context_create_from_binary(&lock, backend, raw_device, binary) })?;
        let (device, blob, handles) = (Arc::clone(device), blob.clone(), Mutex::default());
        Ok(Arc::new(Self { handle, device, info, header, blob, handles }))
    }

    /// What the binary holds.
    pub fn info(&self) -> &BinaryInfo {
        &self.info
    }

    /// Makes the place of a tensor in shared memory known to the library.
    ///
    /// # Safety
    /// The tensor's dimensions must be valid for its rank, and the memory must outlive the handle.
    pub(super) unsafe fn register(
        &self,
        tensor: &sys::Qnn_TensorV1_t,
        place: SharedPlace,
    ) -> Result<sys::Qnn_MemHandle_t, QnnError> {
        let lock = QnnLock::acquire();
        // SAFETY: the context is live; the rest as the caller says.
        let handle = unsafe { self.device.library().api().mem_register(&lock, self.handle, tensor, place) }?;
        *self.handles.lock().entry(handle.addr()).or_default() += 1;
        Ok(handle)
    }

    /// Makes it unknown again, when all its users have said so.
    ///
    /// # Safety
    /// `handle` must come from `register` of this context and not be used again by the caller.
    pub(super) unsafe fn deregister(&self, handle: sys::Qnn_MemHandle_t) {
        let lock = QnnLock::acquire();
        let mut handles = self.handles.lock();
        if let Some(users @ 2..) = handles.get_mut(&handle.addr()) {
            *users -= 1;
            return;
        }
        handles.remove(&handle.addr());
        // SAFETY: the context is live; the rest as the caller says.
        report(unsafe { self.device.library().api().mem_deregister(&lock, handle) });
    }

    /// Whether a delegate with `blob` can use this context: the same place of a file, or the same bytes.
    pub(super) fn serves(&self, blob: &Blob, header: &DelegateBlob) -> bool {
        self.blob.same_place(blob) || self.header == *header && self.blob[..] == blob[..]
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own; graphs hold this value, so none is left.
        report(unsafe { self.device.library().api().context_free(&QnnLock::acquire(), self.handle) });
    }
}

/// A graph of a context, ready to run.
pub(super) struct Graph {
    handle: sys::Qnn_GraphHandle_t,
    context: Arc<Context>,
}

// SAFETY: as for `Context`, which it holds.
unsafe impl Send for Graph {}

impl Graph {
    pub(super) fn retrieve(context: &Arc<Context>, name: &str) -> Result<Self, QnnError> {
        // Names come from C strings and hold no NUL.
        let c_name = CString::new(name).unwrap_or_default();
        let lock = QnnLock::acquire();
        // SAFETY: the context is live, and the graph will hold it.
        let handle = unsafe { context.device.library().api().graph_retrieve(&lock, context.handle, &c_name) }?;
        Ok(Self { handle, context: Arc::clone(context) })
    }

    /// Runs it once, with the lock held.
    ///
    /// # Safety
    /// As for `QnnApi::graph_execute`, but for the graph itself.
    pub(super) unsafe fn execute(
        &self,
        inputs: &[sys::Qnn_Tensor_t],
        outputs: &mut [sys::Qnn_Tensor_t],
    ) -> Result<(), QnnError> {
        let lock = QnnLock::acquire();
        // SAFETY: the graph is live as long as the context that it holds; the rest as the caller says.
        unsafe { self.context.device.library().api().graph_execute(&lock, self.handle, inputs, outputs) }
    }
}
