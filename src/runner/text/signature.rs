//! What a `forward(tokens, input_pos)` method takes and gives, found from its shapes.
//!
//! * tokens `[1, S]` i64 or i32, of up to S tokens where dynamic, of exactly S where not;
//! * `input_pos` `[1]`, where the first token goes, or `[S]`, where each goes; absent from methods without a cache, which
//!   read the whole context in each call;
//! * logits `[1, vocab]` or `[1, 1, vocab]` of the last token, or `[1, S, vocab]` of each.

use crate::runner::io::{IoError, Place, Slot, matrix};
use crate::runner::logits::LogitsFormat;
use crate::runtime::{MethodId, MethodInfo, TensorInfo};
use crate::tensor::DType;
use std::fmt::Write;

/// Most inputs or outputs that a description lists.
const MAX_LISTED: usize = 4;

/// What `input_pos` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Positions {
    /// Where the first token goes.
    Start(Slot),
    /// Where each token goes, up to `bound` of them. Resized with the tokens, to `rank` dimensions, where dynamic.
    Each { slot: Slot, bound: usize, rank: usize, dynamic: bool },
}

/// Everything that the runner knows of a method.
#[derive(Debug, Clone)]
pub(super) struct TextIo {
    pub id: MethodId,
    pub name: String,
    pub tokens: Slot,
    /// Most tokens of a call; where not dynamic, the only number of them.
    pub most: usize,
    pub dynamic: bool,
    /// `None` for a method without a cache.
    pub positions: Option<Positions>,
    pub logits: Slot,
    /// Size in bytes of the logits when the runner must give them memory.
    pub unplanned_logits: Option<usize>,
    /// Whether there is a row of logits for each token, not for the last alone.
    pub every_row: bool,
    pub vocab: usize,
    pub format: LogitsFormat,
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::I64)
}

/// Whether a method is of this kind: nothing but integers go in, where a step of a static program takes a mask too.
pub(crate) fn is_text(info: &MethodInfo) -> bool {
    !info.inputs.is_empty() && info.inputs.iter().all(|input| input.as_ref().is_some_and(|t| is_integer(t.dtype)))
}

/// Tokens of the vocabulary of a method of this kind.
pub(crate) fn vocab(info: &MethodInfo) -> Option<usize> {
    TextIo::resolve(MethodId(0), info).ok().map(|io| io.vocab)
}

/// A method in one line, as `forward(i64[1, ≤127], i64[1]) -> f32[1, 512]`.
pub(crate) fn describe(info: &MethodInfo) -> String {
    format!("{}({}) -> {}", info.name, list(&info.inputs), list(&info.outputs))
}

fn list(tensors: &[Option<TensorInfo>]) -> String {
    let shown = tensors.iter().take(MAX_LISTED).map(|tensor| tensor.as_ref().map_or("no tensor".to_owned(), shape));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if tensors.len() > MAX_LISTED {
        let _ = write!(text, ", and {} more", tensors.len() - MAX_LISTED);
    }
    text
}

fn shape(info: &TensorInfo) -> String {
    // A size of 1 is fixed in practice; which of the others may shrink is not known from outside.
    let bound = |&dim: &usize| if info.dynamic && dim > 1 { format!("≤{dim}") } else { dim.to_string() };
    format!("{}[{}]", info.dtype, info.dims.iter().map(bound).collect::<Vec<_>>().join(", "))
}

impl TextIo {
    /// Resolves the tensors of a loaded method.
    pub fn resolve(id: MethodId, info: &MethodInfo) -> Result<Self, IoError> {
        let method = info.name.as_str();
        let input = |index| tensor(method, &info.inputs, index, Place::Input(index));
        let mismatch = |place, found: &TensorInfo, wanted: &str| IoError::Mismatch {
            method: method.to_owned(),
            place,
            found: shape(found),
            wanted: wanted.to_owned(),
        };

        let tokens = input(0)?;
        let most = match matrix(&tokens.dims) {
            Some((1, most)) if most > 0 && tokens.dims.len() == 2 && is_integer(tokens.dtype) => most,
            _ => return Err(mismatch(Place::Input(0), tokens, "tokens, i64 or i32 [1, S]")),
        };
        let positions = match info.inputs.len() {
            1 => None,
            2 => {
                let found = input(1)?;
                let wanted = format!("input_pos, i64 or i32 [1] or [{most}]");
                let refuse = || mismatch(Place::Input(1), found, &wanted);
                let flat = [1, 2].contains(&found.dims.len()) && found.dims.iter().rev().skip(1).all(|&dim| dim == 1);
                if !flat || !is_integer(found.dtype) {
                    return Err(refuse());
                }
                let slot = Slot { index: 1, dtype: found.dtype };
                match found.dims.last() {
                    Some(1) => Some(Positions::Start(slot)),
                    Some(&count) if count == most || (found.dynamic && count > most) => {
                        let (bound, rank, dynamic) = (count, found.dims.len(), found.dynamic);
                        Some(Positions::Each { slot, bound, rank, dynamic })
                    }
                    _ => return Err(refuse()),
                }
            }
            _ => return Err(mismatch(Place::Input(2), input(2)?, "absent: tokens and input_pos are all that goes in")),
        };

        let logits = tensor(method, &info.outputs, 0, Place::Output(0))?;
        if info.outputs.len() > 1 {
            let second = tensor(method, &info.outputs, 1, Place::Output(1))?;
            return Err(mismatch(Place::Output(1), second, "absent: logits are all that comes out"));
        }
        let rows_and_vocab = match *logits.dims.as_slice() {
            [1, vocab] => Some((1, vocab)),
            [1, rows, vocab] => Some((rows, vocab)),
            _ => None,
        };
        let (rows, vocab) = rows_and_vocab
            .filter(|&(rows, vocab)| vocab > 0 && [1, most].contains(&rows) && LogitsFormat::supports(logits.dtype))
            .ok_or_else(|| {
                let wanted = format!("logits, a float or u16 [1, vocab], [1, 1, vocab] or [1, {most}, vocab]");
                mismatch(Place::Output(0), logits, &wanted)
            })?;
        Ok(Self {
            id,
            name: method.to_owned(),
            tokens: Slot { index: 0, dtype: tokens.dtype },
            most,
            dynamic: tokens.dynamic,
            positions,
            logits: Slot { index: 0, dtype: logits.dtype },
            unplanned_logits: (!logits.planned).then(|| logits.byte_len()),
            every_row: rows == most && most > 1,
            vocab,
            format: LogitsFormat { dtype: logits.dtype, encoding: logits.encoding },
        })
    }

    /// Whether `tokens` of them can be given in one call, without tokens that fill it up.
    pub fn takes(&self, tokens: usize) -> bool {
        if self.dynamic { (1..=self.most).contains(&tokens) } else { tokens == self.most }
    }
}

fn tensor<'a>(
    method: &str,
    tensors: &'a [Option<TensorInfo>],
    index: usize,
    place: Place,
) -> Result<&'a TensorInfo, IoError> {
    let found = tensors.get(index).and_then(Option::as_ref);
    found.ok_or_else(|| IoError::NotATensor { method: method.to_owned(), place })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dtype: DType, dims: &[usize], dynamic: bool) -> Option<TensorInfo> {
        Some(TensorInfo { dtype, dims: dims.to_vec(), dynamic, planned: true, encoding: None })
    }

    fn method(inputs: Vec<Option<TensorInfo>>, outputs: Vec<Option<TensorInfo>>) -> MethodInfo {
        MethodInfo { name: "forward".into(), inputs, outputs }
    }

    fn resolve(inputs: &[(DType, &[usize], bool)], output: &[usize]) -> Result<TextIo, String> {
        let inputs = inputs.iter().map(|&(dtype, dims, dynamic)| info(dtype, dims, dynamic)).collect();
        let method = method(inputs, vec![info(DType::F32, output, true)]);
        assert!(is_text(&method));
        TextIo::resolve(MethodId(0), &method).map_err(|error| error.to_string())
    }

    const TOKENS: (DType, &[usize], bool) = (DType::I64, &[1, 127], true);
    const START: (DType, &[usize], bool) = (DType::I64, &[1], false);

    #[test]
    fn the_shapes_of_the_field() {
        let io = resolve(&[TOKENS, START], &[1, 512]).unwrap();
        assert_eq!((io.most, io.dynamic, io.every_row, io.vocab), (127, true, false, 512));
        assert!(matches!(io.positions, Some(Positions::Start(_))) && io.unplanned_logits.is_none());
        assert!(io.takes(1) && io.takes(127) && !io.takes(128) && !io.takes(0));

        let io = resolve(&[TOKENS, START], &[1, 127, 512]).unwrap();
        assert!(io.every_row);
        let io = resolve(&[TOKENS, (DType::I64, &[127], true)], &[1, 1, 512]).unwrap();
        assert!(matches!(io.positions, Some(Positions::Each { rank: 1, dynamic: true, .. })) && !io.every_row);
        let io = resolve(&[(DType::I32, &[1, 1], false), START], &[1, 1, 512]).unwrap();
        assert!(io.takes(1) && !io.takes(2) && !io.every_row);
        assert_eq!(resolve(&[TOKENS], &[1, 127, 512]).unwrap().positions, None);
    }

    #[test]
    fn shapes_of_other_programs_are_refused_by_place() {
        for (inputs, output, wanted) in [
            (&[(DType::I64, &[2, 8][..], false), START][..], &[1, 5][..], "input 0 is i64[2, 8], not tokens"),
            (&[(DType::I64, &[8], false), START], &[1, 5], "input 0 is i64[8], not tokens"),
            (&[TOKENS, (DType::I64, &[2, 2], false)], &[1, 5], "input 1 is i64[2, 2], not input_pos"),
            (
                &[TOKENS, (DType::I64, &[9], false)],
                &[1, 5],
                "input 1 is i64[9], not input_pos, i64 or i32 [1] or [127]",
            ),
            (&[TOKENS, START, START], &[1, 5], "input 2 is i64[1], not absent"),
            (&[TOKENS, START], &[1, 3, 5], "output 0 is f32[1, ≤3, ≤5], not logits"),
            (&[TOKENS, START], &[5], "output 0 is f32[≤5], not logits"),
        ] {
            let error = resolve(inputs, output).unwrap_err();
            assert!(error.starts_with("method forward: ") && error.contains(wanted), "{error}");
        }
        let two = method(vec![info(DType::I64, &[1, 1], false)], vec![info(DType::F32, &[1, 5], false); 2]);
        assert!(
            TextIo::resolve(MethodId(0), &two).unwrap_err().to_string().contains("output 1 is f32[1, 5], not absent")
        );
        let none = method(vec![info(DType::I64, &[1, 1], false)], vec![None]);
        assert!(matches!(TextIo::resolve(MethodId(0), &none), Err(IoError::NotATensor { .. })));
        let none = method(vec![info(DType::I64, &[1, 1], false)], vec![]);
        assert!(matches!(TextIo::resolve(MethodId(0), &none), Err(IoError::NotATensor { .. })));
    }

    #[test]
    fn a_mask_makes_a_method_a_static_one() {
        let inputs = vec![info(DType::I32, &[1, 1], false), info(DType::U16, &[1, 1, 8], false)];
        assert!(!is_text(&method(inputs, vec![])));
        assert!(!is_text(&method(vec![], vec![])) && !is_text(&method(vec![None], vec![])));
    }

    #[test]
    fn a_method_is_described_in_one_line() {
        let inputs = vec![info(DType::I64, &[1, 127], true), info(DType::I64, &[1], false)];
        let outputs = vec![info(DType::F32, &[1, 512], false)];
        assert_eq!(describe(&method(inputs, outputs)), "forward(i64[1, ≤127], i64[1]) -> f32[1, 512]");
        let many = method(vec![info(DType::U8, &[2], false); 43], vec![None]);
        assert_eq!(describe(&many), "forward(u8[2], u8[2], u8[2], u8[2], and 39 more) -> no tensor");
    }
}
