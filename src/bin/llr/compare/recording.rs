//! Recorded runs, read from three kinds of files: the JSON lines of `--trace_path`, recorded runs of the upstream runner
//! (an object with `turns` of `steps`), and ids and logits from ExecuTorch's own runtime.

use super::logits::Values;
use super::prompts::{Conversation, TurnPrompt, damaged, read};
use llama_runner::Result;
use llama_runner::tokenizer::TokenId;
use serde_json::Value;
use std::path::Path;

/// A recorded conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its prompts, as far as they are recorded.
    pub conversation: Conversation,
    /// As many.
    pub turns: Vec<RecordedTurn>,
}

/// A recorded turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedTurn {
    /// What was fed, if that is recorded.
    pub prompt: Option<Vec<TokenId>>,
    /// Position of the last prompt token, if that is recorded.
    pub position: Option<usize>,
    /// What came.
    pub steps: Vec<RecordedStep>,
}

/// A recorded token.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStep {
    /// The token.
    pub token: TokenId,
    /// FNV-1a 64 of its row's bytes.
    pub hash: Option<u64>,
    /// Element type of the row.
    pub dtype: Option<String>,
    /// What is recorded of the row, as the model wrote it: of integer types, codes.
    pub row: Option<Values>,
}

/// The conversations in the file at `path`.
pub fn load(path: &Path) -> Result<Vec<Recorded>> {
    let text = read(path)?;
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    // A file of one object is not a trace of one token: that has no steps and no ids.
    let found = match serde_json::from_str::<Value>(&text) {
        Ok(json) if json["turns"].is_array() => runner(&json, name).map(|run| vec![run]),
        Ok(json) if json.is_object() && !json["token"].is_number() => executorch(&json, name),
        _ => trace(&text, name).map(|run| vec![run]),
    };
    let found = found.map_err(|why| damaged(path, why))?;
    match found.iter().flat_map(|run| &run.turns).find(|turn| turn.steps.is_empty()) {
        Some(_) => Err(damaged(path, "a turn without a token is recorded")),
        None if found.is_empty() => Err(damaged(path, "no run is recorded")),
        None => Ok(found),
    }
}

/// A line a token; turns are counted from 0. The first line of a turn has its prompt, unless an older program wrote it.
fn trace(text: &str, name: Option<String>) -> Result<Recorded, String> {
    let mut turns: Vec<RecordedTurn> = Vec::new();
    let mut asked = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |what: &str| format!("line {}: {what}", index + 1);
        let json: Value = serde_json::from_str(line).map_err(|_| bad("it is no JSON object of a token"))?;
        let turn = json["turn"].as_u64().ok_or_else(|| bad("no \"turn\" is in it"))?;
        // A turn begins where the one before it has ended.
        if turn == turns.len() as u64 {
            let position = json["position"].as_u64().and_then(|position| usize::try_from(position).ok());
            let prompt = ids(&json["prompt_tokens"]);
            asked.push(prompt.clone().map_or(TurnPrompt::Unknown, TurnPrompt::Tokens));
            turns.push(RecordedTurn { prompt, position, ..RecordedTurn::default() });
        } else if turn + 1 != turns.len() as u64 {
            return Err(bad(&format!("turn {turn} does not follow turn {}", turns.len().wrapping_sub(1))));
        }
        let step = step(&json).ok_or_else(|| bad("no \"token\" is in it"))?;
        if let Some(turn) = turns.last_mut() {
            turn.steps.push(step);
        }
    }
    let conversation = Conversation { name, turns: asked };
    if turns.is_empty() { Err("it holds no token".to_owned()) } else { Ok(Recorded { conversation, turns }) }
}

fn step(json: &Value) -> Option<RecordedStep> {
    let pairs = json["top5"].as_array().map(Vec::as_slice).unwrap_or_default();
    // What JSON cannot hold is recorded as null, and not known.
    let known = pairs.iter().filter_map(|pair| Some((pair[0].as_u64()?, pair[1].as_f64()? as f32))).collect::<Vec<_>>();
    Some(RecordedStep {
        token: json["token"].as_u64()?,
        hash: json["logits_fnv1a64"].as_str().and_then(|digits| u64::from_str_radix(digits, 16).ok()),
        dtype: json["dtype"].as_str().map(str::to_owned),
        row: (!known.is_empty()).then_some(Values::Largest(known)),
    })
}

/// A run of the upstream runner.
fn runner(json: &Value, name: Option<String>) -> Result<Recorded, String> {
    if json["usable"] == false {
        return Err("it is marked as not usable: upstream failed in this run".to_owned());
    }
    let prompts = json["prompts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut turns = Vec::new();
    let mut asked = Vec::new();
    for (index, turn) in json["turns"].as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate() {
        let bad = |what: &str| format!("turn {index}: {what}");
        let prompt = ids(&turn["prompt_tokens"]).ok_or_else(|| bad("it has no \"prompt_tokens\""))?;
        let start = turn["cur_pos"].as_u64().ok_or_else(|| bad("it has no \"cur_pos\""))? as usize;
        let steps = turn["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let steps: Vec<RecordedStep> =
            steps.iter().map(step).collect::<Option<_>>().ok_or_else(|| bad("a bad step"))?;
        let mut steps = match ids(&json["generated_tokens"][index]) {
            // Lookahead also shows rows that were only tried.
            Some(made) if !made.iter().eq(steps.iter().map(|step| &step.token)) => made.into_iter().map(bare).collect(),
            _ => steps,
        };
        // Upstream's lookahead takes all of a verified n-gram, even beyond seq_len.
        if let Some(most) = json["flags"]["seq_len"].as_u64().filter(|&most| most > 0) {
            steps.truncate((most as usize).saturating_sub(start + prompt.len()).max(1));
        }
        // With several iterations the prompts come round again.
        asked.push(match prompts.len() {
            0 => TurnPrompt::Tokens(prompt.clone()),
            count => TurnPrompt::Text(prompts[index % count].as_str().ok_or_else(|| bad("a bad prompt"))?.to_owned()),
        });
        turns.push(RecordedTurn { position: Some(start + prompt.len() - 1), prompt: Some(prompt), steps });
    }
    match turns.is_empty() {
        true => Err("no turn is recorded".to_owned()),
        false => Ok(Recorded { conversation: Conversation { name, turns: asked }, turns }),
    }
}

/// Runs of ExecuTorch's runtime: one, or an object of named ones.
fn executorch(json: &Value, name: Option<String>) -> Result<Vec<Recorded>, String> {
    if json["prompt"].is_array() {
        return ids_and_logits(json, name).map(|run| vec![run]);
    }
    let named = json.as_object().into_iter().flatten().filter(|(_, run)| run["prompt_ids"].is_array());
    let runs: Vec<Recorded> =
        named.map(|(name, run)| ids_and_logits(run, Some(name.clone()))).collect::<Result<_, _>>()?;
    if runs.is_empty() { Err("it is neither a trace nor a recorded run".to_owned()) } else { Ok(runs) }
}

fn ids_and_logits(json: &Value, name: Option<String>) -> Result<Recorded, String> {
    let prompt = ids(&json["prompt_ids"]).or_else(|| ids(&json["prompt"])).ok_or("it has no prompt's ids")?;
    let made = ["ids_prefill", "ids", "ids_step1"].into_iter().find_map(|field| ids(&json[field]));
    let made = made.ok_or("it has no ids")?;
    let made = made.strip_prefix(prompt.as_slice()).unwrap_or(&made);
    let (mut first, rest) = (rows(&json["prefill_last_row_logits"]), rows(&json["logits_after_prefill_first16"]));
    let rows = first.pop().into_iter().chain(rest).map(Some).chain(std::iter::repeat(None));
    let steps = made.iter().zip(rows).map(|(&id, row)| RecordedStep { row: row.map(Values::All), ..bare(id) });
    let position = Some(prompt.len().saturating_sub(1));
    let turn = RecordedTurn { position, prompt: Some(prompt.clone()), steps: steps.collect() };
    Ok(Recorded { conversation: Conversation { name, turns: vec![TurnPrompt::Tokens(prompt)] }, turns: vec![turn] })
}

/// The rows in `json`, however deep they lie.
fn rows(json: &Value) -> Vec<Vec<f32>> {
    let Some(mut list) = json["rows"].as_array() else { return Vec::new() };
    while let Some(inner) =
        list.first().and_then(Value::as_array).filter(|inner| inner.first().is_some_and(Value::is_array))
    {
        list = inner;
    }
    let row = |row: &Value| row.as_array()?.iter().map(|logit| logit.as_f64().map(|logit| logit as f32)).collect();
    list.iter().map_while(row).collect()
}

fn bare(token: TokenId) -> RecordedStep {
    RecordedStep { token, hash: None, dtype: None, row: None }
}

fn ids(json: &Value) -> Option<Vec<TokenId>> {
    json.as_array()?.iter().map(Value::as_u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str) -> Result<Vec<Recorded>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        std::fs::write(&path, text).unwrap();
        load(&path)
    }

    const LINE: &str = "{\"turn\":0,\"position\":4,\"row\":4,\"token\":7,\"logits_fnv1a64\":\"00000000000000ff\",\
                        \"dtype\":\"u16\",\"top5\":[[7,900],[1,null],[2,3.5]]}";

    #[test]
    fn a_trace_is_a_conversation_of_unknown_prompts() {
        let second = LINE.replace("\"turn\":0", "\"turn\":1").replace("\"position\":4", "\"position\":9");
        let run = load_text(&format!("{LINE}\n{LINE}\n{second}\n")).unwrap().pop().unwrap();
        assert_eq!(run.conversation.turns, [TurnPrompt::Unknown, TurnPrompt::Unknown]);
        assert_eq!((run.turns[0].steps.len(), run.turns[1].steps.len(), run.turns[1].position), (2, 1, Some(9)));
        let want = RecordedStep {
            token: 7,
            hash: Some(255),
            dtype: Some("u16".into()),
            row: Some(Values::Largest(vec![(7, 900.0), (2, 3.5)])),
        };
        assert_eq!(run.turns[0].steps[1], want);
        let with_prompt = LINE.replace("\"position\"", "\"prompt_tokens\":[1,5],\"position\"");
        let run = load_text(&format!("{with_prompt}\n{LINE}\n{second}\n")).unwrap().pop().unwrap();
        assert_eq!(run.conversation.turns, [TurnPrompt::Tokens(vec![1, 5]), TurnPrompt::Unknown]);
        assert_eq!((&run.turns[0].prompt, &run.turns[1].prompt), (&Some(vec![1, 5]), &None));
        // One token alone is a trace too.
        assert_eq!(load_text(LINE).unwrap()[0].turns[0].steps, [want]);
    }

    #[test]
    fn a_run_of_the_upstream_runner_brings_its_prompts() {
        let text = r#"{"prompts":["a"],"flags":{"seq_len":6},"generated_tokens":[[5,6],[7,8,9]],"turns":[
            {"cur_pos":0,"prompt_tokens":[1,2],"steps":[{"token":5},{"token":6,"dtype":"u16","top5":[[6,2]]}]},
            {"cur_pos":3,"prompt_tokens":[3],"steps":[{"token":7},{"token":0}]}]}"#;
        let run = load_text(text).unwrap().pop().unwrap();
        assert_eq!(run.conversation.turns, [TurnPrompt::Text("a".into()), TurnPrompt::Text("a".into())]);
        let tokens = |turn: usize| run.turns[turn].steps.iter().map(|step| step.token).collect::<Vec<_>>();
        // The tried row is not an answer, and what lies beyond seq_len is cut.
        assert_eq!((tokens(0), tokens(1)), (vec![5, 6], vec![7, 8]));
        assert_eq!(run.turns[0].prompt, Some(vec![1, 2]));
        assert_eq!((run.turns[0].position, run.turns[1].position), (Some(1), Some(3)));
        assert!(run.turns[0].steps[1].row.is_some());
    }

    #[test]
    fn ids_of_executorch_with_or_without_the_prompt_in_front() {
        let text = r#"{"prompt":[1,2],"ids_prefill":[1,2,3,4],"prefill_last_row_logits":{"rows":[[0.0],[0.5]]},
            "logits_after_prefill_first16":{"rows":[[[1.5]]]}}"#;
        let run = load_text(text).unwrap().pop().unwrap();
        assert_eq!(run.conversation.turns, [TurnPrompt::Tokens(vec![1, 2])]);
        let rows: Vec<_> = run.turns[0].steps.iter().map(|step| (step.token, step.row.clone())).collect();
        assert_eq!(rows, [(3, Some(Values::All(vec![0.5]))), (4, Some(Values::All(vec![1.5])))]);
        let named = r#"{"sea":{"prompt":"x","prompt_ids":[1],"ids_prefill":[9]},"how":"so"}"#;
        let runs = load_text(named).unwrap();
        assert_eq!((runs.len(), runs[0].conversation.name.as_deref()), (1, Some("sea")));
        assert_eq!(runs[0].turns[0].steps, [bare(9)]);
    }

    #[test]
    fn each_defect_is_named() {
        for (text, want) in [
            ("", "it holds no token"),
            ("{\"a\":1}", "it is neither a trace nor a recorded run"),
            ("{\"turns\":[]}", "no turn is recorded"),
            ("{\"turns\":[],\"usable\":false}", "marked as not usable"),
            ("{\"turns\":[{}]}", "turn 0: it has no \"prompt_tokens\""),
            ("{\"turns\":[{\"prompt_tokens\":[1],\"cur_pos\":0}]}", "a turn without a token"),
            ("not json", "line 1: it is no JSON object"),
            ("{\"turn\":1,\"token\":2}\n{}", "line 1: turn 1 does not follow"),
            ("{\"turn\":0}\n{}", "line 1: no \"token\" is in it"),
            ("{\"prompt\":[1]}", "it has no ids"),
        ] {
            let error = load_text(text).unwrap_err();
            assert!(error.chain().contains("run.json: ") && error.chain().contains(want), "{text}: {}", error.chain());
        }
    }
}
