//! Graphs for the tests of this room and of `passes`: a small llama in plain operations, as exports spell it, and
//! random graphs.

mod llama;
mod random;

pub(crate) use llama::{AttentionForm, Llama, RotaryForm};
pub(crate) use random::{random_graph, random_outputs};

use super::Int;
use crate::base::storage::Blob;

/// Numbers that are the same in every run (xorshift64*).
pub(crate) struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// In −1..1.
    pub fn real(&mut self) -> f32 {
        (self.next() & 0xff_ffff) as f32 / 8_388_608.0 - 1.0
    }

    pub fn reals(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.real()).collect()
    }
}

pub(crate) fn f32_blob(data: &[f32]) -> Blob {
    Blob::from_vec(data.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// Known sizes as a graph's.
pub(crate) fn dims(shape: &[usize]) -> Vec<Int> {
    shape.iter().map(|&dim| dim.into()).collect()
}

fn broadcast_shape(a: &[Int], b: &[Int]) -> Vec<Int> {
    let rank = a.len().max(b.len());
    let at =
        |shape: &[Int], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(Int::Const(1), |axis| shape[axis]);
    let join = |axis| if at(a, axis) == Int::Const(1) { at(b, axis) } else { at(a, axis) };
    (0..rank).map(join).collect()
}

/// Fails unless the two differ by at most 1e-5 of the largest number near; NaN equals NaN.
pub(crate) fn assert_close(have: &[Vec<f32>], need: &[Vec<f32>], what: &str) {
    assert_eq!(have.len(), need.len(), "{what}");
    for (have, need) in have.iter().zip(need) {
        assert_eq!(have.len(), need.len(), "{what}");
        let largest = need.iter().filter(|x| x.is_finite()).fold(1f32, |largest, x| largest.max(x.abs()));
        for (index, (&a, &b)) in have.iter().zip(need).enumerate() {
            let close = (a - b).abs() <= 1e-5 * largest || a == b || (a.is_nan() && b.is_nan());
            assert!(close, "{what}: element {index} is {a}, not {b}");
        }
    }
}
