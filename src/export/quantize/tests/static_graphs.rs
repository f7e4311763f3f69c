//! Static graphs with encodings everywhere.

use super::*;
use crate::export::quantize::{CodeType, EmbeddingFormat, Encodings, QuantizeError};
use crate::export::testing::{tiny_config, tiny_wide_config};
use crate::graph::{BinaryOp, Op, Quantization, ValueKind};

const TEXT: [u64; 12] = [1, 5, 9, 13, 17, 2, 4, 6, 8, 10, 19, 0];

fn layouts() -> [Shape; 4] {
    let shape = |ar, layout| Shape { ar, context: 6, layout };
    [
        shape(1, KvLayout::PerLayer),
        shape(2, KvLayout::PerHead),
        shape(6, KvLayout::PerLayer),
        shape(6, KvLayout::PerHead),
    ]
}

fn encoding_of(graph: &Graph, name: &str) -> (u8, crate::tensor::Encoding) {
    let value = graph.values.iter().find(|value| value.name == name).unwrap_or_else(|| panic!("{name}"));
    match value.quantization {
        Some(Quantization::PerTensor { bits, encoding }) => (bits, encoding),
        ref other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn every_value_of_every_recipe_and_layout_is_encoded() {
    for config in [tiny_config(), tiny_wide_config()] {
        let extras = if config.architecture == "qwen3" { Extras::ALL } else { Extras::NONE };
        let weights = RandomWeights::new(&config, DType::F32, extras);
        let calibration = calibrate(&config, &weights, 6, &TEXT);
        for name in ["16a4w", "16a8w", "8a8w"] {
            for embedding in [None, Some(EmbeddingFormat::Blockwise { bits: 4, block: 8 })] {
                let mut recipe = Recipe::named(name, &config).unwrap();
                recipe.embedding = embedding.unwrap_or(recipe.embedding);
                for shape in layouts() {
                    let mut graph = static_graph(&config, &weights, shape);
                    run_passes(&mut graph, &recipe, &calibration);
                    check_encoded(&graph, &recipe);
                }
            }
        }
    }
}

fn check_encoded(graph: &Graph, recipe: &Recipe) {
    let on_cpu = matches!(recipe.embedding, EmbeddingFormat::Blockwise { .. });
    for value in &graph.values {
        let (encoded, name) = (matches!(value.quantization, Some(Quantization::PerTensor { .. })), &value.name);
        match value.kind {
            _ if ["tokens", "input_pos"].contains(&&name[..]) => assert_eq!(value.quantization, None, "{name}"),
            _ if name == "embedding.rows" && on_cpu => assert_eq!(value.dtype, DType::F32),
            ValueKind::Computed | ValueKind::Input(_) => assert!(encoded, "{}: {name}", recipe.name),
            _ => assert!(value.quantization.is_some() || name.ends_with(".bias"), "{}: {name}", recipe.name),
        }
    }
}

#[test]
fn keys_and_values_share_an_encoding_with_the_cache_and_across_graphs() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let calibration = calibrate(&config, &weights, 6, &TEXT);
    for (name, bits) in [("16a4w", 8), ("16a4w", 16), ("16a8w", 16), ("8a8w", 8)] {
        let recipe = Recipe { kv_bits: bits, ..Recipe::named(name, &config).unwrap() };
        let mut seen = Vec::new();
        for shape in layouts() {
            let mut graph = static_graph(&config, &weights, shape);
            run_passes(&mut graph, &recipe, &calibration);
            for cache in ["k", "v"] {
                let of = |value: &&crate::graph::Value| {
                    value.name.starts_with(&format!("{cache}_new.1"))
                        || value.name.starts_with(&format!("{cache}_cache.1"))
                };
                let all: Vec<_> = graph.values.iter().filter(of).map(|value| value.quantization.clone()).collect();
                assert!(!all.is_empty());
                seen.extend(all.into_iter().map(|quantization| (cache, quantization)));
            }
        }
        for cache in ["k", "v"] {
            let mut all = seen.iter().filter(|(name, _)| *name == cache).map(|(_, quantization)| quantization);
            let first = all.next().unwrap();
            assert!(all.all(|other| other == first), "{name} {bits} {cache}: {seen:?}");
            let Some(Quantization::PerTensor { bits: have, encoding }) = first else { panic!("{first:?}") };
            assert_eq!(*have, bits);
            assert!(bits == 16 || encoding.zero_point == 128);
        }
    }
}

#[test]
fn mask_softmax_and_logits_have_the_encodings_their_users_expect() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let calibration = calibrate(&config, &weights, 6, &TEXT);
    for (name, max) in [("16a4w", 65_535), ("8a8w", 255)] {
        let mut graph = static_graph(&config, &weights, layouts()[0]);
        run_passes(&mut graph, &Recipe::named(name, &config).unwrap(), &calibration);
        let (_, mask) = encoding_of(&graph, "atten_mask");
        assert_eq!((mask.scale, mask.zero_point), (255.0 / max as f32, max));
        let (_, weights) = encoding_of(&graph, "layers.0.attention.weights");
        assert_eq!((weights.scale, weights.zero_point), (1.0 / max as f32, 0));
        assert_eq!(encoding_of(&graph, "logits").0, 16);
        let encodings = Encodings::of(&graph);
        assert_eq!(Encodings::from_json(&encodings.to_json()).unwrap(), encodings);
    }
}

#[test]
fn scalars_become_constants_that_stand_for_them_exactly() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let calibration = calibrate(&config, &weights, 6, &TEXT);
    let mut graph = static_graph(&config, &weights, layouts()[0]);
    run_passes(&mut graph, &Recipe::named("16a4w", &config).unwrap(), &calibration);
    let scale = graph.values.iter().find(|value| value.name == "attention.scale.codes").unwrap();
    let ValueKind::Constant(codes) = &scale.kind else { panic!("{:?}", scale.kind) };
    let Some(Quantization::PerTensor { encoding, .. }) = scale.quantization else { panic!() };
    let code = u16::from_le_bytes(codes.data[..].try_into().unwrap());
    assert!((encoding.dequantize(code.into()) - 0.5).abs() < 1e-6);
}

#[test]
fn scalar_that_is_a_tensor_is_named_with_its_shape() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let calibration = calibrate(&config, &weights, 6, &TEXT);
    let mut graph = static_graph(&config, &weights, layouts()[0]);
    let scale = graph.values.iter().position(|value| value.name == "attention.scale").unwrap();
    graph.values[scale].shape = vec![4.into()];
    graph.values[scale].kind =
        ValueKind::Constant(crate::graph::Constant { data: crate::graph::testing::f32_blob(&[0.5; 4]) });
    let setup = Setup {
        recipe: Recipe::named("16a4w", &config).unwrap(),
        calibration,
        store: Arc::new(CodeStore::in_memory()),
    };
    let error = PassManager::new(for_setup(&setup)).unwrap().run(&mut graph, None, &mut |_, _| Ok(())).unwrap_err();
    let text = error.chain();
    assert!(text.contains("attention.scale should be a scalar, but is a tensor of shape [4]"), "{text}");
    assert!(matches!(error.find(), Some(QuantizeError::NotScalar { .. })));
}

#[test]
fn unsupported_operations_and_unseen_values_are_named() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let annotate = |graph: &mut Graph, calibration: Arc<Calibration>| {
        let recipe = Recipe { linear: None, ..Recipe::named("16a4w", &config).unwrap() };
        let recipe = Recipe { rules: Vec::new(), ..recipe };
        let pass =
            crate::export::quantize::passes::Annotate { recipe, calibration, store: Arc::new(CodeStore::in_memory()) };
        pass.run(graph).unwrap_err().chain()
    };
    let mut graph = static_graph(&config, &weights, layouts()[0]);
    let text = annotate(&mut graph, Arc::default());
    assert_eq!(text, "layers.0.attention.query: FullyConnected has no quantized form");
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, vec![2.into()]);
    let y = graph.emit("y", Op::Binary(BinaryOp::Add), &[x, x], DType::F32, vec![2.into()]);
    graph.outputs.push(y);
    assert_eq!(annotate(&mut graph, Arc::default()), "the calibration has no range for x");
}

#[test]
fn quantized_graphs_compute_what_the_float_graph_does() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let calibration = calibrate(&config, &weights, 6, &TEXT);
    let shape = Shape { ar: 6, context: 6, layout: KvLayout::PerLayer };
    let logits = |graph: &Graph| {
        let windows = crate::export::quantize::Windows::new(graph).unwrap();
        let mut interpreter = crate::graph::interpret::Interpreter::new(graph).unwrap();
        windows.run(&mut interpreter, &TEXT[..6], &mut |_, _| {}).unwrap()
    };
    let float = logits(&static_graph(&config, &weights, shape));
    for (name, least) in [("16a8w", 30.0), ("16a4w", 10.0), ("8a8w", 8.0)] {
        let mut graph = static_graph(&config, &weights, shape);
        run_passes(&mut graph, &Recipe::named(name, &config).unwrap(), &calibration);
        let quantized = logits(&graph);
        let square = |x: f32| f64::from(x * x);
        let noise: f64 = float.iter().zip(&quantized).map(|(a, b)| square(a - b)).sum();
        let sqnr = 10.0 * (float.iter().map(|&x| square(x)).sum::<f64>() / noise).log10();
        assert!(sqnr > least, "{name}: {sqnr} dB");
    }
}

#[test]
fn codes_of_caches_in_float_graphs_are_at_the_border_only() {
    let config = tiny_config();
    let weights = random_weights(&config);
    let calibration = calibrate(&config, &weights, 6, &TEXT);
    for shape in layouts() {
        for bits in [8, 16] {
            let mut graph = static_graph(&config, &weights, shape);
            let recipe = Recipe { kv_bits: bits, ..Recipe::none() };
            run_passes(&mut graph, &recipe, &calibration);
            let codes = recipe.kv_codes().unwrap().unwrap();
            let caches = graph.values.iter().filter(|value| value.quantization.is_some());
            let names: Vec<&str> = caches.clone().map(|value| &value.name[..]).collect();
            let heads = if shape.layout == KvLayout::PerHead { config.kv_heads } else { 1 };
            let past = usize::from(shape.ar < shape.context);
            assert_eq!(names.len(), config.layers * heads * 2 * (1 + past), "{names:?}");
            let of_layer_0 = caches.filter(|value| value.name.starts_with("k_") && value.name[..].contains(".0"));
            let mut encodings: Vec<_> = of_layer_0
                .filter(|value| value.name.split('.').nth(1) == Some("0"))
                .map(|value| value.quantization.clone())
                .collect();
            encodings.dedup();
            assert_eq!(encodings.len(), 1, "one encoding a layer");
            assert!(graph.values.iter().all(|v| v.quantization.is_none() || v.dtype == CodeType::dtype(codes)));
        }
    }
}
