//! Constants: codes as they are, reals quantized here.

use super::Lowering;
use crate::error::Result;
use crate::graph::ValueId;
use crate::graph::interpret::ConstantLines;
use crate::qnn::compiler::operation::TensorId;
use crate::qnn::compiler::tensor::{Coding, Role, TensorSpec};
use crate::qnn::sys;
use crate::tensor::Encoding;

impl Lowering<'_> {
    /// The tensor of constant `id`; reals become codes of `bits`, zero among them.
    pub(super) fn constant(&mut self, id: ValueId, bits: u8) -> Result<TensorId> {
        let value = self.graph.value(id);
        if let Some(lines) = ConstantLines::of(self.graph, id).filter(|_| value.quantization.is_none()) {
            if let Some(&tensor) = self.quantized.get(&(id, bits)) {
                return Ok(tensor);
            }
            let encoding = covering(lines.iter(), bits);
            let tensor = self.quantized_constant(id, bits, encoding)?;
            self.quantized.insert((id, bits), tensor);
            return Ok(tensor);
        }
        let (data_type, coding) = self.element(id)?;
        let (name, dims) = (self.name(&value.name), self.dims(id)?);
        let spec = TensorSpec { name, role: Role::Constant, data_type, dims, coding };
        let data = self.graph.constant(id).map_or(&[][..], |data| &data[..]);
        let tensor = if spec.dims.len() > 1 {
            self.composer.matrix(&spec, data)?
        } else {
            self.composer.constant(&spec, data.to_vec())?
        };
        self.tensors.insert(id, tensor);
        Ok(tensor)
    }

    /// Constant `id` as unsigned codes of 8 or 16 bits of `encoding`.
    pub(super) fn quantized_constant(&mut self, id: ValueId, bits: u8, encoding: Encoding) -> Result<TensorId> {
        let lines = ConstantLines::of(self.graph, id).ok_or_else(|| self.bad_value(id, "it holds no reals"))?;
        let codes = lines.iter().flatten();
        let data: Vec<u8> = match bits {
            16 => codes.flat_map(|real| (encoding.quantize(real, 0, 0xffff) as u16).to_le_bytes()).collect(),
            8 => codes.map(|real| encoding.quantize(real, 0, 0xff) as u8).collect(),
            _ => return Err(self.bad_value(id, format!("reals cannot be codes of {bits} bits"))),
        };
        let data_type = if bits == 16 { sys::QNN_DATATYPE_UFIXED_POINT_16 } else { sys::QNN_DATATYPE_UFIXED_POINT_8 };
        let (name, dims) = (self.name(&self.graph.value(id).name), self.dims(id)?);
        let spec = TensorSpec { name, role: Role::Constant, data_type, dims, coding: Coding::PerTensor(encoding) };
        if spec.dims.len() > 1 { self.composer.matrix(&spec, &data) } else { self.composer.constant(&spec, data) }
    }
}

/// The encoding that just covers all reals, and zero.
fn covering(lines: impl Iterator<Item = Vec<f32>>, bits: u8) -> Encoding {
    let (mut low, mut high) = (0f32, 0f32);
    for real in lines.flatten().filter(|real| real.is_finite()) {
        (low, high) = (low.min(real), high.max(real));
    }
    let most = if bits == 16 { 65_535.0 } else { 255.0 };
    let scale = ((f64::from(high) - f64::from(low)) / most) as f32;
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let zero_point = (-f64::from(low) / f64::from(scale)).round_ties_even().min(most) as i32;
    Encoding { scale, zero_point }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_is_exact_whatever_its_sign() {
        for real in [0.125f32, -3.7, 1e-20, -1e20, 0.0] {
            for (bits, most) in [(8, 255), (16, 65_535)] {
                let encoding = covering([vec![real]].into_iter(), bits);
                let code = encoding.quantize(real, 0, most);
                let error = (encoding.dequantize(code) - real).abs();
                assert!(error <= real.abs() * 1e-6, "{real}: {encoding:?} {code}");
            }
        }
    }
}
