//! Whether a tokenizer and a program belong together, as far as their sizes tell.

/// What to say of a tokenizer of `tokenizer` tokens beside a program whose rows of logits have `rows`.
pub fn warning(tokenizer: usize, rows: usize) -> Option<String> {
    // Rows are padded, and a few added tokens may have none that the model was trained on.
    let fits = tokenizer <= rows && rows / 2 <= tokenizer;
    (!fits).then(|| format!("the tokenizer has {tokenizer} tokens and the model {rows}: do they belong together?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_rows_are_usual_and_other_sizes_are_not() {
        for (tokenizer, rows) in [(512, 512), (979, 1024), (128_000, 128_256), (257, 512)] {
            assert_eq!(warning(tokenizer, rows), None, "{tokenizer} {rows}");
        }
        for (tokenizer, rows) in [(513, 512), (512, 49_152), (0, 2)] {
            assert!(warning(tokenizer, rows).is_some(), "{tokenizer} {rows}");
        }
    }
}
