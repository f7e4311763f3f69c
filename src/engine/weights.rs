//! Weights in the kernels' layout, packed once a process: plans for decode and prefill, several delegates and tied
//! heads share them, because they are known by the place of their bytes.

use super::EngineError;
use super::constant::{ConstantBytes, Lines, center};
use super::reals::is_real;
use crate::base::storage::{Blob, Place};
use crate::graph::{CodeOrder, Quantization, Value};
use crate::kernels::{MAX_K, Nibbles, PackError, PackedF32, PackedWeights, Scales, ThreadPool, WeightShape};
use crate::tensor::DType;
use bytemuck::{Pod, try_cast_slice};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Packed weights, and decoded copies of other constants, of all graphs that were compiled with it.
#[derive(Debug, Default)]
pub struct WeightCache {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    weights: HashMap<Key, Packed>,
    constants: HashMap<Place, Vec<(Value, ConstantBytes)>>,
}

/// Weights that a linear layer needs.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// The node's, for errors.
    pub origin: String,
    /// `[out, in]`, or `[in, out]` when `transposed`.
    pub weights: (Value, Blob),
    /// `[out]`
    pub bias: Option<(Value, Blob)>,
    /// Whether `weights` has its axes the other way round.
    pub transposed: bool,
    /// Whether activations come as 8-bit codes.
    pub quantized_rows: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    weights: Place,
    shape: Vec<i64>,
    dtype: DType,
    bits: u8,
    order: CodeOrder,
    scales: Option<Place>,
    bias: Option<Place>,
    transposed: bool,
    quantized_rows: bool,
}

/// Weights as a kernel reads them.
#[derive(Debug, Clone)]
pub(super) enum Packed {
    /// For 8-bit activations.
    Quantized(Arc<PackedWeights>),
    /// For f32 activations.
    Real(Arc<PackedF32>),
}

impl WeightCache {
    /// Empty.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Number of packed matrices.
    pub fn len(&self) -> usize {
        self.entries.lock().weights.len()
    }

    /// True when nothing was packed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that packed matrices take.
    pub fn size_bytes(&self) -> usize {
        let size = |packed: &Packed| match packed {
            Packed::Quantized(weights) => weights.size_bytes(),
            Packed::Real(weights) => weights.size_bytes(),
        };
        self.entries.lock().weights.values().map(size).sum()
    }

    /// The weights of each request, packed in parallel where they are new. Pages of the file that they came from are
    /// released.
    pub(super) fn pack(&self, pool: &ThreadPool, requests: &[Request]) -> Result<Vec<Packed>, EngineError> {
        let mut entries = self.entries.lock();
        let mut jobs: HashMap<Key, &Request> = HashMap::new();
        for request in requests {
            let key = request.key();
            if !entries.weights.contains_key(&key) {
                jobs.entry(key).or_insert(request);
            }
        }
        // Large ones first: they are what a thread may have to wait for.
        let mut jobs: Vec<_> = jobs.into_iter().collect();
        jobs.sort_by_key(|(_, request)| std::cmp::Reverse(request.weights.1.len()));
        let results: Vec<OnceLock<Result<Packed, PackError>>> = jobs.iter().map(|_| OnceLock::new()).collect();
        pool.parallel_for(jobs.len(), |index| {
            let request = jobs[index].1;
            let _ = results[index].set(request.pack());
            request.release();
        });
        // Once more: systems bring in pages around those that are read, so a neighbour's come back.
        jobs.iter().for_each(|(_, request)| request.release());
        for ((key, request), result) in jobs.into_iter().zip(results) {
            let packed = result.into_inner().expect("every job was run");
            let origin = request.origin.clone();
            entries.weights.insert(key, packed.map_err(|source| EngineError::Pack { origin, source })?);
        }
        Ok(requests.iter().map(|request| entries.weights[&request.key()].clone()).collect())
    }

    /// The bytes of a constant as steps read them.
    pub(super) fn constant(&self, value: &Value, data: &Blob) -> Result<ConstantBytes, EngineError> {
        if let Some(bytes) = ConstantBytes::in_place(value, data) {
            return Ok(bytes);
        }
        let mut entries = self.entries.lock();
        let known = entries.constants.entry(data.lasting_place()).or_default();
        let same = |(other, _): &&(Value, ConstantBytes)| {
            (other.dtype, &other.shape, &other.quantization) == (value.dtype, &value.shape, &value.quantization)
        };
        if let Some((_, bytes)) = known.iter().find(same) {
            return Ok(bytes.clone());
        }
        let out_of_memory = |_| {
            let elements: usize = if is_real(value) { 4 } else { 1 };
            EngineError::OutOfMemory { what: "a constant", bytes: elements.saturating_mul(data.len()) }
        };
        let bytes = ConstantBytes::copy(value, data).map_err(out_of_memory)?;
        data.release();
        known.push((value.clone(), bytes.clone()));
        Ok(bytes)
    }
}

impl Request {
    /// Lets go of the pages of the file.
    fn release(&self) {
        self.weights.1.release();
        if let Some(scales) = self.scales() {
            scales.release();
        }
    }

    fn scales(&self) -> Option<&Blob> {
        match &self.weights.0.quantization {
            Some(Quantization::PerChannel { scales, .. } | Quantization::Blockwise { scales, .. }) => {
                Some(&scales.data)
            }
            _ => None,
        }
    }

    fn key(&self) -> Key {
        let (value, data) = &self.weights;
        let shape = value.shape.iter().map(|&dim| super::symbols::value_of(dim, &[])).collect();
        Key {
            weights: data.lasting_place(),
            shape,
            dtype: value.dtype,
            bits: value.quantization.as_ref().map_or(0, Quantization::bits),
            order: value.quantization.as_ref().map_or_else(CodeOrder::default, Quantization::order),
            scales: self.scales().map(Blob::lasting_place),
            bias: self.bias.as_ref().map(|(_, bias)| bias.lasting_place()),
            transposed: self.transposed,
            quantized_rows: self.quantized_rows,
        }
    }

    fn pack(&self) -> Result<Packed, PackError> {
        let bias = match &self.bias {
            Some((value, data)) => Some(reals(value, data)?),
            None => None,
        };
        let bias = bias.as_deref();
        if self.quantized_rows
            && !self.transposed
            && let Some(packed) = self.pack_codes(bias)?
        {
            return Ok(packed);
        }
        let (value, data) = &self.weights;
        let [rows, columns] = matrix(value);
        let packed = if value.quantization.is_none() && value.dtype == DType::F16 {
            let halves = cast::<u16>(data);
            if self.transposed {
                PackedF32::pack_f16(columns, rows, &transpose(&halves, columns), bias)?
            } else {
                PackedF32::pack_f16(rows, columns, &halves, bias)?
            }
        } else {
            let weights = reals(value, data)?;
            if self.transposed {
                PackedF32::pack(columns, rows, &transpose(&weights, columns), bias)?
            } else {
                PackedF32::pack(rows, columns, &weights, bias)?
            }
        };
        Ok(Packed::Real(Arc::new(packed)))
    }

    /// Packs the codes themselves; `None` for quantizations that the integer kernels do not know.
    fn pack_codes(&self, bias: Option<&[f32]>) -> Result<Option<Packed>, PackError> {
        let (value, data) = &self.weights;
        let [n, k] = matrix(value);
        let per_channel;
        let (bits, group, zero_point, scales) = match &value.quantization {
            Some(Quantization::PerTensor { bits, encoding }) => {
                per_channel = vec![encoding.scale; n];
                (*bits, k, encoding.zero_point, Stored::F32(Cow::Borrowed(&per_channel[..])))
            }
            Some(Quantization::PerChannel { bits, axis: 0, scales }) => {
                (*bits, k, center(*bits) as i32, Stored::F32(cast(&scales.data)))
            }
            Some(Quantization::Blockwise { bits, block, scales, scale_dtype, zero_points: None, order: _ }) => {
                let scales = match scale_dtype {
                    DType::BF16 => Stored::Bf16(cast(&scales.data)),
                    _ => Stored::F32(cast(&scales.data)),
                };
                (*bits, *block, center(*bits) as i32, scales)
            }
            _ => return Ok(None),
        };
        let shape = WeightShape { n, k, group };
        if k > MAX_K || bits > 8 || !(group == k || group.is_multiple_of(8)) {
            return Ok(None);
        }
        let order = value.quantization.as_ref().map_or_else(CodeOrder::default, Quantization::order);
        if bits == 4 && zero_point == 8 && order == CodeOrder::LowFirst {
            let packed = PackedWeights::pack_4bit(shape, data, Nibbles::Offset8, scales.view(), bias)?;
            return Ok(Some(Packed::Quantized(Arc::new(packed))));
        }
        let codes: Cow<'_, [i8]> = match value.dtype {
            DType::I8 | DType::QI8 if zero_point == 0 => Cow::Borrowed(bytemuck::cast_slice(data)),
            _ => match codes_around(zero_point, value, data) {
                Some(codes) => Cow::Owned(codes),
                None => return Ok(None),
            },
        };
        let packed = PackedWeights::pack_8bit(shape, &codes, scales.view(), bias)?;
        Ok(Some(Packed::Quantized(Arc::new(packed))))
    }
}

enum Stored<'a> {
    F32(Cow<'a, [f32]>),
    Bf16(Cow<'a, [u16]>),
}

impl Stored<'_> {
    fn view(&self) -> Scales<'_> {
        match self {
            Self::F32(scales) => Scales::F32(scales),
            Self::Bf16(scales) => Scales::Bf16(scales),
        }
    }
}

/// Codes less their zero point, if all of them fit.
fn codes_around(zero_point: i32, value: &Value, data: &[u8]) -> Option<Vec<i8>> {
    let bits = value.quantization.as_ref().map_or(8, Quantization::bits);
    let [rows, columns] = matrix(value);
    let row_bytes = (columns * usize::from(bits)).div_ceil(8);
    let mask = if bits < 8 { (1 << bits) - 1 } else { 255u8 };
    let high_first =
        value.quantization.as_ref().is_some_and(|quantization| quantization.order() == CodeOrder::HighFirst);
    let mut codes = Vec::with_capacity(rows * columns);
    for row in data.chunks_exact(row_bytes.max(1)) {
        for column in 0..columns {
            let at = column * usize::from(bits);
            let shift = if high_first { 8 - usize::from(bits) - at % 8 } else { at % 8 };
            let code = row[at / 8] >> shift & mask;
            let code = match value.dtype {
                DType::I8 | DType::QI8 => i32::from(code as i8),
                _ => i32::from(code),
            };
            codes.push(i8::try_from(code - zero_point).ok()?);
        }
    }
    Some(codes)
}

/// The sizes of a matrix of constants.
fn matrix(value: &Value) -> [usize; 2] {
    let size = |axis: usize| value.shape.get(axis).map_or(1, |&dim| super::symbols::value_of(dim, &[]).max(0) as usize);
    [size(0), size(1)]
}

/// A real constant as f32.
fn reals<'a>(value: &Value, data: &'a Blob) -> Result<Cow<'a, [f32]>, PackError> {
    if value.quantization.is_none() && value.dtype == DType::F32 {
        return Ok(cast(data));
    }
    let shape = matrix(value);
    let too_large = PackError::Shape { n: shape[0], k: shape[1] };
    let lines = Lines::of(value, data).ok_or(too_large.clone())?;
    lines.decode().map(Cow::Owned).map_err(|_| too_large)
}

/// Bytes as numbers; copied where they are not aligned.
fn cast<T: Pod>(bytes: &[u8]) -> Cow<'_, [T]> {
    match try_cast_slice(bytes) {
        Ok(numbers) => Cow::Borrowed(numbers),
        Err(_) => Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()),
    }
}

/// `[rows, columns]` → `[columns, rows]`.
fn transpose<T: Copy>(matrix: &[T], columns: usize) -> Vec<T> {
    let rows = matrix.len() / columns.max(1);
    (0..columns).flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}
