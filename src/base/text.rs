//! Comparing names, for messages that say which name is the nearest.

/// Edit distance (Levenshtein).
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_changes_of_one_byte() {
        for (a, b, want) in [("", "", 0), ("fuse", "fuze", 1), ("fuse", "", 4), ("kitten", "sitting", 3)] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (want, want), "{a} {b}");
        }
    }
}
