//! External data files, mutable buffers that methods share, and the profile of executions.

#[path = "runtime_support/mod.rs"]
mod support;

use llama_runner::Status;
use llama_runner::pte::{
    Blob, EValue, ExecutionPlan, FlatTensor, NamedBlob, Program, TensorData, TensorLayout, TensorValue,
};
use llama_runner::runtime::{BackendRegistry, IoArena, Module, NativeModule, ProfileKind, RuntimeError};
use llama_runner::tensor::DType;
use std::sync::Arc;
use support::*;

fn file(entries: &[(&str, DType, &[usize], Vec<u8>)]) -> FlatTensor {
    let entry = |(key, dtype, sizes, bytes): &(&str, DType, &[usize], Vec<u8>)| {
        let layout = TensorLayout { dtype: *dtype, sizes: sizes.to_vec(), dim_order: (0..sizes.len() as u8).collect() };
        ((*key).to_owned(), NamedBlob { blob: Blob::from_vec(bytes.clone()), layout: Some(layout) })
    };
    FlatTensor { entries: entries.iter().map(entry).collect() }
}

fn module(program: Program, data: Vec<FlatTensor>) -> llama_runner::Result<NativeModule> {
    NativeModule::with_data(program, data, kernels(), BackendRegistry::default())
}

/// `forward`: planned output = each byte of the tensor `layer.weight` plus one. No delegates.
fn add_one(data: TensorData, name: &str) -> ExecutionPlan {
    let mut plan = forward(vec![bytes4(data), bytes4(planned(32))], &[], &[1], vec![kernel(0, &[0, 1])]);
    plan.name = name.into();
    plan.delegates.clear();
    plan
}

fn run(module: &mut NativeModule, method: &str) -> Vec<u8> {
    let mut arena = IoArena::new(0).unwrap();
    let id = module.load_method(method).unwrap();
    module.execute(id, &mut arena).unwrap();
    module.output(id, 0, &arena).unwrap().1.to_vec()
}

fn typed(error: &llama_runner::Error) -> String {
    error.find::<RuntimeError>().unwrap_or_else(|| panic!("{error:?}")).to_string()
}

#[test]
fn constants_come_from_the_data_file() {
    let weight = file(&[("layer.weight", DType::U8, &[4], vec![1, 2, 3, 4])]);
    let mut module = module(program(add_one(TensorData::External, "forward")), vec![weight]).unwrap();
    assert_eq!(run(&mut module, "forward"), [2, 3, 4, 5]);
}

#[test]
fn constants_that_do_not_lie_aligned_are_copied() {
    let storage = Arc::new(llama_runner::pte::Storage::Owned((0..16).collect()));
    let odd = usize::from((storage.as_ptr() as usize).is_multiple_of(2));
    let layout = Some(TensorLayout { dtype: DType::U16, sizes: vec![2], dim_order: vec![0] });
    let blob = Blob::new(&storage, odd..odd + 4).unwrap();
    let data = FlatTensor { entries: [("layer.weight".to_owned(), NamedBlob { blob, layout })].into() };
    let plan = ExecutionPlan {
        delegates: vec![],
        ..forward(vec![tensor(DType::U16, &[2], TensorData::External)], &[], &[0], vec![])
    };
    let mut module = module(program(plan), vec![data]).unwrap();
    let odd = odd as u8;
    assert_eq!(run(&mut module, "forward"), [odd, odd + 1, odd + 2, odd + 3]);
}

#[test]
fn mutable_buffers_begin_with_what_the_data_file_holds() {
    let weight = file(&[("layer.weight", DType::U8, &[4], vec![10, 20, 30, 40])]);
    let data = TensorData::ExternalMutable { buffer: 1, offset: 4 };
    // Written back: the state advances with each execution.
    let mut plan = add_one(data, "forward");
    plan.chains[0].instructions.push(kernel(0, &[1, 0]));
    let mut module = module(program(plan), vec![weight]).unwrap();
    assert_eq!(run(&mut module, "forward"), [11, 21, 31, 41]);
    assert_eq!(run(&mut module, "forward"), [13, 23, 33, 43]);
}

#[test]
fn data_that_is_missing_or_of_another_shape_is_named() {
    let load = |files: Vec<FlatTensor>| {
        let mut module = module(program(add_one(TensorData::External, "forward")), files).unwrap();
        module.load_method("forward").unwrap_err()
    };
    let error = load(vec![file(&[("layer.bias", DType::U8, &[4], vec![0; 4])])]);
    assert_eq!(error.status(), Status::NotFound);
    assert_eq!(
        error.chain(),
        "loading method forward: value 0: its data is in an external file (.ptd) under the name \"layer.weight\", and \
         no file that was given has it"
    );
    for (dtype, sizes, want) in [
        (DType::I8, &[4][..], "external data \"layer.weight\" is i8[4], order [0], the program wants u8[4], order [0]"),
        (
            DType::U8,
            &[2, 2],
            "external data \"layer.weight\" is u8[2, 2], order [0, 1], the program wants u8[4], order [0]",
        ),
    ] {
        let error = load(vec![file(&[("layer.weight", dtype, sizes, vec![0; 4])])]);
        assert_eq!((typed(&error).as_str(), error.status()), (want, Status::InvalidExternalData));
    }
    let mut raw = file(&[("layer.weight", DType::U8, &[4], vec![0; 4])]);
    raw.entries.get_mut("layer.weight").unwrap().layout = None;
    assert_eq!(typed(&load(vec![raw])), "external data \"layer.weight\" is no tensor");
}

#[test]
fn a_key_may_be_there_twice_when_it_means_the_same() {
    let data = |byte| file(&[("layer.weight", DType::U8, &[4], vec![byte; 4])]);
    let load = |files| module(program(add_one(TensorData::External, "forward")), files);
    assert_eq!(run(&mut load(vec![data(1), data(1)]).unwrap(), "forward"), [2; 4]);
    let error = load(vec![data(1), data(2)]).err().unwrap();
    assert_eq!(typed(&error), "external data \"layer.weight\" is there twice, with different contents");

    let mut own = program(add_one(TensorData::External, "forward"));
    own.named_data.insert("layer.weight".into(), Blob::from_vec(vec![9; 4]));
    assert_eq!(module(own, vec![data(1)]).err().unwrap().status(), Status::InvalidExternalData);
}

/// A method that adds one to its cache at `offset` of buffer 1 and gives it out, and the same for a second method.
fn two_methods(offsets: [u64; 2]) -> NativeModule {
    let cache = |offset| match bytes4(TensorData::Planned { buffer: 1, offset, initial: Some((0, 1)) }) {
        EValue::Tensor(value) => EValue::Tensor(TensorValue { fully_qualified_name: Some("cache".into()), ..value }),
        other => other,
    };
    let plan = |name: &str, offset| {
        let unnamed = |at| match bytes4(planned(at)) {
            EValue::Tensor(value) => EValue::Tensor(TensorValue { fully_qualified_name: None, ..value }),
            other => other,
        };
        let values = vec![cache(offset), unnamed(32), EValue::Null, unnamed(40)];
        // The second kernel writes the cache, the third gives it out elsewhere.
        let steps = vec![kernel(0, &[0, 1]), kernel(0, &[1, 0]), kernel(0, &[0, 3])];
        ExecutionPlan { name: name.into(), delegates: vec![], ..forward(values, &[], &[3], steps) }
    };
    let mut program = program(plan("prefill", offsets[0]));
    program.plans.push(plan("decode", offsets[1]));
    program.mutable_data = vec![vec![Blob::from_vec(vec![]), Blob::from_vec(vec![100, 0, 0, 0])]];
    module(program, vec![]).unwrap()
}

#[test]
fn methods_share_a_cache_that_both_place_alike() {
    let mut module = two_methods([4, 4]);
    assert_eq!(run(&mut module, "prefill")[0], 103);
    // Loading the other method does not bring the initial contents back.
    assert_eq!(run(&mut module, "decode")[0], 105);
    assert_eq!(run(&mut module, "prefill")[0], 107);

    let mut apart = two_methods([4, 8]);
    assert_eq!(run(&mut apart, "prefill")[0], 103);
    assert_eq!(run(&mut apart, "decode")[0], 103);
}

#[test]
fn a_profile_has_every_operator_while_it_is_on() {
    let weight = file(&[("layer.weight", DType::U8, &[4], vec![1; 4])]);
    let mut module = module(program(add_one(TensorData::External, "forward")), vec![weight]).unwrap();
    run(&mut module, "forward");
    assert_eq!(module.take_profile(), None);
    module.set_profiling(true);
    run(&mut module, "forward");
    run(&mut module, "forward");
    let profile = module.take_profile().unwrap();
    let found: Vec<_> = profile.events.iter().map(|event| (event.kind, &*event.name, event.instruction)).collect();
    let (operator, method) =
        ((ProfileKind::Operator, "test::add.out", Some(0)), (ProfileKind::Method, "forward", None));
    assert_eq!(found, [operator, method, operator, method]);
    let [inner, outer, ..] = &profile.events[..] else { unreachable!() };
    assert!(outer.start <= inner.start && inner.start + inner.duration <= outer.start + outer.duration);
    assert_eq!(module.take_profile().unwrap().events, []);
    module.set_profiling(false);
    assert_eq!(module.take_profile(), None);
}
