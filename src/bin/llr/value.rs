//! Numbers on the command line: what is no number of the wanted kind is refused in plain words, a negative one too.

/// A whole number from 0 on.
pub fn count(text: &str) -> Result<usize, String> {
    use std::num::IntErrorKind::PosOverflow;
    text.parse::<usize>().map_err(|error| match error.kind() {
        PosOverflow => "it is too large".to_owned(),
        _ => "it is no whole number from 0 on".to_owned(),
    })
}

/// A whole number above 0.
pub fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "it is no whole number above 0".to_owned())
}

/// A sampling temperature.
pub fn temperature(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|t: &f32| *t >= 0.0 && t.is_finite()).ok_or_else(|| "it is no number from 0 on".to_owned())
}
