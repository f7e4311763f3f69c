//! The step of each operation.

use super::{Lowering, Target, op_name};
use crate::engine::EngineError;
use crate::engine::constant::Lines;
use crate::engine::plan::PlanStep;
use crate::engine::reals::Grid;
use crate::engine::steps::Step;
use crate::engine::steps::attention::{Attention, Cache, Codes};
use crate::engine::steps::elementwise::{
    CompareReals, ConvertKind, Map, MapInteger, MapIntegers, MapReals, NotReal, Zip, ZipIntegers, ZipReals,
};
use crate::engine::steps::fused::{RmsNorm, Rotary};
use crate::engine::steps::movement::{Along, Concat, Count, Expand, FillReal, Permute, Slice, Update, Where};
use crate::engine::steps::quantize::{DequantizeRows, QuantizePerToken};
use crate::engine::steps::reduce::{Any, Mean, Softmax};
use crate::engine::steps::rows::{Embedding, Table};
use crate::graph::{BinaryOp, Int, Node, NodeId, Op, RotaryStyle, UnaryOp, ValueId};
use crate::kernels::{Binary, RotaryStyle as KernelStyle};
use crate::tensor::DType;

impl Lowering<'_> {
    pub(super) fn node(&mut self, id: NodeId, node: &Node) -> Result<(), EngineError> {
        match &node.op {
            Op::Reshape => {
                let x = self.input(node, 0)?;
                self.view(node, x, x, None);
                Ok(())
            }
            Op::Permute { perm } => self.permute(node, perm),
            Op::Slice { axis, start, step } => self.slice(node, *axis, *start, *step),
            Op::Concat { axis } => self.concat(node, *axis),
            Op::Expand => self.expand(node),
            Op::Embedding => self.embedding(node),
            Op::SliceUpdate { axis, start } => self.update(node, *start, Along::Axis(*axis)),
            Op::CacheUpdate { layout, start } => self.update(node, *start, Along::Positions(*layout)),
            Op::Arange { start, step } => self.count(node, *start, *step),
            Op::Scalar { value } => self.count(node, *value, 0),
            Op::Fill { value } => self.fill(node, *value),
            Op::Unary(op) => self.unary(node, *op),
            Op::Binary(op) => self.binary(node, *op),
            Op::Clamp { min, max } => self.clamp(node, *min, *max),
            Op::Where => self.choose(node),
            Op::Convert => self.convert(node),
            Op::Mean { .. } => {
                let x = self.input(node, 0)?;
                self.real(node, &[x], &[], |out| Box::new(Mean { x, out }));
                Ok(())
            }
            Op::Any { .. } => {
                let x = self.input(node, 0)?;
                let (size, real) = (self.size(x), self.is_real(x));
                self.plain(node, &[x], |out| Box::new(Any { x, out, size, real }));
                Ok(())
            }
            Op::Softmax { axis } => {
                let (x, axis) = (self.input(node, 0)?, *axis);
                self.real(node, &[x], &[x], |out| Box::new(Softmax { x, out, axis }));
                Ok(())
            }
            Op::FullyConnected | Op::DynamicQuantLinear | Op::MatMul { .. } => self.linear(id, node),
            Op::RmsNorm { epsilon } => {
                let (x, gamma, epsilon) = (self.input(node, 0)?, self.input(node, 1)?, *epsilon);
                self.real(node, &[x, gamma], &[], |out| Box::new(RmsNorm { x, gamma, out, epsilon }));
                Ok(())
            }
            Op::Rotary { style } => self.rotary(node, *style),
            Op::SwiGlu => {
                let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
                let zip = Zip::Kernel(Binary::SwiGlu);
                self.real(node, &[a, b], &[a], |out| Box::new(ZipReals { zip, a, b, out }));
                Ok(())
            }
            Op::Attention { layout, start, scale } => {
                let (q, k, v) = (self.input(node, 0)?, self.input(node, 1)?, self.input(node, 2)?);
                let mask = if node.inputs.len() == 4 { Some(self.input(node, 3)?) } else { None };
                let (layout, start, scale) = (*layout, *start, *scale);
                let (k, v) = (Cache { data: k, codes: None }, Cache { data: v, codes: None });
                let reads: Vec<_> = [q, k.data, v.data].into_iter().chain(mask).collect();
                self.real(node, &reads, &[], |out| Box::new(Attention { q, k, v, mask, out, layout, start, scale }));
                Ok(())
            }
            Op::QuantizedAttention { layout, start, scale } => {
                let q = if node.inputs.len() == 9 { self.dequantized(node, 0, 7)? } else { self.input(node, 0)? };
                let (k, v) = (self.cache(node, 1, 3)?, self.cache(node, 2, 5)?);
                let (layout, start, scale) = (*layout, *start, *scale);
                let mut reads = vec![q, k.data, v.data];
                for codes in [&k.codes, &v.codes].into_iter().flatten() {
                    reads.extend([codes.scales, codes.zero_points]);
                }
                let mask = None;
                self.real(node, &reads, &[], |out| Box::new(Attention { q, k, v, mask, out, layout, start, scale }));
                Ok(())
            }
            Op::QuantizePerToken { zero_point_dtype } => {
                let x = self.input(node, 0)?;
                let &[codes, scales, zero_points] = &node.outputs[..] else {
                    return Err(self.unsupported(node, "it has not three results"));
                };
                let step = QuantizePerToken { x, codes, scales, zero_points, dtype: *zero_point_dtype };
                self.push(&op_name(&node.op), &node.origin, Box::new(step), &[x], &[codes, scales, zero_points], &[]);
                Ok(())
            }
        }
    }

    /// A step whose one result is real.
    fn real(
        &mut self,
        node: &Node,
        reads: &[ValueId],
        in_place: &[ValueId],
        step: impl FnOnce(ValueId) -> Box<dyn Step>,
    ) {
        let target = self.target(node.outputs[0]);
        self.one(node, reads, in_place, target, step);
    }

    /// A step whose one result is not real, or is exact.
    fn plain(&mut self, node: &Node, reads: &[ValueId], step: impl FnOnce(ValueId) -> Box<dyn Step>) {
        let out = node.outputs[0];
        self.one(node, reads, &[], Target { written: out, out }, step);
    }

    fn one(
        &mut self,
        node: &Node,
        reads: &[ValueId],
        in_place: &[ValueId],
        target: Target,
        step: impl FnOnce(ValueId) -> Box<dyn Step>,
    ) {
        // Only operands as large as the result can give it their memory.
        let shape = &self.graph.value(target.out).shape;
        let fits = |&&x: &&ValueId| self.graph.value(x).shape == *shape && self.size(x) == self.size(target.written);
        let in_place: Vec<_> = in_place.iter().filter(fits).copied().collect();
        self.steps.push(PlanStep {
            step: step(target.written),
            name: op_name(&node.op),
            origin: node.origin.clone(),
            reads: reads.to_vec(),
            writes: vec![target.written],
            in_place,
        });
        self.settle(node, target);
    }

    /// A step that moves the elements of its operands, all of the kind of `x`.
    fn mover(
        &mut self,
        node: &Node,
        x: ValueId,
        reads: &[ValueId],
        in_place: &[ValueId],
        step: impl FnOnce(ValueId, usize) -> Box<dyn Step>,
    ) {
        let size = self.size(x);
        let same = reads.iter().all(|&read| self.size(read) != size || self.grid(read) == self.grid(x));
        let target = if same { self.moved(x, node.outputs[0]) } else { self.target(node.outputs[0]) };
        self.one(node, reads, in_place, target, |out| step(out, size));
    }

    fn permute(&mut self, node: &Node, perm: &[usize]) -> Result<(), EngineError> {
        let x = self.input(node, 0)?;
        let shape = &self.graph.value(node.inputs[0]).shape;
        if perm.iter().filter(|&&axis| shape[axis] != Int::Const(1)).is_sorted() {
            self.view(node, x, x, None);
            return Ok(());
        }
        let perm = perm.to_vec();
        self.mover(node, x, &[x], &[], |out, size| Box::new(Permute { x, out, perm, size }));
        Ok(())
    }

    fn slice(&mut self, node: &Node, axis: usize, start: Int, step: usize) -> Result<(), EngineError> {
        let x = self.input(node, 0)?;
        let outer = &self.graph.value(node.inputs[0]).shape[..axis];
        if step == 1 && outer.iter().all(|&dim| dim == Int::Const(1)) {
            self.view(node, x, x, Some((axis, start)));
            return Ok(());
        }
        self.mover(node, x, &[x], &[], |out, size| Box::new(Slice { x, out, axis, start, step, size }));
        Ok(())
    }

    fn concat(&mut self, node: &Node, axis: usize) -> Result<(), EngineError> {
        let parts = (0..node.inputs.len()).map(|i| self.input(node, i)).collect::<Result<Vec<_>, _>>()?;
        let reads = parts.clone();
        self.mover(node, reads[0], &reads, &[], |out, size| Box::new(Concat { parts, out, axis, size }));
        Ok(())
    }

    fn expand(&mut self, node: &Node) -> Result<(), EngineError> {
        let x = self.input(node, 0)?;
        let large = |value: ValueId| self.graph.value(value).shape.iter().filter(|&&dim| dim != Int::Const(1));
        if large(node.inputs[0]).eq(large(node.outputs[0])) {
            self.view(node, x, x, None);
            return Ok(());
        }
        self.mover(node, x, &[x], &[], |out, size| Box::new(Expand { x, out, size }));
        Ok(())
    }

    fn embedding(&mut self, node: &Node) -> Result<(), EngineError> {
        let table = node.inputs[0];
        let (indices, dtype) = (self.input(node, 1)?, self.dtype(node.inputs[1]));
        let mut reads = vec![indices];
        let constant = self.graph.constant(table).filter(|_| !self.grid(table).is_plain());
        let table = match constant.and_then(|data| Lines::of(self.graph.value(table), data)) {
            Some(lines) => Table::Lines(lines),
            None => {
                let table = self.operand(table)?;
                reads.push(table);
                Table::Value(table)
            }
        };
        self.real(node, &reads, &[], |out| Box::new(Embedding { table, indices, dtype, out }));
        Ok(())
    }

    fn update(&mut self, node: &Node, start: Int, along: Along) -> Result<(), EngineError> {
        let (target, values) = (self.input(node, 0)?, self.input(node, 1)?);
        let step = |out, size| Box::new(Update { target, values, out, start, size, along }) as Box<dyn Step>;
        self.mover(node, target, &[target, values], &[target], step);
        Ok(())
    }

    fn count(&mut self, node: &Node, start: Int, step: i64) -> Result<(), EngineError> {
        let out = node.outputs[0];
        let dtype = Some(self.dtype(out)).filter(|_| !self.is_real(out));
        self.real(node, &[], &[], |out| Box::new(Count { out, start, step, dtype }));
        Ok(())
    }

    fn fill(&mut self, node: &Node, value: f64) -> Result<(), EngineError> {
        let out = node.outputs[0];
        if self.is_real(out) {
            self.real(node, &[], &[], |out| Box::new(FillReal { out, value: value as f32 }));
        } else {
            let (dtype, start) = (Some(self.dtype(out)), Int::Const(value as i64));
            self.plain(node, &[], |out| Box::new(Count { out, start, step: 0, dtype }));
        }
        Ok(())
    }

    fn unary(&mut self, node: &Node, op: UnaryOp) -> Result<(), EngineError> {
        let x = self.input(node, 0)?;
        if self.is_real(x) {
            if op == UnaryOp::LogicalNot {
                self.plain(node, &[x], |out| Box::new(NotReal { x, out }));
            } else {
                self.real(node, &[x], &[x], |out| Box::new(MapReals { map: Map::of(op), x, out }));
            }
            return Ok(());
        }
        let map = match op {
            UnaryOp::Abs => MapInteger::Abs,
            UnaryOp::Negate => MapInteger::Negate,
            UnaryOp::Square => MapInteger::Square,
            UnaryOp::LogicalNot => MapInteger::LogicalNot,
            UnaryOp::Ceil | UnaryOp::Floor => MapInteger::Same,
            _ => return Err(self.unsupported(node, format!("{op:?} of integers"))),
        };
        self.map_integers(node, x, map);
        Ok(())
    }

    fn map_integers(&mut self, node: &Node, x: ValueId, map: MapInteger) {
        let (dtype, out_dtype) = (self.dtype(x), self.dtype(node.outputs[0]));
        self.plain(node, &[x], |out| Box::new(MapIntegers { map, x, out, dtype, out_dtype }));
    }

    fn binary(&mut self, node: &Node, op: BinaryOp) -> Result<(), EngineError> {
        let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
        let (dtype, out_dtype) = (self.dtype(a), self.dtype(node.outputs[0]));
        match (self.is_real(a), Zip::of(op)) {
            (true, Some(zip)) => {
                let in_place = [a, b];
                let in_place = if zip.commutes() { &in_place[..] } else { &in_place[..1] };
                self.real(node, &[a, b], in_place, |out| Box::new(ZipReals { zip, a, b, out }));
            }
            (true, None) => self.plain(node, &[a, b], |out| Box::new(CompareReals { op, a, b, out })),
            (false, _) => self.plain(node, &[a, b], |out| Box::new(ZipIntegers { op, a, b, out, dtype, out_dtype })),
        }
        Ok(())
    }

    fn clamp(&mut self, node: &Node, min: f32, max: f32) -> Result<(), EngineError> {
        let x = self.input(node, 0)?;
        if self.is_real(x) {
            self.real(node, &[x], &[x], |out| Box::new(MapReals { map: Map::Clamp { min, max }, x, out }));
        } else {
            self.map_integers(node, x, MapInteger::Clamp { min: min as i64, max: max as i64 });
        }
        Ok(())
    }

    fn choose(&mut self, node: &Node) -> Result<(), EngineError> {
        let (condition, a, b) = (self.input(node, 0)?, self.input(node, 1)?, self.input(node, 2)?);
        let same = self.grid(a) == self.grid(b);
        let target = if same { self.moved(a, node.outputs[0]) } else { self.target(node.outputs[0]) };
        let size = self.size(a);
        let step = |out| Box::new(Where { condition, a, b, out, size }) as Box<dyn Step>;
        self.one(node, &[condition, a, b], &[], target, step);
        Ok(())
    }

    fn convert(&mut self, node: &Node) -> Result<(), EngineError> {
        let out = node.outputs[0];
        let (from, to) = (self.is_real(node.inputs[0]), self.is_real(out));
        if from && to {
            let x = self.input(node, 0)?;
            if matches!(self.grid(out), Grid::Rows { .. }) {
                // Linear layers quantize by themselves; whoever else reads it makes it.
                self.rows_of.insert(out, x);
            } else {
                self.view(node, x, x, None);
            }
            return Ok(());
        }
        let x = self.input(node, 0)?;
        match (from, to) {
            (false, true) => {
                let dtype = self.dtype(x);
                self.real(node, &[x], &[], |out| Box::new(ConvertKind { x, out, dtype, to_real: true }));
            }
            (true, false) => {
                let dtype = self.dtype(out);
                self.plain(node, &[x], |out| Box::new(ConvertKind { x, out, dtype, to_real: false }));
            }
            _ => self.map_integers(node, x, MapInteger::Same),
        }
        Ok(())
    }

    fn rotary(&mut self, node: &Node, style: RotaryStyle) -> Result<(), EngineError> {
        let (x, cos, sin) = (self.input(node, 0)?, self.input(node, 1)?, self.input(node, 2)?);
        let style = match style {
            RotaryStyle::Interleaved => KernelStyle::Interleaved,
            RotaryStyle::Half => KernelStyle::HalfSplit,
        };
        self.real(node, &[x, cos, sin], &[x], |out| Box::new(Rotary { x, cos, sin, out, style }));
        Ok(())
    }

    /// Codes of operand `codes`, with the scales at `scales` and the zero points after them, as reals.
    fn dequantized(&mut self, node: &Node, codes: usize, scales: usize) -> Result<ValueId, EngineError> {
        let (codes, zero_points) = (self.input(node, codes)?, self.input(node, scales + 1)?);
        let scales = self.input(node, scales)?;
        let (codes_dtype, zero_points_dtype) = (self.dtype(codes), self.dtype(zero_points));
        let out = self.temporary(codes, DType::F32);
        let step = DequantizeRows { codes, scales, zero_points, codes_dtype, zero_points_dtype, out };
        self.push("Dequantize", &node.origin, Box::new(step), &[codes, scales, zero_points], &[out], &[]);
        Ok(out)
    }

    /// A cache as the attention kernel reads it.
    fn cache(&mut self, node: &Node, codes: usize, scales: usize) -> Result<Cache, EngineError> {
        let is_byte = |value: ValueId| matches!(self.dtype(value), DType::I8 | DType::QI8);
        if !is_byte(node.inputs[codes]) || !is_byte(node.inputs[scales + 1]) {
            return Ok(Cache { data: self.dequantized(node, codes, scales)?, codes: None });
        }
        let (data, zero_points) = (self.input(node, codes)?, self.input(node, scales + 1)?);
        let scales = self.input(node, scales)?;
        Ok(Cache { data, codes: Some(Codes { scales, zero_points }) })
    }
}
