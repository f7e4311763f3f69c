//! The passes together, on a small llama in each of the spellings that exports use, and on random graphs.

use super::*;
use crate::graph::testing::{AttentionForm, Llama, RotaryForm, assert_close, random_graph, random_outputs};
use crate::graph::{CacheLayout, Int, Node, Op, ValueKind};

fn optimized(graph: &mut Graph) -> Vec<(&'static str, usize)> {
    let mut counts = Vec::new();
    standard()
        .run(graph, None, &mut |name, graph| {
            counts.push((name, graph.nodes.len()));
            Ok(())
        })
        .unwrap();
    counts
}

fn count(graph: &Graph, is: impl Fn(&Op) -> bool) -> usize {
    graph.nodes.iter().filter(|node| is(&node.op)).count()
}

#[test]
fn the_order_is_pinned() {
    assert_eq!(
        standard().names(),
        [
            "constant-fold",
            "simplify",
            "fuse-rms-norm",
            "fuse-rotary",
            "fuse-swiglu",
            "fuse-attention",
            "fuse-dynamic-quant-linear",
            "simplify-fused",
            "dead-code"
        ]
    );
}

/// Nodes of one layer after all passes: norm, three linear layers each followed by a reshape, two rotations, two cache
/// updates, attention, reshape, linear, add; norm, two linear layers, SwiGLU, linear, add.
const LAYER: usize = 1 + 6 + 2 + 2 + 1 + 3 + 6;
/// Two slices of tables, embedding; norm and linear layer at the end.
const REST: usize = 2 + 1 + 2;

#[test]
fn a_llama_in_plain_operators_becomes_fused_nodes_alone() {
    for attention in [AttentionForm::Plain, AttentionForm::PositionMajor, AttentionForm::Fused] {
        for rotary in [RotaryForm::Interleaved, RotaryForm::Strided, RotaryForm::Halves, RotaryForm::RotateHalf] {
            let llama = Llama { attention, rotary, ..Llama::default() };
            let mut graph = llama.build();
            let before = llama.logits(&graph);
            optimized(&mut graph);
            let what = format!("{attention:?} {rotary:?}\n{graph}");
            assert_close(&llama.logits(&graph), &before, &what);
            assert_eq!(graph.nodes.len(), LAYER * llama.layers + REST, "{what}");
            let layout =
                if attention == AttentionForm::Plain { CacheLayout::HeadMajor } else { CacheLayout::PositionMajor };
            for node in &graph.nodes {
                if let Op::Attention { layout: have, start, scale } = node.op {
                    assert_eq!((have, node.inputs.len()), (layout, 3), "{what}");
                    assert!(matches!(start, Int::Symbol(_)) && (scale - 0.5).abs() < 1e-6, "{what}");
                }
            }
            let masks = graph.values.iter().filter(|value| value.name == "mask").count();
            assert_eq!(masks, 0, "{what}");
        }
    }
}

#[test]
fn any_number_of_heads_may_share_a_cache() {
    for attention in [AttentionForm::Plain, AttentionForm::PositionMajor, AttentionForm::CacheLess] {
        for kv_heads in [1, 4] {
            let llama = Llama { attention, kv_heads, ..Llama::default() };
            let mut graph = llama.build();
            let before = llama.logits(&graph);
            optimized(&mut graph);
            assert_close(&llama.logits(&graph), &before, &format!("{attention:?}, {kv_heads} heads"));
            assert_eq!(count(&graph, |op| matches!(op, Op::Attention { .. })), 2, "{attention:?} {kv_heads}\n{graph}");
            assert_eq!(count(&graph, |op| matches!(op, Op::Permute { .. } | Op::MatMul { .. })), 0, "{graph}");
        }
    }
}

#[test]
fn fixed_shapes_fuse_as_well() {
    for tokens in [1, 3] {
        for attention in [AttentionForm::Plain, AttentionForm::PositionMajor] {
            let llama = Llama { attention, tokens: Some(tokens), ..Llama::default() };
            let mut graph = llama.build();
            let run = |graph: &Graph| {
                let mut interpreter = crate::graph::interpret::Interpreter::new(graph).unwrap();
                let ids: Vec<i64> = (0..tokens as i64).collect();
                let run = |start| interpreter.run(&llama.inputs(&ids, start)).unwrap()[0].reals().unwrap().to_vec();
                [0, tokens].into_iter().map(run).collect::<Vec<_>>()
            };
            let before = run(&graph);
            optimized(&mut graph);
            assert_close(&run(&graph), &before, &format!("{tokens} tokens"));
            assert_eq!(count(&graph, |op| matches!(op, Op::Attention { .. })), 2, "{tokens} tokens\n{graph}");
            assert_eq!(count(&graph, |op| matches!(op, Op::CacheUpdate { .. })), 4);
            assert_eq!(count(&graph, |op| matches!(op, Op::Rotary { .. })), 4);
            assert_eq!(count(&graph, |op| matches!(op, Op::MatMul { .. } | Op::Softmax { .. })), 0);
        }
    }
}

#[test]
fn without_a_cache_the_tokens_of_the_run_are_the_keys() {
    let llama = Llama { attention: AttentionForm::CacheLess, ..Llama::default() };
    let mut graph = llama.build();
    let before = llama.logits(&graph);
    optimized(&mut graph);
    assert_close(&llama.logits(&graph), &before, "cache-less");
    assert_eq!(count(&graph, |op| matches!(op, Op::Permute { .. })), 0, "{graph}");
    for node in graph.nodes.iter().filter(|node| matches!(node.op, Op::Attention { .. })) {
        assert!(matches!(node.op, Op::Attention { layout: CacheLayout::PositionMajor, start: Int::Const(0), .. }));
        assert_eq!(node.inputs.len(), 3);
    }
}

#[test]
fn a_mask_that_is_not_known_stays_and_is_made_once() {
    let llama = Llama { attention: AttentionForm::MaskInput, ..Llama::default() };
    let mut graph = llama.build();
    let before = llama.logits(&graph);
    assert!(before.iter().flatten().all(|x| x.is_finite()), "the guard works");
    optimized(&mut graph);
    assert_close(&llama.logits(&graph), &before, "mask input");
    assert_eq!(graph.nodes.len(), LAYER * llama.layers + REST + 1, "{graph}");
    assert_eq!(count(&graph, |op| *op == Op::Where), 1);
    let masked = |node: &&Node| matches!(node.op, Op::Attention { .. }) && node.inputs.len() == 4;
    assert_eq!(graph.nodes.iter().filter(masked).count(), 2);
}

#[test]
fn a_table_that_is_not_quite_causal_stays_a_mask() {
    for attention in [AttentionForm::Plain, AttentionForm::PositionMajor, AttentionForm::CacheLess] {
        let llama = Llama { attention, ..Llama::default() };
        let mut graph = llama.build();
        let size = llama.positions;
        for value in graph.values.iter_mut().filter(|value| value.name == "mask") {
            let ValueKind::Constant(constant) = &mut value.kind else { continue };
            let mut bytes = constant.data.to_vec();
            let width = bytes.len() / (size * size);
            // The second row does not see position 0.
            let hidden = if width == 1 { vec![0] } else { f32::NEG_INFINITY.to_le_bytes().to_vec() };
            bytes[size * width..size * width + width].copy_from_slice(&hidden);
            constant.data = crate::base::storage::Blob::from_vec(bytes);
        }
        let before = llama.logits(&graph);
        optimized(&mut graph);
        assert_close(&llama.logits(&graph), &before, "odd mask");
        let masked = |node: &&Node| matches!(node.op, Op::Attention { .. }) && node.inputs.len() == 4;
        assert_eq!(graph.nodes.iter().filter(masked).count(), 2, "{attention:?}");
    }
}

#[test]
fn quantized_layers_take_their_rounding_along() {
    let llama = Llama { quantized: true, ..Llama::default() };
    let mut graph = llama.build();
    let before = llama.logits(&graph);
    optimized(&mut graph);
    // Fused norms round differently by an ulp, which the 8-bit rounding may turn into a step.
    for (have, need) in llama.logits(&graph).iter().flatten().zip(before.iter().flatten()) {
        assert!((have - need).abs() < 0.05 * need.abs().max(1.0), "{have} {need}");
    }
    assert_eq!(count(&graph, |op| *op == Op::DynamicQuantLinear), 7 * llama.layers + 1);
    assert_eq!(graph.nodes.len(), LAYER * llama.layers + REST);
}

#[test]
fn each_pass_alone_keeps_the_results() {
    for attention in [AttentionForm::Plain, AttentionForm::PositionMajor, AttentionForm::CacheLess] {
        let llama = Llama { attention, rotary: RotaryForm::RotateHalf, layers: 1, ..Llama::default() };
        let mut graph = llama.build();
        let before = llama.logits(&graph);
        let observe = &mut |name: &'static str, graph: &Graph| {
            assert_close(&llama.logits(graph), &before, &format!("{attention:?} after {name}"));
            Ok(())
        };
        standard().run(&mut graph, None, observe).unwrap();
    }
}

#[test]
fn passes_do_their_work_once() {
    let mut graph = Llama::default().build();
    optimized(&mut graph);
    let text = graph.to_string();
    let passes: [&dyn Pass; 9] = [
        &ConstantFold,
        &Simplify::FIRST,
        &FuseRmsNorm,
        &FuseRotary,
        &FuseSwiGlu,
        &FuseAttention,
        &FuseDynamicQuantLinear,
        &Simplify::FUSED,
        &DeadCode,
    ];
    for pass in passes {
        assert_eq!(pass.run(&mut graph).unwrap(), 0, "{}", pass.name());
    }
    assert_eq!(graph.to_string(), text);
}

#[test]
fn fused_nodes_keep_the_origin_of_what_they_replace() {
    let mut graph = Llama::default().build();
    let known: Vec<String> = graph.nodes.iter().map(|node| node.origin.clone()).collect();
    optimized(&mut graph);
    assert!(graph.nodes.iter().all(|node| known.contains(&node.origin)));
}

#[test]
fn random_graphs_keep_their_results() {
    let mut removed = 0;
    for seed in 1..200 {
        let mut graph = random_graph(seed, 30);
        let before = random_outputs(&graph, seed);
        let size = graph.nodes.len();
        optimized(&mut graph);
        removed += size - graph.nodes.len();
        assert_close(&random_outputs(&graph, seed), &before, &format!("seed {seed}"));
    }
    assert!(removed > 1000, "{removed}");
}

#[test]
fn what_is_taken_apart_gives_the_same_numbers_and_fuses_again() {
    use crate::graph::testing::AttentionForm::*;
    for attention in [Plain, PositionMajor, CacheLess, MaskInput, Fused] {
        for rotary in [RotaryForm::Interleaved, RotaryForm::Halves] {
            for (kv_heads, tokens) in [(2, None), (4, None), (1, Some(3))] {
                let llama = Llama { attention, rotary, kv_heads, tokens, ..Llama::default() };
                let what = format!("{attention:?} {rotary:?} {kv_heads} {tokens:?}");
                let mut fused = llama.build();
                optimized(&mut fused);
                let need = llama.logits(&fused);
                let mut graph = fused.clone();
                PassManager::new(export_decompositions()).unwrap().run(&mut graph, None, &mut |_, _| Ok(())).unwrap();
                let fused_op = |op: &Op| matches!(op, Op::RmsNorm { .. } | Op::SwiGlu | Op::Rotary { .. });
                assert_eq!(count(&graph, fused_op), 0, "{what}");
                // Without a cache there is no number of positions to make a table of.
                let attentions = if attention == CacheLess && tokens.is_none() { llama.layers } else { 0 };
                assert_eq!(count(&graph, |op| matches!(op, Op::Attention { .. })), attentions, "{what}");
                assert_eq!(count(&graph, |op| matches!(op, Op::CacheUpdate { .. })), 0, "{what}");
                assert_close(&llama.logits(&graph), &need, &what);
                optimized(&mut graph);
                assert_close(&llama.logits(&graph), &need, &what);
                let ops = |graph: &Graph| {
                    let mut ops: Vec<_> = graph.nodes.iter().map(|node| format!("{:?}", node.op)).collect();
                    ops.sort();
                    ops
                };
                assert_eq!(ops(&graph), ops(&fused), "{what}\n{graph}");
            }
        }
    }
}

#[test]
fn what_is_quantized_is_not_taken_apart() {
    let mut graph = Llama { attention: AttentionForm::Fused, ..Llama::default() }.build();
    optimized(&mut graph);
    let encoding = crate::tensor::Encoding { scale: 0.01, zero_point: 0 };
    for node in graph.nodes.clone().iter().filter(|node| matches!(node.op, Op::RmsNorm { .. } | Op::SwiGlu)) {
        let value = graph.value_mut(node.outputs[0]);
        value.quantization = Some(crate::graph::Quantization::PerTensor { bits: 16, encoding });
    }
    for pass in [&DecomposeRmsNorm as &dyn Pass, &DecomposeSwiGlu] {
        assert_eq!(pass.run(&mut graph).unwrap(), 0, "{}", pass.name());
    }
    assert_eq!(DecomposeRotary.run(&mut graph).unwrap(), 4);
}

#[test]
fn decompositions_come_after_the_fusions_of_the_same_list() {
    let mut passes = export_decompositions();
    passes.extend([Box::new(FuseRmsNorm) as Box<dyn Pass>, Box::new(FuseAttention)]);
    let names = PassManager::new(passes).unwrap().names();
    let order = [
        "decompose-rotary",
        "decompose-swiglu",
        "fuse-rms-norm",
        "decompose-rms-norm",
        "fuse-attention",
        "decompose-attention",
    ];
    assert_eq!(names, order);
}
