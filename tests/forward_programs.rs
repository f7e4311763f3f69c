//! `forward` programs on the CPU against ExecuTorch's own runs of them: compiled as a whole and instruction by
//! instruction, token by token and with the prompt in one call.

mod common;
mod forward_common;

use forward_common::{Model, STORIES, distance, golden, greedy, ids, rows};
use llama_runner::runtime::Execution;

const WAYS: [Execution; 2] = [Execution::Compiled, Execution::Instructions];

fn story(folder: &str, name: &str, execution: Execution) -> Model {
    Model::open(&common::model(&format!("{folder}/{name}.pte")), execution)
}

fn check(got: &[f32], want: &[f32], tolerance: f32, place: &str) {
    let distance = distance(got, want);
    assert!(distance <= tolerance, "{place}: {distance}");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn step_by_step_is_executorchs_run() {
    for (folder, name, tolerance) in STORIES {
        for way in WAYS {
            let (golden, mut model) = (golden(&common::shared(), name), story(folder, name, way));
            let (prompt, want) = (ids(&golden, "prompt"), ids(&golden, "ids_step1"));
            let recorded = rows(&golden, "logits_step1_first32");
            assert_eq!((want.len(), recorded.len()), (100, 8));
            let mut fed = prompt.clone();
            for position in 0..want.len() - 1 {
                let logits = model.last(&fed[position..=position], position);
                if let Some(recorded) = recorded.get(position) {
                    check(&logits, recorded, tolerance, &format!("{name}, {way:?}, step {position}"));
                }
                if fed.len() == position + 1 {
                    fed.push(greedy(&logits));
                }
            }
            assert_eq!(fed, want, "{name}, {way:?}");
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn prefill_in_one_call_is_executorchs_run() {
    for (folder, name, tolerance) in STORIES {
        for way in WAYS {
            let (golden, mut model) = (golden(&common::shared(), name), story(folder, name, way));
            let (mut fed, want) = (ids(&golden, "prompt"), ids(&golden, "ids_prefill"));
            let logits = model.forward(&fed, 0);
            let recorded = rows(&golden, "prefill_last_row_logits");
            assert_eq!(logits.len(), recorded.len(), "{name}: all rows, or the last");
            for (place, (got, want)) in logits.iter().zip(&recorded).enumerate() {
                check(got, want, tolerance, &format!("{name}, {way:?}, prefill row {place}"));
            }
            let after = rows(&golden, "logits_after_prefill_first16");
            fed.push(greedy(&logits[logits.len() - 1]));
            while fed.len() < want.len() {
                let position = fed.len() - 1;
                let logits = model.last(&fed[position..], position);
                if let Some(recorded) = after.get(fed.len() - 6) {
                    check(&logits, recorded, tolerance, &format!("{name}, {way:?}, position {position}"));
                }
                fed.push(greedy(&logits));
            }
            assert_eq!(fed, want, "{name}, {way:?}");
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn both_ways_agree_in_chunks_and_at_the_end_of_the_context() {
    for (folder, name, tolerance) in STORIES {
        let want = ids(&golden(&common::shared(), name), "ids_prefill");
        // The caches have 128 positions, a call takes up to 127 ids.
        let long: Vec<i64> = want.iter().copied().cycle().take(128).collect();
        let mut last: Vec<Vec<f32>> = Vec::new();
        for way in WAYS {
            let mut model = story(folder, name, way);
            for chunks in [vec![20], vec![7, 1, 12], vec![127, 1], vec![64, 64]] {
                let (mut position, mut logits) = (0, Vec::new());
                for chunk in chunks {
                    logits = model.last(&long[position..position + chunk], position);
                    position += chunk;
                }
                last.push(logits);
            }
            for (ids, position) in [(&long[..1], 128), (&long[..2], 127), (&long[..127], 2), (&long[..1], 1 << 40)] {
                let error = model.try_forward(ids, position).unwrap_err();
                assert!(error.chain().contains("forward"), "{}", error.chain());
            }
            // What was refused has changed nothing.
            check(&model.last(&long[127..], 127), &last[last.len() - 1], tolerance, name);
        }
        for (index, logits) in last.iter().enumerate() {
            let [same_ids, other_way] = [index ^ 1, (index + 4) % 8];
            check(logits, &last[same_ids], tolerance, &format!("{name}: cut otherwise, {index}"));
            check(logits, &last[other_way], tolerance, &format!("{name}: the other way, {index}"));
        }
    }
}

/// Whether the two largest logits are so close that rounding decides: within 1 % of the range.
fn is_close_call(row: &[f32]) -> bool {
    let mut sorted = row.to_vec();
    sorted.sort_by(f32::total_cmp);
    let (largest, second) = (sorted[sorted.len() - 1], sorted[sorted.len() - 2]);
    largest - second <= 0.01 * (largest - sorted[0])
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_chat_model_gives_executorchs_tokens_up_to_the_first_close_call() {
    const NAME: &str = "smollm2_135m_8da4w_emb432_sdpa";
    let golden = golden(&common::shared(), NAME);
    let mut equal = 0;
    let mut model = Model::open(&common::model(&format!("smollm2/{NAME}.pte")), Execution::Compiled);
    for (prompt, recorded) in golden.as_object().unwrap().iter().filter(|(_, run)| run["ids_step"].is_array()) {
        let (mut fed, want) = (ids(recorded, "prompt_ids"), ids(recorded, "ids_step"));
        let (start, mut position) = (fed.len(), 0);
        while fed.len() < start + want.len() {
            let logits = model.last(&fed[position..=position], position);
            position += 1;
            if position < fed.len() {
                continue;
            }
            let (got, want) = (greedy(&logits), want[fed.len() - start]);
            if got != want {
                assert!(is_close_call(&logits), "{prompt}: token {} is {got}, recorded is {want}", fed.len() - start);
                break;
            }
            equal += 1;
            fed.push(got);
        }
        println!("{prompt}: {} of {} tokens", fed.len() - start, want.len());
    }
    assert!(equal >= 30, "{equal} tokens");
}
