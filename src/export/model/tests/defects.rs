//! Every way in which a model cannot be built, by name.

use super::super::super::{Llama3Scaling, RopeScaling};
use super::super::ModelError;
use super::*;

fn refused(config: &ModelConfig, weights: &RandomWeights, spec: &MethodSpec) -> ModelError {
    let error = build(config, weights, spec).expect_err("a refusal");
    error.find::<ModelError>().unwrap_or_else(|| panic!("another error: {error}")).clone()
}

/// The refusal of a configuration that `change` spoils.
fn spoiled(change: impl Fn(&mut ModelConfig)) -> String {
    let mut config = tiny_config();
    let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    change(&mut config);
    refused(&config, &weights, &dynamic(CONTEXT, true)).to_string()
}

#[test]
fn sizes_out_of_bounds_are_refused() {
    assert_eq!(spoiled(|config| config.layers = 0), "the number of layers is 0, not in 1..=1048576");
    assert_eq!(
        spoiled(|config| config.vocab = usize::MAX),
        format!("the vocabulary is {}, not in 1..=1048576", usize::MAX)
    );
    assert_eq!(spoiled(|config| config.kv_heads = 0), "the number of key and value heads is 0, not in 1..=1048576");
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    assert_eq!(spoiled(|config| config.kv_heads = 3), "4 query heads are no multiple of 3 key and value heads");
    assert_eq!(spoiled(|config| config.head_dim = 5), "head_dim is 5, which is odd: rotary embedding needs pairs");
}

#[test]
fn numbers_that_compute_nothing_are_refused() {
    assert_eq!(spoiled(|config| config.norm_epsilon = f32::NAN), "norm_epsilon is NaN, not 0 or more");
    assert_eq!(spoiled(|config| config.norm_epsilon = -1.0), "norm_epsilon is -1, not 0 or more");
    assert_eq!(spoiled(|config| config.rope.theta = f32::INFINITY), "rope theta is inf, not a positive number");
    let linear = |config: &mut ModelConfig| config.rope.scaling = RopeScaling::Linear { factor: 0.0 };
    assert_eq!(spoiled(linear), "rope factor is 0, not a positive number");
    let llama3 =
        Llama3Scaling { factor: 8.0, low_frequency_factor: 4.0, high_frequency_factor: 4.0, original_context: 8 };
    let scaling = RopeScaling::Llama3(llama3);
    assert_eq!(spoiled(|config| config.rope.scaling = scaling), "high_freq_factor is 4, not more than low_freq_factor");
}

#[test]
fn methods_that_cannot_be_called_are_refused() {
    let config = tiny_config();
    let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    let refused = |spec: MethodSpec| refused(&config, &weights, &spec).to_string();
    let static_method = |ar, context, tokens| MethodSpec::Static {
        name: "kv_forward".into(),
        ar,
        context,
        layout: KvLayout::PerLayer,
        tokens,
    };
    let too_many = "method kv_forward: 13 tokens a call do not fit a context of 12";
    assert_eq!(refused(static_method(13, 12, DType::I32)), too_many);
    assert_eq!(refused(static_method(0, 12, DType::I32)), "the number of tokens a call is 0, not in 1..=1048576");
    let of_reals = "method kv_forward: tokens of f32, not i32 or i64";
    assert_eq!(refused(static_method(1, 12, DType::F32)), of_reals);
    assert_eq!(refused(dynamic(1, true)), "method forward: max_seq_len is 1, and has to be 2 at least");
}

#[test]
fn rotary_tables_beyond_reason_are_refused() {
    let config = ModelConfig { head_dim: 1 << 10, ..tiny_config() };
    let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    let context = 1 << 20;
    let error = refused(&config, &weights, &dynamic(context, true));
    assert_eq!(error, ModelError::Table { context, head_dim: 1 << 10 });
}

#[test]
fn a_causal_table_beyond_reason_is_refused() {
    let config = tiny_config();
    let weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    let error = build(&config, &weights, &dynamic(1 << 15, false)).err().unwrap();
    assert!(error.chain().contains("a causal table of 32768 positions is too large"), "{}", error.chain());
    assert!(build(&config, &weights, &dynamic(1 << 15, true)).is_ok());
}

#[test]
fn a_missing_weight_is_named_by_its_role() {
    use LayerWeight::*;
    let config = tiny_config();
    let needed = [WeightRole::TokenEmbedding, WeightRole::FinalNorm].into_iter().chain(
        [AttentionNorm, Query, Key, Value, Output, FeedForwardNorm, Gate, Up, Down]
            .map(|weight| WeightRole::Layer(1, weight)),
    );
    for role in needed {
        let mut weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
        weights.remove(role);
        assert_eq!(refused(&config, &weights, &dynamic(CONTEXT, true)), ModelError::MissingWeight(role));
    }
}

#[test]
fn a_weight_of_another_shape_or_type_is_named() {
    let config = tiny_config();
    let role = WeightRole::Layer(0, LayerWeight::Down);
    let mut weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    weights.get_mut(role).shape = vec![24, 16];
    let text = "weight Layer(0, Down) (Layer(0, Down)) has shape [24, 16], not [16, 24]";
    assert_eq!(refused(&config, &weights, &dynamic(CONTEXT, true)).to_string(), text);
    let mut weights = RandomWeights::new(&config, DType::F32, Extras::NONE);
    weights.get_mut(role).dtype = DType::I8;
    let text = "weight Layer(0, Down) (Layer(0, Down)) is i8, not f32, f16 or bf16";
    assert_eq!(refused(&config, &weights, &dynamic(CONTEXT, true)).to_string(), text);
}
