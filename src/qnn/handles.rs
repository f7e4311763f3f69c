//! Owners of the library's log, backend and device. Each holds what it was made from, so they can only be freed in the
//! order that the library wants: device, backend, log.

use super::library::QnnLibrary;
use super::lock::QnnLock;
use super::log;
use super::result::QnnError;
use super::stdout;
use super::sys;
use crate::base::log::Level;
use crate::log_warning;
use std::sync::Arc;

/// Frees in a destructor cannot fail upwards.
pub(super) fn report(result: Result<(), QnnError>) {
    if let Err(error) = result {
        log_warning!("{error}");
    }
}

struct Log {
    handle: sys::Qnn_LogHandle_t,
    library: Arc<QnnLibrary>,
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own; its users held this value and are gone.
        report(unsafe { self.library.api().log_free(&QnnLock::acquire(), self.handle) });
    }
}

struct BackendHandle {
    handle: sys::Qnn_BackendHandle_t,
    log: Log,
}

impl Drop for BackendHandle {
    fn drop(&mut self) {
        // SAFETY: as for the log.
        report(unsafe { self.log.library.api().backend_free(&QnnLock::acquire(), self.handle) });
    }
}

/// A device of an initialised backend, on which contexts live.
pub struct Device {
    handle: sys::Qnn_DeviceHandle_t,
    backend: BackendHandle,
    soc_model: Option<u32>,
}

// SAFETY: the handles are only given to the library, which wants calls one at a time, as `QnnLock` makes them, and does
// not care from which thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Creates log, backend and device. What was created before a failure is freed.
    ///
    /// `soc_model` is the SoC that the model was compiled for; the library's default without one. QNN's lines up to
    /// `level` go to the log sink.
    pub fn create(library: &Arc<QnnLibrary>, soc_model: Option<u32>, level: Level) -> Result<Arc<Self>, QnnError> {
        let lock = QnnLock::acquire();
        let api = library.api();
        let handle = api.log_create(&lock, Some(log::callback), log::level_number(level))?;
        let log = Log { handle, library: Arc::clone(library) };
        // SAFETY: the log is live.
        let handle = stdout::on_stderr(&lock, || unsafe { api.backend_create(&lock, log.handle) })?;
        let backend = BackendHandle { handle, log };
        // SAFETY: the log is live.
        let device = stdout::on_stderr(&lock, || unsafe { api.device_create(&lock, backend.log.handle, soc_model) })?;
        Ok(Arc::new(Self { handle: device, backend, soc_model }))
    }

    pub(super) fn library(&self) -> &Arc<QnnLibrary> {
        &self.backend.log.library
    }

    pub(super) fn soc_model(&self) -> Option<u32> {
        self.soc_model
    }

    pub(super) fn raw(&self) -> (sys::Qnn_BackendHandle_t, sys::Qnn_DeviceHandle_t) {
        (self.backend.handle, self.handle)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own; contexts hold this value, so none is left.
        report(unsafe { self.library().api().device_free(&QnnLock::acquire(), self.handle) });
    }
}
