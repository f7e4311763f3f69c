//! What a form sees of a call: its arguments as graph values and integers, and where to put results.

use super::method::Method;
use super::{Fit, Unfit};
use crate::base::storage::Blob;
use crate::graph::{Graph, Int, Node, Op, ValueId};
use crate::pte::EValue;
use crate::tensor::DType;

/// A number that is an argument itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(Int),
    Double(f64),
    Bool(bool),
}

/// A call in a method that is being traced.
pub(super) struct Call<'c, 'm> {
    method: &'c mut Method<'m>,
    args: &'c [u32],
}

impl<'c, 'm> Call<'c, 'm> {
    pub fn new(method: &'c mut Method<'m>, args: &'c [u32]) -> Self {
        Self { method, args }
    }

    /// The method.
    pub fn method(&mut self) -> &mut Method<'m> {
        self.method
    }

    pub fn graph(&mut self) -> &mut Graph {
        self.method.graph_mut()
    }

    /// Number of the value that argument `arg` is.
    pub fn arg(&self, arg: usize) -> Fit<u32> {
        match self.args.get(arg) {
            Some(&value) => Ok(value),
            None => Unfit::why(format!("argument {arg} is missing")),
        }
    }

    fn value(&self, arg: usize) -> Fit<&'m EValue> {
        Ok(self.method.value(self.arg(arg)?))
    }

    /// True where argument `arg` is null.
    pub fn is_null(&self, arg: usize) -> Fit<bool> {
        Ok(matches!(self.value(arg)?, EValue::Null) && !self.method.is_computed(self.arg(arg)?))
    }

    /// What tensor `arg` holds.
    pub fn tensor(&mut self, arg: usize) -> Fit<ValueId> {
        let value = self.arg(arg)?;
        self.method.tensor(value)
    }

    /// What tensor `arg` holds; `None` where it is null.
    pub fn optional_tensor(&mut self, arg: usize) -> Fit<Option<ValueId>> {
        if self.is_null(arg)? { Ok(None) } else { self.tensor(arg).map(Some) }
    }

    /// What the tensors of list `arg` hold.
    pub fn tensors(&mut self, arg: usize) -> Fit<Vec<ValueId>> {
        match self.value(arg)? {
            EValue::TensorList(list) => list.iter().map(|&value| self.method.tensor(value)).collect(),
            _ => Unfit::why(format!("argument {arg} is no list of tensors")),
        }
    }

    /// The tensors of list `arg` that are there.
    pub fn optional_tensors(&mut self, arg: usize) -> Fit<Vec<Option<ValueId>>> {
        let list: Vec<Option<u32>> = match self.value(arg)? {
            EValue::OptionalTensorList(list) => list.clone(),
            EValue::TensorList(list) => list.iter().map(|&value| Some(value)).collect(),
            _ => return Unfit::why(format!("argument {arg} is no list of tensors")),
        };
        list.into_iter().map(|value| value.map(|value| self.method.tensor(value)).transpose()).collect()
    }

    /// Element type that the program gives tensor `arg`.
    pub fn stated_dtype(&self, arg: usize) -> Fit<DType> {
        Ok(self.method.plan_tensor(self.arg(arg)?)?.dtype)
    }

    /// Argument `arg` as an integer.
    pub fn int(&self, arg: usize) -> Fit<Int> {
        self.method.integer(self.arg(arg)?)
    }

    /// Argument `arg` as an integer; `None` where it is null.
    pub fn optional_int(&self, arg: usize) -> Fit<Option<Int>> {
        if self.is_null(arg)? { Ok(None) } else { self.int(arg).map(Some) }
    }

    /// Argument `arg` as an integer that the file says.
    pub fn known_int(&self, arg: usize) -> Fit<i64> {
        match self.int(arg)? {
            Int::Const(int) => Ok(int),
            Int::Symbol(_) => Unfit::why(format!("argument {arg} is known only at run time")),
        }
    }

    /// Argument `arg` as integers.
    pub fn ints(&self, arg: usize) -> Fit<Vec<Int>> {
        match self.value(arg)? {
            EValue::IntList(list) => list.iter().map(|&value| self.method.integer(value)).collect(),
            _ => Unfit::why(format!("argument {arg} is no list of integers")),
        }
    }

    /// Argument `arg` as integers that the file says.
    pub fn known_ints(&self, arg: usize) -> Fit<Vec<i64>> {
        let known = |int| match int {
            Int::Const(int) => Ok(int),
            Int::Symbol(_) => Unfit::why(format!("argument {arg} is known only at run time")),
        };
        self.ints(arg)?.into_iter().map(known).collect()
    }

    /// Argument `arg` as a truth value that the file says.
    pub fn bool(&self, arg: usize) -> Fit<bool> {
        match self.value(arg)? {
            EValue::Bool(bool) if !self.method.is_computed(self.arg(arg)?) => Ok(*bool),
            _ => Unfit::why(format!("argument {arg} is no known truth value")),
        }
    }

    /// Argument `arg` as text.
    pub fn text(&self, arg: usize) -> Fit<&'m str> {
        match self.value(arg)? {
            EValue::String(text) => Ok(text),
            _ => Unfit::why(format!("argument {arg} is no text")),
        }
    }

    /// Argument `arg` as a number.
    pub fn number(&self, arg: usize) -> Fit<Number> {
        let value = self.arg(arg)?;
        if self.method.is_computed(value) {
            return self.method.integer(value).map(Number::Int);
        }
        match self.method.value(value) {
            EValue::Int(int) => Ok(Number::Int(Int::Const(*int))),
            EValue::Double(double) => Ok(Number::Double(*double)),
            EValue::Bool(bool) => Ok(Number::Bool(*bool)),
            _ => Unfit::why(format!("argument {arg} is no number")),
        }
    }

    /// Argument `arg` as a real number that the file says.
    pub fn real(&self, arg: usize) -> Fit<f64> {
        match self.number(arg)? {
            Number::Double(real) => Ok(real),
            Number::Int(Int::Const(int)) => Ok(int as f64),
            _ => Unfit::why(format!("argument {arg} is no known real number")),
        }
    }

    /// Refuses a call that asks for another element type than its output has.
    pub fn check_dtype_arg(&self, arg: usize, have: DType) -> Fit {
        if self.is_null(arg)? || self.known_int(arg)? == i64::from(have as i8) {
            return Ok(());
        }
        Unfit::why(format!("element type {} is asked, the output is {have}", self.known_int(arg)?))
    }

    pub fn dtype(&self, value: ValueId) -> DType {
        self.method.graph().value(value).dtype
    }

    pub fn shape(&self, value: ValueId) -> Vec<Int> {
        self.method.graph().value(value).shape.clone()
    }

    /// The node that makes `value`.
    pub fn producer(&self, value: ValueId) -> Option<&Node> {
        self.method.producer(value)
    }

    /// Adds a node with one result.
    pub fn emit(&mut self, op: Op, inputs: &[ValueId], dtype: DType, shape: Vec<Int>) -> ValueId {
        self.method.emit(op, inputs, dtype, shape)
    }

    /// As `emit`, with the element type of the first operand.
    pub fn like(&mut self, op: Op, inputs: &[ValueId], shape: Vec<Int>) -> ValueId {
        let dtype = self.dtype(inputs[0]);
        self.emit(op, inputs, dtype, shape)
    }

    /// `value` in another shape, if it has not that already.
    pub fn reshaped(&mut self, value: ValueId, shape: Vec<Int>) -> ValueId {
        if self.shape(value) == shape { value } else { self.like(Op::Reshape, &[value], shape) }
    }

    /// `value` as another element type, by value.
    pub fn converted(&mut self, value: ValueId, dtype: DType) -> ValueId {
        if self.dtype(value) == dtype {
            return value;
        }
        let shape = self.shape(value);
        self.emit(Op::Convert, &[value], dtype, shape)
    }

    /// A constant of one element and rank 0.
    pub fn scalar(&mut self, number: Number, dtype: DType) -> Fit<ValueId> {
        let bytes = match (number, dtype) {
            (Number::Int(value @ Int::Symbol(_)), DType::I32 | DType::I64) => {
                return Ok(self.emit(Op::Scalar { value }, &[], dtype, Vec::new()));
            }
            (Number::Double(real), DType::F32) => (real as f32).to_le_bytes().to_vec(),
            (Number::Double(real), DType::F16) => half::f16::from_f64(real).to_le_bytes().to_vec(),
            (Number::Double(real), DType::BF16) => half::bf16::from_f64(real).to_le_bytes().to_vec(),
            (Number::Int(Int::Const(int)), DType::F32 | DType::F16 | DType::BF16) => {
                return self.scalar(Number::Double(int as f64), dtype);
            }
            (Number::Int(Int::Const(int)), DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8) => {
                let size = dtype.size();
                let signed = dtype != DType::U8;
                let bits = 8 * size as u32;
                let fits = if signed { int >> (bits - 1) == 0 || int >> (bits - 1) == -1 } else { int >> bits == 0 };
                if !fits && size < 8 {
                    return Unfit::why(format!("{int} as {dtype}"));
                }
                int.to_le_bytes()[..size].to_vec()
            }
            (Number::Bool(bool), DType::Bool) => vec![u8::from(bool)],
            _ => return Unfit::why(format!("{number:?} as {dtype}")),
        };
        Ok(self.graph().add_constant("scalar", dtype, &[], None, Blob::from_vec(bytes)))
    }

    /// Writes `value` to output tensor `arg`.
    pub fn set(&mut self, arg: usize, value: ValueId) -> Fit {
        let place = self.arg(arg)?;
        self.method.write(place, value)
    }

    /// Sets integer `arg`.
    pub fn set_int(&mut self, arg: usize, int: Int) -> Fit {
        let place = self.arg(arg)?;
        self.method.set_integer(place, int)
    }
}
