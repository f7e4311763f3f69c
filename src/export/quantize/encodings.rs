//! Encodings by the names of values: what one calibration says about every graph of a model, and its file.

use super::QuantizeError;
use super::histogram::Range;
use crate::graph::{Graph, Quantization};
use crate::tensor::{DType, Encoding};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Unsigned codes of a width, and where zero lies among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeType {
    /// 8 or 16.
    pub bits: u8,
    /// Zero in the middle, so that zero points need no arithmetic.
    pub symmetric: bool,
}

impl CodeType {
    /// Zero where the range puts it.
    pub const fn asymmetric(bits: u8) -> Self {
        Self { bits, symmetric: false }
    }

    /// Element type of the codes.
    pub fn dtype(self) -> DType {
        if self.bits == 8 { DType::U8 } else { DType::U16 }
    }

    /// Largest code.
    pub fn max(self) -> i32 {
        if self.bits == 8 { 255 } else { 65_535 }
    }

    /// The encoding that covers `range` and zero.
    pub fn encoding(self, range: Range) -> Encoding {
        // As small as upstream's smallest: what is always zero still needs a scale.
        let smallest = if self.bits == 8 { 1.0 / 255.0 * 1e-4 } else { 1.0 / 65_535.0 * 1e-4 };
        let (min, max) = (f64::from(range.min.min(0.0)), f64::from(range.max.max(0.0)));
        if self.symmetric {
            let middle = (self.max() + 1) / 2;
            let scale = (max / f64::from(middle - 1)).max(-min / f64::from(middle)).max(smallest);
            return Encoding { scale: scale as f32, zero_point: middle };
        }
        let scale = ((max - min) / f64::from(self.max())).max(smallest);
        let zero_point = (-min / scale).round_ties_even().clamp(0.0, f64::from(self.max()));
        Encoding { scale: scale as f32, zero_point: zero_point as i32 }
    }

    /// As a quantization.
    pub fn quantization(self, encoding: Encoding) -> Quantization {
        Quantization::PerTensor { bits: self.bits, encoding }
    }
}

/// Encodings by the name of a value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Encodings {
    by_name: BTreeMap<String, (u8, Encoding)>,
}

impl Encodings {
    /// Those of a quantized graph.
    pub fn of(graph: &Graph) -> Self {
        let encoded = graph.values.iter().filter_map(|value| match value.quantization {
            Some(Quantization::PerTensor { bits, encoding }) => Some((value.name.clone(), (bits, encoding))),
            _ => None,
        });
        Self { by_name: encoded.collect() }
    }

    /// Bits and encoding of the value called `name`.
    pub fn get(&self, name: &str) -> Option<(u8, Encoding)> {
        self.by_name.get(name).copied()
    }

    /// Sets bits and encoding of the value called `name`.
    pub fn insert(&mut self, name: impl Into<String>, bits: u8, encoding: Encoding) {
        self.by_name.insert(name.into(), (bits, encoding));
    }

    /// In the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u8, Encoding)> {
        self.by_name.iter().map(|(name, &(bits, encoding))| (name.as_str(), bits, encoding))
    }

    /// `{"name": {"bits": 16, "scale": 0.1, "zero_point": 32768}, …}`; scales survive the way there and back.
    pub fn to_json(&self) -> Value {
        let entry = |(name, bits, encoding): (&str, u8, Encoding)| {
            let entry = json!({"bits": bits, "scale": encoding.scale, "zero_point": encoding.zero_point});
            (name.to_owned(), entry)
        };
        Value::Object(self.iter().map(entry).collect::<Map<_, _>>())
    }

    /// As [`Self::to_json`] gives them.
    ///
    /// # Errors
    /// [`QuantizeError::Encodings`], which names the value.
    pub fn from_json(json: &Value) -> Result<Self, QuantizeError> {
        let entries = json.as_object().ok_or_else(|| QuantizeError::Encodings("not an object".into()))?;
        let mut encodings = Self::default();
        for (name, entry) in entries {
            let fail = |what: &str| QuantizeError::Encodings(format!("{name}: {what}"));
            let bits = entry.get("bits").and_then(Value::as_u64);
            let bits = bits.and_then(|bits| [8u8, 16].into_iter().find(|&known| u64::from(known) == bits));
            let bits = bits.ok_or_else(|| fail("its bits are neither 8 nor 16"))?;
            let scale = entry.get("scale").and_then(Value::as_f64).map(|scale| scale as f32);
            let scale = scale.filter(|scale| scale.is_normal() && *scale > 0.0);
            let scale = scale.ok_or_else(|| fail("its scale is no number above zero"))?;
            let max = i64::from(CodeType::asymmetric(bits).max());
            let zero_point = entry.get("zero_point").and_then(Value::as_i64).filter(|zero| (0..=max).contains(zero));
            let zero_point = zero_point.ok_or_else(|| fail("its zero point is no code"))? as i32;
            encodings.insert(name, bits, Encoding { scale, zero_point });
        }
        Ok(encodings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_cover_the_range_and_hold_zero_exactly() {
        for (min, max) in [(-1.0, 3.0), (0.5, 2.0), (-4.0, -1.0), (0.0, 0.0), (-1e-12, 1e-12), (-1e6, 10.0)] {
            for bits in [8, 16] {
                for symmetric in [false, true] {
                    let codes = CodeType { bits, symmetric };
                    let encoding = codes.encoding(Range { min, max });
                    let round = |x: f32| encoding.dequantize(encoding.quantize(x, 0, codes.max()));
                    assert_eq!(round(0.0), 0.0);
                    for real in [min, max] {
                        assert!((round(real) - real).abs() <= encoding.scale * 0.51, "{real} {codes:?} {encoding:?}");
                    }
                    assert!(!symmetric || encoding.zero_point == [128, 32_768][usize::from(bits == 16)]);
                }
            }
        }
    }

    #[test]
    fn json_gives_the_same_encodings_back() {
        let mut encodings = Encodings::default();
        encodings.insert("layers.0.x", 16, Encoding { scale: 0.123_456_79, zero_point: 40_000 });
        encodings.insert("k_new.0", 8, Encoding { scale: 1.0e-9, zero_point: 128 });
        let text = encodings.to_json().to_string();
        assert_eq!(Encodings::from_json(&serde_json::from_str(&text).unwrap()), Ok(encodings));
    }

    #[test]
    fn damaged_encodings_are_named() {
        for (entry, why) in [
            (json!({"bits": 4, "scale": 1.0, "zero_point": 0}), "its bits are neither 8 nor 16"),
            (json!({"bits": 8, "scale": 0.0, "zero_point": 0}), "its scale is no number above zero"),
            (json!({"bits": 8, "scale": 1e300, "zero_point": 0}), "its scale is no number above zero"),
            (json!({"bits": 8, "scale": 1.0, "zero_point": 256}), "its zero point is no code"),
            (json!(null), "its bits are neither 8 nor 16"),
        ] {
            let error = Encodings::from_json(&json!({"x": entry})).unwrap_err();
            assert_eq!(error.to_string(), format!("encodings: x: {why}"));
        }
        assert_eq!(Encodings::from_json(&json!([])).unwrap_err().to_string(), "encodings: not an object");
    }
}
