//! The wrappers of the C functions that make memory known to the library: a part of [`QnnApi`] that only shared buffers
//! call.

use super::lock::QnnLock;
use super::result::{QnnApi, QnnError};
use super::sys;

/// A tensor's place in a block of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedPlace {
    /// Descriptor of the block.
    pub(super) fd: i32,
    /// Size of the block, in bytes.
    pub(super) block_len: usize,
    /// Where in the block the tensor begins, in bytes.
    pub(super) offset: usize,
}

/// The function, which a library that shares no memory may lack.
fn sharing<F>(function: Option<F>, call: &'static str) -> Result<F, QnnError> {
    const NOT_SUPPORTED: u64 = 1000;
    function.ok_or_else(|| QnnError::new(call, NOT_SUPPORTED).detail("this library lacks the function"))
}

impl QnnApi {
    /// Makes the place of `tensor` known to the library. Tensors in one block are told apart by their offsets, which is
    /// what HTP's own kind of custom memory is for.
    ///
    /// # Safety
    /// `context` must be live; the tensor's dimensions must be valid for its rank; and the block must be live as long
    /// as the handle is registered.
    pub(super) unsafe fn mem_register(
        &self,
        _: &QnnLock,
        context: sys::Qnn_ContextHandle_t,
        tensor: &sys::Qnn_TensorV1_t,
        place: SharedPlace,
    ) -> Result<sys::Qnn_MemHandle_t, QnnError> {
        const CALL: &str = "QnnMem_register";
        let SharedPlace { fd, block_len, offset } = place;
        let mut custom = sys::QnnMemHtp_Descriptor_t {
            type_: sys::QNN_HTP_MEM_SHARED_BUFFER,
            size: block_len as u64,
            u: sys::QnnMemHtp_Place_t {
                sharedBufferConfig: sys::QnnHtpMem_SharedBufferConfig_t { fd, offset: offset as u64 },
            },
        };
        let descriptor = sys::Qnn_MemDescriptor_t {
            memShape: sys::Qnn_MemShape_t {
                numDim: tensor.rank,
                dimSize: tensor.dimensions,
                shapeConfig: std::ptr::null(),
            },
            dataType: tensor.dataType,
            memType: sys::QNN_MEM_TYPE_CUSTOM,
            u: sys::Qnn_MemInfo_t { customInfo: (&raw mut custom).cast() },
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the descriptor and what it points at outlive the call; the rest as the caller says.
        let code = unsafe { sharing(self.0.memRegister, CALL)?(context, &descriptor, 1, &mut handle) };
        let check = self.check(CALL, code).and_then(|()| match handle.is_null() {
            // Nothing documented says so with success, and a null handle cannot be told from a null buffer.
            true => Err(QnnError::new(CALL, 8001).detail("the handle is null")),
            false => Ok(handle),
        });
        check.map_err(|error| error.detail(format!("descriptor {fd}, offset {offset} of {block_len} bytes")))
    }

    /// # Safety
    /// `handle` must come from `mem_register` of this table, its context be live, and it not be used again.
    pub(super) unsafe fn mem_deregister(&self, _: &QnnLock, handle: sys::Qnn_MemHandle_t) -> Result<(), QnnError> {
        const CALL: &str = "QnnMem_deRegister";
        // SAFETY: the list has one entry; the rest as the caller says.
        self.check(CALL, unsafe { sharing(self.0.memDeRegister, CALL)?(&handle, 1) })
    }
}
