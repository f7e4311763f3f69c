//! What this machine's processor can do: found once, and only here.

use super::scalar::Scalar;
use super::set::KernelSet;
use std::sync::LazyLock;

#[cfg(target_arch = "aarch64")]
use super::aarch64::neon::Neon;
#[cfg(target_arch = "x86_64")]
use super::x86_64::{avx2::Avx2, avx512::Avx512};

static AVAILABLE: LazyLock<Vec<KernelSet>> = LazyLock::new(|| {
    let mut sets = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        sets.extend(Avx512::new().map(KernelSet::Avx512));
        sets.extend(Avx2::new().map(KernelSet::Avx2));
    }
    #[cfg(target_arch = "aarch64")]
    {
        sets.extend(Neon::<true>::new().map(KernelSet::NeonI8mm));
        sets.extend(Neon::<false>::new().map(KernelSet::Neon));
    }
    sets.push(KernelSet::Scalar(Scalar));
    sets
});

static BEST: LazyLock<KernelSet> = LazyLock::new(|| {
    let wanted = crate::base::env::kernels();
    let set = match &wanted {
        None => AVAILABLE[0],
        Some(tier) => AVAILABLE.iter().copied().find(|set| set.tier() == tier).unwrap_or_else(|| {
            let have: Vec<_> = AVAILABLE.iter().map(KernelSet::tier).collect();
            crate::log_warning!("kernels: no set \"{tier}\" on this machine, only {}", have.join(", "));
            AVAILABLE[0]
        }),
    };
    crate::log_info!("kernels: {} ({})", set.tier(), set.kernel_name("qd8q4f32", "gemm"));
    set
});

/// Every set this machine can run, best first; scalar is always the last.
pub(crate) fn available() -> &'static [KernelSet] {
    &AVAILABLE
}

/// The set to use: the best one, or the one that `LLR_KERNELS` asks for.
pub(crate) fn best() -> KernelSet {
    *BEST
}
