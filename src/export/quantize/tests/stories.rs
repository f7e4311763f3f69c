//! The story model, with its real weights.

use super::*;
use crate::export::checkpoint::{Checkpoint, Source};
use crate::export::quantize::{EmbeddingFormat, QuantizeError, Windows, bytes_by_kind, compare_static, perplexity};
use crate::graph::interpret::Interpreter;

const CONTEXT: usize = 32;

fn stories() -> Checkpoint {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/models/stories260K.bin");
    Checkpoint::open(&Source { checkpoint: path.into(), params: None, scratch: None }).unwrap()
}

fn dynamic_graph(weights: &Checkpoint) -> Graph {
    let spec = MethodSpec::Dynamic {
        name: "forward".into(),
        max_seq_len: 128,
        max_context_len: 128,
        full_logits: true,
        fused_attention: true,
    };
    model::build(weights.config(), weights, &spec).unwrap()
}

fn whole_graph(weights: &Checkpoint, context: usize) -> Graph {
    static_graph(weights.config(), weights, Shape { ar: context, context, layout: KvLayout::PerLayer })
}

/// BOS and the most likely tokens after it, as many as a whole-context graph takes, or `most`.
fn greedy(graph: &Graph, most: usize) -> Vec<u64> {
    let windows = Windows::new(graph).unwrap();
    let mut interpreter = Interpreter::new(graph).unwrap();
    let mut text = vec![1u64];
    while text.len() < windows.size().min(most) {
        let mut window = text.clone();
        window.resize(windows.size(), 0);
        let logits = windows.run(&mut interpreter, &window, &mut |_, _| {}).unwrap();
        let vocab = logits.len() / windows.size();
        let row = &logits[(text.len() - 1) * vocab..][..vocab];
        text.push((0..vocab).fold(0, |best, next| if row[next] > row[best] { next } else { best }) as u64);
    }
    text
}

/// What the float model tells.
fn story(weights: &Checkpoint) -> Vec<u64> {
    greedy(&whole_graph(weights, 64), 64)
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn static_16a4w_with_8_bit_caches_tells_the_float_story() {
    let weights = stories();
    let config = weights.config().clone();
    let text = story(&weights);
    let calibration = calibrate(&config, &weights, CONTEXT, &text);
    for embedding in [None, Some(EmbeddingFormat::Blockwise { bits: 4, block: 32 })] {
        for layout in [KvLayout::PerLayer, KvLayout::PerHead] {
            let shape = Shape { ar: CONTEXT, context: CONTEXT, layout };
            let mut recipe = Recipe::named("16a4w", &config).unwrap();
            recipe.embedding = embedding.unwrap_or(recipe.embedding);
            let mut quantized = static_graph(&config, &weights, shape);
            run_passes(&mut quantized, &recipe, &calibration);
            assert_eq!(greedy(&quantized, 21), text[..21], "{embedding:?} {layout:?}");
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn report_of_a_static_graph_has_its_layers_and_both_perplexities() {
    let weights = stories();
    let config = weights.config().clone();
    let text = story(&weights);
    let calibration = calibrate(&config, &weights, CONTEXT, &text);
    let shape = Shape { ar: CONTEXT, context: CONTEXT, layout: KvLayout::PerLayer };
    let float = static_graph(&config, &weights, shape);
    let mut quantized = static_graph(&config, &weights, shape);
    run_passes(&mut quantized, &Recipe::named("16a8w", &config).unwrap(), &calibration);
    let (layers, perplexity) = compare_static(&float, &quantized, &text).unwrap();
    assert_eq!(layers.len(), config.layers * 9 + 1);
    assert!(layers.iter().all(|layer| layer.sqnr > 15.0 && layer.sqnr < 120.0), "{layers:?}");
    assert!((perplexity.quantized / perplexity.float - 1.0).abs() < 0.05, "{perplexity:?}");
    let (float, quantized) = (bytes_by_kind(&float), bytes_by_kind(&quantized));
    assert!(quantized.values().sum::<u64>() * 3 < float.values().sum::<u64>(), "{quantized:?} of {float:?}");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn perplexity_hardly_grows_with_8da4w_and_least_with_moments() {
    let weights = stories();
    let config = weights.config().clone();
    let float = dynamic_graph(&weights);
    let text = story(&weights);
    let float_perplexity = perplexity(&float, &text).unwrap();
    let recipe = Recipe {
        embedding: EmbeddingFormat::Blockwise { bits: 4, block: 32 },
        linear: Some(crate::export::quantize::WeightFormat::blockwise_4(4 * 8)),
        // 172 columns are no whole blocks.
        rules: vec![crate::export::quantize::LinearRule::everywhere(
            "feed_forward.down",
            crate::export::quantize::WeightFormat::per_channel(8),
        )],
        ..Recipe::named("8da4w", &config).unwrap()
    };
    let quantized = |store: CodeStore| {
        let setup = Setup { recipe: recipe.clone(), calibration: Arc::default(), store: Arc::new(store) };
        let mut graph = dynamic_graph(&weights);
        PassManager::new(for_setup(&setup)).unwrap().run(&mut graph, None, &mut |_, _| Ok(())).unwrap();
        perplexity(&graph, &text).unwrap()
    };
    let plain = quantized(CodeStore::in_memory());
    let store = Arc::new(CodeStore::in_memory());
    let spec = MethodSpec::Static {
        name: "calibration".into(),
        ar: 40,
        context: 40,
        layout: KvLayout::PerLayer,
        tokens: DType::I64,
    };
    let calibration = model::build(&config, &weights, &spec).unwrap();
    crate::export::quantize::quantize_layerwise(calibration, &text, &recipe, &store, &mut |_, _| Ok(())).unwrap();
    let fed = quantized(Arc::into_inner(store).unwrap());
    assert!(plain < 1.5 * float_perplexity && fed < plain, "{float_perplexity}: {plain}, {fed}");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn text_that_does_not_fit_is_refused() {
    let weights = stories();
    let graph = dynamic_graph(&weights);
    let error = perplexity(&graph, &[1, 512]).unwrap_err();
    assert_eq!(error.find(), Some(&QuantizeError::Token { place: 1, token: 512, vocab: 512 }));
    assert_eq!(perplexity(&graph, &[1]).unwrap_err().find(), Some(&QuantizeError::TooFewTokens { have: 1, need: 2 }));
    assert!(perplexity(&graph, &[1; 200]).is_err(), "longer than the context");
}
