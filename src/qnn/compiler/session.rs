//! The context that graphs are composed in.

use super::options::CompilerOptions;
use crate::qnn::handles::{Device, report};
use crate::qnn::lock::QnnLock;
use crate::qnn::result::{QnnApi, QnnError};
use crate::qnn::{stdout, sys};
use std::sync::Arc;

/// An open context; freed with this value, and its graphs with it.
pub(super) struct Session<'a> {
    lock: &'a QnnLock,
    device: &'a Arc<Device>,
    handle: sys::Qnn_ContextHandle_t,
}

impl<'a> Session<'a> {
    pub(super) fn create(
        lock: &'a QnnLock,
        device: &'a Arc<Device>,
        options: &CompilerOptions,
    ) -> Result<Self, QnnError> {
        let mut custom = sys::QnnHtpContext_CustomConfig_t {
            option: sys::QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING,
            ..Default::default()
        };
        // The option's payload is one byte, the first.
        custom.payload[0] = u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]);
        let sharing = sys::Qnn_Config_t {
            option: sys::QNN_CONTEXT_CONFIG_OPTION_CUSTOM,
            u: sys::Qnn_ConfigUnion_t { customConfig: (&raw const custom).cast() },
        };
        let configs: &[_] = if options.weight_sharing { &[sharing] } else { &[] };
        // SAFETY: the device is live and held by the new value; the options outlive the call.
        let create = || unsafe { device.library().api().context_create(lock, device.raw(), configs) };
        let handle = stdout::on_stderr(lock, create)?;
        Ok(Self { lock, device, handle })
    }

    pub(super) fn api(&self) -> &QnnApi {
        self.device.library().api()
    }

    pub(super) fn lock(&self) -> &QnnLock {
        self.lock
    }

    /// Live as long as `self`.
    pub(super) fn handle(&self) -> sys::Qnn_ContextHandle_t {
        self.handle
    }

    /// The context binary; all graphs must be finalized.
    pub(super) fn binary(&self) -> Result<Vec<u8>, QnnError> {
        // SAFETY: the context is live.
        stdout::on_stderr(self.lock, || unsafe { self.api().context_binary(self.lock, self.handle) })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own; composers borrow this value, so none is left.
        report(unsafe { self.api().context_free(self.lock, self.handle) });
    }
}
