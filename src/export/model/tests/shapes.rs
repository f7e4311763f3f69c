use super::super::super::testing::{Extras, RandomWeights, tiny_config};
use super::super::super::{KvLayout, MethodSpec, ModelConfig};
use super::super::build;
use crate::graph::Graph;
use crate::graph::interpret::{Interpreter, Tensor};
use crate::graph::testing::assert_close;
use crate::tensor::DType;

const CONTEXT: usize = 12;
const TOKENS: [i64; 8] = [3, 1, 4, 15, 9, 2, 6, 19];

fn fixed(ar: usize, layout: KvLayout) -> MethodSpec {
    MethodSpec::Static { name: "kv_forward".into(), ar, context: CONTEXT, layout, tokens: DType::I32 }
}

fn dynamic(fused_attention: bool, full_logits: bool) -> MethodSpec {
    MethodSpec::Dynamic {
        name: "forward".into(),
        max_seq_len: CONTEXT,
        max_context_len: CONTEXT,
        full_logits,
        fused_attention,
    }
}

/// Logits of every token, one row each, through a dynamic graph in runs of the given lengths.
fn dynamic_logits(graph: &Graph, runs: &[usize]) -> Vec<Vec<f32>> {
    let mut interpreter = Interpreter::new(graph).unwrap();
    let mut rows = Vec::new();
    let mut at = 0;
    for &count in runs {
        let tokens = Tensor::integers(DType::I64, &[1, count], &TOKENS[at..at + count]);
        let start = Tensor::integers(DType::I64, &[1], [at as i64]);
        let logits = interpreter.run(&[tokens, start]).unwrap().remove(0);
        rows.extend(logits.reals().unwrap().chunks(20).map(<[f32]>::to_vec));
        at += count;
    }
    rows
}

/// Logits of every token through a static graph, with a cache outside as a runner keeps it.
fn static_logits(config: &ModelConfig, graph: &Graph, ar: usize) -> Vec<Vec<f32>> {
    let mut interpreter = Interpreter::new(graph).unwrap();
    let past = CONTEXT - ar;
    let caches = graph.inputs[3..].to_vec();
    let mut contents: Vec<Vec<f32>> =
        caches.iter().map(|&id| vec![0.0; graph.max_shape(id).iter().product()]).collect();
    let mut rows = Vec::new();
    for (block, tokens) in TOKENS.chunks(ar).enumerate() {
        let start = block * ar;
        let mut padded = tokens.to_vec();
        padded.resize(ar, 0);
        let sees = |row: usize, column: usize| match column.checked_sub(past) {
            Some(new) => new <= row,
            None => column < start,
        };
        let mask: Vec<f32> =
            (0..ar * CONTEXT).map(|i| if sees(i / CONTEXT, i % CONTEXT) { 0.0 } else { -255.0 }).collect();
        let positions: Vec<i64> = (0..ar).map(|row| (start + row).min(CONTEXT - 1) as i64).collect();
        let mut inputs = vec![
            Tensor::integers(DType::I32, &[1, ar], padded),
            Tensor::f32(&graph.max_shape(graph.inputs[1]), mask),
            Tensor::integers(DType::I32, &[1, ar], positions),
        ];
        inputs.extend(caches.iter().zip(&contents).map(|(&id, data)| Tensor::f32(&graph.max_shape(id), data.clone())));
        let outputs = interpreter.run(&inputs).unwrap();
        rows.extend(outputs[0].reals().unwrap().chunks(20).take(tokens.len()).map(<[f32]>::to_vec));
        let d = config.head_dim;
        for (slot, (cache, new)) in contents.iter_mut().zip(&outputs[1..]).enumerate() {
            let new = new.reals().unwrap();
            let is_key = slot < caches.len() / 2;
            for (index, &x) in new.iter().enumerate() {
                let (matrix, inside) = (index / (ar * d), index % (ar * d));
                let (token, element) = if is_key { (inside % ar, inside / ar) } else { (inside / d, inside % d) };
                let position = start + token;
                if position < past {
                    let place = if is_key { element * past + position } else { position * d + element };
                    cache[matrix * past * d + place] = x;
                }
            }
        }
    }
    rows
}

#[test]
fn every_shape_of_a_method_gives_the_same_logits() {
    let config = tiny_config();
    let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    let graph = |spec: MethodSpec| build(&config, &weights, &spec).unwrap();
    let need = dynamic_logits(&graph(dynamic(true, true)), &[8]);
    assert!(need.windows(2).all(|pair| pair[0] != pair[1]));
    for runs in [&[1; 8][..], &[3, 1, 4]] {
        assert_close(&dynamic_logits(&graph(dynamic(true, true)), runs), &need, "fused");
        assert_close(&dynamic_logits(&graph(dynamic(false, true)), runs), &need, "plain");
    }
    for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
        for ar in [1, 4, CONTEXT] {
            let have = static_logits(&config, &graph(fixed(ar, layout)), ar);
            assert_close(&have, &need, &format!("{layout:?} AR-{ar}"));
        }
    }
}
