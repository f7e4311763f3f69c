//! Byte-pair merging in n·log n: the result of "merge the best pair, leftmost first, until none is left", without
//! looking at every pair again after each merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

const NONE: u32 = u32::MAX;

/// A text as a linked list of parts that can be merged with their neighbours.
pub(super) struct Parts {
    parts: Vec<Part>,
}

struct Part {
    start: u32,
    /// 0 once merged into the part on its left.
    len: u32,
    prev: u32,
    next: u32,
    frozen: bool,
}

/// Two neighbours that may become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) start: usize,
    pub(super) middle: usize,
    pub(super) end: usize,
}

impl Pair {
    /// Both parts together.
    pub(super) fn whole(self) -> Range<usize> {
        self.start..self.end
    }
}

impl Parts {
    /// No parts yet. Texts must be shorter than 2³² − 1 bytes, see [`super::check_length`].
    pub(super) fn new() -> Self {
        Self { parts: Vec::new() }
    }

    /// Adds the part that follows the last one and is `len` > 0 bytes long. A `frozen` part never merges.
    pub(super) fn push(&mut self, len: usize, frozen: bool) {
        let count = self.parts.len() as u32;
        let start = self.parts.last().map_or(0, |last| last.start + last.len);
        if let Some(last) = self.parts.last_mut() {
            last.next = count;
        }
        let prev = count.checked_sub(1).unwrap_or(NONE);
        self.parts.push(Part { start, len: len as u32, prev, next: NONE, frozen });
    }

    /// Merges all that can be. `rank` says how early a pair is merged, the lowest first, or that it never is; it is
    /// called less than three times a part.
    pub(super) fn merge<R: Ord>(&mut self, mut rank: impl FnMut(Pair) -> Option<R>) {
        let mut queue = BinaryHeap::new();
        for right in 1..self.parts.len() as u32 {
            self.offer(right - 1, right, &mut queue, &mut rank);
        }
        while let Some(Reverse((_, left, right, len))) = queue.pop() {
            let (l, r) = (&self.parts[left as usize], &self.parts[right as usize]);
            // A part that has been merged since has another length, so the entry is stale.
            if l.len == 0 || r.len == 0 || l.len + r.len != len {
                continue;
            }
            let after = r.next;
            self.parts[right as usize].len = 0;
            let l = &mut self.parts[left as usize];
            (l.len, l.next) = (len, after);
            let before = l.prev;
            if after != NONE {
                self.parts[after as usize].prev = left;
                self.offer(left, after, &mut queue, &mut rank);
            }
            if before != NONE {
                self.offer(before, left, &mut queue, &mut rank);
            }
        }
    }

    fn offer<R: Ord>(
        &self,
        left: u32,
        right: u32,
        queue: &mut BinaryHeap<Reverse<(R, u32, u32, u32)>>,
        rank: &mut impl FnMut(Pair) -> Option<R>,
    ) {
        let (l, r) = (&self.parts[left as usize], &self.parts[right as usize]);
        if l.frozen || r.frozen {
            return;
        }
        let pair = Pair { start: l.start as usize, middle: r.start as usize, end: (r.start + r.len) as usize };
        if let Some(rank) = rank(pair) {
            queue.push(Reverse((rank, left, right, l.len + r.len)));
        }
    }

    /// The parts that are left, in order, each with whether it is frozen.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Range<usize>, bool)> + '_ {
        let live = self.parts.iter().filter(|part| part.len > 0);
        live.map(|part| (part.start as usize..(part.start + part.len) as usize, part.frozen))
    }
}

/// A rank under which the highest score comes first. `score` must not be NaN.
pub(super) fn highest_first(score: f32) -> u32 {
    // Adding zero makes −0 and +0 one number.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn words(list: &[(&'static str, f32)]) -> HashMap<&'static str, f32> {
        list.iter().copied().collect()
    }

    fn merged(text: &str, words: &HashMap<&'static str, f32>) -> Vec<String> {
        let mut parts = Parts::new();
        text.chars().for_each(|c| parts.push(c.len_utf8(), false));
        parts.merge(|pair| words.get(&text[pair.whole()]).map(|score| highest_first(*score)));
        parts.ranges().map(|(range, _)| text[range].to_owned()).collect()
    }

    /// The definition: look at all pairs, merge the best, begin again.
    fn greedy(text: &str, words: &HashMap<&'static str, f32>) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for i in 1..parts.len() {
                if let Some(&score) = words.get(format!("{}{}", parts[i - 1], parts[i]).as_str())
                    && best.is_none_or(|(highest, _)| score > highest)
                {
                    best = Some((score, i));
                }
            }
            let Some((_, i)) = best else { return parts };
            let right = parts.remove(i);
            parts[i - 1] += &right;
        }
    }

    #[test]
    fn equals_the_greedy_definition_on_every_short_text() {
        let words = words(&[
            ("ab", -1.0),
            ("ba", -1.0),
            ("aa", 0.0),
            ("bb", -0.0),
            ("aab", 2.0),
            ("bba", -3.0),
            ("abab", -2.5),
            ("aaaa", 0.5),
            ("baab", 7.0),
            ("bc", -1.0),
            ("cab", -0.5),
            ("bcab", 1.5),
        ]);
        for length in 0..=9u32 {
            for n in 0..3u32.pow(length) {
                let text: String = (0..length).map(|i| ['a', 'b', 'c'][(n / 3u32.pow(i) % 3) as usize]).collect();
                assert_eq!(merged(&text, &words), greedy(&text, &words), "{text}");
            }
        }
    }

    #[test]
    fn frozen_parts_stay_alone() {
        let mut parts = Parts::new();
        [false, true, false, false].into_iter().for_each(|frozen| parts.push(1, frozen));
        parts.merge(|pair| Some(pair.start));
        assert_eq!(parts.ranges().collect::<Vec<_>>(), [(0..1, false), (1..2, true), (2..4, false)]);
    }

    #[test]
    fn work_grows_with_the_text_and_not_with_its_square() {
        let work = |n: usize| {
            let mut parts = Parts::new();
            (0..n).for_each(|_| parts.push(1, false));
            let mut calls = 0;
            parts.merge(|pair| {
                calls += 1;
                (pair.end - pair.start <= 8).then_some(pair.end - pair.start)
            });
            calls
        };
        assert!(work(1000) >= 999);
        assert!(work(16_000) <= 17 * work(1000));
        assert!(work(16_000) < 3 * 16_000);
    }

    #[test]
    fn scores_order_as_numbers_do() {
        let descending = [f32::MAX, 1.0, 0.0, -f32::MIN_POSITIVE, -1.5, -1e10];
        assert!(descending.is_sorted_by_key(|score| highest_first(*score)));
        assert_eq!(highest_first(0.0), highest_first(-0.0));
    }
}
