//! What each input and output of a method is for. Resolved once, when the method is loaded, from shapes and element
//! types; a program that does not fit is refused by name, index and shape.
//!
//! With AR tokens a step, a context of CL and a cache of C = CL - AR positions, a method takes
//!
//! * tokens `[1, AR]` i32 or i64, then positions `[1, AR]`,
//! * a mask `[1, AR, CL]` or `[1, 1, AR, CL]`, and a second one where some layers see a window only,
//! * keys `[1, heads, head_dim, C]` and values `[1, heads, C, head_dim]` for each layer, or `[1, head_dim, C]` and
//!   `[1, C, head_dim]` for each layer and head;
//!
//! and gives logits `[1, AR, vocab]` and the step's keys and values, shaped as above with AR for C. A method with
//! AR = CL takes no keys, values or positions: it reads the whole context at once.

use super::attention_mask::AttentionMask;
use super::kv_manager::CacheShape;
use super::logits::LogitsFormat;
use crate::error::{Error, Status};
use crate::runtime::{MethodId, MethodInfo, TensorInfo};
use crate::tensor::DType;
use std::fmt;

/// A method whose inputs or outputs are not those of a language model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum IoError {
    #[error("method {method}: {place} is no tensor")]
    NotATensor { method: String, place: Place },
    #[error("method {method}: {place} lies in planned memory, the runner must bind it")]
    Planned { method: String, place: Place },
    #[error("method {method} has no {role}, {wanted}")]
    Missing { method: String, role: &'static str, wanted: String },
    #[error("method {method}: {place} is {found}, not {wanted}")]
    Mismatch { method: String, place: Place, found: String, wanted: String },
    #[error("method {method} has {keys} key and {values} value {side}s")]
    Unpaired { method: String, side: &'static str, keys: usize, values: usize },
    #[error("methods {first} and {second} differ in {what}")]
    Disagree { first: String, second: String, what: String },
}

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        Error::from_source(Status::InvalidProgram, error)
    }
}

/// An input or output of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Place {
    Input(usize),
    Output(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(index) => write!(f, "input {index}"),
            Self::Output(index) => write!(f, "output {index}"),
        }
    }
}

/// A resolved input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub index: usize,
    pub dtype: DType,
}

/// One key or value tensor of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheSlot {
    pub shape: CacheShape,
    /// `None` for a method that reads no cache.
    pub input: Option<usize>,
    pub output: usize,
}

/// Everything that the runner knows of a method.
#[derive(Debug, Clone)]
pub(crate) struct MethodIo {
    pub id: MethodId,
    pub name: String,
    /// Tokens of a step.
    pub ar: usize,
    /// Columns of the mask: cache and step.
    pub context_len: usize,
    pub vocab: usize,
    pub tokens: Slot,
    pub positions: Option<Slot>,
    pub mask: Slot,
    pub window_mask: Option<Slot>,
    pub logits: Slot,
    pub format: LogitsFormat,
    /// All keys, then all values, layer by layer.
    pub caches: Vec<CacheSlot>,
}

impl MethodIo {
    /// Positions of the cache that it reads; `None` when it reads none.
    pub fn cache_len(&self) -> Option<usize> {
        (self.ar < self.context_len).then_some(self.context_len - self.ar)
    }

    /// Resolves the tensors of a loaded method.
    pub fn resolve(id: MethodId, info: &MethodInfo) -> Result<Self, IoError> {
        Resolver { method: &info.name }.resolve(id, info)
    }

    /// Checks that `self` and `other` can work on the same cache.
    pub fn check_agreement(&self, other: &Self) -> Result<(), IoError> {
        let numbers = [
            ("context length", self.context_len, other.context_len),
            ("vocabulary", self.vocab, other.vocab),
            ("number of key and value tensors", self.caches.len(), other.caches.len()),
        ];
        let caches = self.caches.iter().zip(&other.caches).map(|(a, b)| (a.shape, b.shape)).enumerate();
        let what =
            numbers.into_iter().find(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a} and {b}")).or_else(
                || {
                    let (index, (a, b)) = caches.into_iter().find(|(_, (a, b))| a != b)?;
                    Some(format!("key or value {index}: {a:?} and {b:?}"))
                },
            );
        match what {
            Some(what) => Err(IoError::Disagree { first: self.name.clone(), second: other.name.clone(), what }),
            None => Ok(()),
        }
    }
}

/// Keys and values are told apart by which dimension is the cache length.
struct CacheTensor {
    index: usize,
    dtype: DType,
    heads: usize,
    /// Head dimension if this is a key.
    key: Option<usize>,
    /// Head dimension if this is a value.
    value: Option<usize>,
}

type Tensors<'a> = Vec<(usize, &'a TensorInfo)>;

struct Resolver<'a> {
    method: &'a str,
}

impl Resolver<'_> {
    fn resolve(&self, id: MethodId, info: &MethodInfo) -> Result<MethodIo, IoError> {
        let inputs = self.tensors(&info.inputs, Place::Input)?;
        let outputs = self.tensors(&info.outputs, Place::Output)?;
        let (integers, others): (Tensors, Tensors) =
            inputs.into_iter().partition(|(_, info)| matches!(info.dtype, DType::I32 | DType::I64));

        let wanted = || "i32 or i64 [1, AR]".to_owned();
        let &(_, tokens) = integers.first().ok_or_else(|| self.missing("tokens", wanted()))?;
        let (tokens_index, ar) = match (integers[0].0, matrix(&tokens.dims)) {
            (index, Some((1, ar))) if ar > 0 => (index, ar),
            (index, _) => return Err(self.mismatch(Place::Input(index), tokens, wanted())),
        };
        for &(index, info) in &integers[1..] {
            if index != integers[1].0 || matrix(&info.dims) != Some((1, ar)) {
                return Err(self.mismatch(Place::Input(index), info, format!("i32 or i64 positions [1, {ar}]")));
            }
        }
        let positions = integers.get(1).map(|&(index, info)| Slot { index, dtype: info.dtype });

        let masked = self.resolve_masks(ar, &others)?;
        if !masked.caches.is_empty() && positions.is_none() {
            return Err(self.missing("positions", format!("i32 or i64 [1, {ar}]")));
        }
        let (logits, caches) = self.resolve_outputs(ar, &masked.caches, &outputs)?;
        let (logits_index, logits_info) = logits;
        Ok(MethodIo {
            id,
            name: self.method.to_owned(),
            ar,
            context_len: masked.context_len,
            vocab: logits_info.dims[logits_info.dims.len() - 1],
            tokens: Slot { index: tokens_index, dtype: tokens.dtype },
            positions,
            mask: masked.mask,
            window_mask: masked.window_mask,
            logits: Slot { index: logits_index, dtype: logits_info.dtype },
            format: LogitsFormat { dtype: logits_info.dtype, encoding: logits_info.encoding },
            caches,
        })
    }

    fn tensors<'i>(
        &self,
        infos: &'i [Option<TensorInfo>],
        place: impl Fn(usize) -> Place,
    ) -> Result<Tensors<'i>, IoError> {
        let tensor = |(index, info): (usize, &'i Option<TensorInfo>)| match info {
            Some(info) if info.planned => Err(IoError::Planned { method: self.method.into(), place: place(index) }),
            Some(info) => Ok((index, info)),
            None => Err(IoError::NotATensor { method: self.method.into(), place: place(index) }),
        };
        infos.iter().enumerate().map(tensor).collect()
    }

    /// Takes the first input that can be the mask and leaves inputs that can all be keys and values. A value of one
    /// head may have a mask's shape, so the first candidate is not always right.
    fn resolve_masks(&self, ar: usize, inputs: &Tensors) -> Result<Masked, IoError> {
        let mut first_error = None;
        for (at, &(index, info)) in inputs.iter().enumerate() {
            let Some(context_len) = mask_columns(ar, info) else { continue };
            let mut rest = inputs.clone();
            rest.remove(at);
            let mask = Slot { index, dtype: info.dtype };
            match self.resolve_rest(ar, (mask, info, context_len), rest) {
                Ok(masked) => return Ok(masked),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let wanted = || format!("u16, u8, f32 or f16 [1, {ar}, CL] or [1, 1, {ar}, CL]");
        Err(first_error.unwrap_or_else(|| self.missing("attention mask", wanted())))
    }

    fn resolve_rest(
        &self,
        ar: usize,
        (mask, mask_info, context_len): (Slot, &TensorInfo, usize),
        mut rest: Tensors,
    ) -> Result<Masked, IoError> {
        // Keys and values come in pairs, so an odd one is the mask of windowed layers.
        let mut window_mask = None;
        if rest.len() % 2 == 1 {
            let twin = rest.iter().position(|(_, info)| info.dims == mask_info.dims && info.dtype == mask_info.dtype);
            let &(index, info) = rest.get(twin.unwrap_or(0)).expect("an odd number");
            let wanted = || format!("a second mask {}{:?}", mask_info.dtype, mask_info.dims);
            twin.ok_or_else(|| self.mismatch(Place::Input(index), info, wanted()))?;
            window_mask = Some(Slot { index, dtype: info.dtype });
            rest.retain(|&(other, _)| other != index);
        }
        let cache_len = context_len - ar;
        if let (0, Some(&(index, info))) = (cache_len, rest.first()) {
            let wanted = format!("absent: the mask {:?} leaves no place for a cache", mask_info.dims);
            return Err(self.mismatch(Place::Input(index), info, wanted));
        }
        if cache_len > 0 && rest.is_empty() {
            return Err(self.missing("keys and values", format!("[1, heads, head_dim, {cache_len}] and so on")));
        }
        Ok(Masked { context_len, mask, window_mask, caches: self.resolve_caches(cache_len, &rest, Place::Input)? })
    }

    /// Sorts keys and values, all keys first.
    fn resolve_caches(
        &self,
        len: usize,
        tensors: &Tensors,
        place: fn(usize) -> Place,
    ) -> Result<Vec<(CacheShape, usize)>, IoError> {
        let parsed = tensors.iter().map(|&(index, info)| {
            let wanted = || format!("a key [1, heads, head_dim, {len}] or value [1, heads, {len}, head_dim]");
            CacheTensor::parse(index, info, len).ok_or_else(|| self.mismatch(place(index), info, wanted()))
        });
        let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        let half = parsed.len() / 2;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (at, tensor) in parsed.into_iter().enumerate() {
            // Where head_dim equals the length the shapes do not say; all keys come first then.
            match (tensor.key, tensor.value) {
                (Some(head_dim), None) => keys.push((tensor, head_dim)),
                (Some(head_dim), Some(_)) if at < half => keys.push((tensor, head_dim)),
                (_, Some(head_dim)) => values.push((tensor, head_dim)),
                (None, None) => unreachable!("refused by parse"),
            }
        }
        let side = if matches!(place(0), Place::Input(_)) { "input" } else { "output" };
        if keys.len() != values.len() {
            let (keys, values) = (keys.len(), values.len());
            return Err(IoError::Unpaired { method: self.method.to_owned(), side, keys, values });
        }
        for ((key, key_dim), (value, value_dim)) in keys.iter().zip(&values) {
            if (key.heads, key_dim, key.dtype) != (value.heads, value_dim, value.dtype) {
                let info = tensors.iter().find(|(index, _)| *index == value.index).expect("one of them").1;
                let wanted = format!("the value of key {}: {} heads of {key_dim} {}", key.index, key.heads, key.dtype);
                return Err(self.mismatch(place(value.index), info, wanted));
            }
        }
        let key_shape = |(key, head_dim): (CacheTensor, usize)| {
            (CacheShape { rows: key.heads * head_dim, inner: 1, element_size: key.dtype.size() }, key.index)
        };
        let value_shape = |(value, head_dim): (CacheTensor, usize)| {
            (CacheShape { rows: value.heads, inner: head_dim, element_size: value.dtype.size() }, value.index)
        };
        Ok(keys.into_iter().map(key_shape).chain(values.into_iter().map(value_shape)).collect())
    }

    /// Takes the first output that can be the logits and leaves outputs that match `inputs`.
    fn resolve_outputs<'i>(
        &self,
        ar: usize,
        inputs: &[(CacheShape, usize)],
        outputs: &Tensors<'i>,
    ) -> Result<((usize, &'i TensorInfo), Vec<CacheSlot>), IoError> {
        let mut first_error = None;
        for (at, &(index, info)) in outputs.iter().enumerate() {
            let is_logits = matrix(&info.dims).is_some_and(|(rows, vocab)| rows == ar && vocab > 0);
            if !is_logits || !LogitsFormat::supports(info.dtype) {
                continue;
            }
            let mut rest = outputs.clone();
            rest.remove(at);
            match self.pair_caches(ar, inputs, &rest) {
                Ok(caches) => return Ok(((index, info), caches)),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let wanted = || format!("u16, u8, f32 or f16 [1, {ar}, vocab]");
        Err(first_error.unwrap_or_else(|| self.missing("logits", wanted())))
    }

    fn pair_caches(
        &self,
        ar: usize,
        inputs: &[(CacheShape, usize)],
        outputs: &Tensors,
    ) -> Result<Vec<CacheSlot>, IoError> {
        let written = self.resolve_caches(ar, outputs, Place::Output)?;
        if inputs.is_empty() {
            let slot = |(shape, output)| CacheSlot { shape, input: None, output };
            return Ok(written.into_iter().map(slot).collect());
        }
        if inputs.len() != written.len() {
            let wanted = format!("{} of them, one for each key and value input", inputs.len());
            return Err(self.missing("matching key and value outputs", wanted));
        }
        let pair = |(&(shape, input), (out_shape, output))| {
            if shape == out_shape {
                return Ok(CacheSlot { shape, input: Some(input), output });
            }
            let info = outputs.iter().find(|(index, _)| *index == output).expect("one of them").1;
            Err(self.mismatch(Place::Output(output), info, format!("the counterpart of input {input}, {shape:?}")))
        };
        inputs.iter().zip(written).map(pair).collect()
    }

    fn missing(&self, role: &'static str, wanted: String) -> IoError {
        IoError::Missing { method: self.method.to_owned(), role, wanted }
    }

    fn mismatch(&self, place: Place, info: &TensorInfo, wanted: String) -> IoError {
        let found = format!("{}{:?}", info.dtype, info.dims);
        IoError::Mismatch { method: self.method.to_owned(), place, found, wanted }
    }
}

/// What `resolve_masks` found.
struct Masked {
    context_len: usize,
    mask: Slot,
    window_mask: Option<Slot>,
    caches: Vec<(CacheShape, usize)>,
}

impl CacheTensor {
    fn parse(index: usize, info: &TensorInfo, len: usize) -> Option<Self> {
        let (heads, a, b) = match *info.dims.as_slice() {
            [1, heads, a, b] => (heads, a, b),
            [1, a, b] => (1, a, b),
            _ => return None,
        };
        let integral = !matches!(info.dtype, DType::I64 | DType::U64 | DType::F64 | DType::Bool);
        let (key, value) = ((b == len).then_some(a), (a == len).then_some(b));
        let some = integral && heads > 0 && a > 0 && b > 0 && (key.is_some() || value.is_some());
        some.then_some(Self { index, dtype: info.dtype, heads, key, value })
    }
}

/// Columns of a mask of `ar` rows, if `info` can be one.
fn mask_columns(ar: usize, info: &TensorInfo) -> Option<usize> {
    let (rows, columns) = matrix(&info.dims)?;
    (rows == ar && columns >= ar && AttentionMask::supports(info.dtype)).then_some(columns)
}

/// The last two dimensions, if all others are 1.
fn matrix(dims: &[usize]) -> Option<(usize, usize)> {
    match dims {
        [outer @ .., rows, columns] if outer.iter().all(|&dim| dim == 1) => Some((*rows, *columns)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
