//! What one side of a comparison runs: options by name, which a process hands to its child as they are, and the runner
//! that they stand for.

use clap::{Arg, ArgMatches};
use llama_runner::builtin::{self, ProgramOptions, Runtime, default_model};
use llama_runner::error::Context;
use llama_runner::runner::{EvalMode, KvUpdater, LookaheadConfig, Runner, RunnerOptions};
use llama_runner::runtime::Execution;
use llama_runner::tokenizer::{self, Tokenizer};
use llama_runner::{Error, Result, Status};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An option that each side has.
struct SideOption {
    name: &'static str,
    value: &'static str,
    help: &'static str,
}

#[rustfmt::skip]
const OPTIONS: &[SideOption] = &[
    SideOption { name: "model_path", value: "FILE", help: "The program [default: the built-in model]" },
    SideOption { name: "tokenizer_path", value: "FILE", help: "Its tokenizer [default: the built-in model's]" },
    SideOption { name: "data_paths", value: "FILES", help: "External data files (.ptd), separated by commas" },
    SideOption { name: "method_name", value: "NAME", help: "The method of a forward(tokens, input_pos) program" },
    SideOption { name: "eval_mode", value: "MODE", help: "auto, kv, hybrid or lookahead, or upstream's numbers 0, 1, 2 [default: auto]" },
    SideOption { name: "kv_updater", value: "NAME", help: "SmartMask or ShiftPointer [default: SmartMask]" },
    SideOption { name: "ngram", value: "N", help: "Lookahead: length of a guessed n-gram" },
    SideOption { name: "window", value: "N", help: "Lookahead: branches that guess" },
    SideOption { name: "gcap", value: "N", help: "Lookahead: n-grams verified in a step" },
    SideOption { name: "execution", value: "WAY", help: "auto, compiled or instructions [default: LLR_EXECUTION, else auto]" },
    SideOption { name: "kernels", value: "SET", help: "Kernel set of the CPU: scalar, avx2, avx512, neon or neon-i8mm [default: LLR_KERNELS, else the best]" },
    SideOption { name: "cpu_threads", value: "N", help: "Threads that compute on the CPU [default: one a fast core]" },
    SideOption { name: "qnn_lib_dir", value: "DIR", help: "Where libQnnHtp.so and libQnnSystem.so are; searched first" },
    SideOption { name: "module", value: "RUNTIME", help: "Whose runtime runs the program: native or executorch [default: native]" },
    SideOption { name: "module_library", value: "FILE", help: "ExecuTorch's adapter or its directory [default: LLR_MODULE_EXECUTORCH]" },
];

/// The options of a side that were given, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values(pub BTreeMap<&'static str, String>);

impl Values {
    fn arguments(command: clap::Command, suffix: &str, heading: &'static str) -> clap::Command {
        OPTIONS.iter().fold(command, |command, option| {
            let name = format!("{}{suffix}", option.name);
            let arg = Arg::new(name.clone()).long(name).value_name(option.value).help_heading(heading);
            command.arg(if suffix.is_empty() {
                // What runs its one side itself takes no kernel set: the process chose one when it began.
                arg.help(option.help).hide(option.name == "kernels" && heading == "Side")
            } else {
                arg.help(format!("As --{}", option.name))
            })
        })
    }

    fn read(matches: &ArgMatches, suffix: &str) -> Self {
        let given = OPTIONS.iter().filter_map(|option| {
            let value = matches.get_one::<String>(&format!("{}{suffix}", option.name))?;
            Some((option.name, value.clone()))
        });
        Self(given.collect())
    }

    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The program and the tokenizer, where they were given.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        ["model_path", "tokenizer_path"].iter().filter_map(|name| self.0.get(name).map(Path::new))
    }

    /// What was given beside the files, for people.
    pub fn show(&self) -> String {
        let paths = ["model_path", "tokenizer_path"];
        let others = self.0.iter().filter(|(name, _)| !paths.contains(name));
        others.map(|(name, value)| format!(", {name} {value}")).collect()
    }

    /// The command line that says the same.
    pub fn to_arguments(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("--{name}={value}"))
    }
}

impl clap::FromArgMatches for Values {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::read(matches, ""))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::read(matches, "");
        Ok(())
    }
}

impl clap::Args for Values {
    fn augment_args(command: clap::Command) -> clap::Command {
        Self::arguments(command, "", "Side")
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// The options of both sides: side B is as side A but for what its own options, which end in `_b`, say.
#[derive(Debug, Clone, Default)]
pub struct Sides {
    /// The plain options.
    pub a: Values,
    /// The plain options and, over them, side B's own.
    pub b: Values,
    /// Whether side B has options of its own.
    pub differ: bool,
}

impl clap::FromArgMatches for Sides {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (a, own) = (Values::read(matches, ""), Values::read(matches, "_b"));
        let differ = !own.0.is_empty();
        let mut b = a.clone();
        b.0.extend(own.0);
        Ok(Self { a, b, differ })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Sides {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = Values::arguments(command, "", "Both sides");
        Values::arguments(command, "_b", "Side B, where it differs")
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Options that make sense, each of its type.
#[derive(Debug, Clone)]
pub struct Side {
    model_path: Option<PathBuf>,
    tokenizer_path: Option<PathBuf>,
    program: ProgramOptions,
    runner: RunnerOptions,
}

impl Side {
    /// As [`new`](Self::new), for a program that runs its one side itself.
    pub fn of_this_process(values: &Values) -> Result<Self> {
        if values.has("kernels") {
            let why = "--kernels is for the processes of llr compare: set LLR_KERNELS instead";
            return Err(Error::new(Status::InvalidArgument, why));
        }
        Self::new(values)
    }

    /// Judges `values`; reads no file.
    pub fn new(values: &Values) -> Result<Self> {
        let text = |name: &str| values.0.get(name).map(String::as_str);
        let path = |name: &str| text(name).map(PathBuf::from);
        let count = |name: &str| text(name).map(|value| number(name, value)).transpose();
        let eval_mode = text("eval_mode").map(eval_mode).transpose()?.flatten();
        let lookahead = match (eval_mode, count("ngram")?, count("window")?, count("gcap")?) {
            (Some(EvalMode::Lookahead), Some(ngram), Some(window), Some(gcap)) => {
                Some(LookaheadConfig { ngram, window, gcap })
            }
            (Some(EvalMode::Lookahead), ..) => {
                return Err(invalid("eval_mode lookahead needs --ngram, --window and --gcap"));
            }
            _ => None,
        };
        let (model_path, tokenizer_path) = (path("model_path"), path("tokenizer_path"));
        if model_path.is_some() && tokenizer_path.is_none() {
            return Err(invalid("a --model_path needs a --tokenizer_path"));
        }
        let runtime =
            Runtime::from_flags(text("module").unwrap_or("native"), text("module_library").unwrap_or_default())?;
        if model_path.is_none() && runtime != Runtime::Native {
            return Err(invalid("--module executorch needs a --model_path"));
        }
        let data_paths = text("data_paths").unwrap_or_default().split(',').map(str::trim);
        Ok(Self {
            model_path,
            tokenizer_path,
            program: ProgramOptions {
                qnn_lib_dir: path("qnn_lib_dir"),
                data_paths: data_paths.filter(|path| !path.is_empty()).map(PathBuf::from).collect(),
                cpu_threads: count("cpu_threads")?.and_then(|threads| threads.try_into().ok()),
                execution: text("execution").map(execution).transpose()?.unwrap_or_default(),
                runtime,
            },
            runner: RunnerOptions {
                eval_mode,
                method_name: text("method_name").map(str::to_owned),
                kv_updater: text("kv_updater").map(KvUpdater::from_name).transpose()?.unwrap_or_default(),
                lookahead,
                ..RunnerOptions::default()
            },
        })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Result<Arc<dyn Tokenizer>> {
        match &self.tokenizer_path {
            Some(path) => tokenizer::load(path),
            None => tokenizer::from_bytes(default_model::TOKENIZER, Path::new(default_model::NAME)),
        }
    }

    /// What messages call the program.
    pub fn name(&self) -> String {
        match &self.model_path {
            Some(path) => path.display().to_string(),
            None => default_model::NAME.to_owned(),
        }
    }

    /// Loads program and tokenizer; `family` is upstream's `--decoder_model_version`.
    pub fn load(&self, family: &str) -> Result<Runner> {
        let module = match &self.model_path {
            Some(path) => builtin::open_program(path, &self.program)?,
            None => builtin::open_default_program(&self.program)?,
        };
        let options = RunnerOptions { decoder_model_version: Some(family.to_owned()), ..self.runner.clone() };
        Runner::load(module, self.tokenizer()?, options).with_context(|| format!("loading {}", self.name()))
    }
}

fn eval_mode(text: &str) -> Result<Option<EvalMode>> {
    Ok(Some(match text {
        "auto" => return Ok(None),
        "kv" => EvalMode::Kv,
        "hybrid" => EvalMode::Hybrid,
        "lookahead" => EvalMode::Lookahead,
        _ => EvalMode::from_number(
            text.parse().map_err(|_| invalid(format!("eval_mode {text:?} is none of auto, kv, hybrid, lookahead")))?,
        )?,
    }))
}

fn execution(text: &str) -> Result<Execution> {
    match text {
        "auto" => Ok(Execution::Auto),
        "compiled" => Ok(Execution::Compiled),
        "instructions" => Ok(Execution::Instructions),
        _ => Err(invalid(format!("execution {text:?} is none of auto, compiled, instructions"))),
    }
}

fn number(name: &str, text: &str) -> Result<usize> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| invalid(format!("--{name} {text:?} is no number above 0")))
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(Status::InvalidArgument, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn sides(line: &[&str]) -> Sides {
        let command = Sides::augment_args(clap::Command::new("t").no_binary_name(true));
        Sides::from_arg_matches(&command.try_get_matches_from(line).unwrap()).unwrap()
    }

    #[test]
    fn side_b_is_as_a_but_for_its_own_options() {
        let sides = sides(&["--eval_mode=kv", "--tokenizer_path=t", "--model_path=x", "--eval_mode_b", "hybrid"]);
        let line = |values: &Values| values.to_arguments().collect::<Vec<_>>();
        assert_eq!(line(&sides.a), ["--eval_mode=kv", "--model_path=x", "--tokenizer_path=t"]);
        assert_eq!(line(&sides.b), ["--eval_mode=hybrid", "--model_path=x", "--tokenizer_path=t"]);
        assert!(sides.differ && !self::sides(&["--ngram=3"]).differ);
        let [a, b] = [&sides.a, &sides.b].map(|values| Side::new(values).unwrap());
        assert_eq!((a.runner.eval_mode, b.runner.eval_mode), (Some(EvalMode::Kv), Some(EvalMode::Hybrid)));
        assert_eq!((a.name().as_str(), sides.b.show().as_str()), ("x", ", eval_mode hybrid"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, want) in [
            (&["--model_path=x"][..], "a --model_path needs a --tokenizer_path"),
            (&["--eval_mode=fast"], "eval_mode \"fast\" is none of"),
            (&["--eval_mode=7"], "eval_mode 7 is none of"),
            (&["--eval_mode=lookahead", "--ngram=3"], "needs --ngram, --window and --gcap"),
            (&["--window=0"], "--window \"0\" is no number above 0"),
            (&["--cpu_threads=x"], "--cpu_threads \"x\" is no number above 0"),
            (&["--kv_updater=x"], "neither SmartMask nor ShiftPointer"),
            (&["--module=x"], "--module \"x\" is neither native nor executorch"),
            (&["--module=executorch"], "--module executorch needs a --model_path"),
            (&["--execution=x"], "execution \"x\" is none of"),
        ] {
            let error = Side::new(&sides(line).a).unwrap_err();
            assert!(error.chain().contains(want), "{line:?}: {}", error.chain());
        }
    }
}
