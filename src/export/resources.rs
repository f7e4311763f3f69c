//! Whether an export fits this machine, found out before the work instead of after half of it.

use super::ModelConfig;
use super::options::{Backend, Options, Ptq};
use crate::base::process::kilobytes;
pub use crate::base::process::peak_memory;
use crate::error::{Error, Status};
use std::path::{Path, PathBuf};

/// What even a tiny export takes.
const BASE: u64 = 32 << 20;

/// What an export will take, in bytes; estimates from above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// On the disk of the output.
    pub disk: u64,
    /// In memory, apart from pages that come from files and can be dropped.
    pub memory: u64,
}

impl Need {
    /// Of an export of that model; `widened` is the bytes of the weights that do not stay in the checkpoint but become
    /// f32 on the disk, as quantized ones of a GGUF file do.
    pub fn of(options: &Options, config: &ModelConfig, widened: u64) -> Self {
        let ModelConfig { dim, hidden, vocab, layers, heads, kv_heads, head_dim, .. } = *config;
        let product = |sizes: &[usize]| sizes.iter().fold(1u64, |product, &size| product.saturating_mul(size as u64));
        let layer = product(&[2, dim, heads, head_dim])
            .saturating_add(product(&[2, dim, kv_heads, head_dim]))
            .saturating_add(product(&[3, dim, hidden]));
        let linear = product(&[layers]).saturating_mul(layer).saturating_add(product(&[vocab, dim]));
        let linear_bits = match options.ptq {
            Ptq::A16W4 | Ptq::Dynamic8W4 => 5,
            Ptq::A16W8 | Ptq::A8W8 | Ptq::Weights8 => 9,
            Ptq::None => 32,
        };
        let embedding_bits = options.embedding.map_or(32, |of| u64::from(of.bits) + 2);
        let copies = match options.backend {
            Backend::Qnn if !options.qnn.weight_sharing => options.methods().len() as u64,
            _ => 1,
        };
        let bits = linear.saturating_mul(linear_bits * copies);
        let program = bits.saturating_add(product(&[vocab, dim]).saturating_mul(embedding_bits)) / 8;
        // Codes are written to a temporary file first, then into the program.
        let disk = program.saturating_mul(2).saturating_add(widened).saturating_add(BASE);
        // The largest matrix in f32, its codes and what calibration keeps of it; a context binary is in memory whole.
        let matrix = product(&[4, dim, hidden.max(heads * head_dim)]);
        let binary = match options.backend {
            Backend::Qnn => 2 * program / options.qnn.num_sharding.max(1) as u64,
            Backend::Xnnpack | Backend::Portable => 0,
        };
        let memory = matrix.saturating_mul(3).saturating_add(binary).saturating_add(BASE);
        Self { disk, memory }
    }
}

/// What this machine has; `None` where the system does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Have {
    /// On the disk of the output.
    pub disk: Option<u64>,
    /// In memory, without swapping.
    pub memory: Option<u64>,
}

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// The disk is too full.
    #[error("{} has {} free, the export needs about {}", .folder.display(), mib(*.have), mib(*.need))]
    Disk {
        /// The folder of the output.
        folder: PathBuf,
        /// Bytes that are free.
        have: u64,
        /// Bytes that are needed.
        need: u64,
    },
    /// The memory is too small.
    #[error("{} of memory are available, the export needs about {}", mib(*.have), mib(*.need))]
    Memory {
        /// Bytes that are available.
        have: u64,
        /// Bytes that are needed.
        need: u64,
    },
}

impl From<ResourceError> for Error {
    fn from(error: ResourceError) -> Self {
        Error::from_source(Status::OutOfResources, error)
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

impl Have {
    /// What there is for an output in `folder`, which exists.
    pub fn at(folder: &Path) -> Self {
        Self { disk: free_disk(folder), memory: available_memory() }
    }

    /// # Errors
    /// When less than `need` is there, as far as it is known; `folder` is for the message.
    pub fn check(self, need: Need, folder: &Path) -> Result<(), ResourceError> {
        match self {
            Self { disk: Some(have), .. } if have < need.disk => {
                Err(ResourceError::Disk { folder: folder.to_owned(), have, need: need.disk })
            }
            Self { memory: Some(have), .. } if have < need.memory => {
                Err(ResourceError::Memory { have, need: need.memory })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(unix)]
fn free_disk(folder: &Path) -> Option<u64> {
    let of = rustix::fs::statvfs(folder).ok()?;
    of.f_bavail.checked_mul(of.f_frsize)
}

#[cfg(not(unix))]
fn free_disk(_: &Path) -> Option<u64> {
    None
}

/// The smaller of what the machine and what this process's group (a container) still may take.
fn available_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| kilobytes(&text, "MemAvailable:"));
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, taken)| most.saturating_sub(taken));
    machine.into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_missing_is_named_with_both_figures() {
        let need = Need { disk: 100 * MIB, memory: 50 * MIB };
        let folder = Path::new("out");
        let check = |disk, memory| Have { disk, memory }.check(need, folder);
        assert_eq!(check(Some(100 * MIB), Some(50 * MIB)), Ok(()));
        assert_eq!(check(None, None), Ok(()));
        let error = Error::from(check(Some(100 * MIB - 1), None).unwrap_err());
        assert_eq!(error.status(), Status::OutOfResources);
        assert_eq!(error.chain(), "out has 100 MiB free, the export needs about 100 MiB");
        let error = check(Some(u64::MAX), Some(7 * MIB)).unwrap_err();
        assert_eq!(error.to_string(), "7 MiB of memory are available, the export needs about 50 MiB");
    }

    #[test]
    fn available_memory_is_read_from_linux_own_words() {
        let text = "MemTotal:  16 kB\nMemFree:   1 kB\nMemAvailable:    8123 kB\n";
        assert_eq!(kilobytes(text, "MemAvailable:"), Some(8123 * 1024));
        for damaged in ["", "MemAvailable: 8123", "MemAvailable: x kB", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(kilobytes(damaged, "MemAvailable:"), None, "{damaged}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_says_what_it_has() {
        let have = Have::at(&std::env::temp_dir());
        assert!(have.disk.is_some() && have.memory.is_some_and(|memory| memory > MIB), "{have:?}");
        assert!(peak_memory().is_some_and(|peak| peak > MIB));
        assert_eq!(Have::at(Path::new("no/such/folder")).disk, None);
    }
}
