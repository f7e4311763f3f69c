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
    let texts = diverse_texts();
    assert!(texts.len() > 300, "only {} texts", texts.len());
    for text in texts {
        let ids = own.encode(&text, Specials::default()).unwrap();
        assert_eq!(ids, original.encode(&text, Specials::default()).unwrap(), "{text:?}");
    }
}

/// Prose line by line and sentence by sentence, the recorded prompts of other tokenizers, code, scripts, white space.
fn diverse_texts() -> Vec<String> {
    let read = |name| std::fs::read_to_string(shared(name)).unwrap();
    let prose = read("smollm2/own_prose.txt") + &read("smollm2/ppl_classics.txt");
    let mut texts: Vec<String> = prose.split_inclusive(['.', ',', ';', '\n']).map(String::from).collect();
    texts.push(prose);
    for script in
        ["naïve café", "东京都 2024年", "🦀👩‍👩‍👧", "Привет, мир", "مرحبا", "e\u{301}", "ﬁ", "\u{0}\u{7f}", "İstanbul"]
    {
        for (before, behind) in [("", ""), (" ", "\n"), ("<|im_start|>", "<|im_end|>"), ("\t\t", "  ")] {
            texts.push(format!("{before}{script}{behind}"));
        }
    }
    for number in ["1", "12", "123", "1234567", "3.14159", "-1e-5", "0x1F", "٣٤", "½", "1,000,000"] {
        texts.extend([number.to_owned(), format!("a{number}b"), format!(" {number} {number}\n")]);
    }
    for word in
        ["I'll", "don't", "WE'RE", "'s", "'S", "''", "fn main() {\n    let x = 1;\n}\n", "a\r\nb", "   ", "\n\n\n"]
    {
        texts.extend([word.to_owned(), format!("{word}{word}"), format!(" {word} ")]);
    }
    texts.extend((1..40).map(|spaces| format!("x{}y", " ".repeat(spaces))));
    texts
}

/// Bits of surprise at each token of `text`, on the average, with the rotary pairs that the description says and with the
/// others.
fn surprise(checkpoint: &Checkpoint, tokenizer: &str, text: &str) -> [f64; 2] {
    let specials = Specials { bos: usize::from(tokenizer != "smollm2/tokenizer.json"), eos: 0 };
    let ids = load(&shared(tokenizer)).unwrap().encode(text, specials).unwrap();
    let said = checkpoint.config().rope.style;
    let other = if said == RotaryStyle::Half { RotaryStyle::Interleaved } else { RotaryStyle::Half };
    [said, other].map(|style| reference::mean_surprise(checkpoint, &ids, style))
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn models_know_their_stories_only_with_the_rotary_pairs_of_their_format() {
    let lily = "Once upon a time there was a little girl named Lily. She loved to play outside in the park.";
    let olga = "There once was a small girl. The name of the girl was Olga. She lived in a busy town. Olga liked to run \
                fast.\nThe air smelled of grass and flowers. Olga went to the market with the red ball. But the red \
                ball was gone! Olga looked here and there, but could not find it. She felt sad and sat down.";
    for (model, tokenizer, text) in [("stories260K.bin", "tok512.bin", lily), ("story", "story/tokenizer.json", olga)] {
        let [said, other] = surprise(&open_at(shared(model)).unwrap(), tokenizer, text);
        assert!(said < 0.6 && other > 2.0 * said, "{model}: {said} bits, with the other pairs {other}");
    }
}

#[test]
#[cfg_attr(not(all(have_shared, have_gguf)), ignore = "needs LLR_GGUF_SMOLLM2 and ../shared")]
fn smollm2_gguf_knows_capitals_only_with_interleaved_pairs() {
    let checkpoint = open_at(std::env::var_os("LLR_GGUF_SMOLLM2").unwrap()).unwrap();
    assert_eq!(checkpoint.config().rope.style, RotaryStyle::Interleaved);
    let text = "The capital of France is Paris, and the capital of Germany is Berlin.";
    let [said, other] = surprise(&checkpoint, "smollm2/tokenizer.json", text);
    assert!(said < 2.6 && other > said + 0.8, "{said} bits, with the other pairs {other}");
}
