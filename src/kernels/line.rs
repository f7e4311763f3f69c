//! A cache line of packed data: the unit in which weights are stored, so that every vector load of them is aligned.
#![allow(unsafe_code)]

/// 64 bytes on a 64-byte boundary. What they mean is the business of the packing that fills them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub struct Line(pub [u8; 64]);

// SAFETY: a `[u8; 64]` in a `repr(C)` struct of the same size has no padding, and all-zero bytes are a value of it.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: as above, every bit pattern is a value, and the type is `Copy + 'static`.
unsafe impl bytemuck::Pod for Line {}

impl Line {
    /// All bytes zero.
    pub const ZERO: Self = Self([0; 64]);

    /// The line as 16 floats.
    #[inline(always)]
    pub fn as_f32(&self) -> &[f32; 16] {
        bytemuck::cast_ref(self)
    }

    /// The line as 32 half-width words.
    #[inline(always)]
    pub fn as_u16(&self) -> &[[u16; 16]; 2] {
        bytemuck::cast_ref(self)
    }
}
