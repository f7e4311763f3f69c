//! Where the codes of a model's weights stay, made once for all of its graphs.

use super::{Matrix, QuantizedMatrix, WeightFormat};
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{Graph, Quantization, ValueId};
use crate::tensor::{DType, Encoding};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;

/// Takes the bytes of a new constant to where they stay: a temporary file, or memory.
pub type Keep = Box<dyn Fn(Vec<u8>) -> Result<Blob> + Send + Sync>;

/// Codes of one model by the names of their weights, and by their format: a table that is also the head has two. Graphs
/// that take a weight from one store share its bytes.
pub struct CodeStore {
    keep: Keep,
    codes: Mutex<HashMap<String, Vec<(WeightFormat, Codes)>>>,
    others: Mutex<HashMap<(String, Quantized), Blob>>,
}

/// Codes and encoding of a constant: bits, bits of the scale, zero point.
type Quantized = (u8, u32, i32);

/// A stored matrix.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Codes {
    pub dtype: DType,
    pub data: Blob,
    pub quantization: Quantization,
}

impl fmt::Debug for CodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodeStore({} weights)", self.codes.lock().len())
    }
}

impl CodeStore {
    /// An empty one whose bytes go where `keep` takes them.
    pub fn new(keep: Keep) -> Self {
        Self { keep, codes: Mutex::default(), others: Mutex::default() }
    }

    /// An empty one in memory.
    pub fn in_memory() -> Self {
        Self::new(Box::new(|bytes| Ok(Blob::from_vec(bytes))))
    }

    /// Keeps the bytes of a constant that is no weight.
    ///
    /// # Errors
    /// Those of the place where they stay.
    pub fn keep(&self, bytes: Vec<u8>) -> Result<Blob> {
        (self.keep)(bytes)
    }

    /// The codes of the constant called `name` in one encoding, which `make` makes when there are none yet.
    ///
    /// # Errors
    /// Those of `make`, and of the place where codes stay.
    pub(super) fn bytes(
        &self,
        name: &str,
        (bits, encoding): (u8, Encoding),
        make: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Blob> {
        let key = (name.to_owned(), (bits, encoding.scale.to_bits(), encoding.zero_point));
        if let Some(known) = self.others.lock().get(&key) {
            return Ok(known.clone());
        }
        let blob = self.keep(make()?)?;
        self.others.lock().insert(key, blob.clone());
        Ok(blob)
    }

    /// A new constant of `graph` with the codes of `matrix` in `format`, which `make` makes when there are none yet; the
    /// pages of the matrix are released then.
    ///
    /// # Errors
    /// Those of `make`, and of the place where codes stay.
    pub(super) fn constant(
        &self,
        graph: &mut Graph,
        (matrix, format): (&Matrix, WeightFormat),
        make: impl FnOnce(&Graph) -> Result<QuantizedMatrix>,
    ) -> Result<ValueId> {
        let stored = |codes: &Vec<(WeightFormat, Codes)>| {
            codes.iter().find(|(known, _)| *known == format).map(|(_, codes)| codes.clone())
        };
        let known = self.codes.lock().get(matrix.name()).and_then(stored);
        let codes = match known {
            Some(codes) => codes,
            None => {
                let mut made = make(graph)?;
                matrix.data().release();
                let scales = self.keep(std::mem::take(&mut made.scales))?;
                let quantization = made.quantization(scales);
                let codes = Codes { dtype: made.dtype, data: self.keep(made.data)?, quantization };
                self.codes.lock().entry(matrix.name().to_owned()).or_default().push((format, codes.clone()));
                codes
            }
        };
        let shape = [matrix.rows(), matrix.columns()];
        Ok(graph.add_constant(matrix.name(), codes.dtype, &shape, Some(codes.quantization), codes.data))
    }
}
