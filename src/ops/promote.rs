//! The rules by which element types meet, as in PyTorch and ExecuTorch.

use super::error::OpError;
use crate::error::Result;
use crate::runtime::{Inputs, Value};
use crate::tensor::DType;

/// A number that is an argument itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar {
    Bool(bool),
    Int(i64),
    Double(f64),
}

impl Scalar {
    pub(super) fn of(inputs: &Inputs<'_>, arg: usize) -> Result<Self> {
        match inputs.value(arg)? {
            Value::Bool(value) => Ok(Self::Bool(*value)),
            Value::Int(value) => Ok(Self::Int(*value)),
            Value::Double(value) => Ok(Self::Double(*value)),
            other => Err(OpError::Operands(other.to_string()).into()),
        }
    }

    pub(super) fn to_f64(self) -> f64 {
        match self {
            Self::Bool(value) => value.into(),
            Self::Int(value) => value as f64,
            Self::Double(value) => value,
        }
    }

    pub(super) fn to_i64(self) -> i64 {
        match self {
            Self::Bool(value) => value.into(),
            Self::Int(value) => value,
            Self::Double(value) => value as i64,
        }
    }
}

/// What elements are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compute {
    F32,
    F64,
    I64,
}

impl Compute {
    pub(super) fn of(dtype: DType) -> Result<Self> {
        use DType::*;
        match dtype {
            F16 | BF16 | F32 => Ok(Self::F32),
            F64 => Ok(Self::F64),
            Bool | U8 | I8 | U16 | I16 | U32 | I32 | I64 => Ok(Self::I64),
            _ => Err(OpError::Type { what: "an operand", dtype }.into()),
        }
    }
}

pub(super) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// The type in which elements of `a` and `b` meet.
pub(super) fn promote(a: DType, b: DType) -> DType {
    let larger = if a.size() >= b.size() { a } else { b };
    match (is_float(a), is_float(b)) {
        _ if a == b => a,
        // The two halves share no range and precision.
        (true, true) if a.size() == b.size() => DType::F32,
        (true, true) => larger,
        (true, false) => a,
        (false, true) => b,
        (false, false) if a == DType::Bool => b,
        (false, false) if b == DType::Bool => a,
        (false, false) if is_signed(a) == is_signed(b) || is_signed(larger) && a.size() != b.size() => larger,
        // An unsigned type beside a signed one that does not hold it.
        (false, false) => match larger.size() {
            1 => DType::I16,
            2 => DType::I32,
            _ => DType::I64,
        },
    }
}

/// The type in which elements of `dtype` meet a number: that of the tensor, unless the number is of a higher kind.
pub(super) fn promote_scalar(dtype: DType, scalar: Scalar) -> DType {
    match scalar {
        Scalar::Bool(_) => dtype,
        Scalar::Int(_) if dtype == DType::Bool => DType::I64,
        Scalar::Int(_) => dtype,
        Scalar::Double(_) if is_float(dtype) => dtype,
        Scalar::Double(_) => DType::F32,
    }
}

/// Refuses to lose fractions in integers, and numbers in truth values.
pub(super) fn check_cast(from: DType, to: DType) -> Result<()> {
    let lost = is_float(from) && !is_float(to) || from != DType::Bool && to == DType::Bool;
    if lost { Err(OpError::Cast { from, to }.into()) } else { Ok(()) }
}

/// Refuses an output that holds no fractions.
pub(super) fn check_float(what: &'static str, dtype: DType) -> Result<()> {
    if is_float(dtype) { Ok(()) } else { Err(OpError::Type { what, dtype }.into()) }
}

/// Argument `arg`, an element type's number or null, must be `have`'s.
pub(super) fn check_dtype_arg(inputs: &Inputs<'_>, arg: usize, have: DType) -> Result<()> {
    if matches!(inputs.value(arg)?, Value::Null) {
        return Ok(());
    }
    let code = inputs.int(arg)?;
    match i8::try_from(code).ok().and_then(DType::from_code) {
        Some(want) if want == have => Ok(()),
        Some(want) => Err(OpError::TypesDiffer { what: "a tensor", have, want }.into()),
        None => Err(OpError::Operands(format!("element type {code}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn types_meet_as_in_pytorch() {
        for (a, b, want) in [
            (F32, F32, F32),
            (F16, BF16, F32),
            (F16, F32, F32),
            (F32, F64, F64),
            (BF16, I64, BF16),
            (I64, F16, F16),
            (Bool, U8, U8),
            (Bool, Bool, Bool),
            (I32, Bool, I32),
            (U8, I8, I16),
            (U8, I16, I16),
            (U8, I64, I64),
            (I8, I32, I32),
            (U16, I16, I32),
            (U32, I8, I64),
        ] {
            assert_eq!((promote(a, b), promote(b, a)), (want, want), "{a} and {b}");
        }
    }

    #[test]
    fn a_number_raises_the_kind_only() {
        for (dtype, scalar, want) in [
            (I8, Scalar::Int(1000), I8),
            (I8, Scalar::Double(0.5), F32),
            (F16, Scalar::Double(0.5), F16),
            (Bool, Scalar::Int(1), I64),
            (Bool, Scalar::Bool(true), Bool),
            (F64, Scalar::Int(1), F64),
        ] {
            assert_eq!(promote_scalar(dtype, scalar), want, "{dtype} and {scalar:?}");
        }
    }

    #[test]
    fn casts_that_lose_the_kind_are_refused() {
        for (from, to, fine) in
            [(F32, F16, true), (I64, I8, true), (I64, F32, true), (Bool, Bool, true), (F32, I32, false)]
        {
            assert_eq!(check_cast(from, to).is_ok(), fine, "{from} to {to}");
        }
        assert!(check_cast(I64, Bool).is_err() && check_cast(F32, Bool).is_err());
    }
}
