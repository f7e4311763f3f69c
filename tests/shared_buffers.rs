//! Memory shared with a DSP: a stand-in for libcdsprpc.so that hands out real descriptors, and a QNN library that reads
//! and writes tensors through them. Tokens are those of copied tensors; whatever is allocated or registered is given
//! back once, whichever call fails.
#![cfg(target_os = "linux")]

#[path = "common/cdsprpc.rs"]
mod cdsprpc;
#[path = "common/fake_module.rs"]
mod fake_module;
#[path = "common/fake_qnn.rs"]
mod fake_qnn;

use cdsprpc::{Knob, StandIn, compile};
use fake_module::{FakeModel, Layout};
use fake_qnn::{Graph, Qnn};
use llama_runner::qnn::QnnError;
use llama_runner::qnn::fake::Call;
use llama_runner::runner::{GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions, SharedBuffer};
use llama_runner::runtime::{IoArena, IoSlice, RpcMem, RpcMemError};
use llama_runner::tokenizer::TokenId;
use llama_runner::{Error, Status};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

const TOKENS: usize = 12;

fn options(stand_in: &StandIn, shared_buffer: SharedBuffer) -> RunnerOptions {
    RunnerOptions { shared_buffer, rpcmem_lib: Some(stand_in.path.clone()), ..RunnerOptions::default() }
}

fn prompt() -> Vec<TokenId> {
    (0..9).map(|at| (at * 31 + 7) % 89).collect()
}

fn turn(runner: &mut Runner) -> Result<Vec<TokenId>, Error> {
    let config = GenerationConfig { max_decode_steps: Some(TOKENS - 1), ..GenerationConfig::default() };
    let fed = prompt();
    Ok(runner.generate(Prompt::Tokens(&fed), &config, &mut |_| ControlFlow::Continue(()))?.tokens)
}

#[test]
fn tokens_are_those_of_copied_tensors_and_nothing_is_registered_twice() {
    let stand_in = StandIn::new();
    let mut loads = 0;
    for (layout, operator_first) in [(Layout::PerLayer, false), (Layout::PerLayer, true), (Layout::PerHead, false)] {
        let qnn = Qnn::new(FakeModel { layout, ..FakeModel::default() }, operator_first);
        let right = qnn.model.greedy(&prompt(), TOKENS);
        assert_eq!(turn(&mut qnn.load(RunnerOptions::default()).unwrap()).unwrap(), right);
        assert_eq!(qnn.fake.calls(Call::MemRegister), 0);
        for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
            for shared_buffer in [SharedBuffer::Prefer, SharedBuffer::Require] {
                loads += 1;
                let before = qnn.fake.calls(Call::MemRegister);
                let mut runner = qnn.load(RunnerOptions { kv_updater, ..options(&stand_in, shared_buffer) }).unwrap();
                for _ in 0..2 {
                    assert_eq!(turn(&mut runner).unwrap(), right, "{layout:?} {kv_updater:?}");
                    runner.reset();
                }
                let made = qnn.fake.calls(Call::MemRegister) - before;
                match kv_updater {
                    KvUpdater::SmartMask => assert_eq!((made, qnn.registered()), (qnn.tensors(), made)),
                    KvUpdater::ShiftPointer => {
                        assert!(made > qnn.registered() && qnn.registered() <= 4 * qnn.tensors());
                    }
                }
                drop(runner);
                qnn.check_returned();
                assert_eq!(qnn.fake.calls(Call::MemRegister), qnn.fake.calls(Call::MemDeRegister));
                stand_in.check_freed(loads);
            }
        }
    }
}

#[test]
fn a_registration_that_fails_once_is_copied_or_an_error_as_asked() {
    let qnn = Qnn::new(FakeModel::default(), false);
    let right = qnn.model.greedy(&prompt(), TOKENS);
    let stand_in = StandIn::new();
    let mut loads = 0;
    for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        // The first two of the prefill's, and one of the decode's.
        for nth in [0, 1, qnn.tensors() as u32 - 2] {
            for shared_buffer in [SharedBuffer::Prefer, SharedBuffer::Require] {
                loads += 1;
                let (register, deregister) = (Call::MemRegister, Call::MemDeRegister);
                let before = (qnn.fake.calls(register), qnn.fake.calls(deregister));
                qnn.fake.fail_later(register, nth, 8003);
                let mut runner = qnn.load(RunnerOptions { kv_updater, ..options(&stand_in, shared_buffer) }).unwrap();
                let mut failed = 0;
                let tokens = turn(&mut runner).unwrap_or_else(|error| {
                    assert_eq!(error.find::<QnnError>().unwrap().call, "QnnMem_register", "{error:?}");
                    assert_eq!((error.status(), shared_buffer), (Status::OutOfResources, SharedBuffer::Require));
                    assert!(error.chain().contains("offset"), "{error:?}");
                    failed += 1;
                    runner.reset();
                    turn(&mut runner).unwrap()
                });
                assert_eq!(tokens, right, "{kv_updater:?} {nth} {shared_buffer:?}");
                assert_eq!(failed, usize::from(shared_buffer == SharedBuffer::Require));
                drop(runner);
                assert_eq!(qnn.fake.calls(register) - before.0 - 1, qnn.fake.calls(deregister) - before.1);
                qnn.check_returned();
                stand_in.check_freed(loads);
            }
        }
    }
}

#[test]
fn a_library_that_takes_no_shared_memory_gets_copies() {
    let qnn = Qnn::new(FakeModel::default(), false);
    (0..qnn.tensors()).for_each(|_| qnn.fake.fail(Call::MemRegister, 1000));
    let stand_in = StandIn::new();
    let mut runner = qnn.load(options(&stand_in, SharedBuffer::Prefer)).unwrap();
    assert_eq!(turn(&mut runner).unwrap(), qnn.model.greedy(&prompt(), TOKENS));
    // Each tensor was tried once, and not again at each step.
    assert_eq!((qnn.fake.calls(Call::MemRegister), qnn.registered()), (qnn.tensors(), 0));
    drop(runner);
    qnn.check_returned();
    stand_in.check_freed(1);
}

#[test]
fn a_deregistration_that_fails_is_logged_and_no_more() {
    let qnn = Qnn::new(FakeModel::default(), false);
    let stand_in = StandIn::new();
    let mut runner = qnn.load(options(&stand_in, SharedBuffer::Require)).unwrap();
    turn(&mut runner).unwrap();
    qnn.fake.fail(Call::MemDeRegister, 8001);
    drop(runner);
    assert_eq!(qnn.fake.live(), ["memory"]);
    assert_eq!(qnn.fake.calls(Call::MemRegister), qnn.fake.calls(Call::MemDeRegister));
    stand_in.check_freed(1);
}

#[test]
fn failed_steps_and_cancelled_turns_leave_nothing_behind() {
    let qnn = Qnn::new(FakeModel::default(), true);
    let right = qnn.model.greedy(&prompt(), TOKENS);
    for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        let stand_in = StandIn::new();
        let options = RunnerOptions { kv_updater, ..options(&stand_in, SharedBuffer::Require) };
        let mut runner = qnn.load(options.clone()).unwrap();
        qnn.fake.fail_later(Call::GraphExecute, 3, 6001);
        turn(&mut runner).unwrap_err();
        runner.reset();
        let mut heard = 0;
        let (fed, config) = (prompt(), GenerationConfig::default());
        let stopped = runner.generate(Prompt::Tokens(&fed), &config, &mut |_| {
            heard += 1;
            if heard == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(stopped.is_ok() && heard == 4);
        runner.reset();
        assert_eq!(turn(&mut runner).unwrap(), right);
        drop(runner);
        // One that fails in its first step, and is never run again.
        let mut runner = qnn.load(options).unwrap();
        qnn.fake.fail(Call::GraphExecute, 6001);
        turn(&mut runner).unwrap_err();
        drop(runner);
        qnn.check_returned();
        assert_eq!(qnn.fake.calls(Call::MemRegister), qnn.fake.calls(Call::MemDeRegister));
        stand_in.check_freed(2);
    }
}

#[test]
fn a_second_load_at_the_same_address_is_registered_anew() {
    let qnn = Qnn::new(FakeModel::default(), false);
    let right = qnn.model.greedy(&prompt(), TOKENS);
    let stand_in = StandIn::new();
    let len = 5000;
    let addresses = [(); 2].map(|()| stand_in.memory(len).unwrap().as_ptr().addr());
    assert_eq!(addresses[0], addresses[1], "the stand-in hands out the same address again");
    for load in 1..=3 {
        let mut runner = qnn.load(options(&stand_in, SharedBuffer::Require)).unwrap();
        assert_eq!(turn(&mut runner).unwrap(), right);
        assert_eq!(qnn.fake.calls(Call::MemRegister), load * qnn.tensors());
        drop(runner);
        qnn.check_returned();
    }
    stand_in.check_freed(5);
}

#[test]
fn another_arena_at_the_same_place_is_not_taken_for_the_one_before() {
    let qnn = Qnn::new(FakeModel { methods: vec![("kv_forward", 1)], ..FakeModel::default() }, false);
    let stand_in = StandIn::new();
    let mut module = qnn.module();
    let mut rows = Vec::new();
    for round in 0..4 {
        let memory = stand_in.memory(1 << 16).unwrap();
        let arena = if round == 2 { IoArena::new(1 << 16).unwrap() } else { IoArena::in_shared_memory(memory) };
        let Graph { method, mut arena, inputs, outputs } = Graph::new(&mut *module, "kv_forward", arena);
        let mask = arena.typed_mut::<u16>(inputs[1]);
        mask[mask.len() - 1] = u16::MAX;
        arena.typed_mut::<i32>(inputs[0])[0] = 7;
        module.execute(method, &mut arena).unwrap();
        rows.push(arena.bytes(outputs[0]).to_vec());
        assert_eq!(qnn.registered(), if round == 2 { 0 } else { qnn.tensors() });
    }
    assert!(rows[0].iter().any(|&byte| byte != 0) && rows.iter().all(|row| *row == rows[0]));
    drop(module);
    qnn.check_returned();
    stand_in.check_freed(4);
}

#[test]
fn one_handle_for_a_place_that_two_methods_share_is_deregistered_once() {
    let qnn = Qnn::new(FakeModel::default(), false);
    qnn.fake.set_one_handle_a_place(true);
    for kv_updater in [KvUpdater::SmartMask, KvUpdater::ShiftPointer] {
        let stand_in = StandIn::new();
        let mut runner = qnn.load(RunnerOptions { kv_updater, ..options(&stand_in, SharedBuffer::Require) }).unwrap();
        assert_eq!(turn(&mut runner).unwrap(), qnn.model.greedy(&prompt(), TOKENS));
        drop(runner);
        qnn.check_returned();
        stand_in.check_freed(1);
    }
    assert!(qnn.fake.calls(Call::MemDeRegister) < qnn.fake.calls(Call::MemRegister));
}

static REGISTERED_AT_FREE: Mutex<Option<usize>> = Mutex::new(None);
static SEEN: Mutex<Option<Arc<Qnn>>> = Mutex::new(None);

extern "C" fn count_registered() {
    *REGISTERED_AT_FREE.lock().unwrap() = SEEN.lock().unwrap().as_ref().map(|qnn| qnn.registered());
}

#[test]
fn memory_is_freed_after_its_last_handle() {
    let qnn = Arc::new(Qnn::new(FakeModel::default(), false));
    *SEEN.lock().unwrap() = Some(Arc::clone(&qnn));
    let stand_in = StandIn::new();
    stand_in.on_free(count_registered);
    let mut runner = qnn.load(options(&stand_in, SharedBuffer::Require)).unwrap();
    turn(&mut runner).unwrap();
    assert!(qnn.registered() > 0);
    drop(runner);
    *SEEN.lock().unwrap() = None;
    assert_eq!(*REGISTERED_AT_FREE.lock().unwrap(), Some(0));
    stand_in.check_freed(1);
}

#[test]
fn oc6_null_and_no_descriptor_are_typed_errors_or_the_heap_as_asked() {
    let qnn = Qnn::new(FakeModel::default(), false);
    let right = qnn.model.greedy(&prompt(), TOKENS);
    for (knob, status) in [(Knob::FailAlloc, Status::MemoryAllocationFailed), (Knob::FailFd, Status::OutOfResources)] {
        let stand_in = StandIn::new();
        stand_in.set(knob, 1);
        let error = qnn.load(options(&stand_in, SharedBuffer::Require)).err().unwrap();
        assert_eq!(error.status(), status);
        let found = error.find::<RpcMemError>().unwrap();
        match knob {
            Knob::FailAlloc => assert!(matches!(found, RpcMemError::NoMemory { .. })),
            _ => assert!(matches!(found, RpcMemError::NoDescriptor { fd: -1, .. })),
        }
        assert!(error.chain().contains("libcdsprpc.so"), "{error:?}");
        stand_in.set(knob, 1);
        let mut runner = qnn.load(options(&stand_in, SharedBuffer::Prefer)).unwrap();
        assert_eq!(turn(&mut runner).unwrap(), right);
        drop(runner);
        assert_eq!(qnn.fake.calls(Call::MemRegister), 0);
        stand_in.check_freed(stand_in.get(Knob::Allocs));
    }
    qnn.check_returned();
}

#[test]
fn oc6_blocks_are_zeroed_and_aligned_wherever_the_library_puts_them() {
    let stand_in = StandIn::new();
    for shift in [0, 1, 8, 63] {
        stand_in.set(Knob::Shift, shift);
        for len in [0, 1, 64, 5000] {
            let memory = stand_in.memory(len).unwrap();
            assert!(memory.as_ptr().addr().is_multiple_of(64) && memory.fd() >= 0);
            let start = memory.offset_of(memory.as_ptr(), len).unwrap();
            assert!(start < 64 && start + len <= memory.block_len());
            assert_eq!(memory.offset_of(memory.as_ptr().wrapping_add(len), 0), Some(start + len));
            assert_eq!(memory.offset_of(memory.as_ptr(), len + 1), None);
            assert_eq!(memory.offset_of(memory.as_ptr().wrapping_sub(1), 1), None);
            let arena = IoArena::in_shared_memory(memory);
            assert!(arena.bytes(IoSlice { offset: 0, len }).iter().all(|&byte| byte == 0));
        }
    }
    let error = stand_in.memory(i32::MAX as usize).unwrap_err();
    assert!(matches!(error, RpcMemError::TooLarge { .. }));
    assert!(stand_in.memory(usize::MAX).is_err());
    stand_in.check_freed(16);
}

#[test]
fn a_library_without_a_function_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = compile(dir.path(), &["-DWITHOUT_FD"]);
    // The directory does as well as the file.
    for named in [path.as_path(), dir.path()] {
        let error = RpcMem::load(Some(named)).unwrap_err();
        assert!(matches!(&error, RpcMemError::FunctionMissing { function: "rpcmem_to_fd", .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
#[ignore = "run by the_environment_names_the_library, in processes with environments of their own"]
fn child_says_what_it_loads() {
    match RpcMem::load(None) {
        Ok(library) => println!("loaded {}", library.path().display()),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn the_environment_names_the_library() {
    let stand_in = StandIn::new();
    let child = |name: &Path| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child_says_what_it_loads", "--ignored", "--nocapture"]);
        child.env("LLR_RPCMEM_LIB", name);
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    assert!(child(&stand_in.path).contains(&format!("loaded {}", stand_in.path.display())));
    let text = child(Path::new("nowhere"));
    assert!(text.contains("cannot be loaded") && text.contains("nowhere/libcdsprpc.so (LLR_RPCMEM_LIB)"), "{text}");
}
