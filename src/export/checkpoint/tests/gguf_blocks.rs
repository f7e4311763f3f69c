//! Every block type against formulas written down independently, as one expression for each element.

use crate::export::checkpoint::gguf::BlockType;
use half::f16;

/// Bytes that look random and are the same each time, with `halves` overwritten by small f16 numbers.
fn block(kind: BlockType, seed: u64, halves: &[usize]) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut block: Vec<u8> = (0..kind.bytes()).map(|_| byte()).collect();
    for &at in halves {
        let value = f16::from_f32(f32::from(byte() as i8) / 512.0);
        block[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    block
}

/// `formula(block, i)` is element `i`.
fn check(number: u32, halves: &[usize], formula: impl Fn(&[u8], usize) -> f32) {
    let kind = BlockType::of(number).unwrap();
    for seed in 1..50 {
        let block = block(kind, seed, halves);
        let mut found = Vec::new();
        kind.dequantize(&block, |value| found.push(value));
        assert_eq!(found.len(), kind.elements());
        for (i, found) in found.into_iter().enumerate() {
            let expected = formula(&block, i);
            assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{kind:?} {i}: {found} {expected}");
        }
    }
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_bits(u16::from(block[at]) + 256 * u16::from(block[at + 1])).to_f32()
}

/// Code `i` of 32: low halves of the bytes first.
fn nibble(bytes: &[u8], i: usize) -> f32 {
    f32::from(if i < 16 { bytes[i] % 16 } else { bytes[i - 16] / 16 })
}

fn bit(bytes: &[u8], i: usize) -> f32 {
    f32::from(bytes[i / 8] / (1 << (i % 8)) % 2)
}

#[test]
fn q4_0_is_a_nibble_around_eight() {
    check(2, &[0], |b, i| (nibble(&b[2..], i) - 8.0) * half(b, 0));
}

#[test]
fn q4_1_is_a_nibble_above_a_minimum() {
    check(3, &[0, 2], |b, i| nibble(&b[4..], i) * half(b, 0) + half(b, 2));
}

#[test]
fn q5_0_is_five_bits_around_sixteen() {
    check(6, &[0], |b, i| (nibble(&b[6..], i) + 16.0 * bit(&b[2..], i) - 16.0) * half(b, 0));
}

#[test]
fn q5_1_is_five_bits_above_a_minimum() {
    check(7, &[0, 2], |b, i| (nibble(&b[8..], i) + 16.0 * bit(&b[4..], i)) * half(b, 0) + half(b, 2));
}

#[test]
fn q8_0_is_a_signed_byte() {
    check(8, &[0], |b, i| f32::from(b[2 + i] as i8) * half(b, 0));
}

/// Scale and minimum of group `g` of a K block, from its bits as one number of 96.
fn scale_and_minimum(block: &[u8], g: usize) -> (f32, f32) {
    let bytes = &block[4..16];
    let all = bytes.iter().rev().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
    let bits = |from: usize, count: usize| (all >> from & ((1 << count) - 1)) as f32;
    if g < 4 {
        (bits(8 * g, 6), bits(8 * (g + 4), 6))
    } else {
        let low = 8 * (g + 4);
        let high = |byte: usize| 16.0 * bits(8 * byte + 6, 2);
        (bits(low, 4) + high(g - 4), bits(low + 4, 4) + high(g))
    }
}

#[test]
fn q4_k_is_a_nibble_with_six_bit_scales() {
    check(12, &[0, 2], |b, i| {
        let (scale, minimum) = scale_and_minimum(b, i / 32);
        let byte = b[16 + i / 64 * 32 + i % 32];
        let code = if i / 32 % 2 == 0 { byte % 16 } else { byte / 16 };
        half(b, 0) * scale * f32::from(code) - half(b, 2) * minimum
    });
}

#[test]
fn q5_k_is_five_bits_with_six_bit_scales() {
    check(13, &[0, 2], |b, i| {
        let (scale, minimum) = scale_and_minimum(b, i / 32);
        let byte = b[48 + i / 64 * 32 + i % 32];
        let code = if i / 32 % 2 == 0 { byte % 16 } else { byte / 16 };
        let fifth = b[16 + i % 32] / (1 << (i / 32)) % 2;
        half(b, 0) * scale * f32::from(code + 16 * fifth) - half(b, 2) * minimum
    });
}

#[test]
fn q6_k_is_six_bits_around_thirty_two() {
    check(14, &[208], |b, i| {
        let (part, within) = (i / 128, i % 128);
        let low = b[64 * part + within % 64];
        let low = if within < 64 { low % 16 } else { low / 16 };
        let high = b[128 + 32 * part + within % 32] / 4u8.pow((within / 32) as u32) % 4;
        half(b, 208) * f32::from(b[192 + i / 16] as i8) * (f32::from(low) + 16.0 * f32::from(high) - 32.0)
    });
}
