//! Files with bytes changed at random are opened or refused, and never anything else.

use super::files::{Gguf, PARAMS, config_json, pickle, put, safetensors, torch, torch_zip, weights};
use super::*;
use crate::export::checkpoint::naming::Naming::HuggingFace;

const ROUNDS: usize = 400;

/// Random numbers that are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }
}

/// Opens `file` with changes in its bytes of `range`, cut or grown now and then, and reads all weights of what opens.
/// Gives how many were refused.
fn survive(name: &str, file: &[u8], params: Option<&str>, range: std::ops::Range<usize>) -> usize {
    let mut random = Random(0x1234_5678_9abc_def1);
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "config.json", config_json(""));
    put(folder.path(), "params.json", params.unwrap_or("{}"));
    let mut refused = 0;
    for round in 0..ROUNDS {
        let mut bytes = file.to_vec();
        for _ in 0..=random.below(3) {
            let at = range.start + random.below(range.len());
            let byte = [0, 1, 0x7f, 0x80, 0xff, bytes[at].wrapping_add(1), random.below(256) as u8];
            bytes[at] = byte[random.below(byte.len())];
        }
        if random.below(10) == 0 {
            bytes.truncate(1 + random.below(bytes.len()));
        }
        let place = folder.path().join(format!("{round}{name}"));
        std::fs::write(&place, bytes).unwrap();
        match open_at(&place) {
            Ok(checkpoint) => {
                for &role in checkpoint.weights.keys() {
                    drop(checkpoint.weight(role));
                }
                drop(checkpoint.tokenizer_files());
            }
            Err(error) => {
                assert!(error.find::<CheckpointError>().is_some(), "{error:?}");
                refused += 1;
            }
        }
        std::fs::remove_file(&place).unwrap();
    }
    refused
}

#[test]
fn changed_safetensors_never_crash() {
    let file = safetensors(&weights(HuggingFace), 0);
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    assert!(survive(".safetensors", &file, None, 0..header) > ROUNDS / 2);
}

#[test]
fn changed_gguf_never_crash() {
    let mut gguf = Gguf::tiny();
    gguf.text("tokenizer.ggml.model", "llama");
    gguf.texts("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "a", "b", "ab", "▁"]);
    gguf.list("tokenizer.ggml.scores", 6, &[[0; 4]; 7]);
    let file = gguf.bytes();
    let header = file.len() - gguf.tensors.iter().map(|tensor| tensor.data.len()).sum::<usize>();
    assert!(survive(".gguf", &file, None, 4..header) > ROUNDS / 2);
}

#[test]
fn changed_pickles_never_crash() {
    let (views, data) = torch();
    let file = torch_zip(&pickle(&views), &data);
    let end = file.windows(4).position(|window| window == b"PK\x03\x04\x0a".get(..4).unwrap()).unwrap() + 40;
    assert!(survive(".pt", &file, Some(PARAMS), end..end + pickle(&views).len()) > ROUNDS / 2);
}

#[test]
fn changed_zip_directories_never_crash() {
    let (views, data) = torch();
    let file = torch_zip(&pickle(&views), &data);
    let start = file.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    assert!(survive(".pt", &file, Some(PARAMS), start..file.len()) > ROUNDS / 4);
}

#[test]
fn changed_llama2c_headers_never_crash() {
    let header = [8, 12, 1, 2, 1, 16, 5].map(i32::to_le_bytes).concat();
    let file = [header, vec![0; 4 * (16 * 8 + 3 * 8 + 64 + 32 + 32 + 64 + 3 * 96) + 80]].concat();
    assert!(survive(".bin", &file, None, 0..28) > ROUNDS / 4);
}
