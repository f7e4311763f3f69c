//! Programs that a host runs: the same tokens as without one, and every fault of every callback a typed error after which
//! the module can be used again and is released once.
#![allow(unsafe_code)]

#[path = "common/bigram.rs"]
mod bigram;
#[path = "common/cdsprpc.rs"]
mod cdsprpc;
#[path = "common/fake_host.rs"]
mod fake_host;
#[path = "common/fake_module.rs"]
mod fake_module;
#[path = "common/fake_text.rs"]
mod fake_text;

use cdsprpc::{Knob, StandIn};
use fake_host::{Fault, Lie, SHARING_TABLE, TABLE, Watch, host};
use fake_module::{FakeModel, FakeTokenizer, Layout};
use fake_text::{FakeMethod, FakeText, Pos, Rows};
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::capi::error::{llr_last_error_code, llr_last_error_message};
use llama_runner::capi::generation_config::*;
use llama_runner::capi::host_module::*;
use llama_runner::capi::options::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::status::llr_status;
use llama_runner::runner::{GenerationConfig, KvUpdater, Prompt, Runner, RunnerError, RunnerOptions, SharedBuffer};
use llama_runner::runtime::{
    Host, HostError, HostModule, HostPlace, HostTable, IoArena, LLR_MODULE_MAX_RANK, LLR_MODULE_TENSOR_QUANTIZED,
    Module, RuntimeError, Side, Value,
};
use llama_runner::tensor::DType;
use llama_runner::tokenizer::TokenId;
use llama_runner::{Error, Result, Status};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::ptr;
use std::sync::Arc;

/// A program to stand behind the table, and what it says after a prompt.
#[derive(Clone)]
enum Fake {
    Static(FakeModel),
    Text(FakeText),
}

impl Fake {
    fn module(&self) -> Box<dyn Module> {
        match self {
            Self::Static(model) => model.module().0,
            Self::Text(model) => model.module().0,
        }
    }

    fn greedy(&self, n: usize) -> Vec<TokenId> {
        match self {
            Self::Static(model) => model.greedy(&PROMPT, n),
            Self::Text(model) => model.greedy(&PROMPT, n),
        }
    }

    /// Behind the table.
    fn host(&self) -> (Arc<Host>, Arc<Watch>) {
        let (table, module, watch) = host(self.module());
        // SAFETY: the table is that of the module, and both last until it is released.
        (unsafe { Host::new(&table, module) }.unwrap(), watch)
    }
}

const PROMPT: [TokenId; 5] = [7, 38, 69, 11, 42];
const NEW: usize = 6;

fn load(host: &Arc<Host>, kv_updater: KvUpdater) -> Result<Runner> {
    let options = RunnerOptions { kv_updater, ..RunnerOptions::default() };
    Runner::load(Box::new(HostModule::open(host)?), Arc::new(FakeTokenizer::default()), options)
}

fn generate(runner: &mut Runner) -> Result<Vec<TokenId>> {
    let config = GenerationConfig { max_new_tokens: Some(NEW), ..GenerationConfig::default() };
    Ok(runner.generate(Prompt::Tokens(&PROMPT), &config, &mut |_| ControlFlow::Continue(()))?.tokens)
}

fn default_fakes() -> [Fake; 2] {
    [Fake::Static(FakeModel::default()), Fake::Text(FakeText::default())]
}

#[test]
fn a_host_gives_the_tokens_that_its_program_gives() {
    let per_head = FakeModel { layout: Layout::PerHead, mask_rank: 3, ..FakeModel::default() };
    let planned =
        FakeModel { planned: true, cache: DType::F32, mask: DType::F32, logits: DType::F32, ..per_head.clone() };
    let each = FakeMethod { pos: Pos::Each, rows: Rows::Every, ..FakeMethod::default() };
    let mut windowed = FakeModel { window: Some(4), ..FakeModel::default() };
    windowed.constants.insert("get_sliding_window", vec![Value::Int(4)]);
    let fakes = [
        Fake::Static(windowed),
        Fake::Static(per_head),
        Fake::Static(planned),
        Fake::Text(FakeText::default()),
        Fake::Text(FakeText {
            planned_inputs: true,
            planned_outputs: false,
            methods: vec![each],
            ..FakeText::default()
        }),
        Fake::Text(FakeText::without_cache(Rows::Every, false)),
    ];
    for fake in fakes {
        for updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
            let (host, watch) = fake.host();
            let mut runner = load(&host, updater).unwrap();
            drop(host);
            for _ in 0..2 {
                assert_eq!(generate(&mut runner).unwrap(), fake.greedy(NEW));
                runner.reset();
            }
            assert!(*watch.bound.lock() > 0 && *watch.released.lock() == 0);
            drop(runner);
            assert_eq!((*watch.bound.lock(), *watch.released.lock()), (0, 1));
        }
    }
}

/// Loads and generates with a fault planned: the error that comes of it. Then the same must work, and the module be
/// released once. `None` when the fault was not met.
#[track_caller]
fn error_of(fake: &Fake, callback: &'static str, skip: usize, fault: Fault) -> Option<Error> {
    let (host, watch) = fake.host();
    watch.fail_once(callback, skip, fault);
    let mut runner = load(&host, KvUpdater::ShiftPointer);
    let error = match &mut runner {
        Ok(runner) => generate(runner).err(),
        Err(_) => None,
    };
    let mut runner = match runner {
        Ok(runner) => runner,
        Err(load_error) => {
            assert!(error.is_none());
            let mut again = load(&host, KvUpdater::ShiftPointer).expect("the module can be used again");
            assert_eq!(generate(&mut again).unwrap(), fake.greedy(NEW));
            drop((again, host));
            assert_eq!((*watch.bound.lock(), *watch.released.lock()), (0, 1), "{callback}");
            return Some(load_error);
        }
    };
    let met = watch.fault.lock().is_none();
    *watch.fault.lock() = None;
    assert_eq!(met, error.is_some(), "{callback} after {skip}: {error:?}");
    runner.reset();
    assert_eq!(generate(&mut runner).unwrap(), fake.greedy(NEW), "{callback} after {skip}");
    drop((runner, host));
    assert_eq!((*watch.bound.lock(), *watch.released.lock()), (0, 1), "{callback}");
    error
}

const CALLBACKS: [&str; 13] = [
    "method_count",
    "method_name",
    "evaluate",
    "value",
    "load_method",
    "input_count",
    "output_count",
    "input_info",
    "output_info",
    "bind_input",
    "bind_output",
    "execute",
    "resize_input",
];

#[test]
fn every_callback_may_fail_at_every_stage() {
    for fake in default_fakes() {
        let counts: BTreeMap<&str, usize> = {
            let (host, watch) = fake.host();
            let mut runner = load(&host, KvUpdater::ShiftPointer).unwrap();
            generate(&mut runner).unwrap();
            // Those that take bindings away come after this.
            let calls = watch.calls.lock().clone();
            calls.into_iter().collect()
        };
        let mut met = 0;
        for callback in CALLBACKS.into_iter().chain(["output"]) {
            let calls = counts.get(callback).copied().unwrap_or(0);
            for skip in [0, calls / 2, calls.saturating_sub(1)] {
                let Some(error) = error_of(&fake, callback, skip, Fault::Number(0x22)) else {
                    assert_eq!(calls, 0, "{callback} after {skip} did not fail");
                    continue;
                };
                met += 1;
                let Some(HostError::Failed { callback: named, number: 0x22, words, .. }) = error.find() else {
                    panic!("{callback}: {}", error.chain())
                };
                assert_eq!((*named, words.as_str()), (callback, &*format!("{callback} was made to fail")));
                assert_eq!(error.status(), Status::AccessFailed);
            }
        }
        let never: &[&str] =
            if matches!(fake, Fake::Static(_)) { &["resize_input", "output"] } else { &["bind_output"] };
        assert_eq!(met, 3 * (14 - never.len()), "{counts:?}");
    }
}

#[test]
fn numbers_keep_their_meaning_and_others_are_said_to_have_none() {
    let [fake, _] = default_fakes();
    for (number, status) in [
        (0x01, Status::Internal),
        (0x03, Status::InvalidState),
        (0x11, Status::NotSupported),
        (0x23, Status::InvalidProgram),
        (0x25, Status::OutOfResources),
        (0x30, Status::DelegateInvalidCompatibility),
        (0x1004, Status::Cancelled),
    ] {
        let error = error_of(&fake, "execute", 1, Fault::Number(number)).unwrap();
        assert!(matches!(error.find(), Some(HostError::Failed { number: found, .. }) if *found == number));
        assert_eq!(error.status(), status, "{number:#x}");
    }
    // A panic of this library is nothing that a host can report.
    for number in [-1, 0x17, 0x40, 0x1005, i32::MIN, i32::MAX] {
        let error = error_of(&fake, "execute", 1, Fault::Number(number)).unwrap();
        let words = "execute was made to fail".to_owned();
        let place = HostPlace::Method("kv_forward".to_owned());
        let want = HostError::UnknownNumber { callback: "execute", place, number, words };
        assert_eq!((error.find(), error.status()), (Some(&want), Status::BackendFailed));
    }
}

/// What a lie comes to.
#[track_caller]
fn found_out(fake: &Fake, callback: &'static str, skip: usize, lie: Lie) -> HostError {
    let error = error_of(fake, callback, skip, Fault::Lie(lie)).expect("the lie was told");
    assert_eq!(error.status(), Status::BackendFailed, "{}", error.chain());
    error.find::<HostError>().unwrap_or_else(|| panic!("{}", error.chain())).clone()
}

#[test]
fn names_counts_and_values_are_not_believed() {
    let [fixed, text] = default_fakes();
    for callback in ["method_count", "evaluate", "input_count", "output_count"] {
        for count in [|count: &mut usize| *count = usize::MAX, |count: &mut usize| *count = 70_000] {
            let error = found_out(&fixed, callback, 0, Lie::Count(count));
            assert!(matches!(error, HostError::TooMany { max: 65_536, .. }), "{error}");
        }
    }
    let text_of = |lie| match found_out(&fixed, "method_name", 1, Lie::Name(lie)) {
        HostError::Text { callback: "method_name", index: 1, why } => why,
        other => panic!("{other}"),
    };
    assert_eq!(text_of(|name, len| (*name, *len) = (ptr::null(), 4)), "NULL");
    assert_eq!(text_of(|name, len| (*name, *len) = (c"\xff\xfe".as_ptr(), 2)), "no UTF-8");
    assert_eq!(text_of(|name, len| (*name, *len) = (c"x".as_ptr(), usize::MAX)), "longer than 1 MiB");

    let value = |lie| found_out(&text, "value", 0, Lie::Value(lie)).to_string();
    assert!(value(|value| value.kind = 5).starts_with("value gives kind 5 for value 0 of method get_"));
    assert!(value(|value| value.kind = -1).contains("kind -1"));
    assert!(value(|value| (value.kind, value.integer) = (3, 2)).starts_with("value gives 2 as boolean"));
    assert!(value(|value| (value.kind, value.text_len) = (4, 9)).contains("a text that is NULL"));
}

#[test]
fn tensors_are_not_believed() {
    let [fixed, text] = default_fakes();
    for callback in ["input_info", "output_info"] {
        let lie = |lie| found_out(&fixed, callback, 0, Lie::Tensor(lie)).to_string();
        let place = if callback == "input_info" { "input 0 of method prefill_forward" } else { "output 0 of method" };
        for (said, want) in [
            (lie(|tensor| tensor.dtype = 99), "gives element type 99"),
            (lie(|tensor| tensor.dtype = -2), "gives element type -2"),
            (lie(|tensor| tensor.dtype = i32::MAX), "gives element type 2147483647"),
            (lie(|tensor| tensor.rank = LLR_MODULE_MAX_RANK + 1), "gives rank 17"),
            (lie(|tensor| tensor.rank = usize::MAX), "gives rank 18446744073709551615"),
            (lie(|tensor| tensor.sizes[1] = -1), "a size is negative"),
            (lie(|tensor| tensor.sizes[..2].fill(i64::MAX)), "so many elements cannot be"),
            (lie(|tensor| tensor.sizes[..2].fill(1 << 21)), "so many elements cannot be"),
            (lie(|tensor| (tensor.flags, tensor.scale) = (LLR_MODULE_TENSOR_QUANTIZED, 0.0)), "gives scale 0"),
            (lie(|tensor| (tensor.flags, tensor.scale) = (LLR_MODULE_TENSOR_QUANTIZED, f32::NAN)), "gives scale NaN"),
        ] {
            assert!(said.starts_with(callback) && said.contains(want) && said.contains(place), "{said}");
        }
    }
    let lie = |lie| found_out(&text, "output", 1, Lie::Tensor(lie));
    let place = || HostPlace::Slot { method: "forward".into(), side: Side::Output, index: 0 };
    assert_eq!(lie(|tensor| tensor.data = ptr::null()), HostError::OutputNull(place()));
    assert_eq!(lie(|tensor| tensor.data = tensor.data.wrapping_byte_add(1)), HostError::OutputUnaligned(place()));
    assert_eq!(lie(|tensor| tensor.byte_len += 4), HostError::OutputLength { place: place(), have: 392, need: 388 });
    assert!(matches!(lie(|tensor| tensor.sizes[1] = 98), HostError::OutputType { .. }));
    assert!(matches!(lie(|tensor| tensor.dtype = 3), HostError::OutputType { .. }));
    assert!(matches!(lie(|tensor| tensor.dtype = -1), HostError::OutputType { .. }));
    assert!(matches!(lie(|tensor| tensor.sizes[0] = -1), HostError::Sizes { .. }));
    // Sizes that can be, and that the runner did not expect.
    let fewer: fn(&mut llama_runner::runtime::HostTensor) = |tensor| (tensor.sizes[1], tensor.byte_len) = (96, 384);
    let error = error_of(&text, "output", 1, Fault::Lie(Lie::Tensor(fewer))).unwrap();
    assert!(error.chain().contains("output 0 is f32[1, 96], not logits"), "{}", error.chain());
}

#[test]
fn shapes_that_are_no_language_model_are_the_runners_to_refuse() {
    let [fixed, text] = default_fakes();
    let none: fn(&mut llama_runner::runtime::HostTensor) = |tensor| tensor.dtype = -1;
    for (fake, callback) in [(&fixed, "input_info"), (&text, "output_info")] {
        let error = error_of(fake, callback, 0, Fault::Lie(Lie::Tensor(none))).unwrap();
        assert_eq!(error.status(), Status::InvalidProgram, "{}", error.chain());
    }
}

#[test]
fn tables_that_cannot_be_used_are_refused_and_their_module_is_left_alone() {
    let new = |change: fn(&mut HostTable)| {
        let (mut table, module, watch) = host(FakeModel::default().module().0);
        change(&mut table);
        // SAFETY: as in `Fake::host`; a table that is longer than it says is allowed.
        let made = unsafe { Host::new(&table, module) };
        assert_eq!(*watch.released.lock(), 0);
        if made.is_err() {
            // SAFETY: still ours.
            unsafe { TABLE.release.unwrap()(module) };
        }
        drop(made.as_ref().ok().cloned());
        let made = made.map(drop);
        assert_eq!(*watch.released.lock(), 1);
        made
    };
    // SAFETY: NULL is allowed.
    assert_eq!(unsafe { Host::new(ptr::null(), ptr::null_mut()) }.unwrap_err(), HostError::NoTable);
    let need = HostTable::MIN_SIZE;
    assert_eq!(new(|table| table.struct_size = 0), Err(HostError::TableSize { have: 0, need }));
    let short = new(|table| table.struct_size = HostTable::MIN_SIZE - 1);
    assert_eq!(short, Err(HostError::TableSize { have: need - 1, need }));
    for found in [0, 2, u32::MAX] {
        let version: fn(&mut HostTable) = match found {
            0 => |table| table.version = 0,
            2 => |table| table.version = 2,
            _ => |table| table.version = u32::MAX,
        };
        let error = new(version).unwrap_err();
        assert_eq!(error, HostError::TableVersion { found, wanted: 1 });
        assert_eq!(Error::from(error).status(), Status::NotSupported);
    }
    let lacks = |change| match new(change) {
        Err(HostError::CallbackMissing(name)) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(lacks(|table| table.method_count = None), "method_count");
    assert_eq!(lacks(|table| table.output = None), "output");
    unsafe extern "C" fn register(_: *mut c_void, _: i32, _: *mut c_void, _: usize) -> i32 {
        0
    }
    assert_eq!(lacks(|table| table.register_memory = Some(register)), "deregister_memory");
    assert_eq!(lacks(|table| table.deregister_memory = Some(register)), "register_memory");
    assert_eq!(new(|table| (table.last_error, table.resize_input) = (None, None)), Ok(()));
}

#[test]
fn what_is_optional_is_missed_only_where_it_is_needed() {
    for (fake, works) in default_fakes().into_iter().zip([true, false]) {
        let (mut table, module, _watch) = host(fake.module());
        (table.resize_input, table.last_error) = (None, None);
        // SAFETY: as in `Fake::host`.
        let host = unsafe { Host::new(&table, module) }.unwrap();
        match load(&host, KvUpdater::SmartMask) {
            Ok(mut runner) if works => assert_eq!(generate(&mut runner).unwrap(), fake.greedy(NEW)),
            Err(error) if !works => assert!(matches!(error.find(), Some(HostError::NoResize(_))), "{}", error.chain()),
            other => panic!("{works}: {:?}", other.map(drop)),
        }
    }
}

#[test]
fn one_runner_at_a_time_has_the_module() {
    let [fake, _] = default_fakes();
    let (host, watch) = fake.host();
    let first = load(&host, KvUpdater::SmartMask).unwrap();
    let second = load(&host, KvUpdater::SmartMask).map(drop).unwrap_err();
    assert_eq!((second.find(), second.status()), (Some(&HostError::InUse), Status::InvalidState));
    drop(first);
    assert_eq!(generate(&mut load(&host, KvUpdater::SmartMask).unwrap()).unwrap(), fake.greedy(NEW));
    drop(host);
    assert_eq!(*watch.released.lock(), 1);
}

#[test]
fn a_host_that_keeps_addresses_is_not_used_again() {
    let [fake, _] = default_fakes();
    let (host, watch) = fake.host();
    let runner = load(&host, KvUpdater::SmartMask).unwrap();
    watch.fail_once("bind_input", 0, Fault::Number(1));
    drop(runner);
    let error = load(&host, KvUpdater::SmartMask).map(drop).unwrap_err();
    assert_eq!(error.find(), Some(&HostError::Stuck));
    drop(host);
    assert_eq!(*watch.released.lock(), 1);
}

#[test]
fn bindings_are_judged_before_the_host_sees_them() {
    let (host, watch) = Fake::Text(FakeText::default()).host();
    let mut module = HostModule::open(&host).unwrap();
    let id = module.load_method("forward").unwrap();
    assert_eq!(module.load_method("forward").unwrap(), id);
    let mut arena = IoArena::new(4096).unwrap();
    let tokens = arena.alloc(63 * 8).unwrap();
    let refused = |result: Result<()>| result.unwrap_err().to_string();
    let mut bind = |side, index, slice| match side {
        Side::Input => module.bind_input(id, index, &arena, slice),
        Side::Output => module.bind_output(id, index, &arena, slice),
    };
    assert!(refused(bind(Side::Input, 2, tokens)).contains("no input 2"));
    assert!(refused(bind(Side::Output, 0, tokens)).contains("the slice has 504"));
    let outside = llama_runner::runtime::IoSlice { offset: 4096, ..tokens };
    assert!(refused(bind(Side::Input, 0, outside)).contains("not inside the arena"));
    let crooked = llama_runner::runtime::IoSlice { offset: 4, ..tokens };
    assert!(refused(bind(Side::Input, 0, crooked)).contains("not aligned"));
    assert_eq!(watch.calls("bind_input"), 0);
    bind(Side::Input, 0, tokens).unwrap();
    assert!(refused(module.execute(id, &mut arena)).contains("input 1 of method forward (i64[1]) is not bound"));
    assert!(refused(module.resize_input(id, 1, &[2])).contains("fixed sizes [1]"));
    for dims in [&[1, 64][..], &[63], &[usize::MAX, 2]] {
        assert!(refused(module.resize_input(id, 0, dims)).contains("upper bounds [1, 63]"), "{dims:?}");
    }
    let start = arena.alloc(8).unwrap();
    module.bind_input(id, 1, &arena, start).unwrap();
    module.resize_input(id, 0, &[1, 3]).unwrap();
    module.execute(id, &mut arena).unwrap();

    // Another arena takes everything away from the first.
    let mut other = IoArena::new(4096).unwrap();
    let foreign = module.execute(id, &mut other).unwrap_err();
    assert!(matches!(foreign.find(), Some(RuntimeError::ForeignArena { .. })));
    let there = other.alloc(63 * 8).unwrap();
    module.bind_input(id, 0, &other, there).unwrap();
    assert_eq!(*watch.bound.lock(), 1);
    assert!(refused(module.execute(id, &mut other)).contains("input 1"));
    let error = module.load_method("backward").unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert!(module.constant("backward").unwrap().is_none());
    drop(module);
    assert_eq!(*watch.bound.lock(), 0);
}

#[test]
fn constants_of_every_kind_come_through() {
    let texts = [Value::Int(-7), Value::Bool(true), Value::Double(0.5), Value::String("né".into()), Value::Null];
    let mut model = FakeText::default();
    model.constants.insert("get_all", texts.to_vec());
    let (host, _watch) = Fake::Text(model).host();
    let values = HostModule::open(&host).unwrap().constant("get_all").unwrap().unwrap();
    let said: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    assert_eq!(said, ["Int(-7)", "Bool(true)", "Double(0.5)", "String(\"né\")", "Null"]);
}

#[test]
fn shared_memory_is_told_of_before_it_is_bound_and_taken_back_before_it_is_freed() {
    let [fake, _] = default_fakes();
    let sharing = |table: HostTable| {
        let (_, module, watch) = host(fake.module());
        // SAFETY: as in `Fake::host`.
        (unsafe { Host::new(&table, module) }.unwrap(), watch)
    };
    let stand_in = StandIn::new();
    let load = |host: &Arc<Host>, shared_buffer| {
        let rpcmem_lib = Some(stand_in.path.clone());
        let options = RunnerOptions { shared_buffer, rpcmem_lib, ..RunnerOptions::default() };
        Runner::load(Box::new(HostModule::open(host)?), Arc::new(FakeTokenizer::default()), options)
    };
    for shared_buffer in [SharedBuffer::Require, SharedBuffer::Prefer] {
        let (host, watch) = sharing(SHARING_TABLE);
        watch.fail_once("register_memory", 0, Fault::Number(0x25));
        match load(&host, shared_buffer) {
            Err(error) if shared_buffer == SharedBuffer::Require => {
                assert!(matches!(error.find(), Some(HostError::Failed { callback: "register_memory", .. })));
            }
            Ok(mut runner) => assert_eq!(generate(&mut runner).unwrap(), fake.greedy(NEW), "unshared, as preferred"),
            Err(error) => panic!("{}", error.chain()),
        }
        assert_eq!((watch.calls("register_memory"), watch.calls("deregister_memory")), (1, 0));
        let mut runner = load(&host, shared_buffer).unwrap();
        assert_eq!(generate(&mut runner).unwrap(), fake.greedy(NEW));
        assert_eq!((watch.calls("register_memory"), watch.shared.lock().len()), (2, 1));
        drop(runner);
        assert_eq!((watch.calls("deregister_memory"), watch.shared.lock().len()), (1, 0));
    }
    stand_in.check_freed(4);

    // A host that cannot be told of it.
    let (host, _watch) = sharing(TABLE);
    let error = load(&host, SharedBuffer::Require).map(drop).unwrap_err();
    assert_eq!((error.find(), error.status()), (Some(&HostError::NoSharedMemory), Status::NotSupported));
    assert_eq!(generate(&mut load(&host, SharedBuffer::Prefer).unwrap()).unwrap(), fake.greedy(NEW));
    stand_in.check_freed(6);

    // One that does not give it up: the memory stays for ever, and the module is not used again.
    let (host, watch) = sharing(SHARING_TABLE);
    let runner = load(&host, SharedBuffer::Require).unwrap();
    watch.fail_once("deregister_memory", 0, Fault::Number(0x01));
    drop(runner);
    let error = load(&host, SharedBuffer::Require).map(drop).unwrap_err();
    assert_eq!(error.find(), Some(&HostError::Stuck));
    assert_eq!([Knob::Allocs, Knob::Frees].map(|knob| stand_in.get(knob)), [7, 6]);
}

/// The message of the last C call of this thread.
fn message() -> String {
    let mut buffer = [0u8; 1024];
    let mut len = 0;
    // SAFETY: a live buffer.
    unsafe { llr_last_error_message(buffer.as_mut_ptr().cast::<c_char>(), buffer.len(), &mut len) };
    // The NUL counts.
    String::from_utf8_lossy(&buffer[..len.clamp(1, 1024) - 1]).into_owned()
}

#[test]
fn the_c_functions_own_the_module_and_release_it_once() {
    let files = bigram::Files::new();
    let [model, tokenizer] = ["bigram.pte", "bigram.bin"].map(|name| files.path(name));
    let [model_text, tokenizer_text] = [&model, &tokenizer].map(|path| path.to_str().unwrap());
    let open = || host(builtin::open_program(&model, &ProgramOptions::default()).unwrap());
    unsafe extern "C" fn collect(chunk: *const llama_runner::capi::chunk::llr_chunk, text: *mut c_void) -> i32 {
        let mut len = 0;
        // SAFETY: the text is that of `generate` below, the chunk lives during the call.
        unsafe {
            let piece = llama_runner::capi::chunk::llr_chunk_text(chunk, &mut len);
            (*text.cast::<Vec<u8>>()).extend(std::slice::from_raw_parts(piece.cast::<u8>(), len));
        }
        0
    }
    let generate = |runner| {
        let mut text = Vec::<u8>::new();
        // SAFETY: everything is live.
        unsafe {
            let config = llr_generation_config_new();
            llr_generation_config_set_max_new_tokens(config, 4);
            let user_data = (&raw mut text).cast();
            let status = llr_runner_generate(runner, c"abc".as_ptr(), 3, config, Some(collect), None, user_data);
            llr_generation_config_free(config);
            (status, String::from_utf8(text).unwrap())
        }
    };
    for options_first in [true, false] {
        let (table, module, watch) = open();
        let (other_table, other_module, other) = open();
        // SAFETY: live objects and texts throughout.
        unsafe {
            let options = llr_runner_options_new();
            let set = |text: &str| llr_runner_options_set_tokenizer_path(options, text.as_ptr().cast(), text.len());
            assert_eq!(llr_runner_options_set_host_module(options, ptr::null(), module), llr_status::InvalidArgument);
            assert_eq!(message(), "the module table is NULL");
            let old = HostTable { version: 7, ..table };
            assert_eq!(llr_runner_options_set_host_module(options, &old, module), llr_status::NotSupported);
            assert_eq!(
                llr_runner_options_set_host_module(ptr::null_mut(), &table, module),
                llr_status::InvalidArgument
            );
            assert_eq!(*watch.released.lock(), 0);
            // A module that is replaced before anybody used it.
            assert_eq!(llr_runner_options_set_host_module(options, &other_table, other_module), llr_status::Ok);
            assert_eq!(llr_runner_options_set_host_module(options, &table, module), llr_status::Ok);
            assert_eq!((*other.released.lock(), *watch.released.lock()), (1, 0));

            let mut runner = ptr::null_mut();
            assert_eq!(llr_runner_create(options, &mut runner), llr_status::InvalidArgument);
            assert_eq!(message(), "the options name no tokenizer file");
            assert_eq!(set(tokenizer_text), llr_status::Ok);
            assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok);
            assert_eq!(generate(runner), (llr_status::Ok, "defg".to_owned()));
            let mut second = ptr::null_mut();
            assert_eq!(llr_runner_create(options, &mut second), llr_status::Ok);
            assert_eq!(llr_runner_load(second), llr_status::InvalidState);
            assert_eq!(message(), "the module is in use by another runner");

            watch.fail_once("execute", 0, Fault::Number(0x31));
            assert_eq!(generate(runner).0, llr_status::DelegateMemoryAllocationFailed);
            assert!(message().contains("execute was made to fail"), "{}", message());
            assert_eq!(llr_last_error_code(), llr_status::DelegateMemoryAllocationFailed);
            assert_eq!(llr_runner_reset(runner), llr_status::Ok);
            assert_eq!(generate(runner), (llr_status::Ok, "defg".to_owned()));

            let path = model_text;
            llr_runner_options_set_model_path(options, path.as_ptr().cast(), path.len());
            let mut none = ptr::null_mut();
            assert_eq!(llr_runner_create(options, &mut none), llr_status::InvalidArgument);
            assert!(message().contains("beside a host module"), "{}", message());

            if options_first {
                llr_runner_options_free(options);
            }
            llr_runner_free(runner);
            assert_eq!(*watch.released.lock(), 0, "others still have a share");
            llr_runner_free(second);
            if !options_first {
                llr_runner_options_free(options);
            }
        }
        assert_eq!((*watch.bound.lock(), *watch.released.lock()), (0, 1));
    }
}

#[test]
fn a_model_without_its_host_says_what_the_runner_needs() {
    let model = FakeText::default().without("get_max_context_len").without("get_max_seq_len");
    let (host, _watch) = Fake::Text(model).host();
    let error = load(&host, KvUpdater::SmartMask).map(drop).unwrap_err();
    assert!(matches!(error.find(), Some(RunnerError::NoContextLength)));
}
