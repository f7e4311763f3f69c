//! GGUF files: the description, places of tensors, and counts that lie.

use super::files::{Gguf, element, put, tiny};
use super::*;
use crate::error::Status;
use crate::export::{LayerWeight, RopeScaling};
use crate::graph::RotaryStyle;
use crate::tensor::DType;

fn written(bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "m.gguf", bytes);
    folder
}

fn opened(gguf: &Gguf) -> Checkpoint {
    open_at(written(&gguf.bytes()).path()).unwrap()
}

/// The error of the tiny model after a change.
fn refused(change: impl Fn(&mut Gguf)) -> Error {
    let mut gguf = Gguf::tiny();
    change(&mut gguf);
    open_at(written(&gguf.bytes()).path()).unwrap_err()
}

/// The error of the tiny model's bytes after a change.
fn refused_bytes(change: impl Fn(&mut Vec<u8>)) -> GgufDefect {
    let mut bytes = Gguf::tiny().bytes();
    change(&mut bytes);
    file_defect(&open_at(written(&bytes).path()).unwrap_err()).clone()
}

fn file_defect(error: &Error) -> &GgufDefect {
    match defect(error) {
        CheckpointError::Gguf { defect, .. } => defect,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tiny_gguf_opens() {
    let checkpoint = opened(&Gguf::tiny());
    let mut expected = ModelConfig { bos_id: None, eos_ids: vec![], ..tiny() };
    expected.rope.style = RotaryStyle::Interleaved;
    assert_eq!((checkpoint.config(), checkpoint.format()), (&expected, Format::Gguf));
    let up: Vec<_> = (0..96).map(|index| element(10, index)).collect();
    assert_eq!(reals(&checkpoint, WeightRole::Layer(0, LayerWeight::Up)), up);
}

#[test]
fn half_and_bfloat_stay_and_blocks_become_f32_once() {
    let mut gguf = Gguf::tiny();
    gguf.u32("llama.embedding_length", 32);
    gguf.u32("llama.attention.key_length", 4);
    gguf.tensors.clear();
    let wide = ModelConfig { dim: 32, ..tiny() };
    for (name, _) in super::files::weights(naming::Naming::Gguf) {
        let role = naming::roles(&wide).find(|&role| naming::Naming::Gguf.name(role) == name).unwrap();
        let shape = naming::shape(role, &wide);
        let count: usize = shape.iter().product();
        let (kind, data) = match role {
            WeightRole::Layer(_, LayerWeight::Query) => (1, [0, 0x3c].repeat(count)),
            WeightRole::Layer(_, LayerWeight::Key) => (30, [0x80, 0x3f].repeat(count)),
            // Scale 0.5, codes 3.
            WeightRole::TokenEmbedding => (8, [&[0, 0x38][..], &[3; 32]].concat().repeat(count / 32)),
            _ => (0, vec![0; 4 * count]),
        };
        gguf.tensor(&name, &shape, kind, data);
    }
    let checkpoint = opened(&gguf);
    let dtype = |role| checkpoint.weight(role).unwrap().unwrap().dtype;
    assert_eq!(dtype(WeightRole::Layer(0, LayerWeight::Query)), DType::F16);
    assert_eq!(dtype(WeightRole::Layer(0, LayerWeight::Key)), DType::BF16);
    assert!(reals(&checkpoint, WeightRole::Layer(0, LayerWeight::Key)).iter().all(|&x| x == 1.0));
    assert_eq!(reals(&checkpoint, WeightRole::TokenEmbedding), [1.5; 16 * 32]);
    let embedding = || checkpoint.weight(WeightRole::TokenEmbedding).unwrap().unwrap().data;
    assert!(embedding().same_place(&embedding()));
}

#[test]
fn pairs_of_the_rotary_embedding_follow_the_architecture() {
    for (architecture, style) in [("llama", RotaryStyle::Interleaved), ("qwen3", RotaryStyle::Half)] {
        let mut gguf = Gguf::tiny();
        gguf.values.iter_mut().for_each(|(key, ..)| *key = key.replace("llama.", &format!("{architecture}.")));
        gguf.text("general.architecture", architecture);
        for name in ["blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"] {
            gguf.tensor(name, &[4], 0, vec![0; 16]);
        }
        assert_eq!(opened(&gguf).config().rope.style, style);
    }
}

#[test]
fn factors_of_llama3_are_found_again() {
    // Head size 4 at theta 500000: wavelengths 2 pi and 4443, of which the second is between 8192 / 4 and 8192 / 1.
    let turns = 8192.0 / (std::f64::consts::TAU * 500_000f64.sqrt());
    let smooth = (turns - 1.0) / 3.0;
    let factors = |second: f64| [1f32, second as f32].map(f32::to_le_bytes).concat();
    let gguf = |second| {
        let mut gguf = Gguf::tiny();
        gguf.set("llama.rope.freq_base", 6, 5e5f32.to_le_bytes().to_vec());
        gguf.tensor("rope_freqs.weight", &[2], 0, factors(second));
        gguf
    };
    // No frequency of so small a head is divided by the factor itself, so it cannot be seen.
    let blended = 1.0 / ((1.0 - smooth) / 32.0 + smooth);
    let error = open_at(written(&gguf(blended).bytes()).path()).unwrap_err();
    assert!(error.chain().contains("rope scaling of rope_freqs.weight"), "{error:?}");
    assert_eq!(opened(&gguf(1.0)).config().rope.scaling, RopeScaling::None);

    let mut wide = gguf(32.0);
    wide.set("llama.rope.freq_base", 6, 5e8f32.to_le_bytes().to_vec());
    let RopeScaling::Llama3(found) = opened(&wide).config().rope.scaling else { panic!() };
    assert_eq!((found.factor, found.original_context), (32.0, 8192));
}

#[test]
fn linear_scaling_is_read_and_others_are_refused() {
    let mut gguf = Gguf::tiny();
    gguf.text("llama.rope.scaling.type", "linear");
    gguf.set("llama.rope.scaling.factor", 6, 2f32.to_le_bytes().to_vec());
    assert_eq!(opened(&gguf).config().rope.scaling, RopeScaling::Linear { factor: 2.0 });
    let error = refused(|gguf| gguf.text("llama.rope.scaling.type", "yarn"));
    assert!(error.chain().contains("rope scaling yarn"), "{error:?}");
}

#[test]
fn features_that_are_not_supported_are_refused_by_name() {
    for (key, value, words) in [
        ("llama.expert_count", 8, "mixture of experts 8"),
        ("llama.attention.sliding_window", 4096, "sliding window 4096"),
        ("llama.rope.dimension_count", 2, "partial rotary embedding"),
        ("llama.attention.value_length", 2, "head sizes of keys and values"),
        ("split.count", 3, "GGUF split into files 3"),
    ] {
        let error = refused(|gguf| gguf.u32(key, value));
        assert_eq!(error.status(), Status::NotSupported, "{key}");
        assert!(error.chain().contains(words), "{key}: {error:?}");
    }
    let error = refused(|gguf| gguf.text("general.architecture", "gemma3"));
    assert!(error.chain().contains("architecture gemma3"), "{error:?}");
}

#[test]
fn counts_of_each_layer_must_agree() {
    let mut gguf = Gguf::tiny();
    gguf.list("llama.attention.head_count_kv", 4, &[[1, 0, 0, 0]; 3]);
    assert_eq!(opened(&gguf).config().kv_heads, 1);
    let error = refused(|gguf| gguf.list("llama.attention.head_count_kv", 4, &[[1, 0, 0, 0], [2, 0, 0, 0]]));
    assert!(matches!(defect(&error), CheckpointError::Field { .. }), "{error:?}");
}

#[test]
fn other_versions_and_byte_orders_are_refused() {
    let version = |bytes: [u8; 4]| GgufDefect::Version { version: u32::from_le_bytes(bytes), bytes };
    for bytes in [[1, 0, 0, 0], [4, 0, 0, 0], [0, 0, 0, 3]] {
        assert_eq!(refused_bytes(|file| file[4..8].copy_from_slice(&bytes)), version(bytes));
    }
}

#[test]
fn wrong_counts_are_refused() {
    for (at, what) in [(8, "the number of tensors"), (16, "the number of values")] {
        for count in [u64::MAX, 1 << 40, 1 << 20] {
            let found = refused_bytes(|file| file[at..at + 8].copy_from_slice(&count.to_le_bytes()));
            assert!(
                matches!(found, GgufDefect::Count { what: w, count: c, .. } if w == what && c == count),
                "{found:?}"
            );
        }
    }
    // One more of each than there are, and one fewer: what follows is taken for something else.
    for at in [8, 16] {
        for change in [1u8, 255] {
            refused_bytes_any(|file| file[at] = file[at].wrapping_add(change));
        }
    }
    let endless = |gguf: &mut Gguf| gguf.set("x", 9, [&4u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat());
    assert!(matches!(file_defect(&refused(endless)), GgufDefect::Count { what: "a list's length", .. }));
    let long = |gguf: &mut Gguf| gguf.set("x", 8, u64::MAX.to_le_bytes().to_vec());
    assert!(matches!(file_defect(&refused(long)), GgufDefect::Truncated { .. }));
}

fn refused_bytes_any(change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = Gguf::tiny().bytes();
    change(&mut bytes);
    let error = open_at(written(&bytes).path()).unwrap_err();
    assert!(error.find::<CheckpointError>().is_some(), "{error:?}");
}

#[test]
fn values_of_types_that_cannot_be_are_refused() {
    let kind = |kind, bytes: Vec<u8>| file_defect(&refused(|gguf| gguf.set("x", kind, bytes.clone()))).clone();
    assert_eq!(kind(13, vec![0; 8]), GgufDefect::Kind { key: "x".into(), kind: 13 });
    let nested = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    assert_eq!(kind(9, nested), GgufDefect::Kind { key: "x".into(), kind: 9 });
    assert!(matches!(kind(8, [&1u64.to_le_bytes()[..], &[0xff]].concat()), GgufDefect::Text { .. }));
    let twice = refused(|gguf| gguf.values.push(("general.architecture".into(), 7, vec![1])));
    assert!(matches!(file_defect(&twice), GgufDefect::DuplicateKey { .. }));
}

#[test]
fn tensors_that_overlap_or_lie_outside_are_refused() {
    let overlap = refused(|gguf| gguf.tensors[2].offset = gguf.tensors[1].offset);
    assert!(matches!(file_defect(&overlap), GgufDefect::Overlap { .. }), "{overlap:?}");
    for offset in [1 << 30, u64::MAX - 31] {
        let outside = refused(|gguf| gguf.tensors[11].offset = offset);
        assert!(matches!(file_defect(&outside), GgufDefect::OutOfRange { .. }), "{outside:?}");
    }
    let cut = refused_bytes(|file| file.truncate(file.len() - 1));
    assert!(matches!(cut, GgufDefect::OutOfRange { .. }), "{cut:?}");
    let misaligned = refused(|gguf| gguf.tensors[11].offset += 4);
    assert!(matches!(file_defect(&misaligned), GgufDefect::Misaligned { .. }), "{misaligned:?}");
    let twice = refused(|gguf| gguf.tensors[11].name = gguf.tensors[10].name.clone());
    assert!(matches!(file_defect(&twice), GgufDefect::DuplicateTensor { .. }), "{twice:?}");
    for alignment in [0, 4, 33, 1 << 30] {
        let error = refused(|gguf| gguf.u32("general.alignment", alignment));
        assert!(matches!(file_defect(&error), GgufDefect::Alignment { .. }), "{error:?}");
    }
}

#[test]
fn absurd_dimensions_are_refused() {
    for dims in [vec![], vec![1; 5], vec![0, 8], vec![1 << 32, 1 << 32], vec![u64::MAX]] {
        let error = refused(|gguf| gguf.tensors[3].dims = dims.clone());
        assert!(matches!(file_defect(&error), GgufDefect::Dimensions { .. }), "{dims:?}: {error:?}");
    }
    let part = refused(|gguf| gguf.tensors[3].kind = 8);
    assert!(matches!(file_defect(&part), GgufDefect::PartBlock { row: 8, block: 32, .. }), "{part:?}");
    let shape = refused(|gguf| gguf.tensors[4].dims = vec![8, 7]);
    assert!(matches!(defect(&shape), CheckpointError::Shape { .. }), "{shape:?}");
}

#[test]
fn block_types_that_cannot_be_read_are_refused_by_name_when_asked_for() {
    let mut gguf = Gguf::tiny();
    gguf.tensors[3].kind = 10;
    let error = opened(&gguf).weight(WeightRole::Layer(0, LayerWeight::AttentionNorm)).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::ElementType { kind, .. } if kind == "Q2_K"), "{error:?}");
}
