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

/// Cores that are worth a thread: those that this process may use, and of a processor with cores of several kinds not
/// the slow ones.
pub fn fast_cores() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    fast_of(&speeds(usable)).map_or(usable, |fast| fast.min(usable))
}

/// How fast each core says it is, in units that differ from system to system; empty where it does not say.
fn speeds(cores: usize) -> Vec<u64> {
    let read = |core: usize, file: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/{file}")).ok()?;
        text.trim().parse().ok()
    };
    let all = |file: &str| (0..cores).map(|core| read(core, file)).collect::<Option<Vec<u64>>>();
    all("cpu_capacity").or_else(|| all("cpufreq/cpuinfo_max_freq")).unwrap_or_default()
}

/// How many are at least half as fast as the fastest.
fn fast_of(speeds: &[u64]) -> Option<usize> {
    let fastest = *speeds.iter().max().filter(|&&fastest| fastest > 0)?;
    Some(speeds.iter().filter(|&&speed| speed >= fastest.div_ceil(2)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_cores_do_not_count() {
        assert_eq!(fast_of(&[325, 325, 325, 325, 828, 828, 828, 1024]), Some(4));
        assert_eq!(fast_of(&[2_400_000; 8]), Some(8));
        assert_eq!(fast_of(&[u64::MAX]), Some(1));
        assert_eq!((fast_of(&[]), fast_of(&[0, 0])), (None, None));
        assert!((1..=std::thread::available_parallelism().unwrap().get()).contains(&fast_cores()));
    }
}
