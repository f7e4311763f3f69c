//! A loaded method: its values, its memory, its instructions, its bindings.

use super::binding::{Bindings, Home};
use super::compiled::{CompiledMethod, MethodValues};
use super::error::{RuntimeError, Side};
use super::executor::Executor;
use super::io_arena::{IoArena, IoSlice};
use super::memory::Memory;
use super::module::MethodInfo;
use super::profile::{ProfileKind, Recorder, Work};
use super::value::Value;
use crate::error::{Context, Result};
use crate::tensor::Dims;
use std::time::Instant;

/// Made by `loader`.
pub(super) struct Method {
    pub(super) info: MethodInfo,
    pub(super) values: Vec<Value>,
    pub(super) body: Body,
    pub(super) bindings: Bindings,
    pub(super) memory: Memory,
}

/// What a method does.
pub(super) enum Body {
    Instructions(Executor),
    Compiled(Box<dyn CompiledMethod>),
}

impl Method {
    pub(super) fn bind(&mut self, side: Side, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.bindings.bind((side, index), (arena, slice), &mut self.values, &self.memory)
    }

    pub(super) fn resize_input(&mut self, index: usize, dims: &[usize]) -> Result<()> {
        let method = || self.info.name.clone();
        let Some(slot) = self.bindings.inputs.get(index) else {
            let len = self.bindings.inputs.len();
            return Err(RuntimeError::NoSuchSlot { method: method(), side: Side::Input, index, len }.into());
        };
        let tensor = match &mut self.values[slot.value as usize] {
            Value::Tensor(tensor) if slot.home != Home::NoTensor => tensor,
            other => {
                let kind = other.kind();
                return Err(RuntimeError::NotATensor { method: method(), side: Side::Input, index, kind }.into());
            }
        };
        if !tensor.dynamic && tensor.dims != dims {
            let have = tensor.dims.clone();
            return Err(RuntimeError::FixedSizes { method: method(), index, have, asked: dims.to_vec() }.into());
        }
        if dims.len() != tensor.bounds.len() || dims.iter().zip(&tensor.bounds).any(|(dim, bound)| dim > bound) {
            let bounds = tensor.bounds.clone();
            return Err(RuntimeError::SizesTooLarge { method: method(), index, bounds, asked: dims.to_vec() }.into());
        }
        tensor.resize(dims)
    }

    pub(super) fn execute(&mut self, arena: &mut IoArena, recorder: Option<&mut Recorder>) -> Result<()> {
        self.bindings.check(arena, &self.values)?;
        match recorder {
            None => self.run(arena, None),
            Some(recorder) => {
                let began = Instant::now();
                self.run(arena, Some(&mut *recorder))?;
                let name = &self.info.name;
                recorder.record(Work { kind: ProfileKind::Method, name, method: name, instruction: None }, began);
                Ok(())
            }
        }
    }

    pub(super) fn chunk(&self) -> Option<usize> {
        match &self.body {
            Body::Instructions(_) => None,
            Body::Compiled(compiled) => compiled.chunk(),
        }
    }

    /// Bytes of intermediate values, beyond planned memory.
    pub(super) fn scratch_bytes(&self) -> u64 {
        match &self.body {
            Body::Instructions(_) => 0,
            Body::Compiled(compiled) => compiled.scratch_bytes(),
        }
    }

    fn run(&mut self, arena: &mut IoArena, recorder: Option<&mut Recorder>) -> Result<()> {
        self.bindings.before(arena, &mut self.values)?;
        let name = &self.info.name;
        match &mut self.body {
            Body::Instructions(executor) => {
                executor.share(arena);
                executor.run(name, &mut self.values, recorder)?;
            }
            Body::Compiled(compiled) => {
                let mut values = MethodValues::new(&mut self.values);
                let result = match recorder {
                    None => compiled.run(&mut values, None),
                    Some(recorder) => compiled.run(
                        &mut values,
                        Some(&mut |step, began, duration| {
                            let work =
                                Work { kind: ProfileKind::Operator, name: step, method: name, instruction: None };
                            recorder.record_span(work, began, duration);
                        }),
                    ),
                };
                result.with_context(|| format!("method {name}"))?;
            }
        }
        self.bindings.after(arena, &self.values)
    }

    pub(super) fn output<'a>(&'a self, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        let method = || self.info.name.clone();
        let side = Side::Output;
        let Some(slot) = self.bindings.outputs.get(index) else {
            let len = self.bindings.outputs.len();
            return Err(RuntimeError::NoSuchSlot { method: method(), side, index, len }.into());
        };
        let tensor = match &self.values[slot.value as usize] {
            Value::Tensor(tensor) => tensor,
            other => {
                let kind = other.kind();
                return Err(RuntimeError::NotATensor { method: method(), side, index, kind }.into());
            }
        };
        if tensor.address().is_null() {
            return Err(RuntimeError::NoOutput { method: method(), index }.into());
        }
        // What is not the method's own was bound from an arena; only that one knows the address.
        let start = arena.address(IoSlice { offset: 0, len: 0 }).map_or(0, |base| base as usize);
        let slice = (tensor.address() as usize)
            .checked_sub(start)
            .map(|offset| IoSlice { offset, len: tensor.byte_len() })
            .filter(|slice| self.bindings.is_bound_to(arena) && arena.address(*slice).is_some());
        match slice {
            Some(slice) => Ok((tensor.dims.clone(), arena.bytes(slice))),
            None => match self.memory.find(tensor) {
                Some(bytes) => Ok((tensor.dims.clone(), bytes)),
                None => Err(RuntimeError::ForeignArena { method: method() }.into()),
            },
        }
    }
}
