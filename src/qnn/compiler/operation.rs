//! Descriptions of QNN's operations, before they become C structures.

use std::ffi::CStr;

/// A tensor's number in its composer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TensorId(pub(super) usize);

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Param {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// A tensor of `QNN_DATATYPE_UINT_32`.
    Numbers {
        dims: Vec<usize>,
        data: Vec<u32>,
    },
    /// A tensor of `QNN_DATATYPE_INT_32`.
    Integers {
        dims: Vec<usize>,
        data: Vec<i32>,
    },
}

/// An operation of the package `qti.aisw`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operation {
    /// `Conv2d`
    pub(super) kind: &'static CStr,
    pub(super) params: Vec<(&'static CStr, Param)>,
    pub(super) inputs: Vec<TensorId>,
    pub(super) output: TensorId,
}

impl Operation {
    pub(super) fn new(kind: &'static CStr, inputs: &[TensorId], output: TensorId) -> Self {
        Self { kind, params: Vec::new(), inputs: inputs.to_vec(), output }
    }

    pub(super) fn with(mut self, name: &'static CStr, param: Param) -> Self {
        self.params.push((name, param));
        self
    }

    /// With a list of numbers as parameter.
    pub(super) fn with_list(self, name: &'static CStr, list: &[usize]) -> Self {
        let data = list.iter().map(|&number| number as u32).collect();
        self.with(name, Param::Numbers { dims: vec![list.len()], data })
    }
}
