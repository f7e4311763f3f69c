//! A tensor at run time: type, current shape, and the address of its bytes.
#![allow(unsafe_code)]

use super::error::RuntimeError;
use crate::error::Result;
use crate::pte::{ShapeDynamism, TensorValue};
use crate::tensor::{DType, Dims, Element, Encoding, element_count};
use std::fmt;

/// A tensor of a loaded method. It does not own its bytes: they lie in the method's planned memory, in the program's
/// constants (read-only) or in the caller's arena, all of which outlive the `execute` during which they are touched.
/// Kernels and delegates see tensors for the time of a call and may not keep them; a clone has no memory.
#[derive(Debug)]
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
    /// Whether the sizes may differ from the bounds.
    pub dynamic: bool,
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

impl Clone for Tensor {
    /// A tensor of the same type and sizes without memory, so that no clone outlives the bytes.
    fn clone(&self) -> Self {
        Self {
            bounds: self.bounds.clone(),
            encoding: self.encoding,
            dynamic: self.dynamic,
            ..Self::unbound(self.dtype, self.dims.clone(), self.dim_order.clone())
        }
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.dims)
    }
}

impl Tensor {
    /// An unbound tensor of fixed sizes.
    pub fn unbound(dtype: DType, dims: Dims, dim_order: Vec<u8>) -> Self {
        Self {
            dtype,
            bounds: dims.clone(),
            dims,
            dim_order,
            encoding: None,
            dynamic: false,
            data: std::ptr::null_mut(),
            capacity: 0,
            writable: false,
        }
    }

    /// A tensor of a program, without memory.
    pub(super) fn from_program(value: &TensorValue) -> Self {
        let dynamic = value.dynamism != ShapeDynamism::Static;
        Self { dynamic, ..Self::unbound(value.dtype, value.sizes.clone(), value.dim_order.clone()) }
    }

    /// Points the tensor at memory.
    ///
    /// # Safety
    /// `data` must be valid for `capacity` bytes, for reads and, if `writable`, for writes, whenever the method that
    /// holds this tensor executes; and it must be aligned to the element type.
    pub(crate) unsafe fn bind(&mut self, data: *mut u8, capacity: usize, writable: bool) {
        (self.data, self.capacity, self.writable) = (data, capacity, writable);
    }

    /// Takes the memory away.
    pub(crate) fn unbind(&mut self) {
        (self.data, self.capacity, self.writable) = (std::ptr::null_mut(), 0, false);
    }

    /// Address of the first byte, null while unbound. For delegates, which hand it to their vendor's library.
    pub(crate) fn address(&self) -> *mut u8 {
        self.data
    }

    /// Bytes that may be touched behind the address.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the bytes may be written; false for constants and while unbound.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether the tensor has memory that may only be read.
    pub fn is_constant(&self) -> bool {
        !self.data.is_null() && !self.writable
    }

    /// Whether the elements lie in logical order.
    pub fn is_contiguous(&self) -> bool {
        self.dim_order.iter().enumerate().all(|(place, &dim)| place == usize::from(dim))
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

    /// Size in bytes at the largest sizes.
    pub fn max_byte_len(&self) -> usize {
        element_count(&self.bounds).expect("checked dims") * self.dtype.size()
    }

    /// Changes the current sizes. The rank stays; a tensor of fixed sizes takes only those; a dynamic one takes up to
    /// as many elements as its bounds have, which is ExecuTorch's rule.
    pub fn resize(&mut self, dims: &[usize]) -> Result<()> {
        if self.dims == dims {
            return Ok(());
        }
        let fits =
            |bounds: &[usize]| matches!((element_count(dims), element_count(bounds)), (Ok(n), Ok(max)) if n <= max);
        if !self.dynamic || dims.len() != self.bounds.len() || !fits(&self.bounds) {
            let what = if self.dynamic { "the upper bounds" } else { "the fixed sizes" };
            return Err(RuntimeError::Sizes { asked: dims.to_vec(), what, bounds: self.bounds.clone() }.into());
        }
        self.dims.clear();
        self.dims.extend_from_slice(dims);
        Ok(())
    }

    /// The elements.
    pub fn view<T: Element>(&self) -> Result<&[T]> {
        let len = self.check_type::<T>()?;
        // SAFETY: `check_type` proved that the address is bound, aligned and long enough; `bind`'s contract makes it
        // valid while the method executes, and kernels and delegates are the only callers. Whoever also holds
        // `view_mut` of another tensor proved that the two do not overlap (`KernelArgs::split`).
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast::<T>(), len) })
    }

    /// The elements, to write. Refused for constants.
    pub fn view_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let len = self.check_type::<T>()?;
        self.check_writable()?;
        // SAFETY: as in `view`, with `writable` checked.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.cast::<T>(), len) })
    }

    /// The bytes of the elements, whatever their type.
    pub fn bytes(&self) -> Result<&[u8]> {
        let len = self.check_memory()?;
        // SAFETY: as in `view`; bytes need no alignment.
        Ok(unsafe { std::slice::from_raw_parts(self.data, len) })
    }

    /// The bytes of the elements, to write. Refused for constants.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        let len = self.check_memory()?;
        self.check_writable()?;
        // SAFETY: as in `view_mut`; bytes need no alignment.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data, len) })
    }

    /// Becomes another tensor, memory included: what a move instruction does. Allocates only when a rank grows.
    pub(super) fn alias(&mut self, source: &Tensor) {
        let Self { dtype, dims, bounds, dim_order, encoding, dynamic, data, capacity, writable } = self;
        (*dtype, *encoding, *dynamic) = (source.dtype, source.encoding, source.dynamic);
        (*data, *capacity, *writable) = (source.data, source.capacity, source.writable);
        dims.clone_from(&source.dims);
        bounds.clone_from(&source.bounds);
        dim_order.clone_from(&source.dim_order);
    }

    /// Takes over the memory of `source`, a tensor of the same method and element type.
    pub(super) fn share(&mut self, source: &Tensor) -> Result<()> {
        if self.dtype != source.dtype {
            return Err(RuntimeError::ViewType { from: self.dtype, to: source.dtype }.into());
        }
        source.check_memory()?;
        (self.data, self.capacity, self.writable) = (source.data, source.capacity, source.writable);
        Ok(())
    }

    fn check_type<T: Element>(&self) -> Result<usize> {
        if !T::DTYPES.contains(&self.dtype) {
            return Err(RuntimeError::ElementType { have: self.dtype, want: T::DTYPES[0] }.into());
        }
        let bytes = self.check_memory()?;
        // The element type may have been changed after the address was checked, so both are looked at here.
        if !self.data.cast::<T>().is_aligned() {
            return Err(self.no_memory());
        }
        Ok(bytes / size_of::<T>())
    }

    fn check_memory(&self) -> Result<usize> {
        let bytes = self.byte_len();
        if self.data.is_null() || bytes > self.capacity { Err(self.no_memory()) } else { Ok(bytes) }
    }

    fn check_writable(&self) -> Result<()> {
        if self.writable { Ok(()) } else { Err(RuntimeError::ReadOnly.into()) }
    }

    fn no_memory(&self) -> crate::error::Error {
        RuntimeError::NoMemory { tensor: self.to_string() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(tensor: Tensor, memory: &mut [u64], writable: bool) -> Tensor {
        let mut tensor = tensor;
        // SAFETY: every test keeps `memory` alive and untouched while it uses the tensor.
        unsafe { tensor.bind(memory.as_mut_ptr().cast(), size_of_val(memory), writable) };
        tensor
    }

    #[test]
    fn views_check_type_memory_and_permission() {
        let mut memory = [0u64; 2]; // 16 bytes
        let mut tensor = bound(Tensor::unbound(DType::F32, vec![2, 2], vec![0, 1]), &mut memory, false);
        assert_eq!(tensor.view::<f32>().unwrap(), [0.0; 4]);
        assert!(matches!(tensor.view::<i32>().unwrap_err().find(), Some(RuntimeError::ElementType { .. })));
        assert!(matches!(tensor.view_mut::<f32>().unwrap_err().find(), Some(RuntimeError::ReadOnly)));
        tensor.dims = vec![3, 2];
        assert!(matches!(tensor.view::<f32>().unwrap_err().find(), Some(RuntimeError::NoMemory { .. })));
    }

    #[test]
    fn a_clone_has_no_memory() {
        let mut memory = [0u64; 2];
        let tensor = bound(Tensor::unbound(DType::U8, vec![16], vec![0]), &mut memory, true);
        assert!(tensor.view::<u8>().is_ok());
        assert!(tensor.clone().view::<u8>().is_err());
    }

    #[test]
    fn resize_follows_executorch() {
        let mut fixed = Tensor::unbound(DType::U8, vec![2, 3], vec![0, 1]);
        assert!(fixed.resize(&[2, 3]).is_ok());
        assert!(fixed.resize(&[1, 3]).is_err());
        let mut dynamic = Tensor { dynamic: true, ..Tensor::unbound(DType::U8, vec![2, 3], vec![0, 1]) };
        for (dims, ok) in
            [(&[1, 3][..], true), (&[3, 2], true), (&[3, 3], false), (&[6], false), (&[usize::MAX, 2], false)]
        {
            assert_eq!(dynamic.resize(dims).is_ok(), ok, "{dims:?}");
        }
        assert_eq!(dynamic.dims, [3, 2]);
    }
}
