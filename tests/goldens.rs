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
use golden::{Golden, Step, Turn, numbers};
use libtest_mimic::{Arguments, Failed, Trial};
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::runner::{GenerationConfig, Prompt, Runner, RunnerOptions};
use llama_runner::tokenizer;
use serde_json::Value;
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
            (true, true) if golden.greedy() => trials.push(trial("run", run)),
            (true, true) => trials.push(trial("sampled", sampled)),
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

/// Positions, every token, every row's hash and five largest.
fn same_steps(golden: &Golden, run: &Run) -> Outcome {
    for (number, recorded) in golden.turns.iter().enumerate() {
        let place = format!("turn {number}");
        let lines: Vec<&Value> = run.trace.iter().filter(|line| line["turn"] == number).collect();
        let ours: Vec<Step> = lines.iter().map(|line| Step::read(line)).collect();
        for (index, (our, their)) in ours.iter().zip(&recorded.steps).enumerate() {
            same_step(&format!("{place}, step {index}"), our, their)?;
        }
        same(format!("{place}, steps"), ours.len(), recorded.steps.len())?;
        same(
            format!("{place}, row of the prefill"),
            ours.first().map(|step| step.row),
            recorded.steps.first().map(|step| step.row),
        )?;
        let end_of_prompt = recorded.position + recorded.prompt_tokens.len() as u64 - 1;
        same(
            format!("{place}, position"),
            lines.first().and_then(|line| line["position"].as_u64()),
            Some(end_of_prompt),
        )?;
    }
    Ok(())
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

/// Tokens, logits, files and streams of the program. Lookahead guesses with other n-grams than upstream's, so only its
/// answer must be the same.
fn run(golden: &Golden, _: &[Golden]) -> Outcome {
    let run = run_program(golden, &[]);
    same(format!("exit code, stderr {:?}", run.stderr), run.code, Some(0))?;
    same("tokens", &run.tokens(), &answers(golden))?;
    let reports = counts(&run.stdout);
    match golden.int("eval_mode") == Some(2) {
        true => same("reports", reports.len(), golden.turns.len())?,
        false => {
            same_steps(golden, &run)?;
            same("counts", reports, golden.turns.iter().map(Turn::counts).collect())?;
        }
    }
    same_output(golden, run.output.as_ref())?;
    let speed = run.speed.as_deref().and_then(|text| text.parse::<f64>().ok());
    match speed {
        Some(speed) if speed.is_finite() && speed > 0.0 => Ok(()),
        _ => Err(format!("performance file: {:?}", run.speed).into()),
    }
}

/// Above temperature 0 the first row of logits is still the same, whatever is drawn from it.
fn sampled(golden: &Golden, _: &[Golden]) -> Outcome {
    let run = run_program(golden, &[]);
    let recorded = &golden.turns[0];
    same("number of tokens", run.trace.len(), recorded.steps.len())?;
    match sdk_of_the_recordings() {
        true => same("hash of the first logits", Step::read(&run.trace[0]).hash, recorded.steps[0].hash.clone()),
        false => Ok(()),
    }
}

/// Numbers of prompt and generated tokens of each turn, as the report lines say.
fn counts(stdout: &str) -> Vec<(u64, u64)> {
    let reports = stdout.lines().filter_map(|line| line.strip_prefix("PyTorchObserver "));
    let number = |json: &Value, key: &str| json[key].as_u64().expect("a count");
    reports
        .map(|report| serde_json::from_str(report).expect("a report is JSON"))
        .map(|json: Value| (number(&json, "prompt_tokens"), number(&json, "generated_tokens")))
        .collect()
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
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let (prompt, ids) = (numbers(&json["prompt"]), numbers(&json["ids"]));
    let program = ProgramOptions { qnn_lib_dir: qnn_lib_dir(), ..ProgramOptions::default() };
    let module = builtin::open_program(&model(&format!("qnn/{name}.pte")), &program)?;
    let mut runner = Runner::load(module, tokenizer::load(&model("tok512.et.bin"))?, RunnerOptions::default())?;
    let config = GenerationConfig { seq_len: ids.len(), ..GenerationConfig::default() };
    let ours = runner.generate(Prompt::Tokens(&prompt), &config, &mut |_| ControlFlow::Continue(()))?;
    same("ids", &ours.tokens[..], &ids[prompt.len()..])
}
