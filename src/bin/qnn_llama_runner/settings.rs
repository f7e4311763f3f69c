//! The flags of both upstream revisions and ours, and what they mean together.

use crate::gflags::{Flag, Kind, Parsed};
use crate::log_line;
use llama_runner::base::log::Level;
use llama_runner::builtin::Runtime;
use llama_runner::runner::{EvalMode, KvUpdater, LookaheadConfig, RunnerOptions, SharedBuffer};
use llama_runner::{Error, Result, Status};
use std::path::PathBuf;

/// Every flag, in the order of `--help`.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    Flag { name: "decoder_model_version", kind: Kind::Text, default: "llama2", help: "The model's family: its chat template and end tokens." },
    Flag { name: "model_path", kind: Kind::Text, default: "kv_llama_qnn.pte", help: "The program to run." },
    Flag { name: "attention_sink_rope_path", kind: Kind::Text, default: "", help: "Attention-sink program; not supported, only the empty default is accepted." },
    Flag { name: "output_path", kind: Kind::Text, default: "outputs.txt", help: "Where the prompts and answers are written." },
    Flag { name: "performance_output_path", kind: Kind::Text, default: "inference_speed.txt", help: "Where the last turn's tokens per second are written." },
    Flag { name: "dump_logits_path", kind: Kind::Text, default: "", help: "Where the raw logits of every token are written; eval_mode 0 only." },
    Flag { name: "tokenizer_path", kind: Kind::Text, default: "tokenizer.bin", help: "The tokenizer: llama2.c, SentencePiece, tiktoken or tokenizer.json." },
    Flag { name: "prompt", kind: Kind::Text, default: "The answer to the ultimate question is", help: "What to answer; given several times, the turns of one conversation." },
    Flag { name: "tokenized_prompt", kind: Kind::Text, default: "", help: "A file of token ids (64-bit little-endian) to use instead of a prompt." },
    Flag { name: "system_prompt", kind: Kind::Text, default: "", help: "What kind of assistant the model should be." },
    Flag { name: "temperature", kind: Kind::Double, default: "0", help: "0 takes the likeliest token, above 0 samples." },
    Flag { name: "seq_len", kind: Kind::Int32, default: "128", help: "Length of prompt and answer together, in tokens; 0 or less: the model's context." },
    Flag { name: "eval_mode", kind: Kind::Int32, default: "1", help: "0: kv, 1: hybrid (prefill and kv), 2: lookahead; when not given, what the program has." },
    Flag { name: "shared_buffer", kind: Kind::Bool, default: "false", help: "Put inputs and outputs into memory shared with the DSP, where libcdsprpc.so allows it." },
    Flag { name: "require_shared_buffer", kind: Kind::Bool, default: "false", help: "The same, and fail where it cannot be done." },
    Flag { name: "kv_updater", kind: Kind::Text, default: "SmartMask", help: "How the cache is updated: SmartMask or ShiftPointer." },
    Flag { name: "num_iters", kind: Kind::Int32, default: "1", help: "How often all prompts are run, in one conversation." },
    Flag { name: "ngram", kind: Kind::Int32, default: "0", help: "Lookahead: length of a guessed n-gram." },
    Flag { name: "window", kind: Kind::Int32, default: "0", help: "Lookahead: branches that guess." },
    Flag { name: "gcap", kind: Kind::Int32, default: "0", help: "Lookahead: n-grams verified in a step." },
    Flag { name: "max_decode_steps", kind: Kind::Int32, default: "-1", help: "Most decode steps in a turn; -1: no limit." },
    Flag { name: "seed", kind: Kind::Int32, default: "0", help: "Seed of the sampler at a temperature above 0." },
    Flag { name: "trace_path", kind: Kind::Text, default: "", help: "Where a JSON line for each token is written." },
    Flag { name: "qnn_lib_dir", kind: Kind::Text, default: "", help: "Directory of libQnnHtp.so and libQnnSystem.so, searched first." },
    Flag { name: "module", kind: Kind::Text, default: "native", help: "Whose runtime runs the program: native, or executorch through an adapter library." },
    Flag { name: "module_library", kind: Kind::Text, default: "", help: "That adapter, or its directory; else LLR_MODULE_EXECUTORCH, beside this program, the loader's search path." },
    Flag { name: "log_level", kind: Kind::Text, default: "warning", help: "The library's lines on stderr: off, error, warning, info, verbose, debug." },
];

/// What is to be answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A text a turn.
    Texts(Vec<String>),
    /// One turn whose tokens are in a file.
    Tokens(PathBuf),
}

/// A command line whose flags make sense together.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Settings {
    pub model_path: PathBuf,
    pub tokenizer_path: PathBuf,
    pub output_path: PathBuf,
    pub performance_output_path: PathBuf,
    pub dump_logits_path: Option<PathBuf>,
    pub trace_path: Option<PathBuf>,
    pub qnn_lib_dir: Option<PathBuf>,
    pub runtime: Runtime,
    pub input: Input,
    pub system_prompt: String,
    /// `--decoder_model_version`.
    pub family: String,
    pub runner: RunnerOptions,
    pub temperature: f32,
    /// As given: 0 or less and too much are judged when the model's context is known.
    pub seq_len: i32,
    pub num_iters: i32,
    pub max_decode_steps: Option<usize>,
    pub seed: u64,
    pub log_level: Option<Level>,
}

impl Settings {
    /// Judges a command line.
    pub fn new(parsed: &Parsed) -> Result<Self> {
        let path = |name: &str| Some(parsed.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from);
        let needed = |name: &str| path(name).ok_or_else(|| invalid(format!("flag --{name} is empty")));

        if path("attention_sink_rope_path").is_some() {
            let why = "attention sink is not supported: leave --attention_sink_rope_path empty";
            return Err(Error::new(Status::NotSupported, why));
        }
        if parsed.is_given("prompt") && path("tokenized_prompt").is_some() {
            return Err(invalid("give --prompt or --tokenized_prompt, not both"));
        }
        let eval_mode = match parsed.is_given("eval_mode") {
            true => Some(EvalMode::from_number(i64::from(parsed.int32("eval_mode")))?),
            false => None,
        };
        let dump_logits_path = path("dump_logits_path");
        if dump_logits_path.is_some() && eval_mode != Some(EvalMode::Kv) {
            return Err(invalid("--dump_logits_path needs --eval_mode 0"));
        }
        let lookahead = match eval_mode {
            Some(EvalMode::Lookahead) => {
                let [ngram, window, gcap] = ["ngram", "window", "gcap"].map(|name| size(parsed, name));
                Some(LookaheadConfig { ngram: ngram?, window: window?, gcap: gcap? })
            }
            _ => None,
        };
        let num_iters = parsed.int32("num_iters");
        if num_iters < 1 {
            return Err(invalid(format!("--num_iters {num_iters} is below 1")));
        }
        let max_decode_steps = match parsed.int32("max_decode_steps") {
            -1 => None,
            steps => {
                Some(usize::try_from(steps).map_err(|_| invalid(format!("--max_decode_steps {steps} is below -1")))?)
            }
        };
        // Judged here, before the model is loaded; the library judges it again.
        let given = parsed.double("temperature");
        let temperature = given as f32;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(invalid(format!("--temperature {given} is neither 0 nor a positive number")));
        }
        let shared_buffer = match (parsed.bool("require_shared_buffer"), parsed.bool("shared_buffer")) {
            (true, _) => SharedBuffer::Require,
            (false, true) => SharedBuffer::Prefer,
            (false, false) => SharedBuffer::Off,
        };
        let level_name = parsed.text("log_level");
        let log_level = log_line::level(&level_name).ok_or_else(|| {
            invalid(format!("--log_level {level_name:?} is none of off, error, warning, info, verbose, debug"))
        })?;

        Ok(Self {
            model_path: needed("model_path")?,
            tokenizer_path: needed("tokenizer_path")?,
            output_path: needed("output_path")?,
            performance_output_path: needed("performance_output_path")?,
            dump_logits_path,
            trace_path: path("trace_path"),
            qnn_lib_dir: path("qnn_lib_dir"),
            runtime: Runtime::from_flags(&parsed.text("module"), &parsed.text("module_library"))?,
            input: match path("tokenized_prompt") {
                Some(file) => Input::Tokens(file),
                None => Input::Texts(parsed.texts("prompt")),
            },
            system_prompt: parsed.text("system_prompt"),
            family: parsed.text("decoder_model_version"),
            runner: RunnerOptions {
                eval_mode,
                kv_updater: KvUpdater::from_name(&parsed.text("kv_updater"))?,
                decoder_model_version: Some(parsed.text("decoder_model_version")),
                lookahead,
                shared_buffer,
                ..RunnerOptions::default()
            },
            temperature,
            seq_len: parsed.int32("seq_len"),
            num_iters,
            max_decode_steps,
            seed: parsed.int32("seed") as u64,
            log_level,
        })
    }
}

/// A size that lookahead needs.
fn size(parsed: &Parsed, name: &str) -> Result<usize> {
    let given = parsed.int32(name);
    usize::try_from(given)
        .ok()
        .filter(|&size| size > 0)
        .ok_or_else(|| invalid(format!("--eval_mode 2 (lookahead) needs --{name} above 0, not {given}")))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gflags;
    use std::ffi::OsString;

    fn settings(line: &[&str]) -> Result<Settings> {
        Settings::new(&gflags::parse(FLAGS, line.iter().map(OsString::from)).unwrap())
    }

    #[test]
    fn defaults_are_upstreams() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.model_path, PathBuf::from("kv_llama_qnn.pte"));
        assert_eq!(settings.tokenizer_path, PathBuf::from("tokenizer.bin"));
        assert_eq!(settings.output_path, PathBuf::from("outputs.txt"));
        assert_eq!(settings.performance_output_path, PathBuf::from("inference_speed.txt"));
        assert_eq!((settings.seq_len, settings.num_iters, settings.temperature), (128, 1, 0.0));
        assert_eq!(settings.runner.decoder_model_version.as_deref(), Some("llama2"));
        assert_eq!((settings.dump_logits_path, settings.max_decode_steps), (None, None));
        assert_eq!(settings.runner.shared_buffer, SharedBuffer::Off);
    }

    #[test]
    fn shared_buffer_prefers_and_the_other_flag_requires() {
        let mode = |line: &[&str]| settings(line).unwrap().runner.shared_buffer;
        assert_eq!(mode(&["--shared_buffer"]), SharedBuffer::Prefer);
        assert_eq!(mode(&["--require_shared_buffer"]), SharedBuffer::Require);
        assert_eq!(mode(&["--shared_buffer=false", "--require_shared_buffer"]), SharedBuffer::Require);
    }

    #[test]
    fn oc1_without_a_prompt_the_default_prompt_is_used() {
        let texts = |line: &[&str]| settings(line).unwrap().input;
        assert_eq!(texts(&[]), Input::Texts(vec!["The answer to the ultimate question is".into()]));
        assert_eq!(texts(&["-prompt", "a", "--prompt=b"]), Input::Texts(vec!["a".into(), "b".into()]));
        assert_eq!(texts(&["--tokenized_prompt", "ids.bin"]), Input::Tokens("ids.bin".into()));
    }

    #[test]
    fn oc2_kv_updater_defaults_to_smart_mask() {
        assert_eq!(settings(&[]).unwrap().runner.kv_updater, KvUpdater::SmartMask);
        let shift = settings(&["--kv_updater", "ShiftPointer"]).unwrap();
        assert_eq!(shift.runner.kv_updater, KvUpdater::ShiftPointer);
    }

    #[test]
    fn o2_eval_mode_is_automatic_only_when_not_given() {
        assert_eq!(settings(&[]).unwrap().runner.eval_mode, None);
        assert_eq!(settings(&["--eval_mode=1"]).unwrap().runner.eval_mode, Some(EvalMode::Hybrid));
        assert_eq!(settings(&["--eval_mode", "0"]).unwrap().runner.eval_mode, Some(EvalMode::Kv));
    }

    #[test]
    fn lookahead_sizes_are_handed_on() {
        let line = ["--eval_mode=2", "--ngram=5", "--window=8", "--gcap=7"];
        let want = Some(LookaheadConfig { ngram: 5, window: 8, gcap: 7 });
        assert_eq!(settings(&line).unwrap().runner.lookahead, want);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, want) in [
            (&["--eval_mode", "7"][..], "eval_mode 7 is none of"),
            (&["--eval_mode", "-1"], "eval_mode -1 is none of"),
            (&["--eval_mode=2"], "needs --ngram above 0, not 0"),
            (&["--eval_mode=2", "--ngram=-1", "--window=8", "--gcap=8"], "needs --ngram above 0, not -1"),
            (&["--eval_mode=2", "--ngram=3", "--gcap=8"], "needs --window above 0, not 0"),
            (&["--kv_updater", "smartmask"], "kv_updater \"smartmask\" is neither"),
            (&["--prompt", "a", "--tokenized_prompt", "f"], "not both"),
            (&["--dump_logits_path", "f"], "--dump_logits_path needs --eval_mode 0"),
            (&["--dump_logits_path", "f", "--eval_mode", "1"], "--dump_logits_path needs --eval_mode 0"),
            (&["--num_iters", "0"], "--num_iters 0 is below 1"),
            (&["--max_decode_steps", "-2"], "--max_decode_steps -2 is below -1"),
            (&["--temperature", "-1"], "--temperature -1"),
            (&["--temperature", "nan"], "--temperature NaN"),
            (&["--temperature", "inf"], "--temperature inf"),
            (&["--log_level", "loud"], "--log_level \"loud\""),
            (&["--model_path="], "flag --model_path is empty"),
            (&["--module=x"], "--module \"x\" is neither native nor executorch"),
        ] {
            let error = settings(line).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument, "{line:?}");
            assert!(error.chain().contains(want), "{line:?}: {}", error.chain());
        }
        let error = settings(&["--attention_sink_rope_path", "f"]).unwrap_err();
        assert_eq!(error.status(), Status::NotSupported);
    }
}
