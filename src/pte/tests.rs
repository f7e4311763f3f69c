//! What the test batteries of this room share: a program with one of everything, random programs, a small generator of
//! random numbers.

mod defects;
mod mutations;
mod round_trip;

use super::error::PteError;
use super::schema::{IDENTIFIER, boxed, execution_plan, program, union};
use super::*;
use crate::base::flatbuffer::{Fields, FlatbufferError, build};
use crate::tensor::DType;
use std::sync::Arc;

/// Reads `bytes` and gives the typed error.
fn read(bytes: Vec<u8>) -> Result<Program, PteError> {
    Program::from_storage(Arc::new(Storage::Owned(bytes)))
        .map_err(|error| error.find::<PteError>().expect("a typed cause").clone())
}

/// The flatbuffer of a file without header and segments.
fn bare(root: Fields) -> Vec<u8> {
    build(root, IDENTIFIER, 0)
}

/// A bare program whose method `forward` has the values `values`.
fn bare_with_values<'a>(values: impl IntoIterator<Item = Fields<'a>>) -> Vec<u8> {
    bare_with_plan(Fields::new().string(execution_plan::NAME, "forward").tables(execution_plan::VALUES, values))
}

/// A bare program of one method.
fn bare_with_plan(plan: Fields) -> Vec<u8> {
    bare(Fields::new().tables(program::EXECUTION_PLAN, [plan]))
}

/// A value or an instruction: a tag and a table.
fn tagged(tag: u8, body: Fields) -> Fields {
    Fields::new().scalar(union::TAG, tag).table(union::TABLE, body)
}

/// A table with one number.
fn number(number: i64) -> Fields<'static> {
    Fields::new().scalar(boxed::ITEM, number)
}

fn unplanned(dtype: DType, sizes: &[usize]) -> TensorValue {
    TensorValue::new(dtype, sizes.to_vec(), TensorData::Unplanned)
}

/// One of everything.
fn sample() -> Program {
    let mut program = Program::default();
    let weights = program.add_constant((0..16).collect());
    let bytes = program.add_constant(vec![7, 8, 9]);
    let initial = Blob::from_vec(1234i32.to_le_bytes().to_vec());
    program.mutable_data = vec![vec![Blob::from_vec(Vec::new()), initial]];
    let named = Blob::from_vec(vec![5; 200]);
    program.named_data = [("scale", &named), ("weight", &named)].map(|(key, blob)| (key.into(), blob.clone())).into();

    let constant =
        |dtype, sizes: &[usize], index| TensorValue::new(dtype, sizes.to_vec(), TensorData::Constant { index });
    let planned = |dtype, sizes: &[usize], offset, initial| {
        TensorValue::new(dtype, sizes.to_vec(), TensorData::Planned { buffer: 1, offset, initial })
    };
    let processed = Blob::from_vec(vec![0xab; 130]);
    let delegate = |value: u8| BackendDelegate {
        id: "QnnBackend".into(),
        processed: processed.clone(),
        compile_specs: vec![CompileSpec { key: "qnn_compile_spec".into(), value: vec![1, 2, value] }],
    };
    let forward = ExecutionPlan {
        name: "forward".into(),
        values: vec![
            EValue::Tensor(unplanned(DType::F32, &[2, 2])), // 0
            EValue::Tensor(constant(DType::F32, &[2, 2], weights)),
            EValue::Tensor(constant(DType::U8, &[3], bytes)),
            EValue::Tensor(TensorValue {
                dim_order: vec![1, 0],
                dynamism: ShapeDynamism::DynamicBound,
                ..planned(DType::F32, &[2, 2], 16, None)
            }),
            EValue::Tensor(TensorValue {
                fully_qualified_name: Some("cache".into()),
                ..planned(DType::I32, &[1], 32, Some((0, 1)))
            }),
            EValue::Int(-3), // 5
            EValue::IntList(vec![5, 5]),
            EValue::Bool(true),
            EValue::Double(f64::NEG_INFINITY),
            EValue::String("torch.uint8 \u{e9}".into()),
            EValue::Null, // 10
            EValue::DoubleList(vec![0.5, -2.0]),
            EValue::BoolList(vec![true, false]),
            EValue::TensorList(vec![0, 1]),
            EValue::OptionalTensorList(vec![None, Some(0)]),
            EValue::Tensor(TensorValue {
                fully_qualified_name: Some("w".into()),
                ..TensorValue::new(DType::F16, vec![4], TensorData::External)
            }), // 15
            EValue::Tensor(TensorValue { dynamism: ShapeDynamism::DynamicUnbound, ..unplanned(DType::I64, &[0, 4]) }),
            EValue::Tensor(unplanned(DType::Bool, &[])),
            EValue::Tensor(TensorValue {
                fully_qualified_name: Some("state".into()),
                ..TensorValue::new(DType::F32, vec![2], TensorData::ExternalMutable { buffer: 1, offset: 8 })
            }), // 18
        ],
        inputs: vec![0, 16],
        outputs: vec![3, 5],
        chains: vec![Chain {
            instructions: vec![
                Instruction::Kernel { operator: 0, args: vec![0, 1, 10, 3] },
                Instruction::JumpFalse { condition: 7, destination: 6 },
                Instruction::JumpFalse { condition: 17, destination: 0 },
                Instruction::Delegate { delegate: 1, args: vec![0, 3] },
                Instruction::Move { from: 5, to: 10 },
                Instruction::Free { value: 3 },
            ],
        }],
        operators: vec![OperatorName::parse("aten::add.out"), OperatorName::parse("llama::fallback")],
        delegates: vec![delegate(3), delegate(4)],
        non_const_buffer_sizes: vec![0, 36],
    };
    program.plans = vec![forward, ExecutionPlan::constant("get_dim", vec![EValue::Int(64)])];
    program
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn list<T>(&mut self, longest: usize, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(longest + 1)).map(|_| item(self)).collect()
    }
}

/// A sound program that a file can hold exactly: its constants are as long as the tensors that use them.
fn random_program(rng: &mut Rng) -> Program {
    let mut program = Program { version: rng.below(3) as u32, ..Program::default() };
    let blobs = [rng.below(300), rng.below(3), 0].map(|len| Blob::from_vec(rng.bytes(len)));
    for index in 0..rng.below(4) {
        program.named_data.insert(format!("key{index}"), blobs[rng.below(3)].clone());
    }
    program.mutable_data = rng.list(2, |_| vec![Blob::from_vec(Vec::new())]);
    for index in 0..rng.below(4) {
        let plan = random_plan(rng, &mut program, &blobs, format!("method{index}"));
        program.plans.push(plan);
    }
    program
}

fn random_plan(rng: &mut Rng, program: &mut Program, blobs: &[Blob], name: String) -> ExecutionPlan {
    let mut plan = ExecutionPlan { name, non_const_buffer_sizes: vec![0, 64, 1 << 33], ..ExecutionPlan::default() };
    // Every kind of value that lists may refer to.
    plan.values = vec![EValue::Int(rng.next() as i64), EValue::Tensor(unplanned(DType::Bool, &[])), EValue::Null];
    for _ in 0..rng.below(20) {
        let value = match rng.below(11) {
            0 => EValue::Null,
            1 => EValue::Int(rng.next() as i64),
            2 => EValue::Bool(rng.below(2) == 0),
            3 => EValue::Double(rng.next() as i64 as f64 / 7.0),
            4 => EValue::String(rng.list(20, |rng| rng.pick(&['a', 'é', '\0', '語'])).iter().collect()),
            5 => EValue::IntList(rng.list(5, |_| 0)),
            6 => EValue::DoubleList(rng.list(5, |rng| rng.below(9) as f64)),
            7 => EValue::BoolList(rng.list(5, |rng| rng.below(2) == 0)),
            8 => EValue::TensorList(rng.list(5, |_| 1)),
            9 => EValue::OptionalTensorList(rng.list(5, |rng| rng.pick(&[None, Some(1)]))),
            _ => EValue::Tensor(random_tensor(rng, program)),
        };
        plan.push(value);
    }
    let value = |rng: &mut Rng, plan: &ExecutionPlan| rng.below(plan.values.len()) as u32;
    plan.inputs = rng.list(4, |rng| value(rng, &plan));
    plan.outputs = rng.list(4, |rng| value(rng, &plan));
    plan.operators = vec![OperatorName::parse("a::b.c"), OperatorName::parse("d::e")];
    plan.delegates = rng.list(3, |rng| BackendDelegate {
        id: "Backend".into(),
        processed: blobs[rng.below(3)].clone(),
        compile_specs: rng.list(2, |rng| CompileSpec { key: "k".into(), value: rng.bytes(rng.0 as usize % 9) }),
    });
    plan.chains = rng.list(2, |rng| {
        let count = rng.below(6);
        let instruction = |rng: &mut Rng| match rng.below(5) {
            0 if !plan.delegates.is_empty() => Instruction::Delegate {
                delegate: rng.below(plan.delegates.len()) as u32,
                args: rng.list(4, |rng| value(rng, &plan)),
            },
            1 => Instruction::Move { from: value(rng, &plan), to: value(rng, &plan) },
            2 => Instruction::JumpFalse { condition: 1, destination: rng.below(count + 1) as u32 },
            3 => Instruction::Free { value: 1 },
            _ => Instruction::Kernel { operator: rng.below(2) as u32, args: rng.list(4, |rng| value(rng, &plan)) },
        };
        Chain { instructions: (0..count).map(|_| instruction(rng)).collect() }
    });
    plan
}

fn random_tensor(rng: &mut Rng, program: &mut Program) -> TensorValue {
    let dtype = rng.pick(&[DType::U8, DType::F32, DType::I64, DType::U16, DType::Bits16]);
    let sizes = rng.list(4, |rng| rng.below(5));
    let mut tensor = unplanned(dtype, &sizes);
    tensor.dim_order.sort_by_key(|_| rng.next());
    tensor.dynamism = rng.pick(&[ShapeDynamism::Static, ShapeDynamism::DynamicBound, ShapeDynamism::DynamicUnbound]);
    tensor.fully_qualified_name = rng.pick(&[None, Some("name")]).map(str::to_owned);
    let len = tensor.byte_len();
    match rng.below(4) {
        0 => tensor.data = TensorData::Constant { index: program.add_constant(rng.bytes(len)) },
        1 => {
            let initial = match program.mutable_data.len() {
                0 => None,
                count => {
                    let segment = rng.below(count);
                    program.mutable_data[segment].push(Blob::from_vec(rng.bytes(len)));
                    Some((segment as u32, program.mutable_data[segment].len() as u32 - 1))
                }
            };
            tensor.data = TensorData::Planned { buffer: 2, offset: (1 << 32) + 8 * rng.below(9) as u64, initial };
        }
        2 if tensor.fully_qualified_name.is_some() => tensor.data = TensorData::External,
        _ => {}
    }
    tensor
}
