//! Which calls have a graph, and what methods of several instructions come to: memory that is used again, views, buffers
//! that live from run to run. That forms do what operators do is also held by every test of an operator.

use super::super::testing::{Call, Given, elements};
use super::super::{GraphCompiler, register};
use super::*;
use crate::engine::Resources;
use crate::error::Result;
use crate::pte::{
    Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData, TensorValue,
};
use crate::runtime::{BackendRegistry, Execution, IoArena, KernelRegistry, Module, NativeModule};
use crate::tensor::DType;
use std::num::NonZeroUsize;
use std::sync::Arc;

#[test]
fn every_form_is_one_of_an_operator() {
    let mut kernels = KernelRegistry::default();
    register(&mut kernels);
    let mut seen = std::collections::BTreeSet::new();
    for (name, _) in FAMILIES.into_iter().flatten() {
        assert!(kernels.get(&OperatorName::parse(name)).is_some(), "{name}");
        assert!(seen.insert(name), "{name} has two forms");
    }
    assert!(seen.len() > 90, "{}", seen.len());
}

fn reals(dims: &[usize]) -> Vec<f32> {
    (0..dims.iter().product()).map(|i: usize| ((i * 7) % 11) as f32 * 0.25 - 1.0).collect()
}

fn real(call: Call, dims: &[usize]) -> Call {
    call.constant(DType::F32, dims, &reals(dims))
}

/// A call, what it makes, and whether it has a graph when the sizes of its operands vary.
fn calls() -> Vec<(&'static str, Call, DType, Vec<usize>, bool)> {
    let [null, no, yes] = [EValue::Null, EValue::Bool(false), EValue::Bool(true)];
    let x = || real(Call::new(), &[2, 3, 4]);
    let pair = || real(x(), &[3, 1]);
    let bools = |call: Call| call.constant(DType::Bool, &[3, 1], &[true as u8, false as u8, true as u8]);
    let [two, half] = [EValue::Int(2), EValue::Double(0.5)];
    let mut parts = Call::new();
    let places = [&[1usize, 2][..], &[3, 2]].map(|dims| parts.hidden(DType::F32, dims, &reals(dims)));
    let mut rows = real(Call::new(), &[1, 5, 2]);
    let places_of_rows = rows.hidden(DType::I64, &[2], &[2i64, 3]);
    let put = rows.clone().optional_tensors(&[None, Some(places_of_rows)]);
    let put = real(put, &[1, 2, 2]).value(no.clone());
    let get = rows.optional_tensors(&[None, Some(places_of_rows)]);
    let ids = |call: Call| call.constant(DType::I64, &[2], &[2i64, 0]);
    let caches = |call: Call| real(real(call, &[1, 4, 2, 2]), &[1, 4, 2, 2]);
    let sdpa = caches(real(Call::new(), &[1, 2, 4, 2])).int(1);
    let causal = sdpa.clone().value(null.clone()).value(EValue::Double(0.0)).value(yes.clone()).value(null.clone());
    let masked = real(sdpa, &[2, 4]).value(EValue::Double(0.0)).value(no.clone()).value(half.clone());
    let codes = Call::new().constant(DType::U8, &[3, 4], &[0x18u8, 0xf0, 7, 200, 1, 2, 3, 4, 99, 255, 128, 5]);
    let table = |call: Call| ids(call.value(null.clone()).int(-8).int(7));
    let table4 = table(codes.clone().constant(DType::F32, &[3, 2], &[0.5f32, 1.0, 2.0, 3.0, 0.25, 4.0]));
    let table8 = table(codes.constant(DType::F32, &[3], &[0.5f32, 1.0, 2.0]));
    let bytes = real(Call::new(), &[2, 4]).constant(DType::I8, &[3, 4], &[1i8, -2, 127, -128, 5, 6, 7, 8, 0, 9, -9, 3]);
    let mixed = bytes.clone().constant(DType::F32, &[3], &[0.5f32, 1.0, 2.0]).value(null.clone()).value(null.clone());
    let grouped = bytes.constant(DType::F32, &[3, 2], &[0.5f32, 1.0, 2.0, 0.25, 0.5, 1.0]).value(null.clone()).int(6);
    let matrices = |a: &[usize], b: &[usize]| real(real(Call::new(), a), b);
    let full = vec![2, 3, 4];
    vec![
        ("aten::add.out", pair().int(1), DType::F32, full.clone(), true),
        ("aten::sub.out", pair().value(half.clone()), DType::F32, full.clone(), true),
        ("aten::mul.out", pair(), DType::F32, full.clone(), true),
        ("aten::div.out", pair(), DType::F32, full.clone(), true),
        ("aten::mul.Scalar_out", x().value(half.clone()), DType::F32, full.clone(), true),
        ("aten::add.Scalar_out", x().value(two.clone()).int(1), DType::F32, full.clone(), true),
        ("aten::eq.Scalar_out", x().value(EValue::Double(-1.0)), DType::Bool, full.clone(), true),
        ("aten::where.self_out", real(real(bools(Call::new()), &[4]), &[2, 3, 1]), DType::F32, full.clone(), true),
        ("aten::logical_not.out", bools(Call::new()), DType::Bool, vec![3, 1], true),
        ("aten::sigmoid.out", x(), DType::F32, full.clone(), true),
        ("aten::pow.Tensor_Scalar_out", x().value(two), DType::F32, full.clone(), true),
        ("aten::mean.out", x().ints(&[-1]).value(yes.clone()).value(null.clone()), DType::F32, vec![2, 3, 1], true),
        ("aten::mean.out", x().ints(&[0, 2]).value(no.clone()).value(null.clone()), DType::F32, vec![3], true),
        ("aten::any.out", bools(Call::new()).int(0).value(yes.clone()), DType::Bool, vec![1, 1], true),
        ("aten::_softmax.out", x().int(-1).value(no.clone()), DType::F32, full.clone(), true),
        ("aten::view_copy.out", x().ints(&[3, -1, 2]), DType::F32, vec![3, 4, 2], true),
        ("aten::unsqueeze_copy.out", x().int(-1), DType::F32, vec![2, 3, 4, 1], true),
        ("aten::squeeze_copy.dims_out", real(Call::new(), &[1, 3, 1]).ints(&[0, 1]), DType::F32, vec![3, 1], false),
        (
            "aten::expand_copy.out",
            real(Call::new(), &[3, 1]).ints(&[2, -1, 4]).value(no.clone()),
            DType::F32,
            full.clone(),
            true,
        ),
        ("aten::permute_copy.out", x().ints(&[2, 0, 1]), DType::F32, vec![4, 2, 3], true),
        ("aten::transpose_copy.int_out", x().int(-1).int(1), DType::F32, vec![2, 4, 3], true),
        ("aten::clone.out", x().int(0), DType::F32, full.clone(), true),
        ("aten::_to_copy.out", ids(Call::new()).value(no.clone()).value(null.clone()), DType::F32, vec![2], true),
        ("aten::slice_copy.Tensor_out", x().int(1).int(1).int(i64::MAX).int(2), DType::F32, vec![2, 1, 4], false),
        (
            "aten::slice_copy.Tensor_out",
            x().int(2).int(-3).value(null.clone()).int(1),
            DType::F32,
            vec![2, 3, 3],
            false,
        ),
        ("aten::select_copy.int_out", x().int(1).int(-1), DType::F32, vec![2, 4], true),
        ("aten::cat.out", parts.tensors(&places).int(0), DType::F32, vec![4, 2], true),
        ("aten::full.out", Call::new().ints(&[2, 2]).value(half), DType::F32, vec![2, 2], true),
        ("aten::arange.start_out", Call::new().int(1).int(8).int(3), DType::I64, vec![3], true),
        ("aten::linear.out", real(matrices(&[2, 4], &[3, 4]), &[3]), DType::F32, vec![2, 3], true),
        ("aten::bmm.out", matrices(&[2, 3, 4], &[2, 4, 5]), DType::F32, vec![2, 3, 5], true),
        ("aten::addmm.out", real(matrices(&[4], &[2, 3]), &[3, 4]).int(1).int(1), DType::F32, vec![2, 4], true),
        (
            "aten::embedding.out",
            ids(real(Call::new(), &[3, 4])).int(-1).value(no.clone()).value(no),
            DType::F32,
            vec![2, 4],
            true,
        ),
        ("aten::index_put.out", put, DType::F32, vec![1, 5, 2], false),
        ("aten::index.Tensor_out", get, DType::F32, vec![1, 2, 2], false),
        ("llama::custom_sdpa.out", causal, DType::F32, vec![1, 2, 4, 2], false),
        ("llama::custom_sdpa.out", masked, DType::F32, vec![1, 2, 4, 2], false),
        ("quantized_decomposed::embedding_4bit.out", table4, DType::F32, vec![2, 8], false),
        ("quantized_decomposed::embedding_2bit.out", table8.clone(), DType::F32, vec![2, 16], false),
        ("quantized_decomposed::embedding_byte.out", table8, DType::F32, vec![2, 4], false),
        ("quantized_decomposed::mixed_linear.out", mixed, DType::F32, vec![2, 3], false),
        ("quantized_decomposed::mixed_linear.out", grouped, DType::F32, vec![2, 3], false),
    ]
}

#[test]
fn what_language_models_call_has_a_graph() {
    for (index, (name, call, dtype, dims, dynamic)) in calls().into_iter().enumerate() {
        let call = call.output(dtype, &dims);
        let (operator, overload) = name.split_once('.').unwrap();
        // Ranges are found only in what the file says.
        let constants_only = name.contains("index") || name.contains("quantized");
        let compiled = |given| call.clone().compiled(operator, overload, given).is_some_and(|result| result.is_ok());
        assert!(compiled(Given::Constant), "{name}, call {index}");
        assert!(constants_only || compiled(Given::Fixed), "{name}, call {index}");
        assert!(!dynamic || compiled(Given::Dynamic), "{name}, call {index}, with sizes that vary");
        // Compares them.
        assert_eq!(call.run(operator, overload).unwrap().0, dims, "{name}, call {index}");
    }
}

/// A method in the making.
struct Plan {
    plan: ExecutionPlan,
    instructions: Vec<Instruction>,
}

impl Plan {
    fn new(buffer: u64) -> Self {
        let plan =
            ExecutionPlan { name: "forward".into(), non_const_buffer_sizes: vec![0, buffer], ..Default::default() };
        Self { plan, instructions: Vec::new() }
    }

    fn value(&mut self, value: EValue) -> u32 {
        self.plan.push(value)
    }

    fn tensor(&mut self, dims: &[usize], dynamism: ShapeDynamism, data: TensorData) -> u32 {
        let tensor = TensorValue::new(DType::F32, dims.to_vec(), data);
        self.value(EValue::Tensor(TensorValue { dynamism, ..tensor }))
    }

    /// A planned tensor of f32 at a byte offset.
    fn at(&mut self, offset: u64, dims: &[usize]) -> u32 {
        self.tensor(dims, ShapeDynamism::Static, TensorData::Planned { buffer: 1, offset, initial: None })
    }

    fn input(&mut self, dims: &[usize]) -> u32 {
        let input = self.tensor(dims, ShapeDynamism::Static, TensorData::Unplanned);
        self.plan.inputs.push(input);
        input
    }

    fn call(&mut self, name: &str, args: &[u32]) {
        let name = OperatorName::parse(name);
        let known = self.plan.operators.iter().position(|operator| *operator == name);
        let operator = known.unwrap_or(self.plan.operators.len());
        if known.is_none() {
            self.plan.operators.push(name);
        }
        self.instructions.push(Instruction::Kernel { operator: operator as u32, args: args.to_vec() });
    }

    fn module(mut self, execution: Execution) -> NativeModule {
        self.plan.chains = vec![Chain { instructions: self.instructions }];
        let program = Program { plans: vec![self.plan], ..Program::default() };
        let mut kernels = KernelRegistry::default();
        register(&mut kernels);
        let compiler = Arc::new(GraphCompiler::new(Resources::new(NonZeroUsize::new(1))));
        let module = NativeModule::new(program, kernels, BackendRegistry::default()).unwrap();
        module.with_compiler(compiler, execution)
    }
}

/// Output 0 of each of three runs, in which the first input holds 1, 2, … and 11, 12, … and 21, 22, …
fn runs(plan: Plan, execution: Execution) -> Result<Vec<Vec<f32>>> {
    let sizes: Vec<usize> = plan
        .plan
        .inputs
        .iter()
        .map(|&input| match &plan.plan.values[input as usize] {
            EValue::Tensor(tensor) => tensor.byte_len(),
            _ => 0,
        })
        .collect();
    let mut module = plan.module(execution);
    let method = module.load_method("forward")?;
    let mut arena = IoArena::new(sizes.iter().map(|&size| IoArena::footprint(size)).sum())?;
    let mut slices = Vec::new();
    for (index, &size) in sizes.iter().enumerate() {
        slices.push(arena.alloc(size)?);
        module.bind_input(method, index, &arena, slices[index])?;
    }
    let mut results = Vec::new();
    for run in 0..3 {
        let numbers = arena.typed_mut::<f32>(slices[0]).iter_mut().enumerate();
        numbers.for_each(|(index, number)| *number = (10 * run + index + 1) as f32);
        module.execute(method, &mut arena)?;
        results.push(elements(module.output(method, 0, &arena)?.1));
    }
    Ok(results)
}

/// Both ways must do the same, and be what is expected.
fn check(plan: impl Fn() -> Plan, expected: [&[f32]; 3]) {
    for way in [Execution::Instructions, Execution::Compiled] {
        let results = runs(plan(), way).unwrap_or_else(|error| panic!("{way:?}: {}", error.chain()));
        assert_eq!(results, expected, "{way:?}");
    }
}

fn reason(plan: Plan) -> String {
    runs(plan, Execution::Compiled).unwrap_err().chain()
}

#[test]
fn memory_holds_one_value_after_the_other() {
    // −x, then x, then 2x where −x was; 2x · x.
    check(
        || {
            let mut plan = Plan::new(64);
            let x = plan.input(&[2]);
            let [first, second, again] = [0, 16, 0].map(|offset| plan.at(offset, &[2]));
            let one = plan.value(EValue::Int(1));
            plan.call("aten::neg.out", &[x, first]);
            plan.call("aten::neg.out", &[first, second]);
            plan.call("aten::add.out", &[second, second, one, again]);
            let out = plan.at(32, &[2]);
            plan.call("aten::mul.out", &[again, second, out]);
            plan.plan.outputs = vec![out];
            plan
        },
        [&[2.0, 8.0], &[242.0, 288.0], &[882.0, 968.0]],
    );
}

#[test]
fn a_tensor_at_the_same_place_is_a_view_without_an_instruction() {
    check(
        || {
            let mut plan = Plan::new(64);
            let x = plan.input(&[2, 3]);
            let (matrix, flat) = (plan.at(0, &[2, 3]), plan.at(0, &[6]));
            plan.call("aten::neg.out", &[x, matrix]);
            let (zero, minus) = (plan.value(EValue::Int(0)), plan.value(EValue::Int(-1)));
            let out = plan.at(56, &[]);
            plan.call("aten::select_copy.int_out", &[flat, zero, minus, out]);
            plan.plan.outputs = vec![out];
            plan
        },
        [&[-6.0], &[-16.0], &[-26.0]],
    );
}

#[test]
fn what_is_read_before_it_is_written_lives_from_run_to_run() {
    // sum += x; the sum is copied back into its place at the end, as exporters write it.
    let plan = |in_place: bool| {
        move || {
            let mut plan = Plan::new(64);
            let x = plan.input(&[2]);
            let (sum, next, out) = (plan.at(0, &[2]), plan.at(16, &[2]), plan.at(32, &[2]));
            let (one, no) = (plan.value(EValue::Int(1)), plan.value(EValue::Bool(false)));
            plan.call("aten::add.out", &[sum, x, one, next]);
            if in_place {
                plan.call("aten::copy_", &[sum, next, no, sum]);
            } else {
                plan.call("aten::neg.out", &[next, sum]);
                plan.call("aten::neg.out", &[sum, out]);
                plan.call("aten::neg.out", &[out, next]);
                plan.call("aten::neg.out", &[next, sum]);
            }
            plan.call("aten::neg.out", &[sum, out]);
            plan.plan.outputs = vec![out];
            plan
        }
    };
    check(plan(true), [&[-1.0, -2.0], &[-12.0, -14.0], &[-33.0, -36.0]]);
    check(plan(false), [&[-1.0, -2.0], &[-12.0, -14.0], &[-33.0, -36.0]]);
}

#[test]
fn a_view_shows_what_is_written_to_its_source() {
    check(
        || {
            let mut plan = Plan::new(64);
            let x = plan.input(&[2, 2]);
            let buffer = plan.at(0, &[2, 2]);
            let view = plan.tensor(&[4], ShapeDynamism::Static, TensorData::Unplanned);
            let four = plan.value(EValue::Int(4));
            let sizes = plan.value(EValue::IntList(vec![four]));
            let no = plan.value(EValue::Bool(false));
            plan.call("aten::neg.out", &[x, buffer]);
            plan.call("executorch_prim::et_view.default", &[buffer, sizes, view]);
            plan.call("aten::copy_", &[buffer, x, no, buffer]);
            let out = plan.at(32, &[4]);
            plan.call("aten::neg.out", &[view, out]);
            plan.plan.outputs = vec![out];
            plan
        },
        [&[-1.0, -2.0, -3.0, -4.0], &[-11.0, -12.0, -13.0, -14.0], &[-21.0, -22.0, -23.0, -24.0]],
    );
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_place() {
    let plan = |build: fn(&mut Plan, u32)| {
        let mut plan = Plan::new(64);
        let x = plan.input(&[2]);
        build(&mut plan, x);
        reason(plan)
    };
    for (build, want) in [
        (
            (|plan, x| {
                let (whole, part, out) = (plan.at(0, &[2]), plan.at(4, &[1]), plan.at(16, &[1]));
                plan.call("aten::neg.out", &[x, whole]);
                plan.call("aten::neg.out", &[part, out]);
                plan.plan.outputs = vec![out];
            }) as fn(&mut Plan, u32),
            "aten::neg.out #1: value 2 is read after its memory was partly overwritten",
        ),
        (
            |plan, x| {
                let (state, over, out) = (plan.at(0, &[2]), plan.at(4, &[2]), plan.at(16, &[2]));
                plan.call("aten::neg.out", &[state, out]);
                plan.call("aten::neg.out", &[x, over]);
                plan.plan.outputs = vec![out];
            },
            "what lives from run to run in value 1 is overwritten",
        ),
        (
            |plan, x| {
                let out = plan.at(0, &[2]);
                plan.call("aten::erf.out", &[x, out]);
                plan.plan.outputs = vec![out];
            },
            "aten::erf.out #0: this operator has no graph form",
        ),
        (
            |plan, x| {
                let (condition, out) = (plan.value(EValue::Bool(true)), plan.at(0, &[2]));
                plan.instructions.push(Instruction::JumpFalse { condition, destination: 1 });
                plan.call("aten::neg.out", &[x, out]);
                plan.plan.outputs = vec![out];
            },
            "instruction 0 is a jump",
        ),
        (
            |plan, _| {
                let out = plan.value(EValue::Int(3));
                plan.plan.outputs = vec![out];
            },
            "it gives no tensor",
        ),
        (
            |plan, _| {
                let (lost, out) = (plan.tensor(&[2], ShapeDynamism::Static, TensorData::Unplanned), plan.at(0, &[2]));
                plan.call("aten::neg.out", &[lost, out]);
                plan.plan.outputs = vec![out];
            },
            "aten::neg.out #0: value 1 is read before it is written",
        ),
        (
            |plan, x| {
                let (scalar, out) = (plan.value(EValue::Int(0)), plan.at(0, &[]));
                let (zero, int) = (plan.value(EValue::Int(0)), plan.value(EValue::Int(0)));
                plan.call("aten::select_copy.int_out", &[x, scalar, zero, out]);
                plan.call("aten::_local_scalar_dense", &[out, int]);
                plan.plan.outputs = vec![out];
            },
            "aten::_local_scalar_dense #1: a number that the method computes from its data",
        ),
    ] {
        let text = plan(build);
        assert!(text.ends_with(want), "{text}");
    }
}

#[test]
fn methods_without_a_graph_still_run() {
    let mut plan = Plan::new(64);
    let x = plan.input(&[2]);
    let out = plan.at(0, &[2]);
    plan.call("aten::erf.out", &[x, out]);
    plan.plan.outputs = vec![out];
    assert_eq!(runs(plan, Execution::Auto).unwrap().len(), 3);
}

/// A method of a program in which `sum`, a named buffer, lives in planned buffer 1: it adds what it is given, and gives
/// the sum.
fn adding(name: &str, offset: u64) -> Plan {
    let mut plan = Plan::new(64);
    plan.plan.name = name.into();
    let x = plan.input(&[2]);
    let sum = plan.at(offset, &[2]);
    if let EValue::Tensor(tensor) = &mut plan.plan.values[sum as usize] {
        tensor.fully_qualified_name = Some("sum".into());
    }
    let (one, out) = (plan.value(EValue::Int(1)), plan.tensor(&[2], ShapeDynamism::Static, TensorData::Unplanned));
    plan.call("aten::add.out", &[sum, x, one, sum]);
    plan.call("aten::neg.out", &[sum, out]);
    plan.plan.outputs = vec![out];
    plan.plan.chains = vec![Chain { instructions: std::mem::take(&mut plan.instructions) }];
    plan
}

#[test]
fn methods_share_a_named_buffer_however_they_are_executed() {
    for way in [Execution::Instructions, Execution::Compiled] {
        let plans = [adding("a", 0), adding("b", 0), adding("apart", 8)].map(|plan| plan.plan).to_vec();
        let program = Program { plans, ..Program::default() };
        let mut kernels = KernelRegistry::default();
        // The sum is read and written by one call, which operators refuse and graphs do not mind.
        register(&mut kernels);
        kernels.register("aten::add.out", |args| {
            let (a, b) = (args.tensor(0)?.view::<f32>()?.to_vec(), args.tensor(1)?.view::<f32>()?.to_vec());
            let out = args.tensor_mut(3)?.view_mut::<f32>()?;
            out.iter_mut().zip(a.iter().zip(&b)).for_each(|(out, (a, b))| *out = a + b);
            Ok(())
        });
        let compiler = Arc::new(GraphCompiler::new(Resources::new(NonZeroUsize::new(1))));
        let module = NativeModule::new(program, kernels, BackendRegistry::default()).unwrap();
        let mut module = module.with_compiler(compiler, way);
        let mut arena = IoArena::new(256).unwrap();
        let (given, got) = (arena.alloc(8).unwrap(), arena.alloc(8).unwrap());
        arena.typed_mut::<f32>(given).copy_from_slice(&[1.0, 10.0]);
        let mut run = |name: &str| {
            let method = module.load_method(name).unwrap();
            module.bind_input(method, 0, &arena, given).unwrap();
            module.bind_output(method, 0, &arena, got).unwrap();
            module.execute(method, &mut arena).unwrap();
            arena.typed::<f32>(got).to_vec()
        };
        assert_eq!(run("a"), [-1.0, -10.0], "{way:?}");
        assert_eq!(run("b"), [-2.0, -20.0], "{way:?}");
        assert_eq!(run("a"), [-3.0, -30.0], "{way:?}");
        assert_eq!(run("apart"), [-1.0, -10.0], "{way:?}");
    }
}
