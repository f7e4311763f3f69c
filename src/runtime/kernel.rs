//! Operators that a program calls by name.

use super::tensor::Tensor;
use super::value::Value;
use crate::error::{Error, Result, Status};
use crate::pte::OperatorName;
use crate::tensor::Element;
use std::collections::BTreeMap;

/// An operator's implementation: reads and writes the values that its call names.
pub type Kernel = fn(&mut KernelArgs<'_>) -> Result<()>;

/// Operators by full name, `aten::add.out`.
#[derive(Default, Clone)]
pub struct KernelRegistry {
    kernels: BTreeMap<String, Kernel>,
}

impl KernelRegistry {
    /// Adds an operator; a later one of the same name replaces an earlier one.
    pub fn register(&mut self, name: &str, kernel: Kernel) {
        self.kernels.insert(name.to_owned(), kernel);
    }

    /// The implementation of `name`.
    pub fn get(&self, name: &OperatorName) -> Option<Kernel> {
        self.kernels.get(&name.to_string()).copied()
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }
}

/// The arguments of one kernel call.
pub struct KernelArgs<'a> {
    values: &'a mut [Value],
    args: &'a [u32],
}

impl<'a> KernelArgs<'a> {
    /// `args` index `values`; out of range is refused at use.
    pub fn new(values: &'a mut [Value], args: &'a [u32]) -> Self {
        Self { values, args }
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    fn index(&self, arg: usize) -> Result<usize> {
        let index = self.args.get(arg).map(|&index| index as usize).filter(|&index| index < self.values.len());
        index.ok_or_else(|| Error::new(Status::InvalidProgram, format!("argument {arg} is missing")))
    }

    /// Argument `arg`.
    pub fn value(&self, arg: usize) -> Result<&Value> {
        Ok(&self.values[self.index(arg)?])
    }

    /// Replaces argument `arg`, for operators on scalars.
    pub fn set(&mut self, arg: usize, value: Value) -> Result<()> {
        let index = self.index(arg)?;
        self.values[index] = value;
        Ok(())
    }

    fn wrong(&self, arg: usize, wanted: &str) -> Error {
        let kind = self.value(arg).map_or("missing", Value::kind);
        Error::new(Status::InvalidProgram, format!("argument {arg} is a {kind}, not a {wanted}"))
    }

    /// Argument `arg` as a tensor.
    pub fn tensor(&self, arg: usize) -> Result<&Tensor> {
        match self.value(arg)? {
            Value::Tensor(tensor) => Ok(tensor),
            _ => Err(self.wrong(arg, "tensor")),
        }
    }

    /// Argument `arg` as a tensor, or `None` where the program passes null.
    pub fn optional_tensor(&self, arg: usize) -> Result<Option<&Tensor>> {
        match self.value(arg)? {
            Value::Null => Ok(None),
            _ => self.tensor(arg).map(Some),
        }
    }

    /// Argument `arg` as a tensor to write or resize.
    pub fn tensor_mut(&mut self, arg: usize) -> Result<&mut Tensor> {
        let index = self.index(arg)?;
        if !matches!(self.values[index], Value::Tensor(_)) {
            return Err(self.wrong(arg, "tensor"));
        }
        match &mut self.values[index] {
            Value::Tensor(tensor) => Ok(tensor),
            _ => unreachable!("checked above"),
        }
    }

    /// Argument `arg` as an integer.
    pub fn int(&self, arg: usize) -> Result<i64> {
        match self.value(arg)? {
            Value::Int(int) => Ok(*int),
            _ => Err(self.wrong(arg, "int")),
        }
    }

    /// Argument `arg` as a real number; integers count.
    pub fn double(&self, arg: usize) -> Result<f64> {
        match self.value(arg)? {
            Value::Double(double) => Ok(*double),
            Value::Int(int) => Ok(*int as f64),
            _ => Err(self.wrong(arg, "double")),
        }
    }

    /// Argument `arg` as a truth value.
    pub fn bool(&self, arg: usize) -> Result<bool> {
        match self.value(arg)? {
            Value::Bool(bool) => Ok(*bool),
            _ => Err(self.wrong(arg, "bool")),
        }
    }

    /// Checks that tensors `inputs` do not share bytes with tensor `output`, so that views of both may be held.
    pub fn disjoint(&self, inputs: &[usize], output: usize) -> Result<()> {
        let span = |arg| -> Result<std::ops::Range<usize>> {
            let tensor = self.tensor(arg)?;
            let start = tensor.address() as usize;
            Ok(start..start + tensor.byte_len())
        };
        let out = span(output)?;
        for &input in inputs {
            let other = span(input)?;
            if other.start < out.end && out.start < other.end {
                return Err(Error::new(
                    Status::InvalidProgram,
                    format!("argument {input} shares memory with output {output}"),
                ));
            }
        }
        Ok(())
    }

    /// Elements of tensor `input` and, to write, of tensor `output`, which must not overlap.
    pub fn in_out<I: Element, O: Element>(&mut self, input: usize, output: usize) -> Result<(&[I], &mut [O])> {
        self.disjoint(&[input], output)?;
        // A second tensor value with the same address as the first is copied out so that both borrows can live.
        let source = self.tensor(input)?.clone();
        let source = Self::detach(&source)?;
        let target = self.tensor_mut(output)?.view_mut::<O>()?;
        Ok((source, target))
    }

    #[allow(unsafe_code)]
    fn detach<'b, T: Element>(tensor: &Tensor) -> Result<&'b [T]> {
        let view = tensor.view::<T>()?;
        // SAFETY: the bytes belong to the method or its caller, not to `tensor`, and live for the whole kernel call.
        Ok(unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) })
    }
}
