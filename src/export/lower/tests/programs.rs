//! Whole models.

use super::super::portable;
use super::*;
use crate::graph::testing::{AttentionForm, Llama, RotaryForm};

/// A prompt of three tokens and steps of one and two, or runs of a fixed three.
fn runs(llama: &Llama) -> Vec<Vec<Tensor>> {
    let fixed: [(&[i64], usize); 2] = [(&[3, 1, 4], 0), (&[5, 19, 2], 3)];
    let dynamic: [(&[i64], usize); 3] = [(&[3, 1, 4], 0), (&[1], 3), (&[5, 9], 4)];
    let runs: &[_] = if llama.tokens == Some(3) { &fixed } else { &dynamic };
    runs.iter().map(|&(ids, start)| llama.inputs(ids, start)).collect()
}

#[test]
fn every_spelling_of_a_llama_runs_in_operators() {
    use AttentionForm::*;
    let default = Llama::default();
    for attention in [Plain, PositionMajor, CacheLess, MaskInput, Fused] {
        for tokens in [None, Some(3)] {
            let llama = Llama { attention, tokens, ..default.clone() };
            let graph = llama.build();
            let mut assets = Assets::default();
            let plan = portable::lower(&graph, &mut assets).unwrap_or_else(|error| panic!("{attention:?}: {error}"));
            check(&graph, &program(plan, assets), &runs(&llama), 1e-5);
        }
    }
    for rotary in [RotaryForm::Interleaved, RotaryForm::Strided, RotaryForm::Halves, RotaryForm::RotateHalf] {
        let llama = Llama { rotary, ..default.clone() };
        let graph = llama.build();
        let mut assets = Assets::default();
        let plan = portable::lower(&graph, &mut assets).unwrap();
        check(&graph, &program(plan, assets), &runs(&llama), 1e-5);
    }
}
