//! A tensor at run time: type, current shape, and the address of its bytes.
#![allow(unsafe_code)]

use crate::error::{Error, Result, Status};
use crate::tensor::{DType, Dims, Element, Encoding, element_count};

/// A tensor of a loaded method. It does not own its bytes: they lie in the method's planned memory, in the program's
/// constants (read-only) or in the caller's arena, all of which outlive the `execute` during which they are touched.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Current sizes.
    pub dims: Dims,
    /// Largest sizes.
    pub bounds: Dims,
    /// Order of dimensions in memory.
    pub dim_order: Vec<u8>,
    /// Quantization, where known.
    pub encoding: Option<Encoding>,
    /// First byte; null while unbound.
    data: *mut u8,
    /// Bytes that may be touched at `data`.
    capacity: usize,
    /// Whether `data` may be written.
    writable: bool,
}

// SAFETY: the address is only dereferenced inside `execute`, which has exclusive access to the method and the arena.
unsafe impl Send for Tensor {}
// SAFETY: `&Tensor` gives reads only, and during a method's execution only that thread has the method.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// An unbound tensor.
    pub fn unbound(dtype: DType, dims: Dims, dim_order: Vec<u8>) -> Self {
        Self {
            dtype,
            bounds: dims.clone(),
            dims,
            dim_order,
            encoding: None,
            data: std::ptr::null_mut(),
            capacity: 0,
            writable: false,
        }
    }

    /// Points the tensor at memory.
    ///
    /// # Safety
    /// `data` must be valid for `capacity` bytes, for reads and, if `writable`, for writes, whenever the method that
    /// holds this tensor executes; and it must be aligned to the element type.
    pub(crate) unsafe fn bind(&mut self, data: *mut u8, capacity: usize, writable: bool) {
        (self.data, self.capacity, self.writable) = (data, capacity, writable);
    }

    /// Address of the first byte, null while unbound. For delegates, which hand it to their vendor's library.
    pub(crate) fn address(&self) -> *mut u8 {
        self.data
    }

    /// Bytes that may be touched behind the address.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the bytes may be written (constants may not).
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Elements at the current sizes.
    pub fn len(&self) -> usize {
        // Sizes never exceed the bounds, which were checked when the program was read.
        element_count(&self.dims).expect("checked dims")
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes at the current sizes.
    pub fn byte_len(&self) -> usize {
        self.len() * self.dtype.size()
    }

    /// Changes the current sizes within the bounds.
    pub fn resize(&mut self, dims: &[usize]) -> Result<()> {
        if dims.len() != self.bounds.len() || dims.iter().zip(&self.bounds).any(|(dim, bound)| dim > bound) {
            return Err(Error::new(
                Status::InvalidArgument,
                format!("sizes {dims:?} do not fit the upper bounds {:?}", self.bounds),
            ));
        }
        self.dims.clear();
        self.dims.extend_from_slice(dims);
        Ok(())
    }

    /// The elements.
    pub fn view<T: Element>(&self) -> Result<&[T]> {
        let len = self.check::<T>()?;
        // SAFETY: `check` proved that the address is bound, aligned and long enough; `bind`'s contract makes it valid
        // while the method executes, and kernels are the only callers. A kernel that also takes `view_mut` of another
        // tensor proves first that the two do not overlap (`KernelArgs::in_out`).
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast::<T>(), len) })
    }

    /// The elements, to write. Refused for constants.
    pub fn view_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let len = self.check::<T>()?;
        if !self.writable {
            return Err(Error::new(Status::InvalidProgram, "a constant tensor is written to"));
        }
        // SAFETY: as in `view`, with `writable` checked.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.cast::<T>(), len) })
    }

    fn check<T: Element>(&self) -> Result<usize> {
        if !T::DTYPES.contains(&self.dtype) {
            return Err(Error::new(
                Status::InvalidType,
                format!("a {} tensor is read as {}", self.dtype, T::DTYPES[0]),
            ));
        }
        let len = self.len();
        if self.data.is_null() || self.byte_len() > self.capacity || !self.data.cast::<T>().is_aligned() {
            return Err(Error::new(
                Status::InvalidState,
                format!("a {}{:?} tensor has no memory bound to it", self.dtype, self.dims),
            ));
        }
        Ok(len)
    }
}
