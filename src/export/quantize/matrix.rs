//! A weight that is to be quantized: rows of a constant of the graph, widened one by one.

use super::QuantizeError;
use crate::base::storage::Blob;
use crate::graph::{Graph, ValueId};
use crate::tensor::DType;
use half::{bf16, f16};

/// A constant matrix of reals, `[rows, columns]`, in its checkpoint's element type.
#[derive(Debug, Clone)]
pub struct Matrix {
    name: String,
    dtype: DType,
    rows: usize,
    columns: usize,
    data: Blob,
}

impl Matrix {
    /// The constant `id`; `None` when it is no constant, or has codes already.
    ///
    /// # Errors
    /// [`QuantizeError::WeightType`], [`QuantizeError::WeightShape`].
    pub fn of(graph: &Graph, id: ValueId) -> Result<Option<Self>, QuantizeError> {
        let value = graph.value(id);
        let Some(data) = graph.constant(id).filter(|_| value.quantization.is_none()) else { return Ok(None) };
        let (name, dtype, shape) = (value.name.clone(), value.dtype, graph.max_shape(id));
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(QuantizeError::WeightType { name, dtype });
        }
        let (&[rows, columns], false) = (&shape[..], shape.contains(&0)) else {
            return Err(QuantizeError::WeightShape { name, shape });
        };
        Ok(Some(Self { name, dtype, rows, columns, data: data.clone() }))
    }

    /// The elements of a constant vector of reals of that length; `None` for anything else.
    pub(super) fn vector(graph: &Graph, id: ValueId, length: usize) -> Option<Vec<f32>> {
        let (dtype, data) = (graph.value(id).dtype, graph.constant(id)?);
        let real = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && graph.max_shape(id) == [length];
        real.then(|| {
            let mut reals = vec![0.0; length];
            widen(dtype, data, &mut reals);
            reals
        })
    }

    /// The value's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Where the elements are.
    pub fn data(&self) -> &Blob {
        &self.data
    }

    /// Writes row `row` to `out`, which has as many elements as the matrix columns.
    ///
    /// # Errors
    /// [`QuantizeError::NotFinite`].
    pub fn read(&self, row: usize, out: &mut [f32]) -> Result<(), QuantizeError> {
        let bytes = self.columns * self.dtype.size();
        widen(self.dtype, &self.data[row * bytes..][..bytes], out);
        match out.iter().find(|x| !x.is_finite()) {
            Some(&value) => Err(QuantizeError::NotFinite { name: self.name.clone(), row, value }),
            None => Ok(()),
        }
    }
}

/// Decodes f32, f16 or bf16 elements.
pub(super) fn widen(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let halves = || bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::F16 => out.iter_mut().zip(halves()).for_each(|(x, &b)| *x = f16::from_le_bytes(b).to_f32()),
        DType::BF16 => out.iter_mut().zip(halves()).for_each(|(x, &b)| *x = bf16::from_le_bytes(b).to_f32()),
        _ => out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(x, &b)| *x = f32::from_le_bytes(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_type_are_widened() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let mut graph = Graph::new("g");
            let reals = [1.0f32, -0.5, 2.0, 0.25];
            let data = crate::export::testing::blob(dtype, &reals);
            let id = graph.add_constant("w", dtype, &[2, 2], None, data);
            let matrix = Matrix::of(&graph, id).unwrap().unwrap();
            let mut row = [0.0; 2];
            matrix.read(1, &mut row).unwrap();
            assert_eq!(row, [2.0, 0.25], "{dtype}");
        }
    }

    #[test]
    fn what_cannot_be_quantized_is_named() {
        let mut graph = Graph::new("g");
        let integers = graph.add_constant("ids", DType::I32, &[1, 1], None, Blob::from_vec(vec![0; 4]));
        let error = Matrix::of(&graph, integers).unwrap_err();
        assert_eq!(error, QuantizeError::WeightType { name: "ids".into(), dtype: DType::I32 });
        let vector = graph.add_constant("bias", DType::F32, &[1], None, Blob::from_vec(vec![0; 4]));
        let error = Matrix::of(&graph, vector).unwrap_err();
        assert_eq!(error.to_string(), "weight bias of shape [1] is no matrix of elements");
        let data = Blob::from_vec(f32::NEG_INFINITY.to_le_bytes().to_vec());
        let infinite = graph.add_constant("w", DType::F32, &[1, 1], None, data);
        let error = Matrix::of(&graph, infinite).unwrap().unwrap().read(0, &mut [0.0]).unwrap_err();
        assert_eq!(error.to_string(), "weight w, row 0: -inf cannot be quantized");
    }
}
