//! Every QNN call fails once, on the real libraries, the first time and later ones: a typed error that names the call and
//! its code, nothing lost, and the next attempt gives the right tokens.

use crate::cdsprpc::{Knob, StandIn};
use crate::common;
use crate::host::*;
use crate::lines::Lines;
use crate::qnn_shim::{FUNCTIONS, Function, Shim};
use llama_runner::capi::decoding_options::*;
use llama_runner::capi::options::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::runner_facts::*;
use llama_runner::capi::status::llr_status;
use std::collections::BTreeSet;
use std::ffi::c_char;
use std::path::Path;
use std::ptr;

/// QNN_COMMON_ERROR_SYSTEM.
const CODE: u64 = 1003;
const TOKENS: i64 = 2;
const ERROR_GET_MESSAGE: Function = FUNCTIONS[18];

/// A runner on the shim, its buffers in the stand-in's memory.
fn host(shim: &Shim, stand_in: &StandIn, shared_buffer: llr_shared_buffer) -> Host {
    let mut runner = ptr::null_mut();
    let set = |options, setter: unsafe extern "C" fn(_, *const c_char, usize) -> llr_status, path: &Path| {
        let path = path.to_str().unwrap();
        // SAFETY: live options and a live text.
        assert_eq!(unsafe { setter(options, path.as_ptr().cast(), path.len()) }, llr_status::Ok, "{}", message());
    };
    // SAFETY: live options, a pointer to write to.
    unsafe {
        let options = llr_runner_options_new();
        set(options, llr_runner_options_set_model_path, &common::model("qnn/qnn_s260k_hybrid_ar16.pte"));
        set(options, llr_runner_options_set_tokenizer_path, &common::model("tok512.et.bin"));
        set(options, llr_runner_options_set_qnn_lib_dir, &shim.dir());
        set(options, llr_runner_options_set_rpcmem_library, &stand_in.path);
        llr_runner_options_set_shared_buffer(options, shared_buffer as i32);
        assert_eq!(llr_runner_create(options, &mut runner), llr_status::Ok, "{}", message());
        llr_runner_options_free(options);
    }
    Host(runner)
}

/// Loads the runner and runs turns, and says where it came to an error, and to which.
fn run(host: &Host, turns: &[&'static str]) -> Result<(), (&'static str, llr_status, String)> {
    let right = &recorded().0[..TOKENS as usize];
    // SAFETY: live.
    match unsafe { llr_runner_load(host.0) } {
        llr_status::Ok => {}
        status => return Err(("load", status, message())),
    }
    for &stage in turns {
        let answer = &mut |_, _| CONTINUE;
        let (status, seen) = host.run(Ok(PROMPT), Turn { seq_len: 0, max_new_tokens: TOKENS, answer });
        if status != llr_status::Ok {
            return Err((stage, status, message()));
        }
        assert_eq!(seen.tokens, right);
        host.reset();
    }
    Ok(())
}

const TWO: [&str; 2] = ["first turn", "second turn"];

/// What a failed call must come to. Calls that free, and one that only informs, must not be seen but in the log.
fn expected(function: Function) -> Option<llr_status> {
    match function.1 {
        "QnnBackend_getBuildId" => None,
        name if name.ends_with("_free") || name.ends_with("_deRegister") => None,
        name if name.ends_with("getProviders") => Some(llr_status::LibraryUnavailable),
        _ => Some(llr_status::BackendFailed),
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn every_qnn_call_that_fails_once_is_told_and_nothing_is_lost() {
    let (shim, stand_in) = (Shim::new(), StandIn::new());
    let lines = Lines::listen();
    let counts = || FUNCTIONS.map(|function| shim.calls(function));
    let before = counts();
    run(&host(&shim, &stand_in, llr_shared_buffer::Require), &TWO).unwrap();
    shim.check_clean();
    let calls = counts();
    let mut runners = 1;
    for function in FUNCTIONS.into_iter().filter(|&function| function != ERROR_GET_MESSAGE) {
        let made = calls[function.0 as usize] - before[function.0 as usize];
        assert!(made > 0, "{} is never called", function.1);
        for nth in BTreeSet::from([1, 2.min(made), (made + 1) / 2, made]) {
            lines.clear();
            let host = host(&shim, &stand_in, llr_shared_buffer::Require);
            runners += 1;
            shim.fail(function, nth, CODE);
            // As far as the call comes: the simulator takes its time for each step.
            let turns: &[_] = match function.1 {
                "QnnMem_register" | "QnnGraph_execute" => &TWO,
                "QnnMem_deRegister" => &TWO[..1],
                _ => &[],
            };
            let outcome = run(&host, turns);
            let what = format!("call {nth} of {made} of {}: {outcome:?}", function.1);
            match (outcome, expected(function)) {
                (Ok(()), None) => {}
                (Err((stage, status, text)), Some(wanted)) => {
                    assert_eq!(status, wanted, "{what}");
                    assert!(text.contains(function.1) && text.contains(&CODE.to_string()), "{what}");
                    // SAFETY: live.
                    assert_eq!(unsafe { llr_runner_is_loaded(host.0) }, stage != "load", "{what}");
                    if stage != "load" {
                        let (again, seen) = host.with_answer(&mut |_, _| CONTINUE);
                        assert_eq!((again, seen.tokens.len()), (llr_status::InvalidState, 0), "{what}");
                        host.reset();
                    }
                    assert_eq!(run(&host, &TWO[..1]), Ok(()), "{what}");
                }
                _ => panic!("{what}"),
            }
            drop(host);
            let quiet = expected(function).is_some() || function.1 == "QnnBackend_getBuildId";
            assert_eq!(lines.have(&format!("{} failed with {CODE}", function.1)), !quiet, "{what}");
            shim.check_clean();
            stand_in.check_freed(stand_in.get(Knob::Allocs));
        }
    }
    assert!(runners > FUNCTIONS.len());
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn a_refused_registration_is_copied_where_that_is_allowed_and_an_error_without_words_is_told() {
    let (shim, stand_in) = (Shim::new(), StandIn::new());
    let [device_create, mem_register] = [FUNCTIONS[8], FUNCTIONS[11]];
    let host = host(&shim, &stand_in, llr_shared_buffer::Prefer);
    shim.fail(device_create, 1, CODE);
    shim.fail(ERROR_GET_MESSAGE, 1, CODE);
    let (stage, status, text) = run(&host, &[]).unwrap_err();
    assert_eq!((stage, status), ("load", llr_status::BackendFailed));
    assert!(text.contains("QnnDevice_create failed with 1003 (0x3eb) QNN_COMMON_ERROR_SYSTEM"), "{text}");
    shim.fail(mem_register, 2, 8003);
    assert_eq!(run(&host, &TWO), Ok(()));
    drop(host);
    shim.check_clean();
    stand_in.check_freed(1);
}
