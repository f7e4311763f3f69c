//! Rotary position embedding: rotates pairs of a head's numbers by angles that grow with the position.

use super::set::KernelSet;
use super::simd::{Op, Simd};

/// Which numbers of a head form a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryStyle {
    /// 2i and 2i + 1 (Meta's checkpoints).
    Interleaved,
    /// i and i + head_dim/2 (Hugging Face's).
    HalfSplit,
}

/// The angles of one call.
#[derive(Debug, Clone, Copy)]
pub struct Rotary<'a> {
    /// Pairs.
    pub style: RotaryStyle,
    /// Numbers a head has; even.
    pub head_dim: usize,
    /// Cosines, [tokens, head_dim/2].
    pub cos: &'a [f32],
    /// Sines, [tokens, head_dim/2].
    pub sin: &'a [f32],
}

struct Rotate<'a> {
    rotary: Rotary<'a>,
    heads: usize,
    x: &'a mut [f32], // [tokens, heads, head_dim]
}

impl Op for Rotate<'_> {
    type Out = ();
    #[inline(always)]
    fn eval<S: Simd>(self, _: S) {
        let Rotary { style, head_dim, cos, sin } = self.rotary;
        let half = head_dim / 2;
        let angles = cos.chunks_exact(half).zip(sin.chunks_exact(half));
        for (token, (cos, sin)) in self.x.chunks_exact_mut(self.heads * head_dim).zip(angles) {
            for head in token.chunks_exact_mut(head_dim) {
                match style {
                    RotaryStyle::Interleaved => {
                        for ((pair, c), s) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                            let [a, b] = *pair;
                            *pair = [a * c - b * s, a * s + b * c];
                        }
                    }
                    RotaryStyle::HalfSplit => {
                        let (first, second) = head.split_at_mut(half);
                        for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                            (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
                        }
                    }
                }
            }
        }
    }
}

impl KernelSet {
    /// Rotates `x` [tokens, heads, head_dim] in place. Products and sums are rounded one by one, as the unfused
    /// operators do it.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn rotary(&self, rotary: Rotary<'_>, heads: usize, x: &mut [f32]) {
        let half = rotary.head_dim / 2;
        assert!(half > 0 && rotary.head_dim.is_multiple_of(2) && heads > 0, "head_dim must be even");
        let tokens = x.len() / (heads * rotary.head_dim);
        assert_eq!(x.len(), tokens * heads * rotary.head_dim, "not whole tokens");
        assert!(rotary.cos.len() == tokens * half && rotary.sin.len() == tokens * half, "angles do not fit the tokens");
        self.run(Rotate { rotary, heads, x });
    }
}
