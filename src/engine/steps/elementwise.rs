//! Operations on each element alone, with PyTorch's broadcasting.

use super::nest::{Nest, broadcast};
use super::{Step, in_parts};
use crate::engine::integers;
use crate::engine::memory::{Frame, StepResult};
use crate::engine::reals::Grid;
use crate::graph::{BinaryOp, UnaryOp, ValueId};
use crate::kernels::{Binary, KernelSet, Unary};
use crate::tensor::DType;

/// A function of one real.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) enum Map {
    /// A kernel has it.
    Kernel(Unary),
    /// One number at a time.
    Plain(fn(f32) -> f32),
    /// Limits; NaN stays, and the upper bound wins.
    Clamp { min: f32, max: f32 },
}

impl Map {
    pub fn of(op: UnaryOp) -> Self {
        match op {
            UnaryOp::Abs => Self::Kernel(Unary::Abs),
            UnaryOp::Ceil => Self::Plain(f32::ceil),
            UnaryOp::Cos => Self::Plain(|x| f64::from(x).cos() as f32),
            UnaryOp::Exp => Self::Kernel(Unary::Exp),
            UnaryOp::Floor => Self::Plain(f32::floor),
            UnaryOp::Gelu => Self::Kernel(Unary::Gelu),
            UnaryOp::GeluTanh => Self::Kernel(Unary::GeluTanh),
            UnaryOp::HardSwish => Self::Plain(|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
            UnaryOp::Log => Self::Plain(|x| f64::from(x).ln() as f32),
            UnaryOp::LogicalNot => Self::Plain(|x| f32::from(u8::from(x == 0.0))),
            UnaryOp::Negate => Self::Kernel(Unary::Negate),
            UnaryOp::Reciprocal => Self::Plain(|x| 1.0 / x),
            UnaryOp::Rsqrt => Self::Kernel(Unary::Rsqrt),
            UnaryOp::Sigmoid => Self::Kernel(Unary::Sigmoid),
            UnaryOp::Silu => Self::Kernel(Unary::Silu),
            UnaryOp::Sin => Self::Plain(|x| f64::from(x).sin() as f32),
            UnaryOp::Sqrt => Self::Kernel(Unary::Sqrt),
            UnaryOp::Square => Self::Kernel(Unary::Square),
            UnaryOp::Tanh => Self::Kernel(Unary::Tanh),
        }
    }

    fn apply(&self, kernels: KernelSet, x: &mut [f32]) {
        match *self {
            Self::Kernel(f) => kernels.map_in_place(f, x),
            Self::Plain(f) => x.iter_mut().for_each(|x| *x = f(*x)),
            Self::Clamp { min, max } => x.iter_mut().for_each(|x| {
                let low = if *x < min { min } else { *x };
                *x = if low > max { max } else { low };
            }),
        }
    }
}

/// out ← map(x), both reals.
#[derive(Debug)]
pub(in crate::engine) struct MapReals {
    pub map: Map,
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for MapReals {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let in_place = frame.shared.same_place(self.x, self.out);
        let (out, reader) = frame.write::<f32>(self.out)?;
        let x = if in_place { None } else { Some(reader.reals(self.x)?) };
        let (kernels, pool) = (reader.shared.kernels, reader.shared.pool);
        in_parts(pool, out, 16, 2, |start, out| {
            if let Some(x) = x {
                out.copy_from_slice(&x[start..start + out.len()]);
            }
            self.map.apply(kernels, out);
        });
        Ok(())
    }
}

/// out ← x, moved to a grid.
#[derive(Debug)]
pub(in crate::engine) struct Round {
    pub grid: Grid,
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for Round {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let in_place = frame.shared.same_place(self.x, self.out);
        let row = match self.grid {
            Grid::Rows { nonbatch_dims } => frame.shared.dims(self.out).iter().rev().take(nonbatch_dims).product(),
            _ => 16,
        };
        let (out, reader) = frame.write::<f32>(self.out)?;
        let x = if in_place { None } else { Some(reader.reals(self.x)?) };
        in_parts(reader.shared.pool, out, row, 4, |start, out| {
            if let Some(x) = x {
                out.copy_from_slice(&x[start..start + out.len()]);
            }
            self.grid.round(out, row);
        });
        Ok(())
    }
}

/// A function of two reals whose result is real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Zip {
    /// A kernel has it.
    Kernel(Binary),
    /// The larger; NaN when there is one.
    Maximum,
    /// The smaller; NaN when there is one.
    Minimum,
}

impl Zip {
    /// `None` for operations whose result is bool.
    pub fn of(op: BinaryOp) -> Option<Self> {
        Some(match op {
            BinaryOp::Add => Self::Kernel(Binary::Add),
            BinaryOp::Subtract => Self::Kernel(Binary::Sub),
            BinaryOp::Multiply => Self::Kernel(Binary::Mul),
            BinaryOp::Divide => Self::Kernel(Binary::Div),
            BinaryOp::Maximum => Self::Maximum,
            BinaryOp::Minimum => Self::Minimum,
            _ => return None,
        })
    }

    /// True when operands may change places.
    pub fn commutes(self) -> bool {
        matches!(self, Self::Kernel(Binary::Add | Binary::Mul))
    }

    /// a ← f(a, b), where `b` has as many numbers as `a`, or one.
    fn apply(self, kernels: KernelSet, a: &mut [f32], b: &[f32]) {
        let choose: fn(f32, f32) -> f32 = match self {
            Self::Kernel(f) => return kernels.zip_in_place(f, a, b),
            Self::Maximum => |a, b| if a.is_nan() || a > b { a } else { b },
            Self::Minimum => |a, b| if a.is_nan() || a < b { a } else { b },
        };
        match b {
            [b] => a.iter_mut().for_each(|a| *a = choose(*a, *b)),
            _ => a.iter_mut().zip(b).for_each(|(a, &b)| *a = choose(*a, b)),
        }
    }
}

/// out ← zip(a, b), all reals.
#[derive(Debug)]
pub(in crate::engine) struct ZipReals {
    pub zip: Zip,
    pub a: ValueId,
    pub b: ValueId,
    pub out: ValueId,
}

impl Step for ZipReals {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let (mut a, mut b) = (self.a, self.b);
        if shared.same_place(b, self.out) && self.zip.commutes() {
            (a, b) = (b, a);
        }
        let in_place = shared.same_place(a, self.out);
        let dims = shared.dims(self.out);
        let nest = Nest::new(dims, [broadcast(shared.dims(a), dims), broadcast(shared.dims(b), dims)]);
        let (out, reader) = frame.write::<f32>(self.out)?;
        let a = if in_place { None } else { Some(reader.reals(a)?) };
        let b = reader.reals(b)?;
        let [a_step, b_step] = nest.step;
        let cost = if self.zip == Zip::Kernel(Binary::SwiGlu) { 4 } else { 1 };
        in_parts(shared.pool, out, 16, cost, |start, out| {
            nest.pieces(start..start + out.len(), |elements, [a_at, b_at]| {
                let out = &mut out[elements];
                match a {
                    None => {}
                    Some(a) if a_step == 0 => out.fill(a[a_at]),
                    Some(a) => out.copy_from_slice(&a[a_at..a_at + out.len()]),
                }
                let b_len = if b_step == 0 { 1 } else { out.len() };
                self.zip.apply(shared.kernels, out, &b[b_at..b_at + b_len]);
            });
        });
        Ok(())
    }
}

/// out ← whether a and b compare so; reals in, bool out.
#[derive(Debug)]
pub(in crate::engine) struct CompareReals {
    pub op: BinaryOp,
    pub a: ValueId,
    pub b: ValueId,
    pub out: ValueId,
}

impl Step for CompareReals {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let dims = shared.dims(self.out);
        let nest = Nest::new(dims, [broadcast(shared.dims(self.a), dims), broadcast(shared.dims(self.b), dims)]);
        let (out, reader) = frame.write::<u8>(self.out)?;
        let (a, b) = (reader.reals(self.a)?, reader.reals(self.b)?);
        let [a_step, b_step] = nest.step;
        in_parts(shared.pool, out, 16, 2, |start, out| {
            nest.pieces(start..start + out.len(), |elements, [a_at, b_at]| {
                for (i, out) in out[elements].iter_mut().enumerate() {
                    *out = u8::from(compare(self.op, a[a_at + i * a_step], b[b_at + i * b_step], 0.0));
                }
            });
        });
        Ok(())
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
        _ => a != zero || b != zero,
    }
}

/// Elements that integer operations take at a time.
const BATCH: usize = 64;

/// out ← op(a, b), integers.
#[derive(Debug)]
pub(in crate::engine) struct ZipIntegers {
    pub op: BinaryOp,
    pub a: ValueId,
    pub b: ValueId,
    pub out: ValueId,
    /// Of `a` and `b`.
    pub dtype: DType,
    pub out_dtype: DType,
}

impl Step for ZipIntegers {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let shared = frame.shared;
        let dims = shared.dims(self.out);
        let nest = Nest::new(dims, [broadcast(shared.dims(self.a), dims), broadcast(shared.dims(self.b), dims)]);
        let ([out], reader) = frame.split([self.out])?;
        let (a, b) = (reader.bytes(self.a)?, reader.bytes(self.b)?);
        let size = self.out_dtype.size();
        let mut divided_by_zero = false;
        for (index, out) in out.chunks_mut(BATCH * size).enumerate() {
            let start = index * BATCH;
            nest.pieces(start..start + out.len() / size, |elements, [a_at, b_at]| {
                let (mut left, mut right) = ([0; BATCH], [0; BATCH]);
                let (left, right) = (&mut left[..elements.len()], &mut right[..elements.len()]);
                integers::load(self.dtype, a, a_at, nest.step[0], left);
                integers::load(self.dtype, b, b_at, nest.step[1], right);
                for (a, &b) in left.iter_mut().zip(&*right) {
                    match zip_integers(self.op, *a, b) {
                        Some(result) => *a = result,
                        None => divided_by_zero = true,
                    }
                }
                integers::store(self.out_dtype, left, &mut out[elements.start * size..elements.end * size]);
            });
        }
        if divided_by_zero { Err("an integer is divided by zero".into()) } else { Ok(()) }
    }
}

/// Integers wrap; division rounds towards zero, and there is none by zero.
fn zip_integers(op: BinaryOp, a: i64, b: i64) -> Option<i64> {
    Some(match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Subtract => a.wrapping_sub(b),
        BinaryOp::Multiply => a.wrapping_mul(b),
        BinaryOp::Divide if b == 0 => return None,
        BinaryOp::Divide => a.wrapping_div(b),
        BinaryOp::Maximum => a.max(b),
        BinaryOp::Minimum => a.min(b),
        _ => i64::from(compare(op, a, b, 0)),
    })
}

/// A function of one integer.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) enum MapInteger {
    Abs,
    Negate,
    Square,
    LogicalNot,
    Same,
    Clamp { min: i64, max: i64 },
}

/// out ← map(x), integers of perhaps different types.
#[derive(Debug)]
pub(in crate::engine) struct MapIntegers {
    pub map: MapInteger,
    pub x: ValueId,
    pub out: ValueId,
    pub dtype: DType,
    pub out_dtype: DType,
}

impl Step for MapIntegers {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let ([out], reader) = frame.split([self.out])?;
        let x = reader.bytes(self.x)?;
        let size = self.out_dtype.size();
        for (index, out) in out.chunks_mut(BATCH * size).enumerate() {
            let mut values = [0; BATCH];
            let values = &mut values[..out.len() / size];
            integers::load(self.dtype, x, index * BATCH, 1, values);
            for x in &mut *values {
                *x = match self.map {
                    MapInteger::Abs => x.wrapping_abs(),
                    MapInteger::Negate => x.wrapping_neg(),
                    MapInteger::Square => x.wrapping_mul(*x),
                    MapInteger::LogicalNot => i64::from(*x == 0),
                    MapInteger::Same => *x,
                    MapInteger::Clamp { min, max } => (*x).max(min).min(max),
                };
            }
            integers::store(self.out_dtype, values, out);
        }
        Ok(())
    }
}

/// Between integers and reals, by value: fractions are dropped, and bool is "not zero".
#[derive(Debug)]
pub(in crate::engine) struct ConvertKind {
    pub x: ValueId,
    pub out: ValueId,
    /// The integer type.
    pub dtype: DType,
    pub to_real: bool,
}

impl Step for ConvertKind {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let mut batch = [0; BATCH];
        if self.to_real {
            let (out, reader) = frame.write::<f32>(self.out)?;
            let x = reader.bytes(self.x)?;
            for (index, out) in out.chunks_mut(BATCH).enumerate() {
                let batch = &mut batch[..out.len()];
                integers::load(self.dtype, x, index * BATCH, 1, batch);
                out.iter_mut().zip(&*batch).for_each(|(out, &x)| *out = x as f32);
            }
            return Ok(());
        }
        let ([out], reader) = frame.split([self.out])?;
        let size = self.dtype.size();
        for (x, out) in reader.reals(self.x)?.chunks(BATCH).zip(out.chunks_mut(BATCH * size)) {
            let batch = &mut batch[..x.len()];
            let bool = self.dtype == DType::Bool;
            batch.iter_mut().zip(x).for_each(|(out, &x)| *out = if bool { i64::from(x != 0.0) } else { x as i64 });
            integers::store(self.dtype, batch, out);
        }
        Ok(())
    }
}

/// out ← x == 0, from real to bool.
#[derive(Debug)]
pub(in crate::engine) struct NotReal {
    pub x: ValueId,
    pub out: ValueId,
}

impl Step for NotReal {
    fn run(&self, frame: Frame<'_, '_>) -> StepResult {
        let (out, reader) = frame.write::<u8>(self.out)?;
        out.iter_mut().zip(reader.reals(self.x)?).for_each(|(out, &x)| *out = u8::from(x == 0.0));
        Ok(())
    }
}
