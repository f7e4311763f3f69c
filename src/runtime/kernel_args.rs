//! What a kernel sees of a call: its arguments by place and kind, and inputs beside an output without overlap.

use super::error::RuntimeError;
use super::tensor::Tensor;
use super::value::Value;
use crate::error::Result;
use crate::tensor::{Element, element_count};
use std::ops::Range;

/// The arguments of one kernel call.
pub struct KernelArgs<'a> {
    values: &'a mut [Value],
    args: &'a [u32],
}

/// The arguments of a call, to read.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Values before the output that was split off; all when none was.
    before: &'a [Value],
    /// Values after it.
    after: &'a [Value],
    /// Whether the value between the two was split off.
    split: bool,
    args: &'a [u32],
}

impl<'a> Inputs<'a> {
    /// Argument `arg`.
    pub fn value(&self, arg: usize) -> Result<&'a Value> {
        let index = self.args.get(arg).map(|&index| index as usize);
        match index.and_then(|index| self.at(index)) {
            Some(value) => Ok(value),
            None if self.split && index == Some(self.before.len()) => Err(RuntimeError::OutputRead { arg }.into()),
            None => Err(RuntimeError::ArgumentMissing { arg }.into()),
        }
    }

    fn at(&self, index: usize) -> Option<&'a Value> {
        match index.checked_sub(self.before.len()) {
            None => self.before.get(index),
            // The output itself, or nothing.
            Some(0) => None,
            Some(past) => self.after.get(past - 1),
        }
    }

    fn wrong<T>(&self, arg: usize, wanted: &'static str) -> Result<T> {
        let kind = self.value(arg)?.kind();
        Err(RuntimeError::ArgumentKind { arg, kind, wanted }.into())
    }

    /// Argument `arg` as a tensor.
    pub fn tensor(&self, arg: usize) -> Result<&'a Tensor> {
        match self.value(arg)? {
            Value::Tensor(tensor) => Ok(tensor),
            _ => self.wrong(arg, "tensor"),
        }
    }

    /// Argument `arg` as a tensor, or `None` where the program passes null.
    pub fn optional_tensor(&self, arg: usize) -> Result<Option<&'a Tensor>> {
        match self.value(arg)? {
            Value::Null => Ok(None),
            _ => self.tensor(arg).map(Some),
        }
    }

    /// Argument `arg` as an integer.
    pub fn int(&self, arg: usize) -> Result<i64> {
        match self.value(arg)? {
            Value::Int(int) => Ok(*int),
            _ => self.wrong(arg, "int"),
        }
    }

    /// Argument `arg` as integers, in order.
    pub fn ints(&self, arg: usize) -> Result<impl ExactSizeIterator<Item = Result<i64>>> {
        let Value::IntList(list) = self.value(arg)? else { return self.wrong(arg, "int list") };
        let inputs = *self;
        Ok(list.iter().map(move |&index| match inputs.at(index as usize) {
            Some(Value::Int(int)) => Ok(*int),
            other => {
                let kind = other.map_or("missing value", Value::kind);
                Err(RuntimeError::ArgumentKind { arg, kind, wanted: "list of ints" }.into())
            }
        }))
    }

    /// Argument `arg` as tensors, in order.
    pub fn tensors(&self, arg: usize) -> Result<impl ExactSizeIterator<Item = Result<&'a Tensor>>> {
        let Value::TensorList(list) = self.value(arg)? else { return self.wrong(arg, "tensor list") };
        let inputs = *self;
        Ok(list.iter().map(move |&index| inputs.listed(arg, index)))
    }

    /// Argument `arg` as tensors, in order, with `None` where the program has none. A list of tensors will do.
    pub fn optional_tensors(&self, arg: usize) -> Result<impl ExactSizeIterator<Item = Result<Option<&'a Tensor>>>> {
        let (some, optional) = match self.value(arg)? {
            Value::TensorList(list) => (&list[..], &[][..]),
            Value::OptionalTensorList(list) => (&[][..], &list[..]),
            _ => return self.wrong(arg, "optional tensor list"),
        };
        let inputs = *self;
        Ok((0..some.len() + optional.len()).map(move |place| {
            let index = some.get(place).copied().or_else(|| optional.get(place).copied().flatten());
            index.map(|index| inputs.listed(arg, index)).transpose()
        }))
    }

    fn listed(&self, arg: usize, index: u32) -> Result<&'a Tensor> {
        match self.at(index as usize) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            None if self.split && index as usize == self.before.len() => Err(RuntimeError::OutputRead { arg }.into()),
            other => {
                let kind = other.map_or("missing value", Value::kind);
                Err(RuntimeError::ArgumentKind { arg, kind, wanted: "list of tensors" }.into())
            }
        }
    }

    /// Argument `arg` as a string.
    pub fn string(&self, arg: usize) -> Result<&'a str> {
        match self.value(arg)? {
            Value::String(string) => Ok(string),
            _ => self.wrong(arg, "string"),
        }
    }

    /// Argument `arg` as a real number; integers count.
    pub fn double(&self, arg: usize) -> Result<f64> {
        match self.value(arg)? {
            Value::Double(double) => Ok(*double),
            Value::Int(int) => Ok(*int as f64),
            _ => self.wrong(arg, "double"),
        }
    }

    /// Argument `arg` as a truth value.
    pub fn bool(&self, arg: usize) -> Result<bool> {
        match self.value(arg)? {
            Value::Bool(bool) => Ok(*bool),
            _ => self.wrong(arg, "bool"),
        }
    }
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

    /// All arguments, to read.
    pub fn inputs(&self) -> Inputs<'_> {
        Inputs { before: self.values, after: &[], split: false, args: self.args }
    }

    fn index(&self, arg: usize) -> Result<usize> {
        let index = self.args.get(arg).map(|&index| index as usize).filter(|&index| index < self.values.len());
        index.ok_or_else(|| RuntimeError::ArgumentMissing { arg }.into())
    }

    /// Argument `arg`.
    pub fn value(&self, arg: usize) -> Result<&Value> {
        self.inputs().value(arg)
    }

    /// Replaces argument `arg`, for operators on scalars.
    pub fn set(&mut self, arg: usize, value: Value) -> Result<()> {
        let index = self.index(arg)?;
        self.values[index] = value;
        Ok(())
    }

    /// Argument `arg` as a tensor.
    pub fn tensor(&self, arg: usize) -> Result<&Tensor> {
        self.inputs().tensor(arg)
    }

    /// Argument `arg` as a tensor, or `None` where the program passes null.
    pub fn optional_tensor(&self, arg: usize) -> Result<Option<&Tensor>> {
        self.inputs().optional_tensor(arg)
    }

    /// Argument `arg` as a tensor to write or resize.
    pub fn tensor_mut(&mut self, arg: usize) -> Result<&mut Tensor> {
        let index = self.index(arg)?;
        match &mut self.values[index] {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(RuntimeError::ArgumentKind { arg, kind: other.kind(), wanted: "tensor" }.into()),
        }
    }

    /// Argument `arg` as an integer.
    pub fn int(&self, arg: usize) -> Result<i64> {
        self.inputs().int(arg)
    }

    /// Argument `arg` as a real number; integers count.
    pub fn double(&self, arg: usize) -> Result<f64> {
        self.inputs().double(arg)
    }

    /// Argument `arg` as a truth value.
    pub fn bool(&self, arg: usize) -> Result<bool> {
        self.inputs().bool(arg)
    }

    /// Tensor `output` to write, and every other argument to read. Refused when any other tensor argument, alone or in a
    /// list, shares bytes with the output's memory, so views of both may be held. The output's own value cannot be read through the
    /// inputs; calls that name it twice, as ExecuTorch's do, are fine.
    pub fn split(&mut self, output: usize) -> Result<(Inputs<'_>, &mut Tensor)> {
        let index = self.index(output)?;
        // The whole capacity counts: the kernel may resize the output up to it.
        let out = self.tensor(output)?;
        let out = span(out, out.capacity());
        let tensor_shares = |other: u32| match self.values.get(other as usize) {
            Some(Value::Tensor(tensor)) => other as usize != index && overlap(&span(tensor, tensor.byte_len()), &out),
            _ => false,
        };
        let shares = |&other: &u32| match self.values.get(other as usize) {
            Some(Value::TensorList(list)) => list.iter().any(|&other| tensor_shares(other)),
            Some(Value::OptionalTensorList(list)) => list.iter().flatten().any(|&other| tensor_shares(other)),
            _ => tensor_shares(other),
        };
        if let Some(arg) = self.args.iter().position(shares) {
            return Err(RuntimeError::SharedMemory { arg, output }.into());
        }
        let (before, rest) = self.values.split_at_mut(index);
        match rest.split_first_mut() {
            Some((Value::Tensor(tensor), after)) => {
                Ok((Inputs { before, after, split: true, args: self.args }, tensor))
            }
            _ => Err(RuntimeError::ArgumentMissing { arg: output }.into()),
        }
    }

    /// Elements of tensor `input` and, to write, of tensor `output`, which must not overlap.
    pub fn in_out<I: Element, O: Element>(&mut self, input: usize, output: usize) -> Result<(&[I], &mut [O])> {
        let (inputs, output) = self.split(output)?;
        Ok((inputs.tensor(input)?.view()?, output.view_mut()?))
    }

    /// Makes tensor `output` a view of tensor `input` with sizes `dims`: same element type, as many elements, no copy.
    pub fn view_as(&mut self, input: usize, output: usize, dims: &[usize]) -> Result<()> {
        let places = [self.index(input)?, self.index(output)?];
        let Ok([Value::Tensor(source), Value::Tensor(target)]) = self.values.get_disjoint_mut(places) else {
            // The same value twice, or no tensors.
            self.tensor(input)?;
            self.tensor(output)?;
            return Err(RuntimeError::SharedMemory { arg: input, output }.into());
        };
        if element_count(dims)? != source.len() {
            let bounds = source.dims.clone();
            return Err(RuntimeError::Sizes { asked: dims.to_vec(), what: "the source's", bounds }.into());
        }
        target.resize(dims)?;
        target.share(source)
    }
}

fn span(tensor: &Tensor, bytes: usize) -> Range<usize> {
    let start = tensor.address() as usize;
    start..start + bytes
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}
