//! Attention against values computed by hand.

use super::super::testing::{Call, close, elements};
use super::*;
use crate::pte::EValue;

const LOW: f32 = f32::NEG_INFINITY;

/// Options of a call: mask, dropout, causal, scale.
fn options(call: Call, mask: Option<(&[usize], &[f32])>, causal: bool, scale: Option<f64>) -> Call {
    let call = match mask {
        Some((dims, mask)) => call.constant(DType::F32, dims, mask),
        None => call.value(EValue::Null),
    };
    let call = call.value(EValue::Double(0.0)).value(EValue::Bool(causal));
    call.value(scale.map_or(EValue::Null, EValue::Double))
}

/// Keys are so that the scores of a query of 1 are logarithms: weights are then in the ratio 1 to 2 to 5.
fn keys() -> [f32; 3] {
    [0.0, 2f32.ln(), 5f32.ln()]
}

/// Two queries of one head and one element over three positions.
fn simple(start: i64, mask: Option<(&[usize], &[f32])>, causal: bool, scale: Option<f64>) -> Result<Vec<f32>> {
    let call = Call::new().constant(DType::F32, &[1, 2, 1, 1], &[1.0f32, 1.0]);
    let call =
        call.constant(DType::F32, &[1, 3, 1, 1], &keys()).constant(DType::F32, &[1, 3, 1, 1], &[8.0f32, 16., 24.]);
    let call = options(call.int(start), mask, causal, scale).output(DType::F32, &[1, 4, 1, 1]);
    let (dims, bytes) = call.run("llama::custom_sdpa", "out")?;
    assert_eq!(dims, [1, 2, 1, 1]);
    Ok(elements(&bytes))
}

#[test]
fn causal_queries_see_up_to_themselves() {
    let (two, three) = ((8.0 + 2.0 * 16.0) / 3.0, (8.0 + 2.0 * 16.0 + 5.0 * 24.0) / 8.0);
    close(&simple(0, None, true, None).unwrap(), &[8.0, two], 1e-6);
    close(&simple(1, None, true, None).unwrap(), &[two, three], 1e-6);
}

#[test]
fn without_a_mask_all_positions_so_far_count() {
    let (two, three) = ((8.0 + 2.0 * 16.0) / 3.0, (8.0 + 2.0 * 16.0 + 5.0 * 24.0) / 8.0);
    close(&simple(0, None, false, None).unwrap(), &[two, two], 1e-6);
    close(&simple(1, None, false, None).unwrap(), &[three, three], 1e-6);
}

#[test]
fn a_mask_is_added_and_masks_all_of_the_cache() {
    let mask = [0.0, LOW, 0.0, LOW, 5f32.ln(), LOW];
    // A mask makes the start meaningless.
    let got = simple(100, Some((&[2, 3], &mask)), false, None).unwrap();
    close(&got, &[(8.0 + 5.0 * 24.0) / 6.0, 16.0], 1e-6);
    let got = simple(0, Some((&[2, 3], &[0.0, 0.0, LOW, LOW, LOW, LOW])), false, None).unwrap();
    close(&got, &[(8.0 + 2.0 * 16.0) / 3.0, 0.0], 1e-6);
}

#[test]
fn the_scale_is_one_by_the_root_of_the_head_or_given() {
    close(&simple(1, None, false, Some(0.0)).unwrap(), &[16.0, 16.0], 1e-6);
    let call = Call::new().constant(DType::F32, &[1, 1, 1, 4], &[1.0f32; 4]);
    let key = [0.0, 0.0, 0.0, 0.0, 3f32.ln(), 0.0, 3f32.ln(), 0.0];
    let call = call.constant(DType::F32, &[1, 2, 1, 4], &key);
    let call = call.constant(DType::F32, &[1, 2, 1, 4], &[0.0f32, 0., 0., 0., 4., 8., 12., 16.]).int(1);
    let (_, bytes) =
        options(call, None, true, None).output(DType::F32, &[1, 1, 1, 4]).run("llama::custom_sdpa", "out").unwrap();
    close(&elements(&bytes), &[3.0, 6.0, 9.0, 12.0], 1e-6);
}

#[test]
fn heads_share_keys_in_groups() {
    // Four query heads over two key heads, one position each: every head gets its group's value.
    let call = Call::new().constant(DType::F32, &[2, 1, 4, 1], &[1.0f32; 8]);
    let call = call.constant(DType::F32, &[2, 1, 2, 1], &[1.0f32; 4]);
    let call = call.constant(DType::F32, &[2, 1, 2, 1], &[1.0f32, 2.0, 3.0, 4.0]).int(0);
    let (_, bytes) =
        options(call, None, true, None).output(DType::F32, &[2, 1, 4, 1]).run("llama::custom_sdpa", "out").unwrap();
    assert_eq!(elements::<f32>(&bytes), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
}

#[test]
fn halves_are_computed_in_floats() {
    let half = |value: f32| half::f16::from_f32(value).to_bits();
    let call = Call::new().constant(DType::F16, &[1, 1, 1, 1], &[half(1.0)]);
    let call = call.constant(DType::F16, &[1, 2, 1, 1], &[half(0.0), half(0.0)]);
    let call = call.constant(DType::F16, &[1, 2, 1, 1], &[half(1.0), half(2.0)]).int(1);
    let (_, bytes) =
        options(call, None, true, None).output(DType::F16, &[1, 1, 1, 1]).run("llama::custom_sdpa", "out").unwrap();
    assert_eq!(elements::<u16>(&bytes), [half(1.5)]);
}

#[test]
fn the_cache_is_updated_before_it_is_attended_to() {
    let call = Call::new().constant(DType::F32, &[1, 1, 1, 1], &[1.0f32]);
    let call = call.constant(DType::F32, &[1, 1, 1, 1], &[5f32.ln()]).constant(DType::F32, &[1, 1, 1, 1], &[24.0f32]);
    let call = call.state(DType::F32, &[1, 3, 1, 1], &[0.0, 2f32.ln(), 9.0]);
    let call = call.state(DType::F32, &[1, 3, 1, 1], &[8.0f32, 16.0, 99.0]).int(2).int(1);
    let call = options(call, None, true, None).output(DType::F32, &[1, 1, 1, 1]);
    let (_, bytes) = call.run("llama::sdpa_with_kv_cache", "out").unwrap();
    close(&elements(&bytes), &[(8.0 + 2.0 * 16.0 + 5.0 * 24.0) / 8.0], 1e-6);
}

/// One query of two elements over three positions, which are at dimension 1 or 2.
fn quantized(second: bool, parameters: bool) -> Result<Vec<f32>> {
    let dims = |positions| if second { [1, 1, positions, 2] } else { [1, positions, 1, 2] };
    let one = |positions| if second { [1, 1, positions, 1] } else { [1, positions, 1, 1] };
    // Query (1, 2) · 0.5; keys (0, 0), (2, 255) · 0.01, (1, 1) · 2; values 10 · (1, 0), (0, 1), (3, 3).
    let call = Call::new().constant(DType::I8, &dims(1), &[6i8, 7]);
    let call = call.constant(DType::I8, &dims(3), &[0i8, 0, -126, 127, 1, 1]);
    let call = call.constant(DType::I8, &dims(3), &[1i8, 0, 10, 11, -97, -97]).int(2);
    let call = options(call, None, true, Some(1.0));
    let call = if parameters {
        call.constant(DType::I8, &one(1), &[5i8])
            .constant(DType::F32, &one(1), &[0.5f32])
            .constant(DType::I8, &one(3), &[0i8, -128, 0])
            .constant(DType::F32, &one(3), &[1.0f32, 0.01, 2.0])
            .constant(DType::I8, &one(3), &[0i8, 10, -100])
            .constant(DType::F32, &one(3), &[10.0f32, 10.0, 10.0])
    } else {
        (0..6).fold(call, |call, _| call.value(EValue::Null))
    };
    let call = call.value(EValue::Bool(second)).output(DType::F32, &dims(1));
    call.run("llama::custom_quantized_sdpa", "out").map(|(_, bytes)| elements(&bytes))
}

#[test]
fn int8_attention_in_either_layout() {
    let weights = [0.0, 0.5 * 0.02 + 2.55, 0.5 * 2.0 + 2.0].map(f32::exp);
    let sum: f32 = weights.iter().sum();
    let want = [(weights[0] + 3.0 * weights[2]) * 10.0 / sum, (weights[1] + 3.0 * weights[2]) * 10.0 / sum];
    close(&quantized(false, true).unwrap(), &want, 1e-6);
    close(&quantized(true, true).unwrap(), &want, 1e-6);
    let text = quantized(false, false).unwrap_err().chain();
    assert!(text.ends_with("int8 attention without scales and zero points"), "{text}");
}

#[test]
fn defects_are_named() {
    for (result, want) in [
        (simple(2, None, true, None), "positions from 2 on, 2 of them, are not in a cache of 3"),
        (simple(-1, None, false, None), "positions from -1 on, 2 of them, are not in a cache of 3"),
        (simple(0, Some((&[2, 3], &[0.0; 6])), true, None), "attention is either causal or masked, not both"),
        (simple(0, Some((&[2, 2], &[0.0; 4])), false, None), "the mask cannot have the sizes [2, 2]"),
    ] {
        let text = result.unwrap_err().chain();
        assert!(text.ends_with(want), "{text}");
    }
    let call = |query: &[usize], key: &[usize], dtype| {
        let zeros = |dims: &[usize]| vec![0.0f32; dims.iter().product()];
        let call = Call::new().constant(DType::F32, query, &zeros(query));
        let call = match dtype {
            DType::F32 => call.constant(dtype, key, &zeros(key)).constant(dtype, key, &zeros(key)),
            _ => call.constant(dtype, key, &vec![0i32; key.iter().product()]).constant(DType::F32, key, &zeros(key)),
        };
        options(call.int(0), None, true, None).output(DType::F32, query).run("llama::custom_sdpa", "out")
    };
    for (result, want) in [
        (call(&[1, 1, 3, 2], &[1, 4, 2, 2], DType::F32), "sizes [1, 1, 3, 2] and [1, 4, 2, 2] do not go together"),
        (call(&[1, 1, 2, 4], &[1, 4, 2, 2], DType::F32), "sizes [1, 1, 2, 4] and [1, 4, 2, 2] do not go together"),
        (call(&[2, 1, 2, 2], &[1, 4, 2, 2], DType::F32), "sizes [2, 1, 2, 2] and [1, 4, 2, 2] do not go together"),
        (call(&[1, 2, 2], &[1, 4, 2, 2], DType::F32), "the query cannot have the sizes [1, 2, 2]"),
        (call(&[1, 1, 2, 2], &[1, 4, 2, 2], DType::I32), "the key has i32 elements, its type says f32"),
    ] {
        let text = result.unwrap_err().chain();
        assert!(text.ends_with(want), "{text}");
    }
}
