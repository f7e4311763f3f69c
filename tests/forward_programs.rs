//! `forward` programs on the CPU against ExecuTorch's own runs of them: compiled as a whole and instruction by
//! instruction, token by token and with the prompt in one call.

mod common;
mod forward_common;

use forward_common::{Model, STORIES, distance, golden, greedy, ids, is_choice, rows};
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
            assert_eq!((want.len(), recorded.len(), &want[..prompt.len()]), (100, 8, &prompt[..]));
            for position in 0..want.len() - 1 {
                let place = format!("{name}, {way:?}, step {position}");
                let logits = model.last(&want[position..=position], position);
                if let Some(recorded) = recorded.get(position) {
                    check(&logits, recorded, tolerance, &place);
                }
                if position + 1 >= prompt.len() {
                    assert_eq!(greedy(&logits), want[position + 1], "{place}");
                }
            }
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn prefill_in_one_call_is_executorchs_run() {
    for (folder, name, tolerance) in STORIES {
        for way in WAYS {
            let (golden, mut model) = (golden(&common::shared(), name), story(folder, name, way));
            let (prompt, want) = (ids(&golden, "prompt"), ids(&golden, "ids_prefill"));
            let mut logits = model.forward(&prompt, 0);
            let recorded = rows(&golden, "prefill_last_row_logits");
            assert_eq!(logits.len(), recorded.len(), "{name}: all rows, or the last");
            for (place, (got, want)) in logits.iter().zip(&recorded).enumerate() {
                check(got, want, tolerance, &format!("{name}, {way:?}, prefill row {place}"));
            }
            let after = rows(&golden, "logits_after_prefill_first16");
            let mut last = logits.pop().unwrap();
            for position in prompt.len()..want.len() {
                let place = format!("{name}, {way:?}, position {position}");
                assert_eq!(greedy(&last), want[position], "{place}");
                last = model.last(&want[position..=position], position);
                if let Some(recorded) = after.get(position - prompt.len()) {
                    check(&last, recorded, tolerance, &place);
                }
            }
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn both_ways_generate_the_same_tokens() {
    for (folder, name, _) in STORIES {
        let prompt = ids(&golden(&common::shared(), name), "prompt");
        let [compiled, instructions] = WAYS.map(|way| {
            let (mut model, mut fed) = (story(folder, name, way), prompt.clone());
            let mut last = model.last(&fed, 0);
            while fed.len() < 110 {
                fed.push(greedy(&last));
                last = model.last(&fed[fed.len() - 1..], fed.len() - 1);
            }
            fed
        });
        assert_eq!(compiled, instructions, "{name}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn both_ways_agree_in_chunks_and_at_the_end_of_the_context() {
    for (folder, name, tolerance) in STORIES {
        let want = ids(&golden(&common::shared(), name), "ids_prefill");
        // Only one of the ways sums attention over many keys in splits; the last bit decides between two codes.
        let way_tolerance = if tolerance > 1e-3 { 2e-2 } else { tolerance };
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
            check(logits, &last[other_way], way_tolerance, &format!("{name}: the other way, {index}"));
        }
    }
}

/// Rounding is amplified by the 211 layers that quantize their input: ExecuTorch with another BLAS under its attention than
/// when the runs were recorded gives 94 % of these tokens, the others up to 2.2 % of the range behind its choice.
#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_chat_model_gives_executorchs_tokens_but_for_close_calls() {
    const NAME: &str = "smollm2_135m_8da4w_emb432_sdpa";
    let golden = golden(&common::shared(), NAME);
    let (mut same, mut all) = (0, 0);
    let mut model = Model::open(&common::model(&format!("smollm2/{NAME}.pte")), Execution::Compiled);
    for (name, run) in golden.as_object().unwrap().iter().filter(|(_, run)| run["ids_step"].is_array()) {
        let (prompt, want) = (ids(run, "prompt_ids"), ids(run, "ids_step"));
        let fed: Vec<i64> = prompt.iter().chain(&want).copied().collect();
        for position in 0..fed.len() - 1 {
            let logits = model.last(&fed[position..=position], position);
            if position + 1 < prompt.len() {
                continue;
            }
            let want = fed[position + 1];
            assert!(is_choice(&logits, want, 0.025), "{name}: {} where {want} was recorded", greedy(&logits));
            (same, all) = (same + usize::from(greedy(&logits) == want), all + 1);
        }
    }
    println!("{same} of {all} tokens");
    assert!(all >= 50 && same * 10 >= all * 9, "{same} of {all} tokens");
}
