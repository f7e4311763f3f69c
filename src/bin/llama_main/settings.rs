//! Upstream's flags and ours, and what they mean together.

use crate::gflags::{Flag, Kind, Parsed};
use crate::log_line;
use llama_runner::base::log::Level;
use llama_runner::builtin::{ProgramOptions, Runtime};
use llama_runner::runner::GenerationConfig;
use llama_runner::{Error, Result, Status};
use std::fs::File;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Every flag, in the order of `--help`.
#[rustfmt::skip]
pub const FLAGS: &[Flag] = &[
    Flag { name: "model_path", kind: Kind::Text, default: "llama2.pte", help: "The program to run; where the flag is not given and no such file is there, a built-in model." },
    Flag { name: "data_paths", kind: Kind::Text, default: "", help: "External data files (.ptd) of the program, separated by commas." },
    Flag { name: "tokenizer_path", kind: Kind::Text, default: "tokenizer.bin", help: "The tokenizer: llama2.c, SentencePiece, tiktoken or tokenizer.json." },
    Flag { name: "prompt", kind: Kind::Text, default: "The answer to the ultimate question is", help: "What to answer; the last one counts." },
    Flag { name: "prompt_file", kind: Kind::Text, default: "", help: "A file with the prompt; it comes before --prompt." },
    Flag { name: "temperature", kind: Kind::Double, default: "0.8", help: "0 takes the likeliest token, up to 1 samples." },
    Flag { name: "seq_len", kind: Kind::Int32, default: "128", help: "Deprecated, use --max_new_tokens: length of prompt and answer together, in tokens; -1: the model's context." },
    Flag { name: "max_new_tokens", kind: Kind::Int32, default: "-1", help: "Most tokens to generate, as far as the context allows; -1: what --seq_len leaves." },
    Flag { name: "cpu_threads", kind: Kind::Int32, default: "-1", help: "Threads that compute; -1 or 0: as many as there are fast cores." },
    Flag { name: "num_bos", kind: Kind::Int32, default: "0", help: "Beginning-of-sequence tokens in front of the prompt." },
    Flag { name: "num_eos", kind: Kind::Int32, default: "0", help: "End-of-sequence tokens behind the prompt." },
    Flag { name: "warmup", kind: Kind::Bool, default: "false", help: "Run once before, without output." },
    Flag { name: "ignore_eos", kind: Kind::Bool, default: "false", help: "Go on after an end token." },
    Flag { name: "etdump_path", kind: Kind::Text, default: "etdump.in", help: "Where a profile is written, as a Chrome trace; only when given." },
    Flag { name: "method_name", kind: Kind::Text, default: "forward", help: "The method to run." },
    Flag { name: "seed", kind: Kind::Int32, default: "0", help: "Seed of the sampler at a temperature above 0." },
    Flag { name: "trace_path", kind: Kind::Text, default: "", help: "Where a JSON line for each token is written." },
    Flag { name: "module", kind: Kind::Text, default: "native", help: "Whose runtime runs the program: native, or executorch through an adapter library." },
    Flag { name: "module_library", kind: Kind::Text, default: "", help: "That adapter, or its directory; else LLR_MODULE_EXECUTORCH, beside this program, the loader's search path." },
    Flag { name: "log_level", kind: Kind::Text, default: "warning", help: "The library's lines on stderr: off, error, warning, info, verbose, debug." },
];

/// Longest prompt file, in bytes; far above any context.
const MAX_PROMPT: u64 = 64 << 20;

/// A command line whose flags make sense together.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Settings {
    /// `None`: the built-in model.
    pub model_path: Option<PathBuf>,
    /// `None`: the built-in model's.
    pub tokenizer_path: Option<PathBuf>,
    pub program: ProgramOptions,
    pub prompt: String,
    /// Where the prompt was read.
    pub prompt_file: Option<PathBuf>,
    pub method_name: String,
    pub generation: GenerationConfig,
    pub warmup: bool,
    /// `--etdump_path`, when it was given.
    pub profile_path: Option<PathBuf>,
    pub trace_path: Option<PathBuf>,
    pub log_level: Option<Level>,
}

impl Settings {
    /// Judges a command line; reads the prompt file.
    pub fn new(parsed: &Parsed) -> Result<Self> {
        let path = |name: &str| Some(parsed.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from);
        let needed = |name: &str| path(name).ok_or_else(|| invalid(format!("flag --{name} is empty")));
        let data_paths = parsed.text("data_paths");
        let data_paths = data_paths.split(',').map(str::trim).filter(|path| !path.is_empty()).map(PathBuf::from);
        let prompt = match path("prompt_file") {
            Some(file) => read_prompt(&file)?,
            None => parsed.text("prompt"),
        };
        if prompt.is_empty() {
            return Err(invalid("the prompt is empty"));
        }
        let level_name = parsed.text("log_level");
        let log_level = log_line::level(&level_name).ok_or_else(|| {
            invalid(format!("--log_level {level_name:?} is none of off, error, warning, info, verbose, debug"))
        })?;
        // Upstream's default path stays the first choice; without a file there, and without the flag, there is still a
        // model to run.
        let absent = |name: &str, path: &Path| !parsed.is_given(name) && !path.exists();
        let model_path = Some(needed("model_path")?).filter(|path| !absent("model_path", path));
        let built_in = model_path.is_none() && !parsed.is_given("tokenizer_path");
        Ok(Self {
            model_path,
            tokenizer_path: Some(needed("tokenizer_path")?).filter(|_| !built_in),
            program: ProgramOptions {
                data_paths: data_paths.collect(),
                cpu_threads: cpu_threads(parsed.int32("cpu_threads"))?,
                runtime: Runtime::from_flags(&parsed.text("module"), &parsed.text("module_library"))?,
                ..ProgramOptions::default()
            },
            prompt,
            prompt_file: path("prompt_file"),
            method_name: parsed.text("method_name"),
            generation: generation(parsed)?,
            warmup: parsed.bool("warmup"),
            profile_path: path("etdump_path").filter(|_| parsed.is_given("etdump_path")),
            trace_path: path("trace_path"),
            log_level,
        })
    }
}

fn generation(parsed: &Parsed) -> Result<GenerationConfig> {
    let temperature = parsed.double("temperature") as f32;
    if !(0.0..=1.0).contains(&temperature) {
        return Err(invalid(format!("--temperature {temperature} is not in 0 to 1")));
    }
    let count = |name: &str| {
        let given = parsed.int32(name);
        usize::try_from(given).map_err(|_| invalid(format!("--{name} {given} is negative")))
    };
    let above_zero = |name: &str, given: i32| match usize::try_from(given) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(invalid(format!("--{name} {given} leaves nothing to generate; -1 means no limit of its own"))),
    };
    // As upstream, a given number of new tokens takes the total length's place.
    let (seq_len, max_new_tokens) = match (parsed.int32("max_new_tokens"), parsed.int32("seq_len")) {
        (-1, -1) => (0, None),
        (-1, seq_len) => (above_zero("seq_len", seq_len)?, None),
        (max_new_tokens, _) => (0, Some(above_zero("max_new_tokens", max_new_tokens)?)),
    };
    Ok(GenerationConfig {
        seq_len,
        max_new_tokens,
        temperature,
        seed: parsed.int32("seed") as u64,
        ignore_eos: parsed.bool("ignore_eos"),
        num_bos: count("num_bos")?,
        num_eos: count("num_eos")?,
        ..GenerationConfig::default()
    })
}

fn cpu_threads(given: i32) -> Result<Option<NonZeroUsize>> {
    match usize::try_from(given) {
        Ok(threads) => Ok(NonZeroUsize::new(threads)),
        Err(_) if given == -1 => Ok(None),
        Err(_) => Err(invalid(format!("--cpu_threads {given} is below -1"))),
    }
}

fn read_prompt(path: &Path) -> Result<String> {
    let fail = |status, why: String| Error::new(status, format!("prompt file {}: {why}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_PROMPT + 1).read_to_end(&mut bytes))
        .map_err(|error| fail(Status::AccessFailed, error.to_string()))?;
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(fail(Status::InvalidExternalData, format!("it is longer than {MAX_PROMPT} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        fail(Status::InvalidExternalData, format!("it is not UTF-8 at byte {at}"))
    })
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
        assert_eq!((settings.model_path, settings.tokenizer_path), (None, None), "no llama2.pte is here");
        assert_eq!(settings.prompt, "The answer to the ultimate question is");
        assert_eq!(settings.method_name, "forward");
        assert_eq!((settings.program.data_paths, settings.program.cpu_threads), (vec![], None));
        assert_eq!((settings.warmup, settings.profile_path, settings.trace_path), (false, None, None));
        let GenerationConfig { seq_len, max_new_tokens, temperature, num_bos, num_eos, ignore_eos, .. } =
            settings.generation;
        assert_eq!((seq_len, max_new_tokens, temperature), (128, None, 0.8));
        assert_eq!((num_bos, num_eos, ignore_eos), (0, 0, false));
    }

    #[test]
    fn the_built_in_model_runs_only_where_none_is_named() {
        let paths = |line: &[&str]| {
            let Settings { model_path, tokenizer_path, .. } = settings(line).unwrap();
            (model_path, tokenizer_path)
        };
        let path = |name: &str| Some(PathBuf::from(name));
        assert_eq!(paths(&["--model_path=llama2.pte"]), (path("llama2.pte"), path("tokenizer.bin")));
        assert_eq!(paths(&["--tokenizer_path=x.bin"]), (None, path("x.bin")));
        assert_eq!(paths(&["--prompt=x"]), (None, None));
    }

    #[test]
    fn new_tokens_take_the_place_of_the_total_length() {
        let lengths = |line: &[&str]| {
            let generation = settings(line).unwrap().generation;
            (generation.seq_len, generation.max_new_tokens)
        };
        assert_eq!(lengths(&["--seq_len=64"]), (64, None));
        assert_eq!(lengths(&["--seq_len=-1"]), (0, None));
        assert_eq!(lengths(&["--max_new_tokens=1000"]), (0, Some(1000)));
        assert_eq!(lengths(&["--max_new_tokens=7", "--seq_len=3"]), (0, Some(7)));
    }

    #[test]
    fn lists_threads_and_special_tokens() {
        let all =
            settings(&["--data_paths= a.ptd,,b c.ptd ", "--cpu_threads=3", "--num_bos=300", "--num_eos=2"]).unwrap();
        assert_eq!(all.program.data_paths, [PathBuf::from("a.ptd"), PathBuf::from("b c.ptd")]);
        assert_eq!(all.program.cpu_threads, NonZeroUsize::new(3));
        assert_eq!((all.generation.num_bos, all.generation.num_eos), (300, 2));
        assert_eq!(settings(&["--cpu_threads=0"]).unwrap().program.cpu_threads, None);
    }

    #[test]
    fn a_profile_is_made_only_when_its_path_is_given() {
        assert_eq!(settings(&["--etdump_path=x.json"]).unwrap().profile_path, Some("x.json".into()));
        assert_eq!(settings(&["--etdump_path=etdump.in"]).unwrap().profile_path, Some("etdump.in".into()));
        assert_eq!(settings(&["--etdump_path="]).unwrap().profile_path, None);
    }

    #[test]
    fn a_prompt_file_comes_before_a_prompt() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prompt.txt");
        let with_file = || settings(&["--prompt=b", &format!("--prompt_file={}", file.display())]);
        std::fs::write(&file, "a\n").unwrap();
        assert_eq!(with_file().unwrap().prompt, "a\n");
        for (bytes, want) in [(&b""[..], "the prompt is empty"), (b"ab\xff", "not UTF-8 at byte 2")] {
            std::fs::write(&file, bytes).unwrap();
            assert!(with_file().unwrap_err().chain().contains(want));
        }
        std::fs::remove_file(&file).unwrap();
        let error = with_file().unwrap_err();
        assert!(error.status() == Status::AccessFailed && error.chain().contains("prompt.txt"), "{error:?}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, want) in [
            (&["--prompt="][..], "the prompt is empty"),
            (&["--temperature=2"], "--temperature 2 is not in 0 to 1"),
            (&["--temperature=-0.5"], "--temperature -0.5"),
            (&["--temperature=nan"], "--temperature NaN"),
            (&["--max_new_tokens=0"], "--max_new_tokens 0 leaves nothing"),
            (&["--max_new_tokens=-2"], "--max_new_tokens -2"),
            (&["--seq_len=0"], "--seq_len 0 leaves nothing"),
            (&["--seq_len=-5"], "--seq_len -5"),
            (&["--num_bos=-1"], "--num_bos -1 is negative"),
            (&["--num_eos=-1"], "--num_eos -1 is negative"),
            (&["--cpu_threads=-2"], "--cpu_threads -2 is below -1"),
            (&["--model_path="], "flag --model_path is empty"),
            (&["--module=pytorch"], "--module \"pytorch\" is neither native nor executorch"),
            (&["--module_library=x.so"], "--module_library is for --module executorch"),
            (&["--log_level=loud"], "--log_level \"loud\""),
        ] {
            let error = settings(line).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument, "{line:?}");
            assert!(error.chain().contains(want), "{line:?}: {}", error.chain());
        }
    }
}
