//! What can happen to bytes: flips, overwritten bytes, cuts, pieces that come twice or in the wrong place, and words that
//! may be lengths or offsets.

use std::ops::Range;

/// SplitMix64: a number gives the same damage in every run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Damages `bytes` in one to four places, most of them in `focus`.
pub fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, focus: Range<usize>) {
    // Half of the inputs have one fault only: several mostly end at the first check.
    let faults = if rng.one_in(2) { 1 } else { 2 + rng.below(3) };
    for _ in 0..faults {
        let focus = focus.start.min(bytes.len())..focus.end.min(bytes.len());
        let range = if focus.is_empty() || rng.one_in(8) { 0..bytes.len() } else { focus };
        if range.is_empty() {
            bytes.push(rng.next() as u8);
            continue;
        }
        let at = range.start + rng.below(range.len());
        fault(rng, bytes, at, range);
    }
}

fn fault(rng: &mut Rng, bytes: &mut Vec<u8>, at: usize, range: Range<usize>) {
    let len = bytes.len();
    match rng.below(20) {
        0..5 => bytes[at] ^= 1 << rng.below(8),
        5..7 => write(bytes, at, &[rng.next() as u8]),
        7 => write(bytes, at, &[rng.pick(&[0, 1, 0x7f, 0x80, 0xff])]),
        8..11 => {
            // Lengths, counts, offsets: words at multiples of their size.
            let extremes = [0, 1, 2, 8, 0x7fff_ffff, 0x8000_0000, u32::MAX, len as u32, (len as u32).wrapping_sub(4)];
            write(bytes, at & !3, &rng.pick(&extremes).to_le_bytes());
        }
        11 => {
            let extremes = [0, 1, 1 << 31, 1 << 32, 1 << 40, u64::MAX, i64::MAX as u64, len as u64];
            write(bytes, at & !7, &rng.pick(&extremes).to_le_bytes());
        }
        12..15 => {
            // A little more, a little less, twice as much.
            let at = at & !3;
            let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return };
            let word = u32::from_le_bytes(*word);
            let step = rng.pick(&[1, 2, 4, 8, 64]);
            let new =
                rng.pick(&[word.wrapping_add(step), word.wrapping_sub(step), word.wrapping_mul(2), word ^ 1 << 30]);
            write(bytes, at, &new.to_le_bytes());
        }
        15 => bytes.truncate(at),
        16 => {
            let piece = piece(rng, bytes, &range);
            write(bytes, at, &piece);
        }
        17 => {
            let piece = piece(rng, bytes, &range);
            bytes.splice(at..at, piece);
        }
        18 => drop(bytes.drain(at..(at + 1 + rng.below(32)).min(len))),
        _ => {
            // Two words change places.
            let (a, b) = (at & !3, (range.start + rng.below(range.len())) & !3);
            for offset in 0..4 {
                if a.max(b) + offset < len {
                    bytes.swap(a + offset, b + offset);
                }
            }
        }
    }
}

/// Overwrites what there is from `at` on.
fn write(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
}

fn piece(rng: &mut Rng, bytes: &[u8], range: &Range<usize>) -> Vec<u8> {
    let from = range.start + rng.below(range.len());
    let len = 1 + rng.below(64);
    bytes[from..].iter().take(len).copied().collect()
}
