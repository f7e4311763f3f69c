//! Delegates that know better than the program what a tensor's elements are.

mod runtime_support;

use llama_runner::Status;
use llama_runner::pte::{EValue, Instruction};
use llama_runner::runtime::{Module, NativeModule, RetypedArg};
use llama_runner::tensor::{DType, Encoding};
use runtime_support::*;

const U16: Encoding = Encoding { scale: 0.5, zero_point: 7 };

fn retype(arg: usize, dtype: DType, encoding: Option<Encoding>) -> RetypedArg {
    RetypedArg { arg, dtype, encoding }
}

fn backend(retyped: &[&[RetypedArg]]) -> FakeBackend {
    FakeBackend { retyped: retyped.iter().map(|args| args.to_vec()).collect(), ..FakeBackend::default() }
}

fn float4(data: llama_runner::pte::TensorData) -> EValue {
    tensor(DType::F32, &[4], data)
}

#[test]
fn the_delegates_type_is_the_methods_type() {
    let plan = forward(vec![float4(UNPLANNED), float4(UNPLANNED)], &[0], &[1], vec![delegate(0, &[0, 1])]);
    let backend = backend(&[&[retype(0, DType::U8, None), retype(1, DType::U16, Some(U16))]]);
    let mut module = NativeModule::new(program(plan), kernels(), backends(backend)).unwrap();
    let method = module.load_method("forward").unwrap();
    let info = module.method_info(method);
    let (input, output) = (info.inputs[0].as_ref().unwrap(), info.outputs[0].as_ref().unwrap());
    assert_eq!((input.dtype, input.byte_len(), input.encoding), (DType::U8, 4, None));
    assert_eq!((output.dtype, output.byte_len(), output.encoding), (DType::U16, 8, Some(U16)));
    // Binding goes by the real sizes too.
    let mut bound = Bound::with(module);
    bound.set(0, &[1, 2, 3, 4]);
    bound.run().unwrap();
    assert_eq!(bound.got(0), [2, 3, 4, 5, 1, 1, 1, 1]);
}

#[test]
fn an_unplanned_tensor_may_become_larger_a_planned_one_only_smaller() {
    let two = |data| vec![bytes4(data), bytes4(UNPLANNED)];
    let load = |values, outputs: &[u32]| {
        let plan = forward(values, &[], outputs, vec![delegate(0, &[0, 1])]);
        let backend = backend(&[&[retype(0, DType::U16, None)]]);
        NativeModule::new(program(plan), kernels(), backends(backend)).unwrap().load_method("forward")
    };
    assert!(load(two(UNPLANNED), &[0, 1]).is_ok());
    for data in [planned(0), constant(1)] {
        let error = load(two(data), &[1]).unwrap_err();
        assert_eq!(typed(&error), "a delegate retypes it from u8 to the larger u16, but its memory is the program's");
        assert_eq!(error.status(), Status::InvalidProgram);
        assert!(error.chain().starts_with("loading method forward: value 0: "), "{}", error.chain());
    }
    let plan = forward(vec![float4(planned(0)), bytes4(UNPLANNED)], &[], &[1], vec![delegate(0, &[0, 1])]);
    let backend = backend(&[&[retype(0, DType::U16, None)]]);
    assert!(NativeModule::new(program(plan), kernels(), backends(backend)).unwrap().load_method("forward").is_ok());
}

#[test]
fn delegates_that_disagree_are_an_error_that_names_the_value() {
    let shards = |backend| {
        let values = vec![bytes4(UNPLANNED), float4(planned(0)), bytes4(UNPLANNED)];
        let calls = vec![delegate(0, &[0, 1]), delegate(1, &[1, 2])];
        let plan = forward(values, &[0], &[2], calls);
        NativeModule::new(program(plan), kernels(), backends(backend)).unwrap().load_method("forward")
    };
    let u16 = |arg, encoding| retype(arg, DType::U16, encoding);
    assert!(shards(backend(&[&[u16(1, Some(U16))], &[u16(0, Some(U16))]])).is_ok());
    assert!(shards(backend(&[&[u16(1, Some(U16))], &[u16(0, None)]])).is_ok());
    for (claims, want) in [
        (backend(&[&[u16(1, None)]]), "delegate 0 makes it u16, but delegate 1 (FakeBackend) takes it as f32"),
        (backend(&[&[], &[u16(0, None)]]), "delegate 1 makes it u16, but delegate 0 (FakeBackend) takes it as f32"),
        (
            backend(&[&[u16(1, Some(U16))], &[u16(0, Some(Encoding { scale: 0.25, zero_point: 7 }))]]),
            "delegate 0 makes it u16 (scale 5e-1, zero point 7), but delegate 1 (FakeBackend) takes it as u16 \
             (scale 2.5e-1, zero point 7)",
        ),
    ] {
        let error = shards(claims).unwrap_err();
        assert_eq!(error.chain(), format!("loading method forward: value 1: {want}"));
        assert!(error.find::<llama_runner::runtime::RuntimeError>().is_some());
    }
}

#[test]
fn both_ends_of_a_move_must_agree() {
    for (from, to) in [(0, 1), (1, 0)] {
        let instructions = vec![delegate(0, &[0]), Instruction::Move { from, to }];
        let plan = forward(vec![float4(planned(0)), float4(planned(16))], &[], &[0], instructions);
        let error = load_error(program(plan), backend(&[&[retype(0, DType::U16, None)]]));
        assert_eq!(typed(&error), "delegate 0 makes it u16, but a move with value 1 takes it as f32");
    }
}

#[test]
fn a_retyped_argument_must_be_a_tensor_of_the_call() {
    let plan = || forward(vec![EValue::Int(1)], &[], &[], vec![delegate(0, &[0])]);
    let error = load_error(program(plan()), backend(&[&[retype(0, DType::U8, None)]]));
    assert_eq!(typed(&error), "delegate 0 (FakeBackend) retypes it, but it is int");
    let error = load_error(program(plan()), backend(&[&[retype(1, DType::U8, None)]]));
    assert_eq!(typed(&error), "delegate 0 (FakeBackend) retypes argument 1, but a call has 1");
    assert_eq!(error.status(), Status::DelegateInvalidCompatibility);
}

#[test]
fn all_calls_of_a_delegate_must_look_alike() {
    let values =
        || vec![bytes4(planned(0)), bytes4(planned(4)), tensor(DType::U8, &[2], planned(8)), bytes4(constant(1))];
    let load = |second: &[u32]| {
        let plan = forward(values(), &[], &[], vec![delegate(0, &[0, 1]), delegate(0, second)]);
        module(plan).load_method("forward")
    };
    assert!(load(&[1, 0]).is_ok());
    for second in [&[0][..], &[0, 2], &[0, 3]] {
        let error = load(second).unwrap_err();
        let want = "delegate 0 (FakeBackend) is called with arguments of different types in different places";
        assert_eq!(typed(&error), want);
    }
}
