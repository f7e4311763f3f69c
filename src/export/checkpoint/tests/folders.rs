//! Hugging Face folders, safetensors, llama2.c, and how files are found.

use super::files::{PARAMS, config_json, element, folder, put, safetensors, tiny, weights, with_header};
use super::*;
use crate::error::Status;
use crate::export::checkpoint::naming::Naming::{HuggingFace, Meta};
use crate::export::{LayerWeight, Llama3Scaling, RopeScaling};
use crate::graph::RotaryStyle;
use crate::tensor::DType;

/// The error of the tiny model with other fields in its description.
fn refused(fields: &str) -> Error {
    open_at(folder(&config_json(fields), &weights(HuggingFace)).path()).unwrap_err()
}

fn scaling(fields: &str) -> RopeScaling {
    open_at(folder(&config_json(fields), &weights(HuggingFace)).path()).unwrap().config().rope.scaling
}

#[test]
fn folder_of_config_and_safetensors_opens() {
    let folder = folder(&config_json(r#""rope_theta": 5e5"#), &weights(HuggingFace));
    put(folder.path(), "generation_config.json", r#"{"eos_token_id": [3, 4]}"#);
    let checkpoint = open_at(folder.path()).unwrap();
    let mut expected = ModelConfig { eos_ids: vec![3, 4], ..tiny() };
    expected.rope.theta = 5e5;
    assert_eq!(checkpoint.config(), &expected);
    for (number, role) in [(0, WeightRole::TokenEmbedding), (2, WeightRole::OutputHead)] {
        assert_eq!(reals(&checkpoint, role)[5], element(number, 5));
    }
    assert_eq!(checkpoint.totals().tensors, 12);
    assert_eq!(open_at(folder.path().join("model.safetensors")).unwrap().config(), checkpoint.config());
}

#[test]
fn shards_of_an_index_are_one_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "config.json", config_json(""));
    let all = weights(HuggingFace);
    let (first, second) = all.split_at(5);
    put(folder.path(), "a.safetensors", safetensors(first, 0));
    put(folder.path(), "b.safetensors", safetensors(second, 0));
    let map = |all: &[(String, Vec<usize>)], file: &str| {
        all.iter().map(|(name, _)| format!("{name:?}: {file:?}")).collect::<Vec<_>>().join(",")
    };
    let index =
        |second_file| format!(r#"{{"weight_map": {{{}, {}}}}}"#, map(first, "a.safetensors"), map(second, second_file));
    put(folder.path(), "model.safetensors.index.json", index("b.safetensors"));
    let checkpoint = open_at(folder.path()).unwrap();
    assert_eq!(reals(&checkpoint, WeightRole::Layer(0, LayerWeight::Down))[1], element(6, 1));

    for outside in ["../b.safetensors", "/b.safetensors", "x/b.safetensors", "..", ""] {
        put(folder.path(), "model.safetensors.index.json", index(outside));
        let error = open_at(folder.path()).unwrap_err();
        assert!(matches!(defect(&error), CheckpointError::ShardName { .. }), "{outside}: {error:?}");
    }
    put(folder.path(), "b.safetensors", safetensors(&all[4..], 0));
    put(folder.path(), "model.safetensors.index.json", index("b.safetensors"));
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::DuplicateTensor { .. }), "{error:?}");
}

#[test]
fn misaligned_tensors_are_copied_to_where_they_can_be_read() {
    let folder = folder(&config_json(""), &weights(HuggingFace));
    put(folder.path(), "model.safetensors", safetensors(&weights(HuggingFace), 1));
    let checkpoint = open_at(folder.path()).unwrap();
    let weight = checkpoint.weight(WeightRole::FinalNorm).unwrap().unwrap();
    assert_eq!((weight.dtype, weight.data.as_ptr().addr() % 4), (DType::F32, 0));
    assert_eq!(reals(&checkpoint, WeightRole::FinalNorm), (0..8).map(|i| element(1, i)).collect::<Vec<_>>());
    let again = checkpoint.weight(WeightRole::FinalNorm).unwrap().unwrap();
    assert!(weight.data.same_place(&again.data));
}

#[test]
fn scratch_folder_that_is_missing_fails_only_who_needs_it() {
    let folder = folder(&config_json(""), &weights(HuggingFace));
    let missing = Some(folder.path().join("missing"));
    let source = Source { checkpoint: folder.path().into(), scratch: missing, params: None };
    assert!(Checkpoint::open(&source).unwrap().weight(WeightRole::FinalNorm).is_ok());
    put(folder.path(), "model.safetensors", safetensors(&weights(HuggingFace), 1));
    let error = Checkpoint::open(&source).unwrap().weight(WeightRole::FinalNorm).unwrap_err();
    assert_eq!(error.status(), Status::AccessFailed);
}

#[test]
fn tied_head_is_absent_even_where_the_file_has_one() {
    let tied = open_at(folder(&config_json(r#""tie_word_embeddings": true"#), &weights(HuggingFace)).path()).unwrap();
    assert!(tied.weight(WeightRole::OutputHead).unwrap().is_none());
    let mut headless = weights(HuggingFace);
    headless.remove(2);
    assert!(open_at(folder(&config_json(""), &headless).path()).is_ok());
    let error = open_at(folder(&config_json(r#""tie_word_embeddings": false"#), &headless).path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::MissingTensor { name } if name == "lm_head.weight"), "{error:?}");
}

#[test]
fn rope_scalings_of_both_spellings_are_read() {
    let llama3 = r#"{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_theta": 10000.0}"#;
    let expected =
        Llama3Scaling { factor: 32.0, low_frequency_factor: 1.0, high_frequency_factor: 4.0, original_context: 8192 };
    assert_eq!(scaling(&format!(r#""rope_scaling": {llama3}"#)), RopeScaling::Llama3(expected));
    assert_eq!(scaling(&format!(r#""rope_parameters": {llama3}"#)), RopeScaling::Llama3(expected));
    let linear = r#""rope_scaling": {"type": "linear", "factor": 2}"#;
    assert_eq!(scaling(linear), RopeScaling::Linear { factor: 2.0 });
    assert_eq!(scaling(r#""rope_scaling": null"#), RopeScaling::None);
}

#[test]
fn rope_scalings_that_cannot_be_are_refused_with_what_is_wrong() {
    let llama3 = |change: &str| {
        let usual = r#""low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192"#;
        let name = change.split(':').next().unwrap();
        let rest = usual.split(", ").filter(|field| !field.starts_with(name)).collect::<Vec<_>>().join(", ");
        let factor = if name.contains("\"factor") { "" } else { r#""factor": 8, "# };
        format!(r#""rope_scaling": {{"rope_type": "llama3", {factor}{rest}, {change}}}"#)
    };
    for (fields, words) in [
        (r#""rope_scaling": {"rope_type": "linear", "factor": 0.5}"#.into(), "factor of rope scaling is 0.5, which"),
        (llama3(r#""factor": 0.25"#), "the factor of rope scaling is 0.25, which should be at least 1"),
        (llama3(r#""low_freq_factor": 5"#), "the range of frequency factors of rope scaling is 5 to 4, which"),
        (llama3(r#""original_max_position_embeddings": 0"#), "the original context of rope scaling is 0, which"),
    ] {
        let error = refused(&fields);
        assert_eq!(error.status(), Status::InvalidExternalData, "{fields}");
        assert!(error.chain().contains(words), "{fields}: {}", error.chain());
    }
}

#[test]
fn features_that_are_not_supported_are_refused_by_name() {
    for (fields, words) in [
        (r#""model_type": "gemma3""#, "architecture gemma3"),
        (r#""model_type": "mixtral""#, "architecture mixtral"),
        (r#""num_local_experts": 8"#, "mixture of experts 8"),
        (r#""sliding_window": 4096, "model_type": "mistral""#, "sliding window 4096"),
        (r#""layer_types": ["sliding_attention"]"#, "layer type \"sliding_attention\""),
        (r#""partial_rotary_factor": 0.5"#, "partial rotary embedding 0.5"),
        (r#""hidden_act": "gelu""#, "activation gelu"),
        (r#""rope_scaling": {"rope_type": "yarn", "factor": 4}"#, "rope scaling yarn"),
        (r#""quantization_config": {"quant_method": "gptq"}"#, "quantized checkpoint \"gptq\""),
    ] {
        let error = refused(fields);
        assert_eq!(error.status(), Status::NotSupported, "{fields}");
        assert!(error.chain().contains(words), "{fields}: {error:?}");
    }
    let off = r#""sliding_window": 4096, "use_sliding_window": false"#;
    assert!(open_at(folder(&config_json(off), &weights(HuggingFace)).path()).is_ok());
}

#[test]
fn absurd_numbers_of_a_description_are_refused() {
    for fields in [
        r#""num_hidden_layers": 1000000000"#,
        r#""num_hidden_layers": 0"#,
        r#""hidden_size": 1099511627776"#,
        r#""hidden_size": -8"#,
        r#""vocab_size": 1e300"#,
        r#""vocab_size": "16""#,
        r#""num_attention_heads": 0"#,
        r#""num_key_value_heads": 3"#,
        r#""head_dim": 3"#,
        r#""head_dim": 18446744073709551615"#,
        r#""rms_norm_eps": 0"#,
        r#""rope_theta": -1"#,
        r#""rope_scaling": {"rope_type": "linear", "factor": 0}"#,
        r#""rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
            "original_max_position_embeddings": 8192}"#,
    ] {
        let error = refused(fields);
        assert!(matches!(defect(&error), CheckpointError::Field { .. }), "{fields}: {error:?}");
        assert_eq!(error.status(), Status::InvalidExternalData, "{fields}");
    }
    assert!(matches!(defect(&refused(r#""hidden_size": null"#)), CheckpointError::MissingField { .. }));
}

#[test]
fn tensor_of_another_shape_is_refused_by_name() {
    let error = refused(r#""intermediate_size": 16"#);
    let CheckpointError::Shape { name, shape, expected } = defect(&error) else { panic!("{error:?}") };
    assert_eq!(
        (&name[..], &shape[..], &expected[..]),
        ("model.layers.0.mlp.gate_proj.weight", &[12, 8][..], &[16, 8][..])
    );
}

#[test]
fn missing_and_unknown_tensors_are_refused_by_name() {
    let mut tensors = weights(HuggingFace);
    tensors.pop();
    let error = open_at(folder(&config_json(""), &tensors).path()).unwrap_err();
    let down = "model.layers.0.mlp.down_proj.weight";
    assert!(matches!(defect(&error), CheckpointError::MissingTensor { name } if name == down), "{error:?}");

    let mut tensors = weights(HuggingFace);
    tensors.push(("model.layers.0.self_attn.o_proj.bias".into(), vec![8]));
    let error = open_at(folder(&config_json(""), &tensors).path()).unwrap_err();
    let bias = "model.layers.0.self_attn.o_proj.bias";
    assert!(matches!(defect(&error), CheckpointError::UnknownTensor { name } if name == bias), "{error:?}");

    let mut tensors = weights(HuggingFace);
    tensors.push(("model.layers.0.self_attn.rotary_emb.inv_freq".into(), vec![2]));
    assert!(open_at(folder(&config_json(""), &tensors).path()).is_ok());
}

#[test]
fn biases_and_norms_of_qwen_are_weights_and_must_be_there() {
    let config = config_json(r#""model_type": "qwen2""#);
    let error = open_at(folder(&config, &weights(HuggingFace)).path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::MissingTensor { name } if name.ends_with("q_proj.bias")));
    let mut tensors = weights(HuggingFace);
    for (name, size) in [("q_proj.bias", 8), ("k_proj.bias", 4), ("v_proj.bias", 4)] {
        tensors.push((format!("model.layers.0.self_attn.{name}"), vec![size]));
    }
    let checkpoint = open_at(folder(&config, &tensors).path()).unwrap();
    assert_eq!(reals(&checkpoint, WeightRole::Layer(0, LayerWeight::KeyBias)).len(), 4);

    let config = config_json(r#""model_type": "qwen3""#);
    let error = open_at(folder(&config, &weights(HuggingFace)).path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::MissingTensor { name } if name.ends_with("q_norm.weight")));
}

#[test]
fn safetensors_headers_that_lie_are_refused() {
    let folder = folder(&config_json(""), &weights(HuggingFace));
    let entry =
        |dims: &str, from: u64, to: u64| format!(r#"{{"dtype":"F32","shape":[{dims}],"data_offsets":[{from},{to}]}}"#);
    let top = u64::MAX - 3;
    for (case, header) in [
        ("beyond the file", format!(r#"{{"a":{}}}"#, entry("4", 0, 16))),
        ("size of another shape", format!(r#"{{"a":{}}}"#, entry("3", 0, 8))),
        ("overlap", format!(r#"{{"a":{},"b":{}}}"#, entry("2", 0, 8), entry("2", 4, 12))),
        ("hole", format!(r#"{{"a":{},"b":{}}}"#, entry("1", 0, 4), entry("1", 8, 12))),
        ("reversed", format!(r#"{{"a":{}}}"#, entry("1", 8, 4))),
        ("product that overflows", format!(r#"{{"a":{}}}"#, entry("4294967296,4294967296,16", 0, 8))),
        ("end that wraps", format!(r#"{{"a":{}}}"#, entry("4611686018427387903", 0, top))),
        ("no JSON", "{nonsense".into()),
        ("no object", "{}[]".into()),
    ] {
        put(folder.path(), "model.safetensors", with_header(&header, &[0; 8]));
        let error = open_at(folder.path()).unwrap_err();
        assert!(matches!(defect(&error), CheckpointError::Safetensors { .. }), "{case}: {error:?}");
    }
}

#[test]
fn safetensors_of_other_elements_are_refused_when_asked_for() {
    let folder = folder(&config_json(""), &weights(HuggingFace));
    let bytes = safetensors(&weights(HuggingFace), 0);
    let text = String::from_utf8_lossy(&bytes[8..]).into_owned();
    let header = text.split_once("}} ").unwrap().0.to_owned() + "}}";
    let header = header.replace(r#""dtype":"F32""#, r#""dtype":"I32""#);
    let data = &bytes[8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize..];
    put(folder.path(), "model.safetensors", with_header(&header, data));
    let error = open_at(folder.path()).unwrap().weight(WeightRole::FinalNorm).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::ElementType { kind, .. } if kind == "I32"), "{error:?}");
}

#[test]
fn metas_names_in_safetensors_take_params_json() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "model.safetensors", safetensors(&weights(Meta), 0));
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::MissingConfig { file: "params.json", .. }), "{error:?}");
    put(folder.path(), "elsewhere.json", PARAMS);
    let params = Some(folder.path().join("elsewhere.json"));
    let source = Source { checkpoint: folder.path().into(), params, scratch: None };
    let checkpoint = Checkpoint::open(&source).unwrap();
    assert_eq!((checkpoint.config().vocab, checkpoint.config().hidden), (16, 12));
    assert_eq!(checkpoint.config().rope.style, RotaryStyle::Interleaved);
}

#[test]
fn places_without_a_checkpoint_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::NothingInFolder { .. }), "{error:?}");
    assert_eq!(error.status(), Status::NotFound);
    let error = open_at(folder.path().join("missing")).unwrap_err();
    assert_eq!(error.status(), Status::AccessFailed);
    put(folder.path(), "text.gguf", "no checkpoint at all, whatever its name");
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::NotRecognized { .. }), "{error:?}");
    put(folder.path(), "model.pte", &crate::builtin::default_model::program()[..]);
    let error = open_at(folder.path().join("model.pte")).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::Program { .. }), "{error:?}");
    put(folder.path(), "old.pt", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.");
    let error = open_at(folder.path().join("old.pt")).unwrap_err();
    assert!(error.chain().contains("a bare pickle"), "{error:?}");
}

#[test]
fn json_files_that_are_too_large_or_no_objects_are_refused() {
    let folder = folder("[]", &weights(HuggingFace));
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::Json { file, .. } if file == "config.json"), "{error:?}");
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("config.json")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::TooLarge { size: 67_108_865, .. }), "{error:?}");
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::MissingConfig { file: "config.json", .. }), "{error:?}");
    let names = (0..4097).map(|number| format!("\"{number}\": \"{number}.safetensors\"")).collect::<Vec<_>>();
    let index = format!("{{\"weight_map\": {{{}}}}}", names.join(","));
    put(folder.path(), "model.safetensors.index.json", index);
    let error = open_at(folder.path()).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::TooManyShards { count: 4097, .. }), "{error:?}");
}

#[test]
fn llama2c_files_of_both_versions_open_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.bin");
    let numbers = |vocab: i32| [8, 12, 1, 2, 1, vocab, 5].map(i32::to_le_bytes).concat();
    // Without an output head: embedding, norms, layers; with one: the same behind the rotary tables.
    let body = 4 * (16 * 8 + 3 * 8 + 64 + 32 + 32 + 64 + 3 * 96);
    let tables = 4 * 5 * 4;
    let file = |vocab, rest: usize| [numbers(vocab), (0..rest).map(|i| (i % 32) as u8).collect()].concat();
    std::fs::write(&path, file(16, body + tables)).unwrap();
    assert!(open_at(&path).unwrap().weight(WeightRole::OutputHead).unwrap().is_none());
    std::fs::write(&path, file(-16, body + tables + 512)).unwrap();
    let head = open_at(&path).unwrap().weight(WeightRole::OutputHead).unwrap().unwrap();
    assert_eq!(head.data[..], file(-16, body + tables + 512)[28 + body + tables..]);

    let newer = |version: u8, shared: u8, rest: usize| {
        let header = [&b"24ka"[..], &[version, 0, 0, 0], &numbers(16), &[shared], &[0; 219]].concat();
        [header, vec![0; rest]].concat()
    };
    std::fs::write(&path, newer(1, 1, body)).unwrap();
    assert!(open_at(&path).unwrap().weight(WeightRole::OutputHead).unwrap().is_none());
    std::fs::write(&path, newer(1, 0, body + 512)).unwrap();
    assert!(open_at(&path).unwrap().weight(WeightRole::OutputHead).unwrap().is_some());
    std::fs::write(&path, newer(2, 1, body)).unwrap();
    assert!(matches!(defect(&open_at(&path).unwrap_err()), CheckpointError::Unsupported { .. }));

    for wrong in [body + tables - 1, body + tables + 1, 0] {
        std::fs::write(&path, file(16, wrong)).unwrap();
        let error = open_at(&path).unwrap_err();
        assert!(matches!(defect(&error), CheckpointError::Llama2cSize { .. }), "{wrong}: {error:?}");
    }
    std::fs::write(&path, [1 << 19; 7].map(i32::to_le_bytes).concat()).unwrap();
    assert!(matches!(defect(&open_at(&path).unwrap_err()), CheckpointError::Field { .. }));
}
