//! Whether an export fits this machine, found out before the work instead of after half of it.
//!
//! The estimates are of what was measured: the peak of `RssAnon` in `/proc/PID/status`, and the blocks of the output and of
//! all files without a name in its folder, read every 10 ms while `llr export` ran (x86-64 Linux, 2 threads, QNN 2.49):
//!
//! | export | memory, MiB: measured, estimated | disk, MiB: measured, estimated |
//! |---|---|---|
//! | SmolLM2-135M (GGUF Q4_1), xnnpack 8da4w, embedding 4,32, feedback | 90, 113 | 694, 728 |
//! | the same, `--weight_scales search` | 53, 73 | 694, 728 |
//! | the same, portable, float | 41, 56 | 1033, 1080 |
//! | 110 M parameters (f32 .pth), xnnpack 8da4w, embedding 4,32, feedback | 93, 105 | 147, 156 |
//! | the same, `--weight_scales absmax` | 16, 23 | 147, 156 |
//! | the same, portable, float | 3, 8 | 418, 441 |
//! | the same, QNN 16a4w, embedding 4,32, kv | 587, 763 | 227, 236 |
//! | the same, hybrid | 1015, 1389 | 361, 371 |
//! | the same, kv, 4 shards | 325, 398 | 227, 236 |
//! | the same, QNN 16a8w, kv, embedding inside | 796, 903 | 389, 406 |
//! | stories260K, QNN 16a4w, embedding 4,32, hybrid | 112, 139 | 1, 3 |

use super::ModelConfig;
use super::checkpoint::Totals;
use super::continuation::MAX_PARAMETERS;
use super::options::{Backend, Calibration, Options, Ptq};
use super::pipeline::MAX_WEIGHT_TOKENS;
use super::quantize::{EmbeddingFormat, Recipe, WeightFormat};
use crate::base::process::kilobytes;
pub use crate::base::process::peak_memory;
use crate::error::{Error, Status};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// What even a tiny export takes: of disk, and of memory.
const BASE: [u64; 2] = [2 * MIB, 8 * MIB];

/// What libQnnHtp.so takes before it composes anything.
const QNN_BASE: u64 = 128 * MIB;

/// Bytes that libQnnHtp.so takes for an element of the weights of a context while it composes that; measured 4.3 to 5.4.
const QNN_WEIGHT: u64 = 6;

/// Bytes of a token in a tokenizer; measured 0.8 KiB in one of 49 152.
const TOKEN: u64 = 1024;

/// What an export will take, in bytes; estimates from above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// On the disk of the output.
    pub disk: u64,
    /// In memory, apart from pages that come from files and can be dropped.
    pub memory: u64,
}

/// What an export starts from and goes through, as far as it takes room.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// What the user wants.
    pub options: &'a Options,
    /// The model's sizes.
    pub config: &'a ModelConfig,
    /// Which weights get which codes.
    pub recipe: &'a Recipe,
    /// How large the checkpoint is.
    pub totals: Totals,
    /// Its weights are made f32 on the disk before anything else, as those of a GGUF file are.
    pub widened: bool,
    /// Tokens of the tokenizer, if there is one.
    pub tokens: usize,
    /// The model is quantized with error feedback.
    pub feedback: bool,
    /// A text is needed, to calibrate or to compare.
    pub text: bool,
}

/// Numbers and bytes of the weights of linear layers.
#[derive(Debug, Clone, Copy, Default)]
struct Linear {
    elements: u64,
    codes: u64,
}

impl Linear {
    fn add(&mut self, name: &str, [rows, columns]: [usize; 2], recipe: &Recipe) {
        let elements = rows as u64 * columns as u64;
        self.elements += elements;
        let format = recipe.format_of(name, columns);
        self.codes += format.map_or(4 * elements, |format| format.bytes([rows, columns]) as u64);
    }
}

impl Need {
    /// Of this work. On the disk are the program and, before it is written, what it is made of: f32 weights that the
    /// checkpoint does not hold as such, codes, context binaries. In memory are, one after the other: the float model,
    /// where it writes its own text or is compared; the moments of one operand with the weights of one layer and what its neighbours read; the codes
    /// of the largest matrix; what libQnnHtp.so makes of a context.
    pub fn of(work: &Work<'_>) -> Self {
        let Work { options, config, recipe, totals, .. } = *work;
        let ModelConfig { dim, hidden, vocab, layers, heads, kv_heads, head_dim, .. } = *config;
        let [layer, head] = [layer(config, recipe), {
            let mut head = Linear::default();
            head.add("logits", [vocab, dim], recipe);
            head
        }];
        let table = vocab as u64 * dim as u64;
        let all = Linear {
            elements: layers as u64 * layer.elements + head.elements,
            codes: layers as u64 * layer.codes + head.codes,
        };
        let is_float = options.ptq == Ptq::None;
        // The embedding outside of a context binary: codes, or f32, which a head in f32 shares where both are one.
        let embedding = match recipe.embedding {
            EmbeddingFormat::Blockwise { bits, block } => {
                WeightFormat::embedding(bits, block).bytes([vocab, dim]) as u64
            }
            EmbeddingFormat::PerTensor(codes) => table * u64::from(codes.bits).div_ceil(8),
            EmbeddingFormat::Float if is_float => (4 * totals.parameters).saturating_sub(4 * all.elements),
            EmbeddingFormat::Float => 4 * table,
        };
        let mut kept = if is_float { 0 } else { all.codes };
        kept += if recipe.embedding == EmbeddingFormat::Float { 0 } else { embedding };
        if work.widened {
            kept += 4 * totals.parameters;
        } else if totals.bytes < 4 * totals.parameters {
            // Halves that stay real are f32 in the program.
            kept += if is_float { 4 * all.elements } else { 0 };
            kept += if recipe.embedding == EmbeddingFormat::Float { 4 * table } else { 0 };
        }
        let is_qnn = options.backend == Backend::Qnn;
        let inside = if matches!(recipe.embedding, EmbeddingFormat::PerTensor(_)) { embedding } else { 0 };
        let copies = if options.qnn.weight_sharing { 1 } else { options.methods().len() as u64 };
        let program = match is_qnn {
            true => copies * (all.codes + inside) + embedding - inside,
            false => all.codes + embedding,
        };
        let binaries = if is_qnn { copies * (all.codes + inside) } else { 0 };
        let disk = program + binaries + kept;

        let continues = totals.parameters <= MAX_PARAMETERS && matches!(options.calibration, Calibration::Prompts(_));
        let whole = (work.text && continues) || options.compare;
        let whole = if whole { with_margin(4 * all.elements) } else { 0 };
        let widest = hidden.max(heads * head_dim).max(kv_heads * head_dim).max(dim) as u64;
        let largest = if is_float { 0 } else { head.codes.max(embedding.min(table)).max(layer.codes) };
        let operands = MAX_WEIGHT_TOKENS as u64 * 4 * 2 * (dim + hidden) as u64;
        let moments = if work.feedback { 12 * widest * widest + 4 * layer.elements + operands } else { 0 };
        let shards = options.qnn.num_sharding.clamp(1, layers.max(1));
        let context =
            layers.div_ceil(shards) as u64 * layer.elements + head.elements + if shards == 1 { inside } else { 0 };
        let composed = if is_qnn { copies * QNN_WEIGHT * context } else { 0 };
        let library = if is_qnn { QNN_BASE } else { 0 };
        let memory = whole.max(moments).max(largest).max(composed) + library;
        Self { disk: with_margin(disk) + BASE[0], memory: memory + work.tokens as u64 * TOKEN + BASE[1] }
    }
}

/// The weights of a layer in the middle of the model.
fn layer(config: &ModelConfig, recipe: &Recipe) -> Linear {
    let ModelConfig { dim, hidden, layers, heads, kv_heads, head_dim, .. } = *config;
    let [queries, keys] = [heads * head_dim, kv_heads * head_dim];
    let mut layer = Linear::default();
    for (part, shape) in [
        ("attention.query", [queries, dim]),
        ("attention.key", [keys, dim]),
        ("attention.value", [keys, dim]),
        ("attention.output", [dim, queries]),
        ("feed_forward.gate", [hidden, dim]),
        ("feed_forward.up", [hidden, dim]),
        ("feed_forward.down", [dim, hidden]),
    ] {
        layer.add(&format!("layers.{}.{part}", layers / 2), shape, recipe);
    }
    layer
}

/// Norms, plans, padding and the like.
fn with_margin(bytes: u64) -> u64 {
    bytes + bytes / 20
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

    use crate::export::options::{EmbeddingQuantization, Mode};
    use crate::export::testing::tiny_config;

    /// SmolLM2-135M.
    fn model() -> ModelConfig {
        let sizes = ModelConfig { dim: 576, hidden: 1536, vocab: 49_152, layers: 30, ..tiny_config() };
        ModelConfig { heads: 9, kv_heads: 3, head_dim: 64, ..sizes }
    }

    fn need(backend: Backend, change: impl Fn(&mut Options, &mut ModelConfig, &mut Work<'_>)) -> Need {
        let mut options = Options::new("x".into(), "y".into(), backend);
        options.embedding = Some(EmbeddingQuantization { bits: 4, group: 32 });
        let mut config = model();
        let totals = Totals { parameters: 134_515_008, bytes: 4 * 134_515_008, tensors: 272 };
        let (seen_options, seen_config, none) = (options.clone(), config.clone(), Recipe::none());
        let mut work = Work {
            options: &seen_options,
            config: &seen_config,
            recipe: &none,
            totals,
            widened: false,
            tokens: 49_152,
            feedback: false,
            text: false,
        };
        change(&mut options, &mut config, &mut work);
        let recipe = crate::export::schedule::recipe(&options, &config).unwrap();
        Need::of(&Work { options: &options, config: &config, recipe: &recipe, ..work })
    }

    #[test]
    fn estimates_are_above_what_was_measured_and_not_far_above() {
        let float = |options: &mut Options, work: &mut Work<'_>| {
            (options.embedding, work.widened) = (None, true);
        };
        for (need, measured) in [
            (need(Backend::Xnnpack, |_, _, work| work.widened = true), [693.5, 53.0]),
            (
                need(Backend::Xnnpack, |_, _, work| (work.widened, work.text, work.feedback) = (true, true, true)),
                [693.6, 90.0],
            ),
            (need(Backend::Portable, |options, _, work| float(options, work)), [1032.5, 41.0]),
        ] {
            for (estimate, measured) in [need.disk, need.memory].into_iter().zip(measured) {
                let estimate = estimate as f64 / MIB as f64;
                assert!((measured..1.5 * measured).contains(&estimate), "{estimate} {measured}");
            }
        }
    }

    #[test]
    fn each_term_follows_what_it_is_of() {
        type Change = fn(&mut Options, &mut ModelConfig, &mut Work<'_>);
        let base = need(Backend::Xnnpack, |_, _, _| {});
        let layer = 2 * 576 * (576 + 192) + 3 * 576 * 1536;
        // 30 more layers of 4.5 bits, which are there as codes and in the program.
        let deeper = need(Backend::Xnnpack, |_, config, _| config.layers = 60);
        assert_eq!(deeper.disk - base.disk, with_margin(2 * 30 * layer * 9 / 16));
        assert_eq!(deeper.memory, base.memory, "one matrix is in memory at a time");
        let small = |work: &mut Work<'_>| (work.text, work.totals.parameters) = (true, MAX_PARAMETERS);
        let whole = need(Backend::Xnnpack, |_, _, work| small(work));
        let deeper = need(Backend::Xnnpack, |_, config, work| {
            config.layers = 60;
            small(work);
        });
        assert_eq!(need(Backend::Xnnpack, |_, _, work| work.text = true).memory, base.memory, "it reads prose");
        assert_eq!(deeper.memory - whole.memory, with_margin(4 * 30 * layer));
        let grows: [(Backend, Change, Change, &str); 7] = [
            (Backend::Xnnpack, |_, _, _| {}, |_, config, _| config.vocab *= 2, "dm"),
            (
                Backend::Xnnpack,
                |_, _, work| work.feedback = true,
                |_, config, work| {
                    (config.hidden, work.feedback) = (9000, true);
                },
                "dm",
            ),
            (Backend::Xnnpack, |_, _, _| {}, |_, _, work| work.widened = true, "d"),
            (Backend::Xnnpack, |_, _, _| {}, |_, _, work| work.tokens *= 2, "m"),
            (Backend::Portable, |_, _, _| {}, |_, _, work| work.totals.bytes /= 2, "d"),
            (Backend::Qnn, |options, _, _| options.mode = Mode::Kv, |_, _, _| {}, "dm"),
            (Backend::Qnn, |options, _, _| options.qnn.num_sharding = 5, |_, _, _| {}, "m"),
        ];
        for (index, (backend, less, more, what)) in grows.into_iter().enumerate() {
            let (less, more) = (need(backend, less), need(backend, more));
            let [disk, memory] = [(less.disk, more.disk), (less.memory, more.memory)];
            let rises = |(less, more): (u64, u64), expected: bool| if expected { more > less } else { more == less };
            assert!(rises(disk, what.contains('d')) && rises(memory, what.contains('m')), "{index}: {less:?} {more:?}");
        }
    }

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
