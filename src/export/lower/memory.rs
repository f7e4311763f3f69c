//! Where tensors lie in planned memory: those that are never needed at the same time share it.

use std::ops::RangeInclusive;

/// Offsets are multiples of this, as in upstream's files.
const ALIGNMENT: u64 = 16;

/// Bytes that are needed from one instruction to another.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub bytes: u64,
    /// First and last instruction.
    pub life: RangeInclusive<usize>,
}

/// The offset of each request, and how long a buffer they need. Greedy by size: the largest first, each in the lowest
/// gap that those around it leave.
pub(super) fn plan(requests: &[Request]) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(requests[index].bytes), *requests[index].life.start(), index));
    let mut offsets = vec![0; requests.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut end = 0;
    for index in order {
        let request = &requests[index];
        let mut offset = 0u64;
        // `placed` is sorted by offset.
        for &other in &placed {
            let (there, size) = (offsets[other], requests[other].bytes);
            if !overlap(&request.life, &requests[other].life) || there + size <= offset {
                continue;
            }
            if offset + request.bytes <= there {
                break;
            }
            offset = (there + size).next_multiple_of(ALIGNMENT);
        }
        offsets[index] = offset;
        end = end.max(offset + request.bytes);
        let at = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(at, index);
    }
    (offsets, end.next_multiple_of(ALIGNMENT))
}

fn overlap(a: &RangeInclusive<usize>, b: &RangeInclusive<usize>) -> bool {
    a.start() <= b.end() && b.start() <= a.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: u64, life: RangeInclusive<usize>) -> Request {
        Request { bytes, life }
    }

    /// No two that live together share a byte.
    fn check(requests: &[Request]) -> u64 {
        let (offsets, end) = plan(requests);
        for (i, a) in requests.iter().enumerate() {
            assert!(offsets[i].is_multiple_of(ALIGNMENT) && offsets[i] + a.bytes <= end);
            for (j, b) in requests.iter().enumerate().skip(i + 1) {
                let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
                assert!(apart || !overlap(&a.life, &b.life), "{i} and {j}: {requests:?} at {offsets:?}");
            }
        }
        end
    }

    #[test]
    fn tensors_that_follow_each_other_share_memory() {
        assert_eq!(check(&[request(100, 0..=1), request(60, 2..=3), request(40, 2..=5)]), 112);
        assert_eq!(check(&[request(100, 0..=2), request(60, 2..=3)]), 112 + 64);
        assert_eq!(check(&[]), 0);
    }

    #[test]
    fn a_gap_between_two_is_used() {
        let gap = [request(64, 0..=9), request(64, 0..=3), request(64, 0..=9), request(16, 4..=6), request(48, 5..=6)];
        assert_eq!(check(&gap), 192);
    }

    #[test]
    fn random_lives_never_collide() {
        let mut rng = crate::graph::testing::Rng(11);
        for _ in 0..50 {
            let one = |rng: &mut crate::graph::testing::Rng| {
                let start = rng.below(40);
                request(1 + rng.below(200) as u64, start..=start + rng.below(8))
            };
            let requests: Vec<_> = (0..60).map(|_| one(&mut rng)).collect();
            let end = check(&requests);
            assert!(end < requests.iter().map(|request| request.bytes).sum());
        }
    }
}
