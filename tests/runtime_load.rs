//! Loading: what is missing is listed, what is inconsistent is named.

mod runtime_support;

use llama_runner::pte::{Blob, Chain, EValue, Instruction, Program, TensorData};
use llama_runner::runtime::{BackendRegistry, KernelRegistry, MethodId, Module, NativeModule};
use llama_runner::tensor::DType;
use llama_runner::{Status, pte::Storage};
use runtime_support::*;
use std::sync::Arc;

#[test]
fn o4_every_missing_operator_is_listed() {
    let mut plan = forward(vec![], &[], &[], vec![]);
    plan.operators.extend([operator("llama::sdpa.out"), operator("aten::_softmax")]);
    let error = load_error(program(plan), FakeBackend::default());
    assert_eq!(error.status(), Status::OperatorMissing);
    assert_eq!(error.status() as i32, 0x14);
    assert_eq!(
        error.chain(),
        "loading method forward: method forward needs what this build lacks: operators llama::sdpa.out, \
         aten::_softmax (this build has: test::add.out, test::count, test::fail, test::less, test::shrink, test::view)"
    );
}

#[test]
fn o11_a_missing_backend_names_the_delegates_and_what_there_is() {
    let mut plan = forward(vec![], &[], &[], vec![]);
    plan.delegates.push(fake_delegate("QnnBackend"));
    let error = load_error(program(plan.clone()), FakeBackend { unavailable: true, ..FakeBackend::default() });
    assert_eq!(error.status(), Status::BackendMissing);
    assert_eq!(
        typed(&error),
        "method forward needs what this build lacks: backends QnnBackend (delegates in the file: FakeBackend, \
         QnnBackend; this build has: FakeBackend: not available (libFake.so is not in /nowhere))"
    );
    let mut module = NativeModule::new(program(plan), kernels(), BackendRegistry::default()).unwrap();
    let text = module.load_method("forward").unwrap_err().chain();
    assert!(
        text.ends_with(
            "backends FakeBackend, QnnBackend (delegates in the file: FakeBackend, QnnBackend; this build has: none)"
        ),
        "{text}"
    );
}

#[test]
fn operators_and_backends_are_reported_together() {
    let mut module = NativeModule::new(
        program(forward(vec![], &[], &[], vec![])),
        KernelRegistry::default(),
        BackendRegistry::default(),
    )
    .unwrap();
    let error = module.load_method("forward").unwrap_err();
    assert_eq!(error.status(), Status::OperatorMissing);
    let text = error.chain();
    assert!(
        text.contains("operators test::add.out, ")
            && text.contains("(this build has: none), and backends FakeBackend ("),
        "{text}"
    );
}

#[test]
fn o11_an_unavailable_backend_says_why_and_keeps_its_status() {
    let plan = forward(vec![], &[], &[], vec![]);
    let error = load_error(program(plan), FakeBackend { unavailable: true, ..FakeBackend::default() });
    assert_eq!(error.status(), Status::LibraryUnavailable);
    assert_eq!(
        error.chain(),
        "loading method forward: FakeBackend is not available (delegates in the file: FakeBackend): libFake.so is not in \
         /nowhere"
    );
}

#[test]
fn a_delegate_that_cannot_be_prepared_is_named() {
    let plan = forward(vec![], &[], &[], vec![delegate(1, &[])]);
    let error = load_error(program(plan), FakeBackend { refuse: true, ..FakeBackend::default() });
    assert_eq!(error.status(), Status::DelegateInvalidCompatibility);
    assert_eq!(error.chain(), "loading method forward: preparing delegate 1 (FakeBackend): blob not understood");
}

#[test]
fn a_delegate_that_is_never_called_is_not_prepared() {
    let plan = forward(vec![], &[], &[], vec![]);
    let backends = backends(FakeBackend { refuse: true, ..FakeBackend::default() });
    assert!(NativeModule::new(program(plan), kernels(), backends).unwrap().load_method("forward").is_ok());
}

#[test]
fn methods_are_found_once_or_listed() {
    let mut program = program(forward(vec![], &[], &[], vec![]));
    let mut other = program.plans[0].clone();
    other.name = "kv_forward".into();
    program.plans.push(other);
    let mut module = NativeModule::new(program, kernels(), backends(FakeBackend::default())).unwrap();
    assert_eq!(module.method_names(), ["forward", "kv_forward"]);
    let second = module.load_method("kv_forward").unwrap();
    assert_ne!(module.load_method("forward").unwrap(), second);
    assert_eq!(module.load_method("kv_forward").unwrap(), second);
    assert_eq!(module.method_info(second).name, "kv_forward");
    let error = module.load_method("prefill_forward").unwrap_err();
    assert_eq!(typed(&error), "the program has no method prefill_forward; it has: forward, kv_forward");
    assert_eq!(error.status(), Status::NotFound);
    let mut arena = llama_runner::runtime::IoArena::new(0).unwrap();
    let error = module.execute(MethodId(7), &mut arena).unwrap_err();
    assert_eq!(typed(&error), "7 is no loaded method of this module");
}

#[test]
fn a_program_without_methods_is_refused() {
    let made = NativeModule::new(Program::default(), KernelRegistry::default(), BackendRegistry::default());
    assert_eq!(typed(&made.err().unwrap()), "the program has no method at all");
}

#[test]
fn inconsistent_tensors_are_named() {
    let far = |buffer, offset, initial| TensorData::Planned { buffer, offset, initial };
    let cases = [
        (bytes4(constant(9)), "constant 9 is out of range: there are 2"),
        (tensor(DType::U8, &[5], constant(1)), "constant 1 has 4 bytes, 5 are needed"),
        (bytes4(far(2, 0, None)), "planned buffer 2 is out of range: there are 2"),
        (bytes4(far(1, 61, None)), "its 4 bytes at offset 61 do not fit planned buffer 1 of 64"),
        (
            bytes4(far(1, u64::MAX, None)),
            "its 4 bytes at offset 18446744073709551615 do not fit planned buffer 1 of 64",
        ),
        (bytes4(far(0, 0, None)), "its 4 bytes at offset 0 do not fit planned buffer 0 of 0"),
        (tensor(DType::F32, &[1], far(1, 2, None)), "offset 2 of planned buffer 1 is not aligned for f32"),
        (bytes4(far(1, 0, Some((0, 0)))), "initial contents 0/0 of a mutable buffer are not in the program"),
        (
            bytes4(TensorData::External),
            "its data is in an external file (.ptd) under the name \"layer.weight\", and no file that was given has it",
        ),
        (tensor(DType::U8, &[1; 17], UNPLANNED), "17 dimensions are more than 16"),
    ];
    for (value, want) in cases {
        let plan = forward(vec![EValue::Null, value], &[], &[], vec![]);
        let error = load_error(program(plan), FakeBackend::default());
        assert_eq!(typed(&error), want);
        assert_eq!(error.chain(), format!("loading method forward: value 1: {want}"));
    }
    let plan = forward(vec![tensor(DType::U8, &[1 << 30, 1 << 30], UNPLANNED)], &[0], &[], vec![]);
    let text = load_error(program(plan), FakeBackend::default()).chain();
    assert!(text.starts_with("loading method forward: value 0 (input 0): a tensor of shape"), "{text}");
}

#[test]
fn a_delegate_argument_that_never_gets_memory_is_refused() {
    let plan = forward(vec![bytes4(UNPLANNED)], &[], &[], vec![delegate(0, &[0])]);
    let error = load_error(program(plan), FakeBackend::default());
    assert_eq!(error.chain(), "loading method forward: value 0: a delegate takes it, and nothing ever gives it memory");
}

#[test]
fn planned_memory_is_limited() {
    for (sizes, want) in [
        (vec![0, 1 << 40], "planned memory of 1099511627776 bytes is more than the limit of 17179869184"),
        (vec![0, u64::MAX, 2], "planned memory of 18446744073709551615 bytes is more than the limit of 17179869184"),
    ] {
        let mut plan = forward(vec![], &[], &[], vec![]);
        plan.non_const_buffer_sizes = sizes;
        let error = load_error(program(plan), FakeBackend::default());
        assert_eq!((typed(&error).as_str(), error.status()), (want, Status::MemoryAllocationFailed));
    }
}

#[test]
fn indices_out_of_range_are_named() {
    let value = || vec![EValue::Null];
    let cases = [
        (forward(value(), &[1], &[], vec![]), "value 1 is out of range: there are 1"),
        (forward(value(), &[], &[2], vec![]), "value 2 is out of range: there are 1"),
        (forward(value(), &[], &[], vec![kernel(0, &[0, 3])]), "value 3 is out of range: there are 1"),
        (forward(value(), &[], &[], vec![kernel(6, &[])]), "operator 6 is out of range: there are 6"),
        (forward(value(), &[], &[], vec![delegate(0, &[4])]), "value 4 is out of range: there are 1"),
        (forward(value(), &[], &[], vec![delegate(2, &[])]), "delegate 2 is out of range: there are 2"),
        (
            forward(value(), &[], &[], vec![Instruction::Move { from: 0, to: 5 }]),
            "value 5 is out of range: there are 1",
        ),
        (
            forward(value(), &[], &[], vec![Instruction::Move { from: 6, to: 0 }]),
            "value 6 is out of range: there are 1",
        ),
        (forward(value(), &[], &[], vec![Instruction::Free { value: 7 }]), "value 7 is out of range: there are 1"),
        (
            forward(value(), &[], &[], vec![Instruction::JumpFalse { condition: 8, destination: 0 }]),
            "value 8 is out of range: there are 1",
        ),
        (
            forward(value(), &[], &[], vec![Instruction::JumpFalse { condition: 0, destination: 2 }]),
            "instruction 2 is out of range: there are 2",
        ),
    ];
    for (plan, want) in cases {
        assert_eq!(typed(&load_error(program(plan), FakeBackend::default())), want);
    }
    let mut plan = forward(value(), &[], &[], vec![]);
    plan.chains.push(Chain { instructions: vec![kernel(0, &[9])] });
    assert_eq!(typed(&load_error(program(plan), FakeBackend::default())), "value 9 is out of range: there are 1");
}

#[test]
fn initial_contents_of_mutable_buffers_are_there_at_the_first_run() {
    let value = bytes4(TensorData::Planned { buffer: 1, offset: 8, initial: Some((0, 1)) });
    let plan = forward(vec![value, bytes4(UNPLANNED)], &[], &[1], vec![kernel(0, &[0, 1])]);
    let mut program = program(plan);
    program.mutable_data = vec![vec![Blob::from_vec(vec![9]), Blob::from_vec(vec![5, 6, 7, 8])]];
    let mut bound =
        Bound::with(NativeModule::new(program.clone(), kernels(), backends(FakeBackend::default())).unwrap());
    bound.run().unwrap();
    assert_eq!(bound.got(0), [6, 7, 8, 9]);

    program.mutable_data[0][1] = Blob::from_vec(vec![5, 6]);
    let error = load_error(program, FakeBackend::default());
    assert_eq!(typed(&error), "its initial contents have 2 bytes, 4 are needed");
}

#[test]
fn a_constant_that_is_not_aligned_in_the_file_is_copied() {
    let storage = Arc::new(Storage::Owned((0..64).collect()));
    let first = storage.as_ptr() as usize;
    for shift in 1..5 {
        // One of the four is aligned, the others are not.
        let blob = Blob::new(&storage, shift..shift + 8).unwrap();
        let value = tensor(DType::U32, &[2], constant(1));
        let plan = forward(vec![value, tensor(DType::U8, &[8], UNPLANNED)], &[], &[1], vec![delegate(0, &[0, 1])]);
        let mut program = program(plan);
        program.constants[1] = blob;
        let mut bound = Bound::with(NativeModule::new(program, kernels(), backends(FakeBackend::default())).unwrap());
        bound.run().unwrap();
        let want: Vec<u8> = (shift as u8..).take(8).map(|byte| byte + 1).collect();
        assert_eq!(bound.got(0), want, "at {}", (first + shift) % 4);
    }
}

#[test]
fn method_info_says_types_bounds_and_plans() {
    let values = vec![
        dynamic(DType::I64, &[1, 127], UNPLANNED),
        EValue::Int(1),
        tensor(DType::F32, &[1, 16], planned(0)),
        bytes4(constant(1)),
    ];
    let mut module = module(forward(values, &[0, 1], &[2, 3], vec![]));
    let method = module.load_method("forward").unwrap();
    let info = module.method_info(method);
    let tokens = info.inputs[0].as_ref().unwrap();
    assert_eq!((tokens.dtype, &tokens.dims[..], tokens.byte_len()), (DType::I64, &[1, 127][..], 1016));
    assert!(tokens.dynamic && !tokens.planned && tokens.encoding.is_none());
    assert!(info.inputs[1].is_none());
    let logits = info.outputs[0].as_ref().unwrap();
    assert!(!logits.dynamic && logits.planned);
    assert!(info.outputs[1].as_ref().unwrap().planned);
}
