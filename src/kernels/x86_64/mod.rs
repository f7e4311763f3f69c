//! The instruction sets of x86-64 processors.

pub mod avx2;
pub mod avx512;
