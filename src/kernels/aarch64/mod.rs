//! The instruction sets of 64-bit Arm processors.

pub mod neon;
