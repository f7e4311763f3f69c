//! Each combination that cannot work is refused by name, and methods follow from the rest.

use super::*;
use crate::export::RopeScaling;
use crate::graph::RotaryStyle;

fn options(backend: Backend, change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::new("model.bin".into(), "model.pte".into(), backend);
    change(&mut options);
    options
}

/// What a case does to the defaults.
type Change = fn(&mut Options);

fn refusal(backend: Backend, change: impl FnOnce(&mut Options)) -> String {
    crate::Error::from(options(backend, change).check().unwrap_err()).chain()
}

fn config() -> ModelConfig {
    ModelConfig {
        architecture: "llama".into(),
        dim: 64,
        layers: 5,
        heads: 8,
        kv_heads: 4,
        head_dim: 8,
        hidden: 172,
        vocab: 512,
        norm_epsilon: 1e-5,
        rope: crate::export::Rope { theta: 10000.0, style: RotaryStyle::Interleaved, scaling: RopeScaling::None },
        max_positions: Some(512),
        bos_id: Some(1),
        eos_ids: vec![2],
    }
}

#[test]
fn defaults_of_every_backend_go_together() {
    for &backend in Backend::ALL {
        assert_eq!(options(backend, |_| ()).check(), Ok(()), "{backend:?}");
    }
}

#[test]
fn what_does_not_go_with_the_backend_is_refused_by_name() {
    use Backend::*;
    let cases: &[(Backend, Change, &str)] = &[
        (Qnn, |o| o.kv_bits = Some(KvBits::B32), "kv_bits 32 does not go with backend qnn"),
        (Qnn, |o| o.mode = Mode::Dynamic, "mode dynamic does not go with backend qnn"),
        (Qnn, |o| o.ptq = Ptq::Dynamic8W4, "ptq 8da4w does not go with backend qnn, which takes 16a4w, 16a8w and 8a8w"),
        (Qnn, |o| o.ptq = Ptq::None, "ptq none does not go with backend qnn"),
        (Xnnpack, |o| o.ptq = Ptq::A16W4, "ptq 16a4w does not go with backend xnnpack, which takes 8da4w and none"),
        (
            Portable,
            |o| o.ptq = Ptq::Dynamic8W4,
            "ptq 8da4w does not go with backend portable, which takes int8 and none",
        ),
        (Xnnpack, |o| o.kv_bits = Some(KvBits::B8), "kv_bits 8 does not go with mode dynamic"),
        (Portable, |o| o.kv_layout = KvLayout::PerHead, "kv_layout per_head does not go with mode dynamic"),
        (Xnnpack, |o| o.qnn.num_sharding = 2, "num_sharding does not go with backend xnnpack"),
        (Qnn, |o| o.qnn.num_sharding = 0, "num_sharding 0"),
        (Xnnpack, |o| o.qnn.weight_sharing = true, "weight sharing is between two methods"),
        (Qnn, |o| (o.qnn.weight_sharing, o.mode) = (true, Mode::Kv), "weight sharing is between two methods"),
        (Qnn, |o| o.qnn.soc_model = "SM8560".into(), "there is no SoC \"SM8560\"; the nearest is SM8550"),
        (Qnn, |o| (o.ptq, o.kv_bits) = (Ptq::A8W8, Some(KvBits::B16)), "kv_bits 16 does not go with ptq 8a8w"),
        (Portable, |o| o.qnn.soc_model = "SM8550".into(), "soc_model SM8550 does not go with backend portable"),
        (
            Portable,
            |o| o.calibration = Calibration::TextFile("text".into()),
            "nothing is calibrated with ptq none: the calibration file would not be read",
        ),
        (Qnn, |o| o.lookahead.ngram = 4, "ngram, window and gcap go with mode lookahead; the mode is hybrid"),
        (Qnn, |o| o.full_logits = true, "full logits are of mode dynamic; mode hybrid gives them anyway"),
        (Qnn, |o| (o.ptq, o.group_size) = (Ptq::A16W8, Some(32)), "group_size does not go with ptq 16a8w"),
        (Xnnpack, |o| o.group_size = Some(1), "group_size 1 is below 2"),
        (
            Xnnpack,
            |o| o.group_size = Some(48),
            "group_size 48 does not go with ptq 8da4w: XNNPACK takes multiples of 32",
        ),
    ];
    for &(backend, change, want) in cases {
        let said = refusal(backend, change);
        assert!(said.starts_with(want), "{said} – {want}");
    }
}

#[test]
fn lengths_are_judged_together() {
    let lengths =
        |max_seq_len, max_context_len, prefill_ar_len| Lengths { max_seq_len, max_context_len, prefill_ar_len };
    for (asked, want) in [
        (lengths(128, Some(64), 32), "max_seq_len 128 is above max_context_len 64"),
        (lengths(1, None, 32), "a context of 1 tokens is not in 2 to 1048576"),
        (lengths(0, Some(64), 32), "a context of 0 tokens"),
        (lengths(32, Some(100_000_000), 32), "a context of 100000000 tokens is not in 2 to 1048576"),
        (lengths(MAX_CONTEXT + 1, None, 32), "a context of 1048577 tokens"),
        (lengths(64, None, 65), "prefill_ar_len 65 is not in 1 to the context, 64"),
        (lengths(64, None, 0), "prefill_ar_len 0 is not in 1"),
    ] {
        let said = refusal(Backend::Qnn, |options| options.lengths = asked);
        assert!(said.starts_with(want), "{said} – {want}");
    }
    assert_eq!(options(Backend::Qnn, |o| o.lengths = lengths(64, Some(128), 64)).lengths.context(), 128);
}

#[test]
fn a_lookahead_step_fits_its_context() {
    let sizes = |ngram, window, gcap| LookaheadConfig { ngram, window, gcap };
    for (lookahead, want) in [
        (sizes(1, 8, 8), "mode lookahead needs ngram of at least 2"),
        (sizes(5, 0, 8), "mode lookahead needs"),
        (sizes(5, 8, 0), "mode lookahead needs"),
        (
            sizes(5, 64, 64),
            "a lookahead step of (window + gcap) * (ngram - 1) tokens = 512 does not fit the context, 512",
        ),
        (sizes(usize::MAX, 3, 3), "a lookahead step of (window + gcap) * (ngram - 1) tokens does not fit"),
    ] {
        let said = refusal(Backend::Qnn, |options| {
            options.mode = Mode::Lookahead;
            options.lookahead = lookahead;
        });
        assert!(said.starts_with(want), "{said} – {want}");
    }
}

#[test]
fn embedding_quantization_is_read_in_upstreams_form() {
    assert_eq!("4,32".parse(), Ok(EmbeddingQuantization { bits: 4, group: 32 }));
    assert_eq!(" 8, 0".parse(), Ok(EmbeddingQuantization { bits: 8, group: 0 }));
    for wrong in ["", "4", "3,32", "4,-1", "4,32,1", "x,32"] {
        let said = wrong.parse::<EmbeddingQuantization>().unwrap_err().to_string();
        assert_eq!(said, format!("embedding quantization {wrong:?} is not <2, 4 or 8>,<group size>, as in 4,32"));
    }
}

#[test]
fn a_model_that_the_choices_do_not_fit_is_refused() {
    let refusal =
        |change: fn(&mut Options)| options(Backend::Qnn, change).check_model(&config()).unwrap_err().to_string();
    assert_eq!(refusal(|o| o.qnn.num_sharding = 6), "num_sharding 6 is more than the model's 5 layers");
    assert_eq!(
        refusal(|o| o.embedding = Some(EmbeddingQuantization { bits: 4, group: 48 })),
        "the embedding's group size 48 does not divide its rows of 64"
    );
    assert_eq!(refusal(|o| o.group_size = Some(48)), "group_size 48 does not divide the model's dim of 64");
    assert_eq!(options(Backend::Qnn, |_| ()).check_model(&config()), Ok(()));
    // The hidden width is no multiple of 32, but those rows get 8 bits.
    assert_eq!(options(Backend::Xnnpack, |_| ()).check_model(&config()), Ok(()));
    let narrow = ModelConfig { dim: 48, ..config() };
    let error = options(Backend::Xnnpack, |_| ()).check_model(&narrow).unwrap_err().to_string();
    assert_eq!(error, "group_size 32 does not divide the model's dim of 48");
}

#[test]
fn method_names_and_shapes_are_those_the_runner_looks_for() {
    let shapes = |change: fn(&mut Options)| {
        let of = |spec: &MethodSpec| match spec {
            MethodSpec::Static { name, ar, context, tokens, .. } => format!("{name} {ar}/{context} {tokens:?}"),
            MethodSpec::Dynamic { name, max_seq_len, max_context_len, .. } => {
                format!("{name} {max_seq_len}/{max_context_len}")
            }
        };
        options(Backend::Qnn, change).methods().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(shapes(|o| o.mode = Mode::Kv), ["kv_forward 1/512 I32"]);
    assert_eq!(shapes(|o| (o.mode, o.kv_layout) = (Mode::Kv, KvLayout::PerHead)), ["forward 1/512 I32"]);
    assert_eq!(shapes(|o| o.mode = Mode::Prefill), ["prefill_forward 512/512 I32"]);
    assert_eq!(shapes(|o| (o.mode, o.kv_layout) = (Mode::Prefill, KvLayout::PerHead)), ["forward 512/512 I32"]);
    assert_eq!(
        shapes(|o| o.embedding = Some(EmbeddingQuantization { bits: 4, group: 32 })),
        ["kv_forward 1/512 I64", "prefill_forward 32/512 I64"]
    );
    assert_eq!(shapes(|o| o.kv_layout = KvLayout::PerHead), ["kv_forward 1/512 I32", "prefill_forward 32/512 I32"]);
    assert_eq!(shapes(|o| o.mode = Mode::Lookahead), ["kv_forward 64/512 I32", "prefill_forward 32/512 I32"]);
    let dynamic = |o: &mut Options| {
        o.mode = Mode::Dynamic;
        o.lengths.max_context_len = Some(1024);
    };
    assert_eq!(shapes(dynamic), ["forward 512/1024"]);
}
