//! A weight that is no number makes every token after it meaningless: it is found before any work is done.

use super::ModelError;
use crate::graph::{Graph, ValueKind};
use crate::tensor::DType;

/// Elements that are looked at together.
const CHUNK: usize = 1 << 10;

/// Looks at every weight of `graph`, which [`build`](super::build) made, and gives its pages back. Masks have infinities
/// of their own.
///
/// # Errors
/// [`ModelError::NotFinite`]; names the first weight with an infinity or a NaN, and where it is.
pub fn check_finite(graph: &Graph) -> Result<(), ModelError> {
    let weights = graph.values.iter().filter(|value| [".weight", ".bias"].iter().any(|end| value.name.ends_with(end)));
    for value in weights {
        let ValueKind::Constant(constant) = &value.kind else { continue };
        let found = match value.dtype {
            DType::F32 => first(&constant.data, |bytes| u32::from_le_bytes(bytes) & 0x7f80_0000 == 0x7f80_0000),
            DType::F16 => first(&constant.data, |bytes| u16::from_le_bytes(bytes) & 0x7c00 == 0x7c00),
            DType::BF16 => first(&constant.data, |bytes| u16::from_le_bytes(bytes) & 0x7f80 == 0x7f80),
            _ => None,
        };
        constant.data.release();
        if let Some(element) = found {
            return Err(ModelError::NotFinite { name: value.name.clone(), element });
        }
    }
    Ok(())
}

/// The first element of which `is_wrong` holds.
fn first<const N: usize>(bytes: &[u8], is_wrong: impl Fn([u8; N]) -> bool) -> Option<usize> {
    let elements = bytes.as_chunks::<N>().0;
    // Without an early end, so that it becomes vector code.
    let chunk = elements.chunks(CHUNK).position(|chunk| chunk.iter().fold(false, |wrong, &x| wrong | is_wrong(x)))?;
    let within = elements[chunk * CHUNK..].iter().position(|&x| is_wrong(x))?;
    Some(chunk * CHUNK + within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::blob;

    #[test]
    fn the_first_weight_that_is_no_number_is_named_with_its_place() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut reals = vec![0.5; 3 * CHUNK];
                let of = |reals: &[f32]| {
                    let mut graph = Graph::new("g");
                    graph.add_constant("w.weight", dtype, &[reals.len()], None, blob(dtype, reals));
                    check_finite(&graph)
                };
                assert_eq!(of(&reals), Ok(()));
                reals[2 * CHUNK + 7] = wrong;
                assert_eq!(of(&reals), Err(ModelError::NotFinite { name: "w.weight".into(), element: 2 * CHUNK + 7 }));
            }
        }
    }
}
