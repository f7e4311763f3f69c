//! The five instructions, one by one and together, on programs written in memory.

mod runtime_support;

use llama_runner::Status;
use llama_runner::pte::{Chain, EValue, Instruction};
use llama_runner::runtime::{MAX_INSTRUCTIONS, Module, Value};
use llama_runner::tensor::DType;
use runtime_support::*;

#[test]
fn a_kernel_reads_an_input_and_writes_an_output() {
    let mut bound =
        Bound::new(forward(vec![bytes4(UNPLANNED), bytes4(UNPLANNED)], &[0], &[1], vec![kernel(0, &[0, 1])]));
    bound.set(0, &[1, 2, 3, 4]);
    bound.run().unwrap();
    assert_eq!(bound.got(0), [2, 3, 4, 5]);
    let (dims, bytes) = bound.module.output(bound.method, 0, &bound.arena).unwrap();
    assert_eq!((dims, bytes), (vec![4], &[2, 3, 4, 5][..]));
}

#[test]
fn a_delegate_sees_constants_planned_and_callers_tensors() {
    let values = vec![bytes4(UNPLANNED), bytes4(constant(1)), bytes4(planned(16)), bytes4(UNPLANNED)];
    let mut bound = Bound::new(forward(values, &[0], &[3], vec![kernel(0, &[0, 2]), delegate(0, &[0, 1, 2, 3])]));
    bound.set(0, &[1, 2, 3, 4]);
    for _ in 0..2 {
        bound.run().unwrap();
        assert_eq!(bound.got(0), [14, 26, 38, 50]);
    }
}

#[test]
fn a_move_copies_scalars_and_aliases_tensors() {
    let values = vec![bytes4(constant(1)), bytes4(UNPLANNED), EValue::Int(7), EValue::Int(0), bytes4(UNPLANNED)];
    let moves = [(0, 1), (2, 3)].map(|(from, to)| Instruction::Move { from, to });
    let mut bound = Bound::new(forward(values, &[], &[4, 3], [&moves[..], &[kernel(0, &[1, 4])]].concat()));
    bound.run().unwrap();
    assert_eq!(bound.got(0), [11, 21, 31, 41]);
}

#[test]
fn a_tensor_moved_into_an_output_reaches_the_caller() {
    let values = vec![bytes4(constant(1)), bytes4(UNPLANNED)];
    let mut bound = Bound::new(forward(values, &[], &[1], vec![Instruction::Move { from: 0, to: 1 }]));
    bound.run().unwrap();
    assert_eq!(bound.got(0), [10, 20, 30, 40]);
}

/// Counts from 0 to 3 and adds one to the output each time.
fn counting() -> llama_runner::pte::ExecutionPlan {
    let [count, limit, again, zero, bytes, other] = [0, 1, 2, 3, 4, 5];
    let values = vec![
        EValue::Int(9),
        EValue::Int(3),
        EValue::Bool(false),
        EValue::Int(0),
        bytes4(planned(0)),
        bytes4(planned(16)),
    ];
    let instructions = vec![
        Instruction::Move { from: zero, to: count },
        kernel(0, &[bytes, other]),
        kernel(0, &[other, bytes]),
        kernel(3, &[count, count]),
        kernel(2, &[limit, count, again]),
        Instruction::JumpFalse { condition: again, destination: 1 },
    ];
    forward(values, &[], &[bytes, count], instructions)
}

#[test]
fn a_jump_loops_until_its_condition_holds() {
    let mut bound = Bound::new(counting());
    bound.run().unwrap();
    // Four rounds: 3 < count holds first at 4.
    assert_eq!(bound.got(0), [8; 4]);
    bound.run().unwrap();
    assert_eq!(bound.got(0), [16; 4], "planned memory keeps its state, the counter is set again");
}

#[test]
fn a_jump_behind_the_last_instruction_ends_the_chain() {
    let values = vec![EValue::Bool(false), bytes4(constant(1)), bytes4(UNPLANNED)];
    let jump = Instruction::JumpFalse { condition: 0, destination: 2 };
    let mut bound = Bound::new(forward(values, &[], &[2], vec![jump, kernel(0, &[1, 2])]));
    bound.run().unwrap();
    assert_eq!(bound.got(0), [0; 4]);
}

#[test]
fn a_tensor_of_bools_is_true_when_all_its_elements_are() {
    for (condition, want) in [([1, 1, 1, 1], [11, 21, 31, 41]), ([1, 1, 0, 1], [0; 4]), ([0; 4], [0; 4])] {
        let values = vec![tensor(DType::Bool, &[4], UNPLANNED), bytes4(constant(1)), bytes4(UNPLANNED)];
        let jump = Instruction::JumpFalse { condition: 0, destination: 2 };
        let mut bound = Bound::new(forward(values, &[0], &[2], vec![jump, kernel(0, &[1, 2])]));
        bound.set(0, &condition);
        bound.run().unwrap();
        assert_eq!(bound.got(0), want, "{condition:?}");
    }
}

#[test]
fn an_endless_loop_is_an_error() {
    let values = vec![EValue::Bool(false)];
    let mut bound =
        Bound::new(forward(values, &[], &[], vec![Instruction::JumpFalse { condition: 0, destination: 0 }]));
    let error = bound.run().unwrap_err();
    assert_eq!(typed(&error), format!("the method did not end within {MAX_INSTRUCTIONS} instructions"));
    assert_eq!(error.status(), Status::InvalidProgram);
}

#[test]
fn free_takes_only_the_memory_of_a_view() {
    let values = vec![bytes4(planned(0)), bytes4(UNPLANNED), bytes4(UNPLANNED)];
    let free = |value| Instruction::Free { value };
    let instructions = vec![kernel(4, &[0, 1]), kernel(0, &[1, 2]), free(0), free(1), free(2)];
    let mut bound = Bound::new(forward(values.clone(), &[], &[2], instructions));
    bound.run().unwrap();
    bound.run().unwrap();
    assert_eq!(bound.got(0), [1; 4]);

    let mut bound = Bound::new(forward(values, &[], &[2], vec![kernel(4, &[0, 1]), free(1), kernel(0, &[1, 2])]));
    assert_eq!(typed(&bound.run().unwrap_err()), "u8[4] has no memory bound to it");
}

#[test]
fn chains_run_one_after_the_other() {
    let mut plan = forward(vec![bytes4(constant(1)), bytes4(planned(0)), bytes4(UNPLANNED)], &[], &[2], vec![]);
    plan.chains = vec![
        Chain { instructions: vec![kernel(0, &[0, 1])] },
        Chain { instructions: vec![kernel(0, &[1, 2]), kernel(1, &[2])] },
    ];
    let mut bound = Bound::new(plan);
    let error = bound.run().unwrap_err();
    assert_eq!(bound.got(0), [12, 22, 32, 42]);
    assert_eq!(error.chain(), "method forward, instruction 1 of chain 1: test::fail(u8[4]): told to");
}

#[test]
fn an_error_names_method_instruction_operator_and_arguments() {
    let values = vec![tensor(DType::F32, &[1, 2], planned(0)), EValue::Null, EValue::Int(3), EValue::Double(0.5)];
    let mut bound = Bound::new(forward(values, &[], &[], vec![kernel(1, &[0, 1, 2, 3, 0])]));
    let error = bound.run().unwrap_err();
    let place = "method forward, instruction 0: test::fail(f32[1, 2], null, int 3, double 0.5, f32[1, 2])";
    assert_eq!((error.chain(), error.status()), (format!("{place}: told to"), Status::Internal));
}

#[test]
fn an_error_lists_only_so_many_arguments() {
    let mut bound = Bound::new(forward(vec![EValue::Null], &[], &[], vec![kernel(1, &[0; 84])]));
    let text = bound.run().unwrap_err().chain();
    assert!(text.ends_with("null, null, and 60 more): told to"), "{text}");
}

#[test]
fn wrong_kinds_at_run_time_are_typed_errors() {
    let cases = [
        (
            vec![EValue::Int(0)],
            Instruction::JumpFalse { condition: 0, destination: 0 },
            "the condition of a jump is int, neither a bool nor a tensor of bools",
        ),
        (vec![EValue::Int(0)], Instruction::Free { value: 0 }, "what is freed is int, not tensor"),
        (vec![EValue::Null, bytes4(planned(0))], kernel(0, &[0, 1]), "argument 0 is null, not tensor"),
        (vec![EValue::Null, bytes4(planned(0))], kernel(0, &[1, 0]), "argument 1 is null, not tensor"),
        (vec![bytes4(planned(0))], kernel(0, &[0]), "argument 1 is missing"),
        (vec![bytes4(planned(0))], kernel(0, &[0, 0]), "argument 0 is the output itself and cannot be read"),
        (vec![bytes4(planned(0)), bytes4(planned(2))], kernel(0, &[0, 1]), "argument 0 shares memory with output 1"),
        (vec![bytes4(planned(0)), bytes4(constant(1))], kernel(0, &[0, 1]), "a constant tensor is written to"),
        (
            vec![tensor(DType::I8, &[4], planned(0)), bytes4(planned(4))],
            kernel(0, &[0, 1]),
            "a tensor of i8 is read as u8",
        ),
        (vec![bytes4(UNPLANNED), bytes4(planned(0))], kernel(0, &[0, 1]), "u8[4] has no memory bound to it"),
        (vec![bytes4(planned(0))], kernel(5, &[0]), "sizes [3] do not fit the fixed sizes [4]"),
        (
            vec![bytes4(planned(0)), tensor(DType::I8, &[4], UNPLANNED)],
            kernel(4, &[0, 1]),
            "a tensor of i8 cannot be a view of one of u8",
        ),
    ];
    for (values, instruction, want) in cases {
        let mut bound = Bound::new(forward(values, &[], &[], vec![instruction]));
        assert_eq!(typed(&bound.run().unwrap_err()), want);
    }
}

#[test]
fn a_delegate_never_gets_an_argument_it_was_not_prepared_for() {
    let small = tensor(DType::U8, &[2], planned(32));
    let wide = tensor(DType::I16, &[2], planned(32));
    let cases = [
        (small, "delegate argument 0 is u8[2] in 2 bytes of memory, prepared was u8 in 4 bytes of memory"),
        (wide, "delegate argument 0 is i16[2] in 4 bytes of memory, prepared was u8 in 4 bytes of memory"),
        (bytes4(constant(1)), "delegate argument 0 is constant u8[4], prepared was u8 in 4 bytes of memory"),
        (EValue::Int(5), "delegate argument 0 is int 5, prepared was u8 in 4 bytes of memory"),
        (bytes4(UNPLANNED), "delegate argument 0 is u8[4] in 0 bytes of memory, prepared was u8 in 4 bytes of memory"),
    ];
    for (source, want) in cases {
        let instructions = vec![Instruction::Move { from: 1, to: 0 }, delegate(0, &[0, 2])];
        let mut bound =
            Bound::new(forward(vec![bytes4(planned(0)), source, bytes4(planned(8))], &[], &[], instructions));
        let error = bound.run().unwrap_err();
        assert_eq!(typed(&error), want);
        assert!(error.chain().starts_with("method forward, instruction 1: delegate 0 FakeBackend("));
    }
}

#[test]
fn constant_methods_give_scalars() {
    let values = vec![
        EValue::Double(0.5),
        EValue::Int(3),
        EValue::String("torch.uint8".into()),
        EValue::Bool(true),
        EValue::IntList(vec![1, 1]),
        tensor(DType::U8, &[4], constant(1)),
    ];
    let mut module = module(forward(values.clone(), &[], &[0, 1, 2, 3, 4], vec![]));
    let got = module.constant("forward").unwrap().unwrap();
    assert_eq!(
        got.iter().map(Value::to_string).collect::<Vec<_>>().join(", "),
        "double 0.5, int 3, string, bool true, int 3, int 3"
    );
    assert!(module.constant("get_nothing").unwrap().is_none());

    let error = runtime_support::module(forward(values.clone(), &[], &[5], vec![])).constant("forward").unwrap_err();
    assert_eq!(typed(&error), "output 0 of method forward is tensor, neither scalar nor string");
    let error = runtime_support::module(forward(values, &[1], &[0], vec![])).constant("forward").unwrap_err();
    assert_eq!(typed(&error), "method forward takes inputs, so it is not a constant method");
}

#[test]
fn a_constant_method_needs_no_backend_but_its_instructions_are_run() {
    let values = vec![EValue::Int(41), EValue::Int(0)];
    let mut plan = forward(values.clone(), &[], &[0], vec![]);
    plan.delegates = vec![fake_delegate("OtherBackend")];
    assert_eq!(module(plan).constant("forward").unwrap().unwrap()[0].to_string(), "int 41");
    let mut module = module(forward(values, &[], &[1], vec![kernel(3, &[0, 1])]));
    assert_eq!(module.constant("forward").unwrap().unwrap()[0].to_string(), "int 42");
}
