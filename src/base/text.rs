//! Names compared, for messages that say which one is the nearest; numbers as C++ prints them.

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

/// A finite number as a C++ stream prints it by default: six significant digits, no trailing zeros, an exponent below
/// 1e-4 and from 1e6 on.
pub fn general(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    // Rounding to six digits may raise the exponent (999999.5), so it is taken from the rounded text.
    let scientific = format!("{number:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        trim(&format!("{number:.*}", (5 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
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

    #[test]
    fn numbers_print_as_a_cpp_stream_prints_them() {
        for (number, want) in [
            (131.428_571, "131.429"),
            (100.0, "100"),
            (0.5, "0.5"),
            (1.0 / 3.0, "0.333333"),
            (999_999.5, "1e+06"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_123_456_7, "0.000123457"),
            (0.000_012_345_67, "1.23457e-05"),
            (0.0, "0"),
            (9.999_996, "10"),
        ] {
            assert_eq!(general(number), want);
        }
    }
}
