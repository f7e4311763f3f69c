//! Real constants as codes of one encoding, some elements at a time.

use crate::base::storage::Blob;
use crate::error::Result;
use crate::export::quantize::matrix::widen;
use crate::export::quantize::{CodeStore, CodeType, QuantizeError, Range};
use crate::graph::{Graph, ValueId};
use crate::tensor::Encoding;

/// Elements that are widened at a time.
const PIECE: usize = 4096;

/// Hands the elements of a real constant to `see`; a value that is no constant has none.
fn each_piece(graph: &Graph, id: ValueId, see: &mut dyn FnMut(&[f32])) -> Result<(), QuantizeError> {
    let value = graph.value(id);
    let (size, bytes) = (value.dtype.size(), graph.constant(id).map_or(&[][..], |data| &data[..]));
    let mut reals = vec![0.0; PIECE];
    for (index, piece) in bytes.chunks(PIECE * size).enumerate() {
        let reals = &mut reals[..piece.len() / size];
        widen(value.dtype, piece, reals);
        if let Some(place) = reals.iter().position(|x| !x.is_finite()) {
            let columns = graph.max_shape(id).last().map_or(1, |&columns| columns.max(1));
            let row = (index * PIECE + place) / columns;
            return Err(QuantizeError::NotFinite { name: value.name.clone(), row, value: reals[place] });
        }
        see(reals);
    }
    Ok(())
}

/// Smallest and largest element.
///
/// # Errors
/// [`QuantizeError::NotFinite`].
pub(super) fn range(graph: &Graph, id: ValueId) -> Result<Range, QuantizeError> {
    let mut range: Option<Range> = None;
    each_piece(graph, id, &mut |reals| {
        for &x in reals {
            let one = Range { min: x, max: x };
            range = Some(range.map_or(one, |range| range.union(one)));
        }
    })?;
    range.ok_or_else(|| QuantizeError::NoRange(graph.value(id).name.clone()))
}

/// The elements as codes, little-endian, in `store`.
///
/// # Errors
/// [`QuantizeError::NotFinite`], and those of the store.
pub(super) fn stored(
    store: &CodeStore,
    graph: &Graph,
    id: ValueId,
    codes: CodeType,
    encoding: Encoding,
) -> Result<Blob> {
    let make = || Ok(encode(graph, id, codes, encoding)?);
    store.bytes(&graph.value(id).name, (codes.bits, encoding), make)
}

fn encode(graph: &Graph, id: ValueId, codes: CodeType, encoding: Encoding) -> Result<Vec<u8>, QuantizeError> {
    let mut bytes = Vec::new();
    each_piece(graph, id, &mut |reals| {
        for &x in reals {
            let code = encoding.quantize(x, 0, codes.max()) as u16;
            match codes.bits {
                8 => bytes.push(code as u8),
                _ => bytes.extend(code.to_le_bytes()),
            }
        }
    })?;
    Ok(bytes)
}
