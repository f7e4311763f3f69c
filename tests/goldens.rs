//! Every recorded run of the upstream C++ runner, repeated: the same tokens from the same logits, bit for bit.
//!
//! One trial a recorded run and kind. Where the material of a trial is missing it is reported as ignored, with what is
//! missing as its kind.

#[path = "common/cli.rs"]
mod cli;
mod common;
#[path = "common/golden.rs"]
mod golden;

use cli::Run;
use common::{model, qnn_lib_dir, qnn_sdk_dirs, shared};
use golden::{Golden, Step, numbers};
use libtest_mimic::{Arguments, Failed, Trial};
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::runner::{
    EvalMode, Generation, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, Runner, RunnerOptions,
};
use llama_runner::tensor::DType;
use llama_runner::tokenizer;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

type Outcome = Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials()).exit();
}

fn trials() -> Vec<Trial> {
    if !cfg!(have_shared) {
        return vec![missing("recorded_runs", "needs ../shared")];
    }
    let goldens = Arc::new(Golden::all(&shared().join("goldens/runner")));
    let mut trials = Vec::new();
    for index in 0..goldens.len() {
        let golden = &goldens[index];
        let trial = |kind: &str, check: fn(&Golden, &[Golden]) -> Outcome| {
            let all = Arc::clone(&goldens);
            simulator(Trial::test(format!("{kind}::{}", golden.name), move || check(&all[index], &all)))
        };
        let turns_asked = !golden.prompts.is_empty() || golden.tokenized_prompt.is_some();
        match (golden.usable, turns_asked) {
            (false, _) => trials.push(trial("fault", fault)),
            (true, false) => trials.push(trial("default_prompt", default_prompt)),
            (true, true) => {
                let lookahead = golden.int("eval_mode") == Some(2);
                trials.push(match (lookahead, golden.greedy()) {
                    (true, _) => trial("lookahead", lookahead_tokens),
                    (false, true) => trial("run", every_step),
                    (false, false) => trial("sampled", first_step),
                });
                if golden.greedy() {
                    trials.push(trial("program", program));
                }
            }
        }
    }
    trials.extend(sdk_trials(&goldens));
    trials.extend(respec_trials());
    trials.extend(executorch_trials());
    trials
}

/// A trial that cannot even be set up; asked for all the same, it fails.
fn missing(name: &str, needs: &'static str) -> Trial {
    Trial::test(name, move || Err(needs.into())).with_kind(needs).with_ignored_flag(true)
}

fn simulator(trial: Trial) -> Trial {
    match cfg!(have_qnn) {
        true => trial,
        false => trial.with_kind("needs LLR_QNN_LIB_DIR").with_ignored_flag(true),
    }
}

fn same<T: PartialEq + Debug>(what: impl AsRef<str>, ours: T, recorded: T) -> Outcome {
    match ours == recorded {
        true => Ok(()),
        false => Err(format!("{}: ours {ours:?}, recorded {recorded:?}", what.as_ref()).into()),
    }
}

/// A turn of ours in the terms of the recorded ones.
struct OurTurn {
    position: u64,
    generation: Generation,
    steps: Vec<Step>,
    text: Vec<u8>,
}

/// Repeats `golden` on the library.
fn repeat(golden: &Golden) -> Result<Vec<OurTurn>, Failed> {
    let size = |name| golden.int(name).and_then(|number| usize::try_from(number).ok());
    let options = RunnerOptions {
        eval_mode: golden.int("eval_mode").map(EvalMode::from_number).transpose()?,
        kv_updater: match golden.flag("kv_updater").and_then(|name| name.as_str()) {
            Some(name) => KvUpdater::from_name(name)?,
            None => KvUpdater::default(),
        },
        lookahead: match (size("ngram"), size("window"), size("gcap")) {
            (Some(ngram), Some(window), Some(gcap)) => Some(LookaheadConfig { ngram, window, gcap }),
            _ => None,
        },
        ..RunnerOptions::default()
    };
    let config = GenerationConfig {
        seq_len: size("seq_len").unwrap_or(0),
        max_decode_steps: golden.max_decode_steps,
        temperature: golden.flag("temperature").and_then(|value| value.as_f64()).unwrap_or(0.0) as f32,
        ..GenerationConfig::default()
    };
    let mut runner = load(&golden.pte, &golden.tokenizer, options)?;
    let mut turns = Vec::new();
    for _ in 0..golden.int("num_iters").unwrap_or(1) {
        for prompt in &golden.prompts {
            turns.push(turn(&mut runner, Prompt::Text(prompt), &config)?);
        }
        if let Some(tokens) = &golden.tokenized_prompt {
            turns.push(turn(&mut runner, Prompt::Tokens(tokens), &config)?);
        }
    }
    Ok(turns)
}

fn load(pte: &str, tokenizer: &str, options: RunnerOptions) -> Result<Runner, Failed> {
    let module = builtin::open_program(
        &model(pte),
        &ProgramOptions { qnn_lib_dir: qnn_lib_dir(), ..ProgramOptions::default() },
    )?;
    Ok(Runner::load(module, tokenizer::load(&model(tokenizer))?, options)?)
}

fn turn(runner: &mut Runner, prompt: Prompt<'_>, config: &GenerationConfig) -> Result<OurTurn, Failed> {
    let position = runner.position() as u64;
    let (mut steps, mut text) = (Vec::new(), Vec::new());
    if let Prompt::Text(prompt) = prompt {
        text.extend_from_slice(prompt.as_bytes());
    }
    let generation = runner.generate(prompt, config, &mut |event| {
        text.extend_from_slice(event.piece);
        steps.push(Step {
            row: event.row as u64,
            token: event.token,
            hash: format!("{:016x}", event.logits.fnv1a64()),
            dtype: event.logits.dtype.name().to_owned(),
            top5: top5(event.logits.dtype, event.logits.bytes),
        });
        ControlFlow::Continue(())
    })?;
    Ok(OurTurn { position, generation, steps, text })
}

fn top5(dtype: DType, bytes: &[u8]) -> Vec<(u64, f64)> {
    let values: Vec<f64> = match dtype {
        DType::U8 => bytes.iter().map(|&code| f64::from(code)).collect(),
        DType::U16 => bytes.as_chunks().0.iter().map(|&code| f64::from(u16::from_le_bytes(code))).collect(),
        _ => bytes.as_chunks().0.iter().map(|&code| f64::from(f32::from_le_bytes(code))).collect(),
    };
    let mut pairs: Vec<(u64, f64)> = (0..).zip(values).collect();
    pairs.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    pairs.truncate(5);
    pairs
}

/// Prompt tokens, positions, every token, every row's hash and five largest, counts, text.
fn every_step(golden: &Golden, _: &[Golden]) -> Outcome {
    let turns = repeat(golden)?;
    same("turns", turns.len(), golden.turns.len())?;
    for (number, (ours, recorded)) in turns.iter().zip(&golden.turns).enumerate() {
        let place = format!("turn {number}");
        same(format!("{place}, prompt tokens"), &ours.generation.prompt_tokens, &recorded.prompt_tokens)?;
        same(format!("{place}, position"), ours.position, recorded.position)?;
        for (index, (our, their)) in ours.steps.iter().zip(&recorded.steps).enumerate() {
            same_step(&format!("{place}, step {index}"), our, their)?;
        }
        same(format!("{place}, steps"), ours.steps.len(), recorded.steps.len())?;
        if let (Some(our), Some(their)) = (ours.steps.first(), recorded.steps.first()) {
            same(format!("{place}, row of the prefill"), our.row, their.row)?;
        }
        let tokens: Vec<u64> = recorded.steps.iter().map(|step| step.token).collect();
        same(format!("{place}, tokens of the summary"), &ours.generation.tokens, &tokens)?;
        let stats = &ours.generation.stats;
        let counts = (stats.num_prompt_tokens as usize, stats.num_generated_tokens as usize);
        // Upstream does not count the token that the prefill makes.
        same(format!("{place}, counts"), counts, (recorded.prompt_tokens.len(), recorded.steps.len() - 1))?;
    }
    same_text(golden, &turns)
}

fn same_step(place: &str, ours: &Step, recorded: &Step) -> Outcome {
    same(format!("{place}, token"), ours.token, recorded.token)?;
    same(format!("{place}, dtype"), &ours.dtype, &recorded.dtype)?;
    if ours.hash != recorded.hash && !sdk_of_the_recordings() {
        // Other SDKs compute slightly different logits; tokens are what can be compared.
        return Ok(());
    }
    same(format!("{place}, five largest"), &ours.top5, &recorded.top5)?;
    same(format!("{place}, hash of the logits"), &ours.hash, &recorded.hash)
}

/// Whether the simulator is SDK 2.49.40, whose logits were recorded.
fn sdk_of_the_recordings() -> bool {
    let library = qnn_lib_dir().map(|dir| dir.join("libQnnHtp.so"));
    let bytes = library.and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    let version = b"v2.49.40.";
    bytes.windows(version.len()).any(|window| window == version)
}

fn same_text(golden: &Golden, turns: &[OurTurn]) -> Outcome {
    let Some(recorded) = &golden.output else { return Ok(()) };
    let ours: Vec<u8> = turns.iter().flat_map(|turn| turn.text.iter().copied()).collect();
    same("text", String::from_utf8_lossy(&ours), String::from_utf8_lossy(recorded))?;
    same("text's bytes", &ours, recorded)
}

/// Above temperature 0 the first row of logits is still the same, whatever is drawn from it.
fn first_step(golden: &Golden, _: &[Golden]) -> Outcome {
    let turns = repeat(golden)?;
    let (ours, recorded) = (&turns[0], &golden.turns[0]);
    same("prompt tokens", &ours.generation.prompt_tokens, &recorded.prompt_tokens)?;
    let (our, their) = (&ours.steps[0], &recorded.steps[0]);
    if sdk_of_the_recordings() {
        same("hash of the first logits", &our.hash, &their.hash)?;
    }
    same("number of tokens", ours.steps.len(), recorded.steps.len())
}

/// Lookahead guesses with other n-grams than upstream's, and must answer the same.
fn lookahead_tokens(golden: &Golden, _: &[Golden]) -> Outcome {
    let turns = repeat(golden)?;
    let tokens: Vec<Vec<u64>> = turns.iter().map(|turn| turn.generation.tokens.clone()).collect();
    same("tokens", &tokens, &answers(golden))?;
    let text: Vec<u8> = turns.iter().flat_map(|turn| turn.text.iter().copied()).collect();
    same_output(golden, Some(&text))
}

/// The tokens that a run must make. Upstream's lookahead takes all of a verified n-gram even where it goes beyond
/// seq_len; what is beyond is left out.
fn answers(golden: &Golden) -> Vec<Vec<u64>> {
    let seq_len = golden.int("seq_len").and_then(|length| usize::try_from(length).ok());
    let room = |turn: &golden::Turn| seq_len.map_or(usize::MAX, |length| length - turn.prompt_tokens.len());
    match golden.int("eval_mode") == Some(2) {
        true => golden
            .generated
            .iter()
            .zip(&golden.turns)
            .map(|(tokens, turn)| tokens.iter().copied().take(room(turn)).collect())
            .collect(),
        false => golden.generated.clone(),
    }
}

/// The output file: the recorded bytes, without what tokens beyond seq_len added.
fn same_output(golden: &Golden, ours: Option<&Vec<u8>>) -> Outcome {
    let Some(recorded) = &golden.output else { return Ok(()) };
    let cut = golden.generated != answers(golden);
    let prompts: usize = golden.prompts.iter().map(String::len).sum();
    match ours {
        Some(ours) if cut && ours.len() > prompts && recorded.starts_with(ours) => Ok(()),
        _ => same("output file", ours, Some(recorded)),
    }
}

fn run_program(golden: &Golden, more: &[String]) -> Run {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut args = golden.arguments(&shared().join("models"), &scratch.path().join("ids.bin"));
    args.extend_from_slice(more);
    cli::qnn_llama_runner(args)
}

/// The program's files and streams.
fn program(golden: &Golden, _: &[Golden]) -> Outcome {
    let run = run_program(golden, &[]);
    same(format!("exit code, stderr {:?}", run.stderr), run.code, Some(0))?;
    same("tokens", &run.tokens(), &answers(golden))?;
    same_output(golden, run.output.as_ref())?;
    let observed = run.stdout.lines().filter(|line| line.starts_with("PyTorchObserver {")).count();
    same("observer lines", observed, golden.turns.len())?;
    let speed = run.speed.as_deref().and_then(|text| text.parse::<f64>().ok());
    match speed {
        Some(speed) if speed.is_finite() && speed > 0.0 => Ok(()),
        _ => Err(format!("performance file: {:?}", run.speed).into()),
    }
}

/// OC1: without --prompt upstream generated nothing; the documented default prompt is used instead.
fn default_prompt(golden: &Golden, _: &[Golden]) -> Outcome {
    let run = run_program(golden, &[]);
    same(format!("exit code, stderr {:?}", run.stderr), run.code, Some(0))?;
    let output = run.output.unwrap_or_default();
    let prompt = b"The answer to the ultimate question is";
    match output.starts_with(prompt) && output.len() > prompt.len() {
        true => Ok(()),
        false => Err(format!("output file: {:?}", String::from_utf8_lossy(&output)).into()),
    }
}

/// Where upstream failed: a typed error, or the right tokens, or the right tokens and then a typed error.
fn fault(golden: &Golden, all: &[Golden]) -> Outcome {
    let run = run_program(golden, &[]);
    let tokens = run.tokens();
    match run.code {
        Some(0) if run.errors().is_empty() && !tokens.is_empty() => {}
        _ if run.failed_cleanly() => {}
        code => return Err(format!("code {code:?}, stderr {:?}", run.stderr).into()),
    }
    if let Some(reference) = reference(golden, all) {
        for (turn, (ours, right)) in tokens.iter().zip(&reference).enumerate() {
            let common = ours.len().min(right.len());
            same(format!("turn {turn}, tokens"), &ours[..common], &right[..common])?;
        }
    }
    // What was made before a failure is in the file.
    let output = run.output.unwrap_or_default();
    match tokens.iter().zip(&golden.prompts).next() {
        Some((_, prompt)) if !output.starts_with(prompt.as_bytes()) => {
            Err(format!("output file: {:?}", String::from_utf8_lossy(&output)).into())
        }
        _ => Ok(()),
    }
}

/// The right tokens of a run that upstream failed on: from a good run of the same program and prompt, from its own turns
/// before a clean failure, or greedy ones of our own that another trial proves.
fn reference(golden: &Golden, all: &[Golden]) -> Option<Vec<Vec<u64>>> {
    let base = |pte: &str| pte.replace(".respec", "");
    let prefill = |golden: &Golden| golden.int("eval_mode") != Some(0);
    // Kv and hybrid mode give the same bits on the exports made with ExecuTorch 1.5.1, not on all older artifacts.
    let any_mode = golden.pte.starts_with("qnn/qnn_");
    let twin = all.iter().find(|other| {
        other.usable
            && other.greedy()
            && other.max_decode_steps.is_none()
            && base(&other.pte) == base(&golden.pte)
            && other.prompts == golden.prompts
            && (any_mode || prefill(other) == prefill(golden))
    });
    if let Some(twin) = twin {
        return Some(twin.generated.clone());
    }
    if golden.clean_failure && !golden.generated.is_empty() {
        return Some(golden.generated.clone());
    }
    if golden.int("eval_mode") == Some(2) && !golden.prompts.is_empty() {
        return Some(run_program(golden, &["--eval_mode=1".to_owned()]).tokens());
    }
    None
}

/// Runs whose tokens every SDK must make: both I/O generations, both modes, both cache updaters, several turns. The
/// programs are older than every SDK here, and no two logits are so close that an SDK's rounding could decide.
const SDK_RUNS: [&str; 6] = [
    "cff6f4dd-m0-p32",
    "cff6f4dd-m1-seq16",
    "cff6f4dd-m1-mt4-forced5",
    "d8ac8666-ShiftPointer-m1-p33",
    "d8ac8666-SmartMask-m0-mt2-forced5",
    "5fc929fa-pte5fc929fa88-m1-mt4-forced5",
];

/// A program made with SDK 2.49.40: newer SDKs run it, older ones refuse it by QNN's code 5000.
const MADE_WITH_2_49: &str = "cff6f4dd-pte_hybrid_ar32_shard2-m1-p64";

/// In processes of their own: one process holds one SDK.
fn sdk_trials(goldens: &Arc<Vec<Golden>>) -> Vec<Trial> {
    let dirs = if cfg!(have_qnn_sdks) { qnn_sdk_dirs() } else { Vec::new() };
    let mut trials = Vec::new();
    for name in SDK_RUNS.into_iter().chain([MADE_WITH_2_49]) {
        let index = goldens.iter().position(|golden| golden.name == name).expect("a recorded run");
        if dirs.is_empty() {
            trials.push(missing(&format!("sdk::{name}"), "needs LLR_QNN_SDK_DIRS"));
        }
        for (number, dir) in dirs.iter().cloned().enumerate() {
            let goldens = Arc::clone(goldens);
            trials.push(Trial::test(format!("sdk::{number}::{name}"), move || on_sdk(&goldens[index], &dir)));
        }
    }
    trials
}

fn on_sdk(golden: &Golden, dir: &Path) -> Outcome {
    let run = run_program(golden, &[format!("--qnn_lib_dir={}", dir.display())]);
    let place = dir.display();
    if golden.name == MADE_WITH_2_49 && run.code != Some(0) {
        return match run.failed_cleanly() && run.errors()[0].contains("5000") {
            true => Ok(()),
            false => Err(format!("{place}: code {:?}, stderr {:?}", run.code, run.stderr).into()),
        };
    }
    same(format!("{place}: exit code, stderr {:?}", run.stderr), run.code, Some(0))?;
    same(format!("{place}: tokens"), &run.tokens(), &golden.generated)
}

/// The four oldest artifacts, which ExecuTorch 1.5.1 loads only as copies with a new compile spec.
fn respec_trials() -> Vec<Trial> {
    ["00e3f99401", "0d61efc21d", "1ad9d64212", "595baeef2c"]
        .map(|commit| {
            simulator(Trial::test(format!("unmodified::{commit}"), move || {
                let trace = |ending: &str| {
                    let run = cli::qnn_llama_runner([
                        format!("--model_path={}", model(&format!("qnn/{commit}.{ending}")).display()),
                        format!("--tokenizer_path={}", model("tok512.et.bin").display()),
                        "--eval_mode=1".to_owned(),
                        "--seq_len=24".to_owned(),
                        "--prompt=Once upon a time".to_owned(),
                    ]);
                    same(format!("{ending}: exit code, stderr {:?}", run.stderr), run.code, Some(0)).map(|()| run.trace)
                };
                let unmodified = trace("pte")?;
                same("tokens and logits", &unmodified, &trace("respec.pte")?)?;
                same("number of tokens", unmodified.len(), 19)
            }))
        })
        .into()
}

/// ExecuTorch's own runtime, greedy, on the exports made with 1.5.1.
fn executorch_trials() -> Vec<Trial> {
    let dir = shared().join("goldens/executorch");
    let entries = std::fs::read_dir(&dir).expect("the recorded runs");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("qnn_"))
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|file| {
            let path = dir.join(&file);
            let name = file.trim_end_matches(".json").to_owned();
            simulator(Trial::test(format!("executorch::{name}"), move || executorch(&name, &path)))
        })
        .collect()
}

fn executorch(name: &str, path: &Path) -> Outcome {
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let (prompt, ids) = (numbers(&json["prompt"]), numbers(&json["ids"]));
    let mut runner = load(&format!("qnn/{name}.pte"), "tok512.et.bin", RunnerOptions::default())?;
    let config = GenerationConfig { seq_len: ids.len(), ..GenerationConfig::default() };
    let ours = turn(&mut runner, Prompt::Tokens(&prompt), &config)?;
    same("ids", &ours.generation.tokens[..], &ids[prompt.len()..])
}
