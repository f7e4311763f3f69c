//! Thin wrappers of QNN's C functions, one each: they take proof of the lock, and turn a code into a [`QnnError`].
//!
//! Handles are the library's raw pointers here; the types with `Drop` that own them are in `handles.rs` and
//! `context.rs`.

use super::codes::code_name;
use super::lock::QnnLock;
use super::sys;
use crate::error::{Error, Status};
use std::ffi::{CStr, CString, c_char};
use std::fmt;

/// A QNN call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QnnError {
    /// The C function as documented: `QnnDevice_create`.
    pub call: &'static str,
    /// What it returned; see [`QnnError::number`].
    pub code: u64,
    /// The code's symbolic name, when known.
    pub name: Option<&'static str>,
    /// The library's own words for it.
    pub message: Option<String>,
    /// What the call was about: graph, delegate, versions of library and model.
    pub details: Vec<String>,
    /// What usually causes it and what to do.
    pub hint: Option<String>,
}

impl QnnError {
    pub(super) fn new(call: &'static str, code: u64) -> Self {
        Self { call, code, name: code_name(code), message: None, details: Vec::new(), hint: None }
    }

    /// The documented part of the code.
    pub fn number(&self) -> u16 {
        (self.code & 0xffff) as u16
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    /// The status that callers see.
    pub fn status(&self) -> Status {
        match (self.number(), self.call) {
            (1002 | 1010 | 8003, _) => Status::OutOfResources,
            (1008 | 5000 | 5004 | 5005 | 5008 | 5011, CREATE_FROM_BINARY) => Status::DelegateInvalidCompatibility,
            (30_000..=30_999, _) => Status::DelegateInvalidCompatibility,
            _ => Status::BackendFailed,
        }
    }
}

impl fmt::Display for QnnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed with {} ({:#x})", self.call, self.number(), self.number())?;
        // The library's words begin with the name.
        match (&self.message, self.name) {
            (Some(message), Some(name)) if !message.starts_with(name) => write!(f, " {name}: {message}")?,
            (Some(message), _) => write!(f, " {message}")?,
            (None, Some(name)) => write!(f, " {name}")?,
            (None, None) => {}
        }
        for detail in &self.details {
            write!(f, "; {detail}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, ". Hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for QnnError {}

impl From<QnnError> for Error {
    fn from(error: QnnError) -> Self {
        Self::from_source(error.status(), error)
    }
}

pub(super) const CREATE_FROM_BINARY: &str = "QnnContext_createFromBinary";

/// A backend library's functions: pointers copied from its table, or a fake's.
#[derive(Clone, Copy)]
pub struct QnnApi(pub(super) sys::QnnInterface_Functions_t);

/// Calls entry `$name`, which [`QnnApi::new`] has found to be there.
macro_rules! entry {
    ($self:ident . $name:ident) => {
        $self.0.$name.expect("checked when the table was taken over")
    };
}

impl QnnApi {
    /// Takes over a table. The error is the name of an entry that it lacks.
    ///
    /// # Safety
    /// Every entry must be a function with the behaviour that QNN's documentation states, callable as long as the
    /// process lives.
    pub unsafe fn new(table: sys::QnnInterface_Functions_t) -> Result<Self, &'static str> {
        for (name, present) in [
            ("backendCreate", table.backendCreate.is_some()),
            ("backendGetBuildId", table.backendGetBuildId.is_some()),
            ("backendFree", table.backendFree.is_some()),
            ("contextCreateFromBinary", table.contextCreateFromBinary.is_some()),
            ("contextFree", table.contextFree.is_some()),
            ("graphRetrieve", table.graphRetrieve.is_some()),
            ("graphExecute", table.graphExecute.is_some()),
            ("logCreate", table.logCreate.is_some()),
            ("logFree", table.logFree.is_some()),
            ("deviceCreate", table.deviceCreate.is_some()),
            ("deviceFree", table.deviceFree.is_some()),
        ] {
            if !present {
                return Err(name);
            }
        }
        Ok(Self(table))
    }

    pub(super) fn check(&self, call: &'static str, code: u64) -> Result<(), QnnError> {
        if code == 0 {
            return Ok(());
        }
        let mut error = QnnError::new(call, code);
        error.message = self.message(code);
        Err(error)
    }

    fn message(&self, code: u64) -> Option<String> {
        let get_message = self.0.errorGetMessage?;
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: any code may be asked; on success the text is the library's own and never freed.
        let known = unsafe { get_message(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned())
    }

    /// The SDK that the library comes from: `v2.49.40.…`.
    pub(super) fn backend_build_id(&self, _: &QnnLock) -> Result<String, QnnError> {
        let mut id: *const c_char = std::ptr::null();
        // SAFETY: the out-parameter is valid.
        self.check("QnnBackend_getBuildId", unsafe { entry!(self.backendGetBuildId)(&mut id) })?;
        if id.is_null() {
            return Ok(String::new());
        }
        // SAFETY: on success a non-null id is a C string in the library's constant data.
        Ok(unsafe { CStr::from_ptr(id) }.to_string_lossy().into_owned())
    }

    /// A log that calls `callback` for lines up to `level`.
    pub(super) fn log_create(
        &self,
        _: &QnnLock,
        callback: sys::QnnLog_Callback_t,
        level: u32,
    ) -> Result<sys::Qnn_LogHandle_t, QnnError> {
        let mut log = std::ptr::null_mut();
        // SAFETY: `callback` is a function of this crate or null; the out-parameter is valid.
        self.check("QnnLog_create", unsafe { entry!(self.logCreate)(callback, level, &mut log) })?;
        Ok(log)
    }

    /// # Safety
    /// `log` must come from `log_create` of this table, be free of users, and not be used again.
    pub(super) unsafe fn log_free(&self, _: &QnnLock, log: sys::Qnn_LogHandle_t) -> Result<(), QnnError> {
        // SAFETY: as the caller says.
        self.check("QnnLog_free", unsafe { entry!(self.logFree)(log) })
    }

    /// # Safety
    /// `log` must be live.
    pub(super) unsafe fn backend_create(
        &self,
        _: &QnnLock,
        log: sys::Qnn_LogHandle_t,
    ) -> Result<sys::Qnn_BackendHandle_t, QnnError> {
        let mut backend = std::ptr::null_mut();
        // SAFETY: no configuration is allowed to be null; the rest as the caller says.
        let code = unsafe { entry!(self.backendCreate)(log, std::ptr::null_mut(), &mut backend) };
        self.check("QnnBackend_create", code)?;
        Ok(backend)
    }

    /// # Safety
    /// `backend` must come from `backend_create` of this table, be free of users, and not be used again.
    pub(super) unsafe fn backend_free(&self, _: &QnnLock, backend: sys::Qnn_BackendHandle_t) -> Result<(), QnnError> {
        // SAFETY: as the caller says.
        self.check("QnnBackend_free", unsafe { entry!(self.backendFree)(backend) })
    }

    /// A device for SoC `soc_model`, or the library's default one.
    ///
    /// # Safety
    /// `log` must be live.
    pub(super) unsafe fn device_create(
        &self,
        _: &QnnLock,
        log: sys::Qnn_LogHandle_t,
        soc_model: Option<u32>,
    ) -> Result<sys::Qnn_DeviceHandle_t, QnnError> {
        let soc = soc_model.unwrap_or(0);
        let custom = sys::QnnHtpDevice_SocConfig_t {
            option: sys::QNN_HTP_DEVICE_CONFIG_OPTION_SOC,
            socModelAt4: soc,
            socModelAt8: soc,
            reserved: 0,
        };
        let config = sys::Qnn_Config_t {
            option: sys::QNN_DEVICE_CONFIG_OPTION_CUSTOM,
            u: sys::Qnn_ConfigUnion_t { customConfig: (&raw const custom).cast() },
        };
        let mut list = [&raw const config, std::ptr::null()];
        let configs = if soc == 0 { std::ptr::null_mut() } else { list.as_mut_ptr() };
        let mut device = std::ptr::null_mut();
        // SAFETY: the list ends with null, and it and what it points at outlive the call; the log as the caller says.
        self.check("QnnDevice_create", unsafe { entry!(self.deviceCreate)(log, configs, &mut device) })?;
        Ok(device)
    }

    /// # Safety
    /// `device` must come from `device_create` of this table, have no contexts left, and not be used again.
    pub(super) unsafe fn device_free(&self, _: &QnnLock, device: sys::Qnn_DeviceHandle_t) -> Result<(), QnnError> {
        // SAFETY: as the caller says.
        self.check("QnnDevice_free", unsafe { entry!(self.deviceFree)(device) })
    }

    /// # Safety
    /// `backend` and `device` must be live, and `binary` must outlive the context.
    pub(super) unsafe fn context_create_from_binary(
        &self,
        _: &QnnLock,
        backend: sys::Qnn_BackendHandle_t,
        device: sys::Qnn_DeviceHandle_t,
        binary: &[u8],
    ) -> Result<sys::Qnn_ContextHandle_t, QnnError> {
        let mut context = std::ptr::null_mut();
        let (no_config, no_profile) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (data, size) = (binary.as_ptr().cast(), binary.len() as u64);
        // SAFETY: `binary` is readable for its length; configuration and profile may be null; the rest as the caller
        // says.
        let code = unsafe {
            entry!(self.contextCreateFromBinary)(backend, device, no_config, data, size, &mut context, no_profile)
        };
        self.check(CREATE_FROM_BINARY, code)?;
        Ok(context)
    }

    /// # Safety
    /// `context` must come from this table and not be used again, nor its graphs.
    pub(super) unsafe fn context_free(&self, _: &QnnLock, context: sys::Qnn_ContextHandle_t) -> Result<(), QnnError> {
        // SAFETY: as the caller says; the profile may be null.
        self.check("QnnContext_free", unsafe { entry!(self.contextFree)(context, std::ptr::null_mut()) })
    }

    /// # Safety
    /// `context` must be live. The graph lives as long as it.
    pub(super) unsafe fn graph_retrieve(
        &self,
        _: &QnnLock,
        context: sys::Qnn_ContextHandle_t,
        name: &CString,
    ) -> Result<sys::Qnn_GraphHandle_t, QnnError> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the name is a C string; the rest as the caller says.
        self.check("QnnGraph_retrieve", unsafe { entry!(self.graphRetrieve)(context, name.as_ptr(), &mut graph) })?;
        Ok(graph)
    }

    /// # Safety
    /// `graph` must be live. Tensors must have ids of the graph's own, and each client buffer must be valid for its
    /// size, to read for inputs and to write for outputs: the library does not check sizes.
    pub(super) unsafe fn graph_execute(
        &self,
        _: &QnnLock,
        graph: sys::Qnn_GraphHandle_t,
        inputs: &[sys::Qnn_Tensor_t],
        outputs: &mut [sys::Qnn_Tensor_t],
    ) -> Result<(), QnnError> {
        let (profile, signal) = (std::ptr::null_mut(), std::ptr::null_mut());
        // Counts were capped when the graph was read.
        let (input_count, output_count) = (inputs.len() as u32, outputs.len() as u32);
        // SAFETY: the arrays are valid for their counts; the rest as the caller says.
        let code = unsafe {
            entry!(self.graphExecute)(
                graph,
                inputs.as_ptr(),
                input_count,
                outputs.as_mut_ptr(),
                output_count,
                profile,
                signal,
            )
        };
        self.check("QnnGraph_execute", code)
    }
}

/// libQnnSystem's functions: what is inside a context binary.
#[derive(Clone, Copy)]
pub struct SystemApi(sys::QnnSystemInterface_Functions_t);

impl SystemApi {
    /// Takes over a table. The error is the name of an entry that it lacks.
    ///
    /// # Safety
    /// As for [`QnnApi::new`].
    pub unsafe fn new(table: sys::QnnSystemInterface_Functions_t) -> Result<Self, &'static str> {
        let readable = table.systemContextGetMetaData.is_some() || table.systemContextGetBinaryInfo.is_some();
        for (name, present) in [
            ("systemContextCreate", table.systemContextCreate.is_some()),
            ("systemContextGetMetaData", readable),
            ("systemContextFree", table.systemContextFree.is_some()),
        ] {
            if !present {
                return Err(name);
            }
        }
        Ok(Self(table))
    }

    fn check(call: &'static str, code: u64) -> Result<(), QnnError> {
        if code == 0 { Ok(()) } else { Err(QnnError::new(call, code)) }
    }

    pub(super) fn context_create(&self, _: &QnnLock) -> Result<sys::QnnSystemContext_Handle_t, QnnError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the out-parameter is valid.
        Self::check("QnnSystemContext_create", unsafe { entry!(self.systemContextCreate)(&mut context) })?;
        Ok(context)
    }

    /// Null when the library reports success and gives nothing. What the pointer leads to lives in `context`.
    ///
    /// # Safety
    /// `context` must be live and not have been asked before: a second answer is the first one again.
    pub(super) unsafe fn binary_info(
        &self,
        _: &QnnLock,
        context: sys::QnnSystemContext_Handle_t,
        binary: &[u8],
    ) -> Result<*const sys::QnnSystemContext_BinaryInfo_t, QnnError> {
        let mut info = std::ptr::null();
        let size = binary.len() as u64;
        // The newer call promises not to write to the binary, which may be a read-only mapping.
        if let Some(get_metadata) = self.0.systemContextGetMetaData {
            // SAFETY: `binary` is readable for its length; the rest as the caller says.
            let code = unsafe { get_metadata(context, binary.as_ptr().cast(), size, &mut info) };
            Self::check("QnnSystemContext_getMetaData", code)?;
            return Ok(info);
        }
        let mut copy = binary.to_vec();
        let mut info_size = 0;
        let get_info = entry!(self.systemContextGetBinaryInfo);
        // SAFETY: the copy may be written; the answer does not point into it, so it may go at once.
        let code = unsafe { get_info(context, copy.as_mut_ptr().cast(), size, &mut info, &mut info_size) };
        Self::check("QnnSystemContext_getBinaryInfo", code)?;
        Ok(info)
    }

    /// # Safety
    /// `context` must come from this table and not be used again.
    pub(super) unsafe fn context_free(
        &self,
        _: &QnnLock,
        context: sys::QnnSystemContext_Handle_t,
    ) -> Result<(), QnnError> {
        // SAFETY: as the caller says.
        Self::check("QnnSystemContext_free", unsafe { entry!(self.systemContextFree)(context) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_call_number_name_and_hint() {
        let mut error = QnnError::new("QnnDevice_create", 14001).detail("library 2.49");
        assert_eq!(
            error.to_string(),
            "QnnDevice_create failed with 14001 (0x36b1) QNN_DEVICE_ERROR_INVALID_CONFIG; library 2.49"
        );
        error.message = Some("QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config values".into());
        error.hint = Some("look at the skel".into());
        assert_eq!(
            error.to_string(),
            "QnnDevice_create failed with 14001 (0x36b1) QNN_DEVICE_ERROR_INVALID_CONFIG: Invalid config values; \
             library 2.49. Hint: look at the skel"
        );
    }

    #[test]
    fn status_follows_call_and_code() {
        for (call, code, status) in [
            (CREATE_FROM_BINARY, 5000, Status::DelegateInvalidCompatibility),
            (CREATE_FROM_BINARY, 5005, Status::DelegateInvalidCompatibility),
            (CREATE_FROM_BINARY, 1002, Status::OutOfResources),
            (CREATE_FROM_BINARY, 5002, Status::BackendFailed),
            ("QnnSystemContext_getMetaData", 30010, Status::DelegateInvalidCompatibility),
            ("QnnDevice_create", 14001, Status::BackendFailed),
            ("QnnGraph_execute", 5000, Status::BackendFailed),
        ] {
            assert_eq!(QnnError::new(call, code).status(), status, "{call} {code}");
        }
    }

    #[test]
    fn a_table_with_a_hole_is_refused_by_name() {
        // SAFETY: nothing in an empty table can be called.
        let api = unsafe { QnnApi::new(sys::QnnInterface_Functions_t::default()) };
        assert_eq!(api.err(), Some("backendCreate"));
        // SAFETY: as above.
        let system = unsafe { SystemApi::new(sys::QnnSystemInterface_Functions_t::default()) };
        assert_eq!(system.err(), Some("systemContextCreate"));
    }
}
