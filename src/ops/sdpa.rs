//! `llama::custom_sdpa` and its relatives: attention of new queries over a cache of keys and values.
//!
//! Query heads share key heads in groups. Without a mask, `start + queries` positions of the cache count: all of them
//! for every query, or, when causal, those up to the query's own. With a mask, all of the cache counts and the mask is
//! added. Queries, keys and values are floats, or all int8 with a scale and a zero point for each head of a position.

use super::cache;
use super::error::OpError;
use super::layout::{check_order, strides};
use super::linear::{add_scaled, dot};
use super::number::{load, write};
use super::promote::check_float;
use crate::error::Result;
use crate::runtime::{Inputs, KernelArgs, KernelRegistry, Tensor, Value};
use crate::tensor::DType;
use std::borrow::Cow;

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("llama::custom_sdpa.out", |args| {
        let places = Places { query: 0, key: 1, value: 2, start: 3, options: 4, codes: None, out: 8 };
        attend(args, &places)
    });
    registry.register("llama::custom_quantized_sdpa.out", |args| {
        let places = Places { query: 0, key: 1, value: 2, start: 3, options: 4, codes: Some(8), out: 15 };
        attend(args, &places)
    });
    registry.register("llama::sdpa_with_kv_cache.out", |args| {
        let start = args.int(5)?;
        cache::update(args, 1, 3, start)?;
        cache::update(args, 2, 4, start)?;
        let places = Places { query: 0, key: 3, value: 4, start: 5, options: 7, codes: None, out: 11 };
        attend(args, &places)
    });
}

/// Where the arguments of an operator are.
struct Places {
    query: usize,
    key: usize,
    value: usize,
    start: usize,
    /// Mask, dropout (which is for training), whether causal, scale.
    options: usize,
    /// Zero points and scales of queries, keys and values, and whether positions are dimension 2.
    codes: Option<usize>,
    out: usize,
}

/// Distances between sequences, positions and heads.
#[derive(Clone, Copy)]
struct Apart {
    batch: usize,
    position: usize,
    head: usize,
}

impl Apart {
    fn new(tensor: &Tensor, positions: usize) -> Result<Self> {
        let far = strides(tensor)?;
        Ok(Self { batch: far[0], position: far[positions], head: far[3 - positions] })
    }

    fn at(&self, [batch, position, head]: [usize; 3]) -> usize {
        batch * self.batch + position * self.position + head * self.head
    }
}

/// Rows of a tensor by sequence, position and head.
trait Rows: Sized {
    /// The product of a row with one of another tensor.
    fn dot(&self, at: [usize; 3], other: &Self, place: [usize; 3]) -> f32;
    /// `out += by · row`.
    fn add_to(&self, at: [usize; 3], by: f32, out: &mut [f32]);
}

struct Floats<'a> {
    values: Cow<'a, [f32]>,
    apart: Apart,
    dim: usize,
}

impl<'a> Floats<'a> {
    fn new(tensor: &'a Tensor, positions: usize) -> Result<Self> {
        Ok(Self { values: load(tensor)?, apart: Apart::new(tensor, positions)?, dim: tensor.dims[3] })
    }

    fn row(&self, at: [usize; 3]) -> &[f32] {
        &self.values[self.apart.at(at)..][..self.dim]
    }
}

impl Rows for Floats<'_> {
    fn dot(&self, at: [usize; 3], other: &Self, place: [usize; 3]) -> f32 {
        dot(self.row(at), other.row(place))
    }

    fn add_to(&self, at: [usize; 3], by: f32, out: &mut [f32]) {
        add_scaled(out, by, self.row(at));
    }
}

struct Codes<'a> {
    codes: &'a [i8],
    zero_points: &'a [i8],
    scales: &'a [f32],
    apart: Apart,
    /// Of zero points and scales.
    parameters: Apart,
    dim: usize,
}

impl<'a> Codes<'a> {
    /// With zero points in argument `arg` and scales in the next.
    fn new(tensor: &'a Tensor, positions: usize, inputs: &Inputs<'a>, arg: usize) -> Result<Self> {
        let (Some(zero_points), Some(scales)) = (inputs.optional_tensor(arg)?, inputs.optional_tensor(arg + 1)?) else {
            return Err(OpError::Unscaled.into());
        };
        for (what, parameters) in [("the zero points", zero_points), ("the scales", scales)] {
            check_order(what, parameters)?;
            if parameters.dims.len() != 4 || parameters.dims[..3] != tensor.dims[..3] || parameters.dims[3] != 1 {
                return Err(OpError::Shapes { a: parameters.dims.clone(), b: tensor.dims.clone() }.into());
            }
        }
        Ok(Self {
            codes: tensor.view()?,
            zero_points: zero_points.view()?,
            scales: scales.view()?,
            apart: Apart::new(tensor, positions)?,
            parameters: Apart::new(scales, positions)?,
            dim: tensor.dims[3],
        })
    }

    fn row(&self, at: [usize; 3]) -> (&[i8], i32, f32) {
        let parameter = self.parameters.at(at);
        let codes = &self.codes[self.apart.at(at)..][..self.dim];
        (codes, self.zero_points[parameter].into(), self.scales[parameter])
    }
}

impl Rows for Codes<'_> {
    fn dot(&self, at: [usize; 3], other: &Self, place: [usize; 3]) -> f32 {
        let (a, a_zero, a_scale) = self.row(at);
        let (b, b_zero, b_scale) = other.row(place);
        // No head is so wide that the sum of its products, each below 2^16, leaves 32 bits.
        let products = a.iter().zip(b).map(|(&a, &b)| (i32::from(a) - a_zero).wrapping_mul(i32::from(b) - b_zero));
        products.fold(0, i32::wrapping_add) as f32 * (a_scale * b_scale)
    }

    fn add_to(&self, at: [usize; 3], by: f32, out: &mut [f32]) {
        let (codes, zero, scale) = self.row(at);
        for (out, &code) in out.iter_mut().zip(codes) {
            *out += by * ((i32::from(code) - zero) as f32 * scale);
        }
    }
}

/// An attention whose sizes fit each other.
struct Attention<'a> {
    batch: usize,
    queries: usize,
    heads: usize,
    /// Query heads for each key head.
    group: usize,
    dim: usize,
    /// Positions of the cache that count.
    keys: usize,
    /// Position of the first query, when causal.
    causal: Option<usize>,
    /// To be added to the scores.
    mask: Option<&'a [f32]>, // (queries, keys)
    scale: f32,
    /// Dimension of positions.
    positions: usize,
}

impl<'a> Attention<'a> {
    fn new(inputs: &Inputs<'a>, places: &Places) -> Result<Self> {
        let query = inputs.tensor(places.query)?;
        let (key, value) = (inputs.tensor(places.key)?, inputs.tensor(places.value)?);
        let second = places.codes.is_some_and(|codes| matches!(inputs.value(codes + 6), Ok(Value::Bool(true))));
        let (positions, head) = if second { (2, 1) } else { (1, 2) };
        for (what, tensor) in [("the query", query), ("the key", key), ("the value", value)] {
            check_order(what, tensor)?;
            if tensor.dims.len() != 4 {
                return Err(OpError::Shape { what, dims: tensor.dims.clone() }.into());
            }
            if tensor.dtype != query.dtype {
                return Err(OpError::TypesDiffer { what, have: tensor.dtype, want: query.dtype }.into());
            }
        }
        let (heads, key_heads) = (query.dims[head], key.dims[head]);
        let fits = key.dims == value.dims
            && (query.dims[0], query.dims[3]) == (key.dims[0], key.dims[3])
            && key_heads > 0
            && heads.is_multiple_of(key_heads);
        if !fits {
            return Err(OpError::Shapes { a: query.dims.clone(), b: key.dims.clone() }.into());
        }
        let (queries, room, start) = (query.dims[positions], key.dims[positions], inputs.int(places.start)?);
        let is_causal = inputs.bool(places.options + 2)?;
        let mask = inputs.optional_tensor(places.options)?;
        let (keys, causal, mask) = match mask {
            Some(_) if is_causal => return Err(OpError::CausalAndMasked.into()),
            Some(mask) if mask.dims != [queries, room] => {
                return Err(OpError::Shape { what: "the mask", dims: mask.dims.clone() }.into());
            }
            Some(mask) => {
                check_order("the mask", mask)?;
                (room, None, Some(mask.view()?))
            }
            None => {
                let first = usize::try_from(start).ok().filter(|&first| first <= room && queries <= room - first);
                let first = first.ok_or(OpError::CachePosition { start, len: queries, room })?;
                (first + queries, is_causal.then_some(first), None)
            }
        };
        let dim = query.dims[3];
        let scale = match inputs.value(places.options + 3)? {
            Value::Null => 1.0 / (dim as f64).sqrt(),
            _ => inputs.double(places.options + 3)?,
        };
        let (batch, group) = (query.dims[0], heads / key_heads);
        Ok(Self { batch, queries, heads, group, dim, keys, causal, mask, scale: scale as f32, positions })
    }

    /// The attended values of every query, written where `apart` says.
    fn run<R: Rows>(&self, [query, key, value]: [R; 3], apart: Apart, out: &mut [f32]) {
        let mut scores = vec![0.0f32; self.keys];
        for batch in 0..self.batch {
            for head in 0..self.heads {
                for position in 0..self.queries {
                    let at = [batch, position, head];
                    let cached = |key| [batch, key, head / self.group];
                    let count = self.causal.map_or(self.keys, |first| first + position + 1);
                    let scores = &mut scores[..count];
                    for (place, score) in scores.iter_mut().enumerate() {
                        *score = query.dot(at, &key, cached(place)) * self.scale;
                    }
                    if let Some(mask) = self.mask {
                        add_scaled(scores, 1.0, &mask[position * self.keys..][..count]);
                    }
                    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let out = &mut out[apart.at(at)..][..self.dim];
                    out.fill(0.0);
                    // What sees nothing gets nothing, as the graph's attention; ExecuTorch divides zero by zero.
                    if largest == f32::NEG_INFINITY {
                        continue;
                    }
                    let mut sum = 0.0;
                    for score in scores.iter_mut() {
                        *score = (*score - largest).exp();
                        sum += *score;
                    }
                    for (place, &score) in scores.iter().enumerate() {
                        value.add_to(cached(place), score, out);
                    }
                    out.iter_mut().for_each(|out| *out /= sum);
                }
            }
        }
    }
}

fn attend(args: &mut KernelArgs<'_>, places: &Places) -> Result<()> {
    let (inputs, out) = args.split(places.out)?;
    let attention = Attention::new(&inputs, places)?;
    let positions = attention.positions;
    check_order("the output", out)?;
    let query = inputs.tensor(places.query)?;
    out.resize(&query.dims)?;
    if query.is_empty() {
        return Ok(());
    }
    let apart = Apart::new(out, positions)?;
    let tensors = [query, inputs.tensor(places.key)?, inputs.tensor(places.value)?];
    match (query.dtype, places.codes) {
        (DType::I8, Some(first)) => {
            let codes = |place: usize| Codes::new(tensors[place], positions, &inputs, first + 2 * place);
            let codes = [codes(0)?, codes(1)?, codes(2)?];
            write(out, |out| attention.run(codes, apart, out))
        }
        (dtype, _) => {
            check_float("the query", dtype)?;
            let floats = |tensor| Floats::new(tensor, positions);
            let floats = [floats(tensors[0])?, floats(tensors[1])?, floats(tensors[2])?];
            write(out, |out| attention.run(floats, apart, out))
        }
    }
}

#[cfg(test)]
mod tests;
