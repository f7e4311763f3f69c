//! Operations on each element alone, with PyTorch's broadcasting.

use super::movement::broadcast;
use super::step::{OpResult, Step};
use super::tensor::{Data, Tensor, is_real};
use crate::graph::{BinaryOp, UnaryOp};

pub(super) fn unary(op: UnaryOp, x: &Tensor) -> OpResult {
    match &x.data {
        Data::Real(data) if op == UnaryOp::LogicalNot => {
            Ok(Data::Integer(data.iter().map(|&x| i64::from(x == 0.0)).collect()))
        }
        Data::Real(data) => Ok(Data::Real(data.iter().map(|&x| unary_real(op, x)).collect())),
        Data::Integer(data) => {
            let apply = |x: &i64| match op {
                UnaryOp::Abs => Ok(x.wrapping_abs()),
                UnaryOp::Negate => Ok(x.wrapping_neg()),
                UnaryOp::Square => Ok(x.wrapping_mul(*x)),
                UnaryOp::LogicalNot => Ok(i64::from(*x == 0)),
                UnaryOp::Ceil | UnaryOp::Floor => Ok(*x),
                _ => Err(format!("{op:?} of integers")),
            };
            data.iter().map(apply).collect::<OpResult<_>>().map(Data::Integer)
        }
    }
}

fn unary_real(op: UnaryOp, x: f32) -> f32 {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};
    let wide = f64::from(x);
    let result = match op {
        UnaryOp::Abs => wide.abs(),
        UnaryOp::Ceil => wide.ceil(),
        UnaryOp::Cos => wide.cos(),
        UnaryOp::Exp => wide.exp(),
        UnaryOp::Floor => wide.floor(),
        UnaryOp::Gelu => 0.5 * wide * (1.0 + erf(wide * FRAC_1_SQRT_2)),
        UnaryOp::GeluTanh => 0.5 * wide * (1.0 + ((2.0 / PI).sqrt() * (wide + 0.044715 * wide.powi(3))).tanh()),
        UnaryOp::HardSwish => wide * (wide + 3.0).clamp(0.0, 6.0) / 6.0,
        UnaryOp::Log => wide.ln(),
        UnaryOp::LogicalNot => f64::from(u8::from(x == 0.0)),
        UnaryOp::Negate => -wide,
        UnaryOp::Reciprocal => 1.0 / wide,
        UnaryOp::Rsqrt => 1.0 / wide.sqrt(),
        UnaryOp::Sigmoid => sigmoid(wide),
        UnaryOp::Silu => wide * sigmoid(wide),
        UnaryOp::Sin => wide.sin(),
        UnaryOp::Sqrt => wide.sqrt(),
        UnaryOp::Square => wide * wide,
        UnaryOp::Tanh => wide.tanh(),
    };
    result as f32
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function, by its series of positive terms: `2/√π e^(−x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!`.
fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.0 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

pub(super) fn binary(step: &Step<'_>, op: BinaryOp) -> OpResult {
    let (a, b) = (step.operand(0)?, step.operand(1)?);
    let out_shape = step.out_shape(0);
    let (at_a, at_b) = (broadcast(&a.shape, out_shape)?, broadcast(&b.shape, out_shape)?);
    let pairs = at_a.into_iter().zip(at_b);
    match (&a.data, &b.data) {
        (Data::Real(a), Data::Real(b)) => match arithmetic(op) {
            Some(apply) => Ok(Data::Real(pairs.map(|(i, j)| apply(a[i], b[j])).collect())),
            None => Ok(Data::Integer(pairs.map(|(i, j)| i64::from(compare(op, a[i], b[j], 0.0))).collect())),
        },
        (Data::Integer(a), Data::Integer(b)) => {
            pairs.map(|(i, j)| integer(op, a[i], b[j])).collect::<OpResult<_>>().map(Data::Integer)
        }
        _ => Err("reals and integers are mixed".into()),
    }
}

/// The arithmetic of `op` on reals; `None` for those whose result is bool.
fn arithmetic(op: BinaryOp) -> Option<fn(f32, f32) -> f32> {
    match op {
        BinaryOp::Add => Some(|a, b| a + b),
        BinaryOp::Subtract => Some(|a, b| a - b),
        BinaryOp::Multiply => Some(|a, b| a * b),
        BinaryOp::Divide => Some(|a, b| a / b),
        BinaryOp::Maximum => Some(|a, b| if a.is_nan() || a > b { a } else { b }),
        BinaryOp::Minimum => Some(|a, b| if a.is_nan() || a < b { a } else { b }),
        _ => None,
    }
}

fn compare<T: PartialOrd>(op: BinaryOp, a: T, b: T, zero: T) -> bool {
    match op {
        BinaryOp::Equal => a == b,
        BinaryOp::NotEqual => a != b,
        BinaryOp::Less => a < b,
        BinaryOp::LessEqual => a <= b,
        BinaryOp::Greater => a > b,
        BinaryOp::GreaterEqual => a >= b,
        BinaryOp::LogicalAnd => a != zero && b != zero,
        BinaryOp::LogicalOr => a != zero || b != zero,
        _ => false,
    }
}

/// Integers wrap as two's complement; division rounds towards zero.
fn integer(op: BinaryOp, a: i64, b: i64) -> OpResult<i64> {
    Ok(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Subtract => a.wrapping_sub(b),
        BinaryOp::Multiply => a.wrapping_mul(b),
        BinaryOp::Divide if b == 0 => return Err(format!("{a} is divided by zero")),
        BinaryOp::Divide => a.wrapping_div(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        _ => i64::from(compare(op, a, b, 0)),
    })
}

pub(super) fn clamp(x: &Tensor, min: f32, max: f32) -> Data {
    // Not f32::clamp, which panics when the bounds are crossed; the upper bound wins, as in PyTorch.
    match &x.data {
        Data::Real(data) => {
            let limit = |x: f32| if x < min { min } else { x };
            Data::Real(data.iter().map(|&x| if limit(x) > max { max } else { limit(x) }).collect())
        }
        Data::Integer(data) => Data::Integer(data.iter().map(|&x| x.max(min as i64).min(max as i64)).collect()),
    }
}

pub(super) fn choose(step: &Step<'_>) -> OpResult {
    let out_shape = step.out_shape(0);
    let (a, b) = (step.operand(1)?, step.operand(2)?);
    let condition = step.integers(0)?;
    let at = broadcast(&step.operand_shape(0)?, out_shape)?;
    let (at_a, at_b) = (broadcast(&a.shape, out_shape)?, broadcast(&b.shape, out_shape)?);
    let first = at.into_iter().map(|index| condition[index] != 0);
    let choices = first.zip(at_a.into_iter().zip(at_b));
    match (&a.data, &b.data) {
        (Data::Real(a), Data::Real(b)) => {
            Ok(Data::Real(choices.map(|(first, (i, j))| if first { a[i] } else { b[j] }).collect()))
        }
        (Data::Integer(a), Data::Integer(b)) => {
            Ok(Data::Integer(choices.map(|(first, (i, j))| if first { a[i] } else { b[j] }).collect()))
        }
        _ => Err("reals and integers are mixed".into()),
    }
}

/// By value: reals become integers by dropping the fraction. Rounding to the result's type or codes follows.
pub(super) fn convert(step: &Step<'_>) -> OpResult {
    let x = step.operand(0)?;
    let result = step.result(0);
    if is_real(result.dtype) || result.quantization.is_some() {
        return Ok(Data::Real(x.data.to_reals()));
    }
    Ok(match &x.data {
        Data::Real(data) if result.dtype == crate::tensor::DType::Bool => {
            Data::Integer(data.iter().map(|&x| i64::from(x != 0.0)).collect())
        }
        Data::Real(data) => Data::Integer(data.iter().map(|&x| x as i64).collect()),
        Data::Integer(data) => Data::Integer(data.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_equals_published_values() {
        for (x, y) in
            [(0.0, 0.0), (0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (3.0, 0.999_977_909_503_001_4)]
        {
            assert!((erf(x) - y).abs() < 1e-14, "{x}");
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(7.0), 1.0);
        assert!(erf(f64::NAN).is_nan());
    }
}
