//! Inputs and outputs in the caller's arena.

mod runtime_support;

use llama_runner::Status;
use llama_runner::pte::EValue;
use llama_runner::runtime::{IoArena, IoSlice, Module};
use llama_runner::tensor::DType;
use runtime_support::*;

#[test]
fn what_is_not_bound_is_named() {
    let plan = forward(vec![bytes4(UNPLANNED), bytes4(UNPLANNED)], &[0], &[1], vec![kernel(0, &[0, 1])]);
    let mut module = module(plan);
    let method = module.load_method("forward").unwrap();
    let mut arena = IoArena::new(256).unwrap();
    let error = module.execute(method, &mut arena).unwrap_err();
    assert_eq!(typed(&error), "input 0 of method forward (u8[4]) is not bound");
    assert_eq!(error.status(), Status::InvalidState);
    let slice = arena.alloc(4).unwrap();
    module.bind_input(method, 0, &arena, slice).unwrap();
    module.bind_input(method, 0, &arena, slice).unwrap();
    let error = module.execute(method, &mut arena).unwrap_err();
    assert_eq!(typed(&error), "output 0 of method forward (u8[4]) is not bound");
    let error = module.output(method, 0, &arena).unwrap_err();
    assert_eq!(typed(&error), "output 0 of method forward has no memory yet");
    let slice = arena.alloc(4).unwrap();
    module.bind_output(method, 0, &arena, slice).unwrap();
    module.execute(method, &mut arena).unwrap();
}

#[test]
fn a_bad_slice_is_refused_and_the_old_binding_stays() {
    let values = vec![tensor(DType::U16, &[2], UNPLANNED), EValue::Int(1), bytes4(constant(1)), bytes4(UNPLANNED)];
    let mut bound = Bound {
        ..Bound::with({
            let mut plan = forward(values, &[0, 1, 2], &[3], vec![delegate(0, &[0, 3])]);
            plan.inputs.truncate(1);
            module(plan)
        })
    };
    let slice = |offset, len| IoSlice { offset, len };
    for (at, want) in [
        (slice(0, 3), "input 0 of method forward is u16[2] = 4 bytes, the slice has 3"),
        (slice(0, 8), "input 0 of method forward is u16[2] = 4 bytes, the slice has 8"),
        (slice(1, 4), "the slice for input 0 of method forward at offset 1 is not aligned for u16"),
        (slice(1 << 16, 4), "the slice for input 0 of method forward is not inside the arena"),
        (slice(usize::MAX - 1, 4), "the slice for input 0 of method forward is not inside the arena"),
    ] {
        let error = bound.module.bind_input(bound.method, 0, &bound.arena, at).unwrap_err();
        assert_eq!((typed(&error).as_str(), error.status()), (want, Status::InvalidArgument));
    }
    bound.set(0, &[4, 5, 6, 7]);
    bound.run().unwrap();
    assert_eq!(bound.got(0), [5, 6, 7, 8]);
}

#[test]
fn what_cannot_be_bound_says_why() {
    let values = vec![EValue::Int(1), bytes4(constant(1)), bytes4(UNPLANNED)];
    let mut module = module(forward(values, &[0, 1], &[0], vec![]));
    let method = module.load_method("forward").unwrap();
    let mut arena = IoArena::new(64).unwrap();
    let slice = arena.alloc(4).unwrap();
    let mut bind = |input: bool, index| match input {
        true => module.bind_input(method, index, &arena, slice),
        false => module.bind_output(method, index, &arena, slice),
    };
    for (input, index, want) in [
        (true, 0, "input 0 of method forward is int, not tensor"),
        (true, 1, "input 1 of method forward is a constant and cannot be bound"),
        (true, 2, "method forward has no input 2: it has 2"),
        (false, 0, "output 0 of method forward is int, not tensor"),
        (false, 1, "method forward has no output 1: it has 1"),
    ] {
        assert_eq!(typed(&bind(input, index).unwrap_err()), want);
    }
    for error in [module.output(method, 0, &arena).unwrap_err(), module.output(method, 3, &arena).unwrap_err()] {
        assert_eq!(error.status(), Status::InvalidArgument);
    }
}

#[test]
fn binding_again_moves_the_tensor() {
    let mut bound =
        Bound::new(forward(vec![bytes4(UNPLANNED), bytes4(UNPLANNED)], &[0], &[1], vec![kernel(0, &[0, 1])]));
    bound.set(0, &[1; 4]);
    let second = bound.arena.alloc(4).unwrap();
    bound.arena.bytes_mut(second).copy_from_slice(&[5; 4]);
    bound.module.bind_input(bound.method, 0, &bound.arena, second).unwrap();
    bound.run().unwrap();
    assert_eq!(bound.got(0), [6; 4]);
}

#[test]
fn another_arena_releases_every_binding() {
    let values = vec![bytes4(UNPLANNED), bytes4(UNPLANNED), bytes4(UNPLANNED)];
    // The delegate's first argument is a view that the previous run left behind.
    let instructions = vec![delegate(0, &[1, 2]), kernel(4, &[0, 1])];
    let mut bound = Bound::new(forward(values, &[0], &[2], instructions));
    assert!(bound.run().is_err(), "no view yet");
    let mut other = IoArena::new(256).unwrap();
    let slice = other.alloc(4).unwrap();
    bound.module.bind_input(bound.method, 0, &other, slice).unwrap();
    drop(std::mem::replace(&mut bound.arena, other));
    assert_eq!(typed(&bound.run().unwrap_err()), "output 0 of method forward (u8[4]) is not bound");
    let slice = bound.arena.alloc(4).unwrap();
    bound.module.bind_output(bound.method, 0, &bound.arena, slice).unwrap();
    let text = typed(&bound.run().unwrap_err());
    assert_eq!(text, "delegate argument 0 is u8[4] in 0 bytes of memory, prepared was u8 in 4 bytes of memory");
}

#[test]
fn views_into_an_arena_do_not_outlive_its_bindings() {
    let values = vec![bytes4(UNPLANNED), bytes4(UNPLANNED), bytes4(planned(0)), EValue::Bool(true)];
    let skip = llama_runner::pte::Instruction::JumpFalse { condition: 3, destination: 2 };
    let no = llama_runner::pte::Instruction::Move { from: 4, to: 3 };
    // First run: makes the view, then turns the switch. Later runs skip making it.
    let instructions = vec![skip, kernel(4, &[0, 1]), kernel(0, &[1, 2]), no];
    let mut bound = Bound::new(forward([values, vec![EValue::Bool(false)]].concat(), &[0], &[], instructions));
    bound.run().unwrap();
    bound.run().unwrap();
    let mut other = IoArena::new(256).unwrap();
    let slice = other.alloc(4).unwrap();
    bound.module.bind_input(bound.method, 0, &other, slice).unwrap();
    drop(std::mem::replace(&mut bound.arena, other));
    assert_eq!(typed(&bound.run().unwrap_err()), "u8[4] has no memory bound to it");
}

#[test]
fn planned_inputs_are_copied_in_and_planned_outputs_out() {
    let plan = || forward(vec![bytes4(planned(0)), bytes4(planned(8))], &[0], &[1], vec![kernel(0, &[0, 1])]);
    let mut bound = Bound::new(plan());
    bound.set(0, &[1, 2, 3, 4]);
    bound.run().unwrap();
    assert_eq!(bound.got(0), [2, 3, 4, 5]);
    bound.set(0, &[9; 4]);
    bound.run().unwrap();
    assert_eq!(bound.got(0), [10; 4]);

    // Neither has to be bound: the output is read where it is, the input keeps what it holds.
    let mut module = module(plan());
    let (method, mut arena) = (module.load_method("forward").unwrap(), IoArena::new(0).unwrap());
    module.execute(method, &mut arena).unwrap();
    assert_eq!(module.output(method, 0, &arena).unwrap(), (vec![4], &[1; 4][..]));
}

#[test]
fn constants_inputs_and_views_reach_a_bound_output() {
    // Outputs: a constant, the input itself, a view of the input, the same view again.
    let values = vec![bytes4(UNPLANNED), bytes4(constant(1)), bytes4(UNPLANNED)];
    let mut bound = Bound::new(forward(values, &[0], &[1, 0, 2, 2], vec![kernel(4, &[0, 2])]));
    for round in 1..3 {
        bound.set(0, &[round; 4]);
        bound.run().unwrap();
        assert_eq!(bound.got(0), [10, 20, 30, 40]);
        for output in 1..4 {
            assert_eq!(bound.got(output), [round; 4], "output {output}");
        }
    }
}

#[test]
fn dynamic_inputs_shrink_and_the_output_with_them() {
    let values = vec![dynamic(DType::U8, &[3, 2], UNPLANNED), dynamic(DType::U8, &[3, 2], UNPLANNED)];
    let mut bound = Bound::new(forward(values, &[0], &[1], vec![delegate(0, &[0, 1]), kernel(5, &[1])]));
    bound.set(0, &[1, 2, 3, 4, 5, 6]);
    bound.run().unwrap();
    let output = bound.module.output(bound.method, 0, &bound.arena).unwrap();
    assert_eq!(output, (vec![2, 2], &[2, 3, 4, 5][..]));

    bound.module.resize_input(bound.method, 0, &[1, 2]).unwrap();
    bound.run().unwrap();
    let output = bound.module.output(bound.method, 0, &bound.arena).unwrap();
    assert_eq!(output, (vec![1, 2], &[2, 3][..]));
}

#[test]
fn sizes_outside_the_bounds_are_refused() {
    let values = vec![dynamic(DType::U8, &[3, 2], UNPLANNED), bytes4(UNPLANNED), EValue::Int(1)];
    let mut module = module(forward(values, &[0, 1, 2], &[], vec![]));
    let method = module.load_method("forward").unwrap();
    for (index, dims, want) in [
        (0, &[4, 1][..], "input 0 of method forward has upper bounds [3, 2], [4, 1] asked"),
        (0, &[3], "input 0 of method forward has upper bounds [3, 2], [3] asked"),
        (1, &[3], "input 1 of method forward has fixed sizes [4], [3] asked"),
        (2, &[1], "input 2 of method forward is int, not tensor"),
        (3, &[1], "method forward has no input 3: it has 3"),
    ] {
        assert_eq!(typed(&module.resize_input(method, index, dims).unwrap_err()), want);
    }
    module.resize_input(method, 1, &[4]).unwrap();
}
