//! Real checkpoints.

use super::*;
use crate::export::{LayerWeight, RopeScaling};
use crate::graph::RotaryStyle;
use crate::tensor::DType;
use crate::tokenizer::{HuggingFace, Specials, Tokenizer, load};

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn story_folder_opens_as_what_its_config_says() {
    let checkpoint = open_at(shared("story")).unwrap();
    assert_eq!(checkpoint.format(), Format::Safetensors);
    let config = checkpoint.config();
    assert_eq!((config.dim, config.layers, config.heads, config.kv_heads), (128, 6, 8, 4));
    assert_eq!((config.head_dim, config.hidden, config.vocab), (16, 384, 1024));
    assert_eq!((config.rope.style, config.rope.scaling), (RotaryStyle::Half, RopeScaling::None));
    assert_eq!((config.bos_id, &config.eos_ids[..]), (Some(1), &[2][..]));
    let gate = checkpoint.weight(WeightRole::Layer(5, LayerWeight::Gate)).unwrap().unwrap();
    assert_eq!((gate.dtype, &gate.shape[..]), (DType::F16, &[384, 128][..]));
    assert!(gate.data.same_place(&checkpoint.weight(WeightRole::Layer(5, LayerWeight::Gate)).unwrap().unwrap().data));
    assert!(checkpoint.weight(WeightRole::OutputHead).unwrap().is_none());
    assert!(checkpoint.tokenizer_files().unwrap().is_none());
    assert_eq!(checkpoint.totals().bytes, 2 * checkpoint.totals().parameters);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn stories260k_opens_with_its_weights_in_the_map() {
    let checkpoint = open_at(shared("stories260K.bin")).unwrap();
    assert_eq!(checkpoint.format(), Format::Llama2c);
    let config = checkpoint.config();
    assert_eq!((config.dim, config.layers, config.heads, config.kv_heads), (64, 5, 8, 4));
    assert_eq!((config.hidden, config.vocab, config.rope.style), (172, 512, RotaryStyle::Interleaved));
    let bytes = std::fs::read(shared("stories260K.bin")).unwrap();
    let embedding = checkpoint.weight(WeightRole::TokenEmbedding).unwrap().unwrap();
    assert_eq!(embedding.data[..], bytes[28..28 + 512 * 64 * 4]);
    assert!(checkpoint.weight(WeightRole::OutputHead).unwrap().is_none());
    assert_eq!(checkpoint.totals().parameters, 260_032);
}

#[test]
#[cfg_attr(not(all(have_shared, have_gguf)), ignore = "needs LLR_GGUF_SMOLLM2 and ../shared")]
fn smollm2_gguf_tokenizer_gives_the_original_ids() {
    let checkpoint = open_at(std::env::var_os("LLR_GGUF_SMOLLM2").unwrap()).unwrap();
    let files = checkpoint.tokenizer_files().unwrap().unwrap();
    let own = HuggingFace::from_bytes(&files.tokenizer, Some(&files.config)).unwrap();
    let original = load(&shared("smollm2/tokenizer.json")).unwrap();
    assert_eq!((own.bos(), own.eos(), own.vocab_size()), (original.bos(), original.eos(), original.vocab_size()));
    let config: serde_json::Value = serde_json::from_slice(&files.config).unwrap();
    let theirs = std::fs::read(shared("smollm2/tokenizer_config.json")).unwrap();
    let theirs: serde_json::Value = serde_json::from_slice(&theirs).unwrap();
    for field in ["chat_template", "bos_token", "eos_token", "unk_token", "pad_token"] {
        assert_eq!(config[field], theirs[field], "{field}");
    }
    let specials = Specials::default();
    let text = std::fs::read_to_string(shared("smollm2/own_prose.txt")).unwrap();
    assert_eq!(own.encode(&text, specials).unwrap(), original.encode(&text, specials).unwrap());
}
