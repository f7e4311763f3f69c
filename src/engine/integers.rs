//! Integers and booleans of any element type, as `i64`. Bytes are little-endian.

use crate::tensor::DType;

/// Calls `$body` with `$t` as the Rust type of an integer dtype.
macro_rules! with_integer {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            DType::I8 | DType::QI8 => {
                type $t = i8;
                $body
            }
            DType::U16 | DType::Bits16 => {
                type $t = u16;
                $body
            }
            DType::I16 => {
                type $t = i16;
                $body
            }
            DType::U32 => {
                type $t = u32;
                $body
            }
            DType::I32 | DType::QI32 => {
                type $t = i32;
                $body
            }
            DType::I64 | DType::U64 => {
                type $t = i64;
                $body
            }
            _ => {
                type $t = u8;
                $body
            }
        }
    };
}

/// Reads `out.len()` elements: element `start + i * stride` of `bytes` for each `i`.
#[allow(clippy::unnecessary_cast)] // Of i64 alone.
pub(super) fn load(dtype: DType, bytes: &[u8], start: usize, stride: usize, out: &mut [i64]) {
    with_integer!(dtype, T => {
        let items = bytes.as_chunks::<{ size_of::<T>() }>().0;
        match stride {
            1 => out.iter_mut().zip(&items[start..]).for_each(|(out, &item)| *out = T::from_le_bytes(item) as i64),
            _ => out.iter_mut().enumerate().for_each(|(i, out)| *out = T::from_le_bytes(items[start + i * stride]) as i64),
        }
    });
    if dtype == DType::Bool {
        out.iter_mut().for_each(|value| *value = i64::from(*value != 0));
    }
}

/// Writes all of `values`, modulo the size of the type; bool is "not zero".
#[allow(clippy::unnecessary_cast)] // Of i64 alone.
pub(super) fn store(dtype: DType, values: &[i64], bytes: &mut [u8]) {
    if dtype == DType::Bool {
        return bytes.iter_mut().zip(values).for_each(|(byte, &value)| *byte = u8::from(value != 0));
    }
    with_integer!(dtype, T => {
        let items = bytes.as_chunks_mut::<{ size_of::<T>() }>().0;
        items.iter_mut().zip(values).for_each(|(item, &value)| *item = (value as T).to_le_bytes());
    });
}

/// Element `index`; `None` when there are fewer.
pub(super) fn get(dtype: DType, bytes: &[u8], index: usize) -> Option<i64> {
    let size = dtype.size();
    let start = index.checked_mul(size)?;
    let element = bytes.get(start..start.checked_add(size)?)?;
    let mut value = [0];
    load(dtype, element, 0, 1, &mut value);
    Some(value[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn every_type_round_trips_modulo_its_size() {
        for (dtype, value, held) in [
            (U8, -1, 255),
            (I8, 200, -56),
            (QI8, -3, -3),
            (U16, 65_537, 1),
            (I16, 40_000, 40_000 - 65_536),
            (U32, -1, 0xffff_ffff),
            (I32, 1 << 40, 0),
            (I64, i64::MIN, i64::MIN),
            (Bool, 7, 1),
        ] {
            let mut bytes = vec![0; 2 * dtype.size()];
            store(dtype, &[5, value], &mut bytes);
            assert_eq!(get(dtype, &bytes, 1), Some(held), "{dtype}");
            assert_eq!(get(dtype, &bytes, 2), None);
            assert_eq!(get(dtype, &bytes, usize::MAX), None);
        }
    }

    #[test]
    fn strides_skip_and_repeat() {
        let bytes: Vec<u8> = (0..10u16).flat_map(u16::to_le_bytes).collect();
        let mut out = [0; 3];
        load(U16, &bytes, 1, 3, &mut out);
        assert_eq!(out, [1, 4, 7]);
        load(U16, &bytes, 2, 0, &mut out);
        assert_eq!(out, [2, 2, 2]);
    }
}
