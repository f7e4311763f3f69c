//! A kernel set: all kernels compiled for one instruction set. Whoever holds one may call them, because a set can only be
//! had on a machine that runs it.

use super::cpu;
use super::scalar::Scalar;
use super::simd::{Op, Simd};

#[cfg(target_arch = "aarch64")]
use super::aarch64::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2::Avx2, avx512::Avx512};

/// One instruction set's kernels. All sets give the same bits.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum KernelSet {
    /// Plain Rust, everywhere.
    Scalar(Scalar),
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 with VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// NEON with dot products.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon<false>),
    /// NEON with dot products and int8 matrix multiplication.
    #[cfg(target_arch = "aarch64")]
    NeonI8mm(Neon<true>),
}

impl KernelSet {
    /// The best set of this machine, or the one that the environment variable `LLR_KERNELS` asks for (`scalar`, `avx2`,
    /// `avx512`, `neon`, `neon-i8mm`). Decided at the first call.
    pub fn best() -> Self {
        cpu::best()
    }

    /// Every set this machine can run, best first; scalar is always the last.
    pub fn all_available() -> &'static [Self] {
        cpu::available()
    }

    /// Name of the set, as `LLR_KERNELS` takes it.
    pub fn tier(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm(_) => "neon-i8mm",
        }
    }

    /// The full name of a kernel, for logs and profiles: `{types}_{op}_{rows}x16_{isa}`.
    pub fn kernel_name(&self, types: &str, op: &str) -> String {
        self.run(Name { types, op })
    }

    /// Rows of a GEMM tile.
    pub(crate) fn tile_rows(&self) -> usize {
        self.run(TileRows)
    }

    /// Runs `op` on this set.
    #[inline]
    pub(crate) fn run<O: Op>(&self, op: O) -> O::Out {
        match self {
            Self::Scalar(simd) => simd.run(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.run(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => simd.run(op),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => simd.run(op),
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm(simd) => simd.run(op),
        }
    }
}

struct TileRows;

impl Op for TileRows {
    type Out = usize;
    #[inline(always)]
    fn eval<S: Simd>(self, _: S) -> usize {
        S::ROWS
    }
}

struct Name<'a> {
    types: &'a str,
    op: &'a str,
}

impl Op for Name<'_> {
    type Out = String;
    #[inline(always)]
    fn eval<S: Simd>(self, _: S) -> String {
        format!("{}_{}_{}x16_{}", self.types, self.op, S::ROWS, S::NAME)
    }
}
