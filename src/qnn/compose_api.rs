//! The wrappers of the C functions that compose graphs: a second part of [`QnnApi`], which running a model never calls.

use super::lock::QnnLock;
use super::result::{QnnApi, QnnError};
use super::sys;
use std::ffi::CString;

/// A list of options as the C functions want it: pointers that end with null.
struct ConfigList {
    pointers: Vec<*const sys::Qnn_Config_t>,
}

impl ConfigList {
    /// Options must outlive the list. No options: a null list.
    fn new(configs: &[sys::Qnn_Config_t]) -> Self {
        let end = (!configs.is_empty()).then_some(std::ptr::null());
        Self { pointers: configs.iter().map(|config| &raw const *config).chain(end).collect() }
    }

    fn as_mut_ptr(&mut self) -> *mut *const sys::Qnn_Config_t {
        if self.pointers.is_empty() { std::ptr::null_mut() } else { self.pointers.as_mut_ptr() }
    }
}

/// The function, which a library that only runs models may lack.
fn composing<F>(function: Option<F>, call: &'static str) -> Result<F, QnnError> {
    const NOT_SUPPORTED: u64 = 1000;
    function.ok_or_else(|| QnnError::new(call, NOT_SUPPORTED).detail("this library lacks the function".to_owned()))
}

impl QnnApi {
    /// An empty context.
    ///
    /// # Safety
    /// `backend` and `device` must be live, and the context must be freed before them; `configs` must be context
    /// options whose pointers are valid.
    pub(super) unsafe fn context_create(
        &self,
        _: &QnnLock,
        (backend, device): (sys::Qnn_BackendHandle_t, sys::Qnn_DeviceHandle_t),
        configs: &[sys::Qnn_Config_t],
    ) -> Result<sys::Qnn_ContextHandle_t, QnnError> {
        let mut context = std::ptr::null_mut();
        let mut list = ConfigList::new(configs);
        // SAFETY: the list outlives the call; the rest as the caller says.
        let code = unsafe {
            composing(self.0.contextCreate, "QnnContext_create")?(backend, device, list.as_mut_ptr(), &mut context)
        };
        self.check("QnnContext_create", code)?;
        Ok(context)
    }

    /// The context with its finalized graphs as bytes.
    ///
    /// # Safety
    /// `context` must be live.
    pub(super) unsafe fn context_binary(
        &self,
        _: &QnnLock,
        context: sys::Qnn_ContextHandle_t,
    ) -> Result<Vec<u8>, QnnError> {
        let mut size = 0;
        // SAFETY: the out-parameter is valid; the context as the caller says.
        let code = unsafe { composing(self.0.contextGetBinarySize, "QnnContext_getBinarySize")?(context, &mut size) };
        self.check("QnnContext_getBinarySize", code)?;
        let too_large = || QnnError::new("QnnContext_getBinarySize", 1002).detail(format!("{size} bytes"));
        let mut binary = Vec::new();
        binary.try_reserve_exact(usize::try_from(size).map_err(|_| too_large())?).map_err(|_| too_large())?;
        binary.resize(size as usize, 0);
        let mut written = 0;
        // SAFETY: the buffer may be written for its length; the rest as the caller says.
        let code = unsafe {
            composing(self.0.contextGetBinary, "QnnContext_getBinary")?(
                context,
                binary.as_mut_ptr().cast(),
                size,
                &mut written,
            )
        };
        self.check("QnnContext_getBinary", code)?;
        binary.truncate(written.min(size) as usize);
        Ok(binary)
    }

    /// An empty graph, which lives as long as its context.
    ///
    /// # Safety
    /// `context` must be live; `configs` must be graph options whose pointers are valid.
    pub(super) unsafe fn graph_create(
        &self,
        _: &QnnLock,
        context: sys::Qnn_ContextHandle_t,
        name: &CString,
        configs: &[sys::Qnn_Config_t],
    ) -> Result<sys::Qnn_GraphHandle_t, QnnError> {
        let mut graph = std::ptr::null_mut();
        let mut list = ConfigList::new(configs);
        // SAFETY: name and list outlive the call; the rest as the caller says.
        let code = unsafe {
            composing(self.0.graphCreate, "QnnGraph_create")?(context, name.as_ptr(), list.as_mut_ptr(), &mut graph)
        };
        self.check("QnnGraph_create", code)?;
        Ok(graph)
    }

    /// Makes `tensor` known to `graph` and writes its id into it. Static data is copied.
    ///
    /// # Safety
    /// `graph` must be live and not finalized; everything that `tensor` points at must be valid.
    pub(super) unsafe fn tensor_create(
        &self,
        _: &QnnLock,
        graph: sys::Qnn_GraphHandle_t,
        tensor: &mut sys::Qnn_Tensor_t,
    ) -> Result<(), QnnError> {
        // SAFETY: as the caller says.
        self.check("QnnTensor_createGraphTensor", unsafe {
            composing(self.0.tensorCreateGraphTensor, "QnnTensor_createGraphTensor")?(graph, tensor)
        })
    }

    /// Appends a node.
    ///
    /// # Safety
    /// `graph` must be live and not finalized; the operation's tensors must have been created in it, and everything
    /// that it points at must be valid.
    pub(super) unsafe fn graph_add_node(
        &self,
        _: &QnnLock,
        graph: sys::Qnn_GraphHandle_t,
        operation: sys::Qnn_OpConfig_t,
    ) -> Result<(), QnnError> {
        // SAFETY: as the caller says.
        self.check("QnnGraph_addNode", unsafe { composing(self.0.graphAddNode, "QnnGraph_addNode")?(graph, operation) })
    }

    /// Compiles `graph`.
    ///
    /// # Safety
    /// `graph` must be live and not finalized.
    pub(super) unsafe fn graph_finalize(&self, _: &QnnLock, graph: sys::Qnn_GraphHandle_t) -> Result<(), QnnError> {
        let (profile, signal) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: profile and signal may be null; the graph as the caller says.
        self.check("QnnGraph_finalize", unsafe {
            composing(self.0.graphFinalize, "QnnGraph_finalize")?(graph, profile, signal)
        })
    }
}
