//! The command line of `llr export`: upstream's flags by upstream's names, and ours.

use crate::value;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llama_runner::export::KvLayout;
use llama_runner::export::options::{
    Backend, Calibration, Choice, EmbeddingQuantization, KvBits, Lengths, Mode, Observer, Options, OptionsError,
    PassChoices, Ptq, QnnTarget, WeightScales,
};
use llama_runner::runner::LookaheadConfig;
use llama_runner::{Error, Result, Status};
use std::path::{Path, PathBuf};

/// Arguments of `llr export`. Each name may be written with `_` or with `-`.
#[derive(Debug, Clone, clap::Args)]
#[command(rename_all = "snake_case")]
pub struct Arguments {
    /// The weights: Meta .pt/.pth, safetensors (a file, an index or a folder), llama2.c .bin, GGUF.
    #[arg(long, value_name = "PATH", required_unless_present = "pre_gen_pte", help_heading = "Model")]
    checkpoint: Option<PathBuf>,
    /// params.json or config.json, where it is not beside the weights.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    params: Option<PathBuf>,
    /// The tokenizer, where it is neither inside the weights nor beside them.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    tokenizer_model: Option<PathBuf>,
    /// The tokenizer for the run afterwards, where it is to be another one.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    tokenizer_bin: Option<PathBuf>,
    /// The model's family for the run afterwards (llama3, qwen2_5, …): end tokens.
    #[arg(long, value_name = "NAME", default_value = "llama2", help_heading = "Model")]
    decoder_model: String,

    /// What the program runs on.
    #[arg(long, value_parser = choice::<Backend>(), default_value = "qnn", help_heading = "Program")]
    backend: Backend,
    /// Which methods it has [default: hybrid for qnn, else dynamic]
    #[arg(long, value_parser = choice::<Mode>(), help_heading = "Program")]
    model_mode: Option<Mode>,
    /// The context of a static program; most tokens of a call, plus one, of a dynamic one.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value::count, help_heading = "Program")]
    max_seq_len: usize,
    /// The context, where it is to be longer than --max_seq_len.
    #[arg(long, value_name = "N", value_parser = value::count, help_heading = "Program")]
    max_context_len: Option<usize>,
    /// Tokens in a block of the prompt, in modes hybrid and lookahead.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value::count, help_heading = "Program")]
    prefill_ar_len: usize,
    /// How static methods exchange keys and values: today's way, or that of PR 10578.
    #[arg(long, value_parser = choice::<KvLayout>(), default_value = "per_layer", help_heading = "Program")]
    kv_layout: KvLayout,
    /// Width of keys and values [default: as the model's recipe for qnn (8, or 16), else 32]
    #[arg(long, value_parser = choice::<KvBits>(), help_heading = "Program")]
    kv_bits: Option<KvBits>,
    /// Length of a guessed n-gram, in mode lookahead.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value::count, help_heading = "Program")]
    ngram: usize,
    /// Lookahead branches.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value::count, help_heading = "Program")]
    window: usize,
    /// N-grams verified in a step.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value::count, help_heading = "Program")]
    gcap: usize,
    /// In mode dynamic: logits of every token, not only of the last.
    #[arg(long, help_heading = "Program")]
    generate_full_logits: bool,
    /// In mode dynamic: attention in plain operators instead of llama::custom_sdpa.
    #[arg(long, help_heading = "Program")]
    no_custom_sdpa: bool,

    /// Quantization of activations and weights [default: 16a4w for qnn, 8da4w for xnnpack, none for portable]
    #[arg(short = 'P', long, value_parser = choice::<Ptq>(), help_heading = "Quantization")]
    ptq: Option<Ptq>,
    /// Elements of a weight row that share a scale [default: 32 with 8da4w and in models narrower than 512, else the row]
    #[arg(long, value_name = "N", value_parser = value::positive, help_heading = "Quantization")]
    group_size: Option<usize>,
    /// How ranges of activations are found.
    #[arg(long, value_parser = choice::<Observer>(), default_value = "minmax", help_heading = "Quantization")]
    observer: Observer,
    /// How scales of weights are found [default: feedback, or search without a tokenizer]
    #[arg(long, value_parser = choice::<WeightScales>(), help_heading = "Quantization")]
    weight_scales: Option<WeightScales>,
    /// Token embedding on the CPU in so many bits and groups of so many elements, as in 4,32.
    #[arg(short = 'E', long = "embedding-quantize", value_name = "BITS,GROUP",
          value_parser = embedding, help_heading = "Quantization")]
    embedding: Option<EmbeddingQuantization>,
    /// Prompts for the run afterwards, a turn each; they also calibrate, where nothing else does.
    #[arg(long, value_name = "TEXT", num_args = 1.., default_value = "Once upon a time", help_heading = "Quantization")]
    prompt: Vec<String>,
    /// Calibrate on this text.
    #[arg(long, value_name = "FILE", help_heading = "Quantization")]
    calibration_text: Option<PathBuf>,
    /// Calibrate on these token ids, little-endian 64-bit.
    #[arg(long, value_name = "FILE", conflicts_with = "calibration_text", help_heading = "Quantization")]
    calibration_tokens: Option<PathBuf>,

    /// The SoC.
    #[arg(short = 'm', long, value_name = "NAME", default_value = "SM8650", help_heading = "QNN")]
    soc_model: String,
    /// Context binaries among which the layers are divided.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value::count, help_heading = "QNN")]
    num_sharding: usize,
    /// Both methods share their weights; the x86 simulator cannot load such a file.
    #[arg(long, help_heading = "QNN")]
    weight_sharing: bool,
    /// Where libQnnHtp.so and libQnnSystem.so are; searched first.
    #[arg(long, value_name = "DIR", help_heading = "QNN")]
    qnn_lib_dir: Option<PathBuf>,

    /// The passes in the order in which they would run.
    #[arg(long, help_heading = "Passes")]
    pub print_passes: bool,
    /// Show each graph as it is behind this pass.
    #[arg(long, value_name = "PASS", help_heading = "Passes")]
    dump_after: Option<String>,
    /// End behind this pass: show each graph, write nothing.
    #[arg(long, value_name = "PASS", help_heading = "Passes")]
    stop_after: Option<String>,
    /// Leave this pass out.
    #[arg(long, value_name = "PASS", help_heading = "Passes")]
    disable_pass: Vec<String>,
    /// Run this pass, which is off unless asked for.
    #[arg(long, value_name = "PASS", help_heading = "Passes")]
    enable_pass: Vec<String>,

    /// The folder of the program and of what belongs to it [default: ./llama_BACKEND]
    #[arg(short = 'a', long, value_name = "DIR", help_heading = "Output")]
    artifact: Option<PathBuf>,
    /// The program [default: MODE_llama_BACKEND.pte in the folder]
    #[arg(short = 'o', long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Export, and do not run it.
    #[arg(short = 'c', long, conflicts_with = "pre_gen_pte", help_heading = "Output")]
    pub compile_only: bool,
    /// Do not export: run the program that is in this folder.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub pre_gen_pte: Option<PathBuf>,
    /// Sampling temperature of the run.
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = value::temperature, help_heading = "Output")]
    pub temperature: f32,
    /// A page with the figures and plots; the quantized model is compared with the float one for it.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// No progress and no summary.
    #[arg(short = 'q', long, help_heading = "Output")]
    pub quiet: bool,
    /// One JSON object on stdout at the end, and nothing else there.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// A value chosen by name; a wrong one is refused with the nearest.
fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::ALL.iter().map(|choice| choice.name()))
        .map(|name| T::from_name(&name).expect("the parser lets no other name through"))
}

fn embedding(text: &str) -> Result<EmbeddingQuantization, OptionsError> {
    text.parse()
}

impl Arguments {
    /// What to export.
    ///
    /// # Errors
    /// When there is no checkpoint, or the choices do not go together.
    pub fn options(&self) -> Result<Options> {
        let checkpoint = self.checkpoint.clone();
        let checkpoint = checkpoint.ok_or_else(|| Error::new(Status::InvalidArgument, "--checkpoint is missing"))?;
        let mut options = Options::new(checkpoint, self.program(), self.backend);
        options.params = self.params.clone();
        options.tokenizer = self.tokenizer_model.clone().or_else(|| self.tokenizer_bin.clone());
        options.mode = self.mode();
        options.kv_layout = self.kv_layout;
        options.kv_bits = self.kv_bits;
        options.lengths = Lengths {
            max_seq_len: self.max_seq_len,
            max_context_len: self.max_context_len,
            prefill_ar_len: self.prefill_ar_len,
        };
        options.lookahead = self.lookahead();
        options.full_logits = self.generate_full_logits;
        options.custom_sdpa &= !self.no_custom_sdpa;
        options.ptq = self.ptq.unwrap_or(options.ptq);
        options.group_size = self.group_size;
        options.observer = self.observer;
        options.weight_scales = self.weight_scales;
        options.embedding = self.embedding;
        options.calibration = match (&self.calibration_text, &self.calibration_tokens) {
            (Some(text), _) => Calibration::TextFile(text.clone()),
            (_, Some(tokens)) => Calibration::TokenFile(tokens.clone()),
            _ => Calibration::Prompts(self.prompt.clone()),
        };
        options.qnn = QnnTarget {
            soc_model: self.soc_model.clone(),
            num_sharding: self.num_sharding,
            weight_sharing: self.weight_sharing,
            lib_dir: self.qnn_lib_dir.clone(),
        };
        options.passes = PassChoices {
            disable: self.disable_pass.clone(),
            enable: self.enable_pass.clone(),
            dump_after: self.dump_after.clone(),
            stop_after: self.stop_after.clone(),
        };
        options.compare = self.report.is_some();
        if !self.compile_only && self.stop_after.is_none() {
            options.questions = self.prompt.clone();
        }
        options.check()?;
        Ok(options)
    }

    /// The methods that the program has, or is to have.
    pub fn mode(&self) -> Mode {
        let usual = if self.backend == Backend::Qnn { Mode::Hybrid } else { Mode::Dynamic };
        self.model_mode.unwrap_or(usual)
    }

    /// Sizes of lookahead decoding.
    pub fn lookahead(&self) -> LookaheadConfig {
        LookaheadConfig { ngram: self.ngram, window: self.window, gcap: self.gcap }
    }

    /// Where the program is, or is to be.
    pub fn program(&self) -> PathBuf {
        let backend = self.backend.name();
        if let Some(output) = &self.output {
            return output.clone();
        }
        let folder = self.pre_gen_pte.clone().or_else(|| self.artifact.clone());
        let folder = folder.unwrap_or_else(|| format!("llama_{backend}").into());
        folder.join(format!("{}_llama_{backend}.pte", self.mode().name()))
    }

    /// The files that an export reads, as far as they are named.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let model = [&self.checkpoint, &self.params, &self.tokenizer_model, &self.tokenizer_bin];
        let texts = [&self.calibration_text, &self.calibration_tokens];
        model.into_iter().chain(texts).flatten().map(PathBuf::as_path)
    }

    /// The turns of the run.
    pub fn prompts(&self) -> &[String] {
        &self.prompt
    }

    /// The tokenizer that was named for the run.
    pub fn run_tokenizer(&self) -> Option<&PathBuf> {
        self.tokenizer_bin.as_ref().or(self.tokenizer_model.as_ref())
    }

    /// Where the QNN libraries are.
    pub fn qnn_lib_dir(&self) -> Option<&PathBuf> {
        self.qnn_lib_dir.as_ref()
    }

    /// The runner's name of the model's family, from that or from the exporter's (`stories110m`, `llama3_2`).
    pub fn family(&self) -> &str {
        match self.decoder_model.as_str() {
            "stories260k" | "stories110m" => "llama2",
            "llama3_2" => "llama3",
            name => name,
        }
    }

    /// Length of prompts and answers together.
    pub fn seq_len(&self) -> usize {
        self.max_context_len.unwrap_or(self.max_seq_len)
    }
}
