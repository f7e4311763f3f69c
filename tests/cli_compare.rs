//! `llr compare` from outside: equal sides are equal, a difference is found where it is, and what cannot be compared is an
//! error. Where a difference is, the traces of `llama_main` say too. And `llr bench` and `llr
//! perplexity`.

mod common;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const EQUAL: i32 = 0;
const DIVERGED: i32 = 1;
const FAILED: i32 = 2;

/// A finished comparison.
struct Compared {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    json: Value,
}

impl Compared {
    #[track_caller]
    fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// The first turn of the first prompt.
    fn turn(&self) -> &Value {
        &self.json["prompts"][0]["turns"][0]
    }
}

fn compare<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Compared {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("found.json");
    let mut llr = Command::new(env!("CARGO_BIN_EXE_llr"));
    let output = llr.arg("compare").args(args).arg("--json").arg(&file).output().unwrap();
    Compared {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        json: fs::read(&file).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap()),
    }
}

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)
}

/// The trace of `llama_main` on the built-in model's prompt, from a program.
fn trace(program: &Path, more: &[&str], to: &Path) -> Vec<Value> {
    let status = Command::new(env!("CARGO_BIN_EXE_llama_main"))
        .arg("--model_path")
        .arg(program)
        .arg("--tokenizer_path")
        .arg(asset("tokenizer.json"))
        .args(["--prompt=Once upon a time", "--temperature=0", "--max_new_tokens=16"])
        .args(more)
        .arg("--trace_path")
        .arg(to)
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    fs::read_to_string(to).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Ids and logits as f32, which is what both files round to.
fn pairs(top5: &Value) -> Vec<(u64, f32)> {
    let pair = |pair: &Value| (pair[0].as_u64().unwrap(), pair[1].as_f64().unwrap() as f32);
    top5.as_array().unwrap().iter().map(pair).collect()
}

fn tokens(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn one_and_two_threads_are_the_same_bit_for_bit() {
    let args = [
        "--cpu_threads=1",
        "--cpu_threads_b=2",
        "--max_new_tokens=12",
        "--prompt=Once upon a time",
        "--prompt=One day",
    ];
    let run = compare(args).ends_with(EQUAL);
    let summary = &run.json["summary"];
    for (field, want) in
        [("prompts", 2), ("equal", 2), ("tokens_compared", 24), ("rows_hashed", 24), ("rows_same_bits", 24)]
    {
        assert_eq!(summary[field], want, "{field}: {summary}");
    }
    let turn = run.turn();
    assert_eq!((&turn["a"]["tokens"], &turn["a"]["text"]), (&turn["b"]["tokens"], &turn["b"]["text"]));
    assert!(turn["a"]["text"].as_str().unwrap().starts_with(", there was a"), "{turn}");
    assert!(turn["b"]["speed"]["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
    assert!(
        run.stdout.contains("prompt 1: \"Once upon a time\"\n")
            && run.stdout.contains("the same 12 tokens; logits bit for bit")
    );
}

#[test]
fn an_altered_weight_shows_where_the_traces_part() {
    let dir = TempDir::new().unwrap();
    let mut bytes = fs::read(asset("story.pte")).unwrap();
    let middle = bytes.len() / 2;
    // Four-bit weights, two a byte: they change their sign.
    bytes[middle..middle + 4096].iter_mut().for_each(|byte| *byte ^= 0x88);
    let altered = dir.path().join("altered.pte");
    fs::write(&altered, bytes).unwrap();
    let [of_a, of_b] = [asset("story.pte"), altered.clone()]
        .map(|program| trace(&program, &["--num_bos=1"], &dir.path().join("t.jsonl")));
    let part = of_a.iter().zip(&of_b).position(|(a, b)| a["token"] != b["token"]).expect("the weights count");

    let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let sides = [path("model_path_b", &altered), path("tokenizer_path_b", &asset("tokenizer.json"))];
    let run = compare(sides.iter().map(String::as_str).chain(["--max_new_tokens=16"])).ends_with(DIVERGED);
    let first = &run.turn()["first"];
    assert_eq!((&first["step"], &first["position"]), (&part.into(), &of_a[part]["position"]));
    for (side, trace) in [("a", &of_a), ("b", &of_b)] {
        assert_eq!(first[side]["token"], trace[part]["token"]);
        assert_eq!(pairs(&first[side]["top5"]), pairs(&trace[part]["top5"]));
    }
    // The gap is what side A's row says.
    let (own, other) = (first["a"]["token"].as_u64().unwrap(), first["b"]["token"].as_u64().unwrap());
    let largest = pairs(&first["a"]["top5"]);
    if let Some(&(_, behind)) = largest.iter().find(|&&(id, _)| id == other) {
        assert_eq!(largest[0].0, own);
        assert_eq!(first["a"]["gap"]["logits"].as_f64().unwrap() as f32, largest[0].1 - behind);
    }
    assert!(first["distance"]["largest"].as_f64().unwrap() > 0.0 && first["distance"]["kl"].as_f64().unwrap() > 0.0);
    assert!(run.stdout.contains(&format!("first divergence at step {part} (row of position ")), "{}", run.stdout);

    // Fed with side A's tokens it goes on to the end, and parts at the same step for the first time.
    let forced = compare(sides.iter().map(String::as_str).chain(["--max_new_tokens=16", "--teacher_forced"]));
    let forced = forced.ends_with(DIVERGED);
    assert_eq!((&forced.turn()["compared"], &forced.turn()["first"]["step"]), (&of_a.len().into(), &part.into()));
    // With the whole range for a gap every difference is a close call, and then there is none that counts.
    let close =
        compare(sides.iter().map(String::as_str).chain(["--max_new_tokens=16", "--max_gap=100%"])).ends_with(EQUAL);
    assert_eq!((&close.json["summary"]["close"], &close.turn()["first"]["close"]), (&1.into(), &true.into()));
}

#[test]
fn an_altered_token_of_a_recorded_run_is_found() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trace.jsonl");
    let recorded = trace(&asset("story.pte"), &["--num_bos=1"], &file);
    let against = |args: &[&str]| {
        let recorded = format!("--recorded={}", file.display());
        compare([&["--prompt=Once upon a time", recorded.as_str()], args].concat())
    };
    let run = against(&[]).ends_with(EQUAL);
    assert_eq!(run.json["summary"]["rows_same_bits"], 16);
    assert_eq!(run.turn()["farthest_where_same"]["over"], 5, "a trace has the five largest");

    let mut altered = recorded.clone();
    altered[5]["token"] = 7.into();
    let lines: Vec<String> = altered.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&file, lines.concat()).unwrap();
    let run = against(&[]).ends_with(DIVERGED);
    let first = &run.turn()["first"];
    assert_eq!((&first["step"], &first["position"]), (&5.into(), &recorded[5]["position"]));
    assert_eq!((&first["a"]["token"], &first["b"]["token"]), (&7.into(), &recorded[5]["token"]));
    for side in ["a", "b"] {
        assert_eq!(pairs(&first[side]["top5"]), pairs(&recorded[5]["top5"]));
    }
    // A run that was cut off has ended where the other goes on.
    fs::write(&file, lines[..3].concat()).unwrap();
    let whole = dir.path().join("whole.jsonl");
    fs::write(&whole, recorded.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let run = against(&[&format!("--recorded_b={}", whole.display())]).ends_with(DIVERGED);
    assert_eq!((&run.turn()["first"]["step"], &run.turn()["first"]["a"]["token"]), (&3.into(), &Value::Null));
}

#[test]
fn a_trace_says_what_was_asked_and_how_it_began() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trace.jsonl");
    let recorded = format!("--recorded={}", file.display());
    for bos in ["--num_bos=0", "--num_bos=2"] {
        trace(&asset("story.pte"), &[bos], &file);
        let run = compare([&recorded]).ends_with(EQUAL);
        assert_eq!(run.json["summary"]["rows_same_bits"], 16, "{bos}");
    }
    let other = compare([&recorded, "--prompt=Once upon a hill"]).ends_with(FAILED);
    assert!(other.stderr.contains("prompt 1, turn 1 is different tokens: from token "), "{}", other.stderr);
    // What is read is not written over.
    let before = fs::read(&file).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_llr")).args(["compare", &recorded, "--json"]).arg(&file).output();
    let output = output.unwrap();
    assert_eq!((output.status.code(), fs::read(&file).unwrap()), (Some(FAILED), before));
    assert!(String::from_utf8_lossy(&output.stderr).contains("trace.jsonl is to be read and cannot be written to"));
    // Traces of older programs do not say; what they do say is where the first token came.
    trace(&asset("story.pte"), &[], &file);
    let older = fs::read_to_string(&file).unwrap();
    let (start, end) = (older.find("\"prompt_tokens\"").unwrap(), older.find("\"position\"").unwrap());
    fs::write(&file, [&older[..start], &older[end..]].concat()).unwrap();
    compare([&recorded, "--prompt=Once upon a time"]).ends_with(EQUAL);
}

#[test]
fn what_cannot_be_compared_is_an_error_that_says_why() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("run.jsonl");
    fs::write(&file, "{\"turn\":0,\"position\":9,\"token\":1}\n").unwrap();
    let recorded = format!("--recorded={}", file.display());
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bpe.model");
    let other = format!("--tokenizer_path_b={}", other.display());
    for (args, want) in [
        (&["--prompt=a"][..], "both sides are the same"),
        (&["--eval_mode_b=7"], "side B: eval_mode 7 is none of"),
        (&["--model_path_b=missing.pte", "--tokenizer_path_b=missing.json"], "side B: "),
        (
            &["--method_name_b=missing"],
            "side B: loading the model that is built in (assets/story.pte): the file has no method missing",
        ),
        // The tokenizers differ, and that comes first.
        (&[&other], "the sides cannot be compared: prompt 1, turn 1 is different tokens: from token 1 on, "),
        (&["--recorded=missing.jsonl"], "cannot read missing.jsonl"),
        (&[&recorded], "a trace does not say what was asked"),
        (&[&recorded, "--prompt=a", "--prompt=b"], "the recorded run has turns [1], the command line prompts for [2]"),
        (&[&recorded, "--prompt=a"], "was recorded as 10 tokens, here it is 2 (--num_bos?)"),
        (&["--execution_b=compiled", "--prompt="], "a prompt is empty"),
        (&["--execution_b=compiled", "--max_gap=7"], "neither 0% to 100%"),
    ] {
        let run = compare(args).ends_with(FAILED);
        assert!(run.stderr.contains(want), "{args:?}: {}", run.stderr);
        assert_eq!((run.stdout.as_str(), &run.json), ("", &Value::Null), "{args:?}");
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn recorded_runs_of_executorch_are_met() {
    for (folder, name) in [("portable", "portable_s260k_fp32_kv"), ("xnnpack", "xnn_s260k_8da4w_emb432_kv_sdpa")] {
        let recorded = common::shared().join(format!("goldens/executorch/{name}.json"));
        let golden: Value = serde_json::from_slice(&fs::read(&recorded).unwrap()).unwrap();
        let run = compare([
            format!("--recorded={}", recorded.display()),
            format!("--model_path={}", common::model(&format!("{folder}/{name}.pte")).display()),
            format!("--tokenizer_path={}", common::model("tok512.bin").display()),
        ]);
        let run = run.ends_with(EQUAL);
        assert_eq!(tokens(&run.turn()["b"]["tokens"]), tokens(&golden["ids_prefill"])[5..]);
        let far = &run.turn()["farthest_where_same"];
        assert!(far["kl"].as_f64().is_some_and(|kl| kl < 1e-5), "whole rows are recorded: {far}");
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn a_recorded_conversation_of_the_upstream_runner_is_met() {
    let run = compare([
        format!("--recorded={}", common::shared().join("goldens/runner/cff6f4dd-m1-mt2-forced5.json").display()),
        format!("--model_path={}", common::model("qnn/ec8f0994ff.pte").display()),
        format!("--tokenizer_path={}", common::model("tok512.et.bin").display()),
    ]);
    let run = run.ends_with(EQUAL);
    let turns = run.json["prompts"][0]["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 2);
    // Recorded codes and ours stand for the same reals, whatever the SDK.
    let far = turns[0]["farthest_where_same"]["largest"].as_f64().unwrap();
    assert!(far < 1.0 && turns[0]["rows_hashed"] == 6, "{}", turns[0]);
}

#[test]
fn bench_measures_as_many_turns_as_are_asked_for() {
    let mut llr = Command::new(env!("CARGO_BIN_EXE_llr"));
    llr.args(["bench", "--prompt_tokens=9", "--max_new_tokens=4", "--repeat=2", "--json", "--execution=compiled"]);
    let output = llr.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["prompt_tokens"], &json["new_tokens"]), (&9.into(), &4.into()));
    assert_eq!((&json["cut_by_context"], &json["context_len"]), (&false.into(), &512.into()));
    assert_eq!(json["turns"].as_array().unwrap().len(), 2);
    for rate in ["prefill_tokens_per_second", "decode_tokens_per_second", "load_seconds"] {
        assert!(json[rate].as_f64().is_some_and(|rate| rate > 0.0), "{json}");
    }
}

#[test]
fn perplexity_is_low_for_the_models_own_story_and_high_for_other_words() {
    let folder = TempDir::new().unwrap();
    let llr = |args: &[&str]| {
        let mut llr = Command::new(env!("CARGO_BIN_EXE_llr"));
        llr.current_dir(&folder).arg("perplexity").args(args).output().unwrap()
    };
    let measured = |args: &[&str]| {
        let output = llr(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let story = "Once upon a time, there was a cheerful girl named Uma. She lived in a house by the sea.";
    for (name, text) in
        [("story", story.as_bytes()), ("words", b"Sea by house the girl a time was named upon, Uma once.")]
    {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let own = measured(&["--text", "story"]);
    assert_eq!((&own["stretches"], &own["stretch"]), (&1.into(), &512.into()));
    let of = |json: &Value| json["perplexity"].as_f64().unwrap();
    assert!((1.0..4.0).contains(&of(&own)), "{own}");
    assert!(of(&measured(&["--text", "words"])) > 20.0 * of(&own));
    // With less before it, each token is harder to foretell.
    let cut = measured(&["--text", "story", "--stretch", "4"]);
    assert!(cut["stretches"].as_u64() > Some(1) && of(&cut) > of(&own), "{cut}");

    fs::write(folder.path().join("bytes"), b"Once \xff").unwrap();
    fs::write(folder.path().join("nothing"), b"").unwrap();
    for (args, why) in [
        (&["--text", "nothing"][..], "nothing: 0 tokens: there is nothing to foretell"),
        (&["--text", "bytes"], "bytes: it is not UTF-8 at byte 5"),
        (&["--text", "none"], "cannot read none: No such file or directory"),
        (&["--text", "story", "--stretch", "513"], "--stretch 513 is more than the program's context of 512"),
    ] {
        let output = llr(args);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.starts_with(&format!("llr: error: {why}")), "{args:?}: {error}");
    }
}
