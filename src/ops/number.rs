//! Elements of every type through the three types that arithmetic is done in.
//!
//! ExecuTorch computes halves in f32 and integers in their own width. Here integers are computed in i64 and cut to
//! their width when they are stored, which for sums, differences and products is the same.

use super::error::OpError;
use crate::error::Result;
use crate::runtime::Tensor;
use crate::tensor::{DType, Element};
use half::{bf16, f16};
use std::borrow::Cow;

/// A type that arithmetic is done in.
pub(super) trait Number: Element + PartialOrd {
    const ZERO: Self;
    fn from_f32(value: f32) -> Self;
    fn from_f64(value: f64) -> Self;
    fn from_i64(value: i64) -> Self;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// Towards zero, at the ends of the range where it does not fit.
    fn to_i64(self) -> i64;
    /// Integers wrap around.
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;

    fn is_true(self) -> bool {
        self != Self::ZERO
    }

    /// Whether it is not equal to itself.
    fn is_unordered(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

macro_rules! float {
    ($type:ty) => {
        impl Number for $type {
            const ZERO: Self = 0.0;
            fn from_f32(value: f32) -> Self {
                value as $type
            }
            fn from_f64(value: f64) -> Self {
                value as $type
            }
            fn from_i64(value: i64) -> Self {
                value as $type
            }
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn to_i64(self) -> i64 {
                self as i64
            }
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
    };
}

float!(f32);
float!(f64);

impl Number for i64 {
    const ZERO: Self = 0;
    fn from_f32(value: f32) -> Self {
        value as i64
    }
    fn from_f64(value: f64) -> Self {
        value as i64
    }
    fn from_i64(value: i64) -> Self {
        value
    }
    fn to_f32(self) -> f32 {
        self as f32
    }
    fn to_f64(self) -> f64 {
        self as f64
    }
    fn to_i64(self) -> i64 {
        self
    }
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

fn convert<T: Element, C>(tensor: &Tensor, to: impl Fn(T) -> C) -> Result<Vec<C>> {
    Ok(tensor.view::<T>()?.iter().map(|&value| to(value)).collect())
}

/// The elements as `C`, in memory order; without a copy when they are.
pub(super) fn load<C: Number>(tensor: &Tensor) -> Result<Cow<'_, [C]>> {
    if C::DTYPES.contains(&tensor.dtype) {
        return tensor.view().map(Cow::Borrowed);
    }
    Ok(Cow::Owned(match tensor.dtype {
        DType::Bool => convert(tensor, |value: u8| C::from_i64((value != 0).into()))?,
        DType::U8 => convert(tensor, |value: u8| C::from_i64(value.into()))?,
        DType::I8 => convert(tensor, |value: i8| C::from_i64(value.into()))?,
        DType::U16 | DType::Bits16 => convert(tensor, |value: u16| C::from_i64(value.into()))?,
        DType::I16 => convert(tensor, |value: i16| C::from_i64(value.into()))?,
        DType::U32 => convert(tensor, |value: u32| C::from_i64(value.into()))?,
        DType::I32 => convert(tensor, |value: i32| C::from_i64(value.into()))?,
        DType::I64 => convert(tensor, C::from_i64)?,
        DType::F16 => convert(tensor, |bits: u16| C::from_f32(f16::from_bits(bits).to_f32()))?,
        DType::BF16 => convert(tensor, |bits: u16| C::from_f32(bf16::from_bits(bits).to_f32()))?,
        DType::F32 => convert(tensor, C::from_f32)?,
        DType::F64 => convert(tensor, C::from_f64)?,
        dtype => return Err(OpError::Type { what: "an operand", dtype }.into()),
    }))
}

/// Whether each element is other than zero, as bytes 0 and 1, in memory order.
pub(super) fn load_truth(tensor: &Tensor) -> Result<Vec<u8>> {
    fn truth<C: Number>(tensor: &Tensor) -> Result<Vec<u8>> {
        Ok(load::<C>(tensor)?.iter().map(|value| value.is_true().into()).collect())
    }
    match tensor.dtype {
        DType::F64 => truth::<f64>(tensor),
        DType::F32 | DType::F16 | DType::BF16 => truth::<f32>(tensor),
        _ => truth::<i64>(tensor),
    }
}

fn put<T: Element, C: Number>(out: &mut Tensor, values: &[C], to: impl Fn(C) -> T) -> Result<()> {
    for (out, &value) in out.view_mut::<T>()?.iter_mut().zip(values) {
        *out = to(value);
    }
    Ok(())
}

fn store<C: Number>(out: &mut Tensor, values: &[C]) -> Result<()> {
    match out.dtype {
        DType::Bool => put(out, values, |value| u8::from(value.is_true())),
        DType::U8 => put(out, values, |value| value.to_i64() as u8),
        DType::I8 => put(out, values, |value| value.to_i64() as i8),
        DType::U16 | DType::Bits16 => put(out, values, |value| value.to_i64() as u16),
        DType::I16 => put(out, values, |value| value.to_i64() as i16),
        DType::U32 => put(out, values, |value| value.to_i64() as u32),
        DType::I32 => put(out, values, |value| value.to_i64() as i32),
        DType::I64 => put(out, values, C::to_i64),
        DType::F16 => put(out, values, |value| f16::from_f32(value.to_f32()).to_bits()),
        DType::BF16 => put(out, values, |value| bf16::from_f32(value.to_f32()).to_bits()),
        DType::F32 => put(out, values, C::to_f32),
        DType::F64 => put(out, values, C::to_f64),
        dtype => Err(OpError::Type { what: "the output", dtype }.into()),
    }
}

/// Lets `fill` write every element of `out` as `C`, in memory order; in place when they are `C`.
pub(super) fn write<C: Number>(out: &mut Tensor, fill: impl FnOnce(&mut [C])) -> Result<()> {
    if C::DTYPES.contains(&out.dtype) {
        fill(out.view_mut()?);
        return Ok(());
    }
    let mut values = vec![C::ZERO; out.len()];
    fill(&mut values);
    store(out, &values)
}

/// Lets `fill` write every element of `out` as 0 or 1, in memory order; in place when they are bytes.
pub(super) fn write_truth(out: &mut Tensor, fill: impl FnOnce(&mut [u8])) -> Result<()> {
    if matches!(out.dtype, DType::Bool | DType::U8) {
        fill(out.view_mut()?);
        return Ok(());
    }
    let mut truths = vec![0; out.len()];
    fill(&mut truths);
    let values: Vec<i64> = truths.into_iter().map(i64::from).collect();
    store(out, &values)
}
