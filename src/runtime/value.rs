//! A run-time value of a method.

use super::tensor::Tensor;
use crate::pte::EValue;
use std::fmt;

/// The run-time form of [`EValue`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Value {
    Null,
    Int(i64),
    Bool(bool),
    Double(f64),
    String(String),
    Tensor(Tensor),
    /// Indices of `Int` values of the same method.
    IntList(Vec<u32>),
    DoubleList(Vec<f64>),
    BoolList(Vec<bool>),
    /// Indices of tensors of the same method.
    TensorList(Vec<u32>),
    OptionalTensorList(Vec<Option<u32>>),
}

impl Value {
    /// The kind's name in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Tensor(_) => "tensor",
            Self::IntList(_) => "int list",
            Self::DoubleList(_) => "double list",
            Self::BoolList(_) => "bool list",
            Self::TensorList(_) => "tensor list",
            Self::OptionalTensorList(_) => "optional tensor list",
        }
    }

    /// The value of a program; a tensor has no memory yet.
    pub(super) fn from_program(value: &EValue) -> Self {
        match value {
            EValue::Null => Self::Null,
            EValue::Int(int) => Self::Int(*int),
            EValue::Bool(bool) => Self::Bool(*bool),
            EValue::Double(double) => Self::Double(*double),
            EValue::String(string) => Self::String(string.clone()),
            EValue::Tensor(tensor) => Self::Tensor(Tensor::from_program(tensor)),
            EValue::IntList(list) => Self::IntList(list.clone()),
            EValue::DoubleList(list) => Self::DoubleList(list.clone()),
            EValue::BoolList(list) => Self::BoolList(list.clone()),
            EValue::TensorList(list) => Self::TensorList(list.clone()),
            EValue::OptionalTensorList(list) => Self::OptionalTensorList(list.clone()),
        }
    }

    /// Becomes `source`; a tensor takes its memory too.
    pub(super) fn alias(&mut self, source: &Value) {
        match (&mut *self, source) {
            (Self::Tensor(to), Self::Tensor(from)) => to.alias(from),
            (_, Self::Tensor(from)) => {
                let mut to = from.clone();
                to.alias(from);
                *self = Self::Tensor(to);
            }
            _ => *self = source.clone(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => write!(f, "int {int}"),
            Self::Bool(bool) => write!(f, "bool {bool}"),
            Self::Double(double) => write!(f, "double {double}"),
            Self::Tensor(tensor) => tensor.fmt(f),
            other => f.write_str(other.kind()),
        }
    }
}
