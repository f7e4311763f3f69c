//! A run-time value of a method.

use super::tensor::Tensor;

/// The run-time form of [`EValue`](crate::pte::EValue).
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
}
