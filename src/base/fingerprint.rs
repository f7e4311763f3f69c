//! Tells files apart by their lengths and a bounded sample of their bytes, so that it costs the same for a model of many
//! gigabytes as for a small one.

use super::fnv::{OFFSET_BASIS, fnv1a64_from};
use super::storage::Storage;
use std::sync::Arc;

/// Files up to this length are read whole, of longer ones as many bytes in [`PIECES`] pieces.
const SAMPLE: usize = 1 << 20;
const PIECES: usize = 256;

/// FNV-1a 64 over each file's length and bytes, or [`PIECES`] evenly spaced pieces of them, the first and the last
/// included. Never 0. Files that differ everywhere, as a model and its fine-tuned descendant do, differ in it; a change
/// between the pieces of a large file is not seen.
pub(crate) fn fingerprint(files: &[Arc<Storage>]) -> u64 {
    let hash = files.iter().fold(OFFSET_BASIS, |hash, file| {
        let hash = fnv1a64_from(hash, &(file.len() as u64).to_le_bytes());
        if file.len() <= SAMPLE {
            return fnv1a64_from(hash, file);
        }
        let piece = SAMPLE / PIECES;
        let last = (file.len() - piece) as u128;
        (0..PIECES as u128).fold(hash, |hash, index| {
            let at = (last * index / (PIECES as u128 - 1)) as usize;
            fnv1a64_from(hash, &file[at..at + piece])
        })
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&[u8]]) -> u64 {
        fingerprint(&files.iter().map(|bytes| Arc::new(Storage::Owned(bytes.to_vec()))).collect::<Vec<_>>())
    }

    #[test]
    fn small_files_count_whole_with_their_lengths_and_order() {
        let small = of(&[b"ab", b"c"]);
        assert_eq!(small, of(&[b"ab", b"c"]));
        for other in [&[&b"ab"[..], b"d"][..], &[b"a", b"bc"], &[b"c", b"ab"], &[b"abc"], &[]] {
            assert_ne!(small, of(other));
        }
    }

    #[test]
    fn large_files_count_by_their_ends_and_what_is_between() {
        let plain = vec![7u8; 3 * SAMPLE + 5];
        let changed = |at: usize, len: usize| {
            let mut bytes = plain.clone();
            bytes[at..at + len].fill(8);
            of(&[&bytes])
        };
        let whole = of(&[&plain]);
        for at in [0, plain.len() - 1] {
            assert_ne!(whole, changed(at, 1));
        }
        let apart = plain.len() / PIECES;
        for at in [SAMPLE, 2 * SAMPLE] {
            assert_ne!(whole, changed(at, apart + 1), "no stretch as long as the distance of two pieces is missed");
        }
        assert_ne!(whole, of(&[&plain[1..]]));
    }
}
