//! Everything that a user can ask of an export, judged together before anything is read.

mod choice;
mod error;
#[cfg(test)]
mod tests;

pub use choice::{Backend, Choice, KvBits, Mode, Observer, Ptq, WeightScales};
pub use error::OptionsError;

use super::{KvLayout, MethodSpec, ModelConfig};
use crate::base::text::edit_distance;
use crate::qnn::{SOCS, Soc};
use crate::runner::LookaheadConfig;
use crate::tensor::DType;
use std::path::PathBuf;

/// Longest context that can be asked for.
pub const MAX_CONTEXT: usize = 1 << 20;

/// The SoC of a QNN program unless another is named.
const USUAL_SOC: &str = "SM8650";

/// Sizes of lookahead decoding unless others are given.
const USUAL_LOOKAHEAD: LookaheadConfig = LookaheadConfig { ngram: 5, window: 8, gcap: 8 };

/// What to export, from what, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The checkpoint: a file, or a folder or index of safetensors.
    pub checkpoint: PathBuf,
    /// `params.json` or `config.json`, where it does not lie beside the checkpoint.
    pub params: Option<PathBuf>,
    /// The tokenizer, where neither the checkpoint holds it nor it lies beside.
    pub tokenizer: Option<PathBuf>,
    /// The program to write.
    pub output: PathBuf,
    /// Which methods it has.
    pub mode: Mode,
    /// What it runs on.
    pub backend: Backend,
    /// How static methods exchange keys and values.
    pub kv_layout: KvLayout,
    /// Width of keys and values. `None`: as the model's recipe has it, which is 32 where activations are floats.
    pub kv_bits: Option<KvBits>,
    /// Contexts and blocks.
    pub lengths: Lengths,
    /// Sizes of lookahead decoding, for [`Mode::Lookahead`].
    pub lookahead: LookaheadConfig,
    /// Of [`Mode::Dynamic`]: logits of every token, not only of the last.
    pub full_logits: bool,
    /// Of [`Mode::Dynamic`]: attention as `llama::custom_sdpa`, or in plain operators.
    pub custom_sdpa: bool,
    /// Quantization of linear layers and activations.
    pub ptq: Ptq,
    /// Elements of a weight row that share a scale. `None`: 32 with [`Ptq::Dynamic8W4`], else the whole row.
    pub group_size: Option<usize>,
    /// How ranges of activations are found.
    pub observer: Observer,
    /// How scales of weights are found. `None`: with error feedback where there is a text to calibrate on.
    pub weight_scales: Option<WeightScales>,
    /// Token embedding as an operator on the CPU over few bits.
    pub embedding: Option<EmbeddingQuantization>,
    /// What activations are observed on.
    pub calibration: Calibration,
    /// What a QNN program is compiled for.
    pub qnn: QnnTarget,
    /// Changes to the list of passes.
    pub passes: PassChoices,
    /// Compare the quantized model with the float one on the calibration text, for the report: as slow as calibration.
    pub compare: bool,
    /// What the program will be asked afterwards, a turn each: that it cannot be is found before the work.
    pub questions: Vec<String>,
}

/// Contexts and blocks, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// The context of a static program where `max_context_len` is absent; most tokens of one call, plus one, of a
    /// dynamic one.
    pub max_seq_len: usize,
    /// The context. `None`: `max_seq_len`.
    pub max_context_len: Option<usize>,
    /// Tokens in a block of the prompt (AR-N of `prefill_forward`).
    pub prefill_ar_len: usize,
}

impl Lengths {
    /// The context.
    pub fn context(self) -> usize {
        self.max_context_len.unwrap_or(self.max_seq_len)
    }
}

/// `--embedding-quantize`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingQuantization {
    /// 2, 4 or 8.
    pub bits: u8,
    /// Elements of a row that share a scale; 0: all.
    pub group: usize,
}

impl std::str::FromStr for EmbeddingQuantization {
    type Err = OptionsError;

    /// From upstream's form, `4,32`.
    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let parsed = text.split_once(',').and_then(|(bits, group)| {
            let bits = bits.trim().parse().ok().filter(|bits| [2, 4, 8].contains(bits))?;
            Some(Self { bits, group: group.trim().parse().ok()? })
        });
        parsed.ok_or_else(|| OptionsError::Embedding { text: text.into() })
    }
}

/// What activations are observed on, and what the quantized model is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Calibration {
    /// Texts, each followed by what the float model makes of it, as upstream does with its `--prompt`.
    Prompts(Vec<String>),
    /// A text file.
    TextFile(PathBuf),
    /// Token ids, little-endian 64-bit, as `qnn_llama_runner --tokenized_prompt` reads them.
    TokenFile(PathBuf),
}

/// What a QNN program is compiled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QnnTarget {
    /// A SoC by Qualcomm's name, `SM8650`.
    pub soc_model: String,
    /// Context binaries among which the layers are divided.
    pub num_sharding: usize,
    /// Both methods share their weights in a context; the x86 simulator cannot load such a file.
    pub weight_sharing: bool,
    /// Where libQnnHtp.so is; searched first.
    pub lib_dir: Option<PathBuf>,
}

/// Changes to the list of passes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassChoices {
    /// Passes to leave out.
    pub disable: Vec<String>,
    /// Passes to run that are off unless asked for.
    pub enable: Vec<String>,
    /// The pass behind which each graph is shown.
    pub dump_after: Option<String>,
    /// The pass behind which the export ends, each graph shown and nothing written.
    pub stop_after: Option<String>,
}

impl Options {
    /// The defaults of a program for `backend`, which are upstream's where it has them.
    pub fn new(checkpoint: PathBuf, output: PathBuf, backend: Backend) -> Self {
        Self {
            checkpoint,
            params: None,
            tokenizer: None,
            output,
            mode: if backend == Backend::Qnn { Mode::Hybrid } else { Mode::Dynamic },
            backend,
            kv_layout: KvLayout::PerLayer,
            kv_bits: None,
            lengths: Lengths { max_seq_len: 512, max_context_len: None, prefill_ar_len: 32 },
            lookahead: USUAL_LOOKAHEAD,
            full_logits: false,
            custom_sdpa: backend == Backend::Xnnpack,
            ptq: match backend {
                Backend::Qnn => Ptq::A16W4,
                Backend::Xnnpack => Ptq::Dynamic8W4,
                Backend::Portable => Ptq::None,
            },
            group_size: None,
            observer: Observer::MinMax,
            weight_scales: None,
            embedding: None,
            calibration: Calibration::Prompts(vec!["Once upon a time".into()]),
            qnn: QnnTarget { soc_model: USUAL_SOC.into(), num_sharding: 1, weight_sharing: false, lib_dir: None },
            passes: PassChoices::default(),
            compare: false,
            questions: Vec::new(),
        }
    }

    /// Judges the choices against each other.
    ///
    /// # Errors
    /// The first that does not go with the others.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.check_backend()?;
        self.check_lengths()?;
        match self.group_size {
            Some(group) if group < 2 => Err(OptionsError::GroupSize { group }),
            Some(group) if self.ptq == Ptq::Dynamic8W4 && !group.is_multiple_of(32) => {
                Err(OptionsError::GroupOfXnnpack { group })
            }
            Some(_) if !matches!(self.ptq, Ptq::A16W4 | Ptq::Dynamic8W4) => {
                Err(OptionsError::GroupWithoutBlocks { ptq: self.ptq })
            }
            _ if self.full_logits && self.mode != Mode::Dynamic => Err(OptionsError::FullLogits { mode: self.mode }),
            _ => Ok(()),
        }
    }

    fn check_backend(&self) -> Result<(), OptionsError> {
        let Self { backend, mode, ptq, kv_bits, .. } = *self;
        let is_qnn = backend == Backend::Qnn;
        if is_qnn && mode == Mode::Dynamic {
            return Err(OptionsError::DynamicOnQnn);
        }
        let fits = match backend {
            Backend::Qnn => matches!(ptq, Ptq::A16W4 | Ptq::A16W8 | Ptq::A8W8),
            Backend::Xnnpack => matches!(ptq, Ptq::Dynamic8W4 | Ptq::None),
            Backend::Portable => matches!(ptq, Ptq::Weights8 | Ptq::None),
        };
        if !fits {
            return Err(OptionsError::PtqOnBackend { ptq, backend });
        }
        if is_qnn && kv_bits == Some(KvBits::B32) {
            return Err(OptionsError::FloatCacheOnQnn);
        }
        if ptq == Ptq::A8W8 && kv_bits == Some(KvBits::B16) {
            return Err(OptionsError::WideCache);
        }
        if let Some(bits) = kv_bits.filter(|&bits| mode == Mode::Dynamic && bits != KvBits::B32) {
            return Err(OptionsError::NarrowCacheInside { bits });
        }
        if mode == Mode::Dynamic && self.kv_layout != KvLayout::PerLayer {
            return Err(OptionsError::LayoutOfDynamic);
        }
        if self.qnn.num_sharding == 0 {
            return Err(OptionsError::NoShards);
        }
        if self.qnn.num_sharding > 1 && !is_qnn {
            return Err(OptionsError::ShardsOnCpu { backend });
        }
        if self.qnn.weight_sharing && (!is_qnn || matches!(mode, Mode::Kv | Mode::Prefill)) {
            return Err(OptionsError::NothingToShare);
        }
        let name = &self.qnn.soc_model;
        if !is_qnn && name != USUAL_SOC {
            return Err(OptionsError::SocOnCpu { name: name.clone(), backend });
        }
        let floats = ptq == Ptq::None && kv_bits.is_none_or(|bits| bits == KvBits::B32);
        if floats && !self.compare && !matches!(self.calibration, Calibration::Prompts(_)) {
            return Err(OptionsError::NothingToCalibrate);
        }
        if is_qnn && Soc::named(name).is_err() {
            let nearest = SOCS.iter().map(|soc| soc.name).min_by_key(|soc| edit_distance(soc, name));
            return Err(OptionsError::UnknownSoc { name: name.clone(), nearest: nearest.unwrap_or_default() });
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<(), OptionsError> {
        let Lengths { max_seq_len, prefill_ar_len, .. } = self.lengths;
        let context = self.lengths.context();
        if max_seq_len > context {
            return Err(OptionsError::SequenceBeyondContext { max_seq_len, context });
        }
        if !(2..=MAX_CONTEXT).contains(&context) || max_seq_len < 2 {
            let length = if context > MAX_CONTEXT { context } else { max_seq_len };
            return Err(OptionsError::Context { length });
        }
        if matches!(self.mode, Mode::Hybrid | Mode::Lookahead) && !(1..=context).contains(&prefill_ar_len) {
            return Err(OptionsError::PrefillBlock { prefill_ar_len, context });
        }
        if self.mode != Mode::Lookahead && self.lookahead != USUAL_LOOKAHEAD {
            return Err(OptionsError::LookaheadWithoutMode { mode: self.mode });
        }
        if self.mode == Mode::Lookahead {
            let LookaheadConfig { ngram, window, gcap } = self.lookahead;
            if ngram < 2 || window == 0 || gcap == 0 {
                return Err(OptionsError::LookaheadSizes);
            }
            match lookahead_rows(self.lookahead) {
                Some(rows) if rows < context => {}
                rows => return Err(OptionsError::LookaheadRows { rows, context }),
            }
        }
        Ok(())
    }

    /// Judges the choices against the model.
    ///
    /// # Errors
    /// The first that does not fit it.
    pub fn check_model(&self, config: &ModelConfig) -> Result<(), OptionsError> {
        let ModelConfig { dim, layers, .. } = *config;
        if self.qnn.num_sharding > layers {
            return Err(OptionsError::MoreShardsThanLayers { shards: self.qnn.num_sharding, layers });
        }
        if let Some(EmbeddingQuantization { group, .. }) = self.embedding
            && group > 0
            && !dim.is_multiple_of(group)
        {
            return Err(OptionsError::EmbeddingGroup { group, dim });
        }
        match self.weight_group() {
            // What else groups do not divide, within a layer, gets rows of 8 bits.
            Some(group) if !dim.is_multiple_of(group) => Err(OptionsError::WeightGroup { group, dim }),
            _ => Ok(()),
        }
    }

    /// Elements of a weight row that share a scale; `None`: the whole row.
    pub fn weight_group(&self) -> Option<usize> {
        match self.ptq {
            Ptq::Dynamic8W4 => Some(self.group_size.unwrap_or(32)),
            _ => self.group_size,
        }
    }

    /// The methods, the decode method first.
    pub fn methods(&self) -> Vec<MethodSpec> {
        let context = self.lengths.context();
        let tokens = if self.embedding.is_some() { DType::I64 } else { DType::I32 };
        let fixed =
            |name: &str, ar| MethodSpec::Static { name: name.into(), ar, context, layout: self.kv_layout, tokens };
        let prefill = |ar| fixed("prefill_forward", ar);
        // Programs of one static method had this name when keys and values were exchanged per head (PR 10578).
        let alone = |name| if self.kv_layout == KvLayout::PerHead { "forward" } else { name };
        match self.mode {
            Mode::Kv => vec![fixed(alone("kv_forward"), 1)],
            Mode::Prefill => vec![fixed(alone("prefill_forward"), context)],
            Mode::Hybrid => vec![fixed("kv_forward", 1), prefill(self.lengths.prefill_ar_len)],
            Mode::Lookahead => {
                let rows = lookahead_rows(self.lookahead).unwrap_or(1);
                vec![fixed("kv_forward", rows), prefill(self.lengths.prefill_ar_len)]
            }
            Mode::Dynamic => vec![MethodSpec::Dynamic {
                name: "forward".into(),
                max_seq_len: self.lengths.max_seq_len,
                max_context_len: context,
                full_logits: self.full_logits,
                fused_attention: self.custom_sdpa,
            }],
        }
    }
}

/// Rows of a lookahead step: a window of guesses and as many candidates, each of `ngram - 1` tokens (upstream PR 11437).
fn lookahead_rows(sizes: LookaheadConfig) -> Option<usize> {
    sizes.window.checked_add(sizes.gcap)?.checked_mul(sizes.ngram.checked_sub(1)?)
}
