//! The arithmetic of the CPU engine: safe functions on slices, each compiled for several instruction sets and chosen when
//! the program runs.
//!
//! * A [`KernelSet`] is one instruction set's kernels; [`KernelSet::best`] gives the one to use. All sets give the same
//!   bits, on every machine, for any number of threads: algorithms are written once over 16 lanes ([`simd::Simd`]).
//! * Matrices are row-major f32 unless a name says otherwise. Weights are packed once ([`PackedWeights`], [`PackedF32`])
//!   and then streamed.
//! * Parallel kernels take a [`ThreadPool`].
//!
//! Kernels are named `{act}{weight}{out}_{op}_{tile}_{isa}` in logs and profiles: `qd8q4f32_gemm_12x16_avx512vnni`
//! multiplies dynamically quantized int8 activations with 4-bit weights into f32, 12 rows by 16 columns at a time.
//!
//! Shapes are the caller's contract: a kernel given slices that do not fit panics, it never reads outside of them.

#[cfg(target_arch = "aarch64")]
pub mod aarch64;
mod attention;
mod cpu;
mod elementwise;
mod embedding;
mod gemm;
pub mod line;
mod math;
mod matmul;
mod norm;
mod pool;
mod qgemm;
mod quantize;
mod reduce;
mod rotary;
pub mod scalar;
mod set;
mod shared;
pub mod simd;
mod weights;
#[cfg(target_arch = "x86_64")]
pub mod x86_64;

pub use attention::{Attention, KeyValues, Mask, Strides};
pub use cpu::fast_cores;
pub use elementwise::{Binary, Unary};
pub use embedding::{EmbeddingTable, embedding_row};
pub use gemm::PackedF32;
pub use matmul::MatrixProduct;
pub use pool::ThreadPool;
pub use qgemm::{Clamp, QuantizedProduct};
pub use quantize::{QuantizedRows, RowQuant};
pub use rotary::{Rotary, RotaryStyle};
pub use set::KernelSet;
pub use weights::{Bits, MAX_K, Nibbles, PackError, PackedWeights, Scales, WeightShape};
