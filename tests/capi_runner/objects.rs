//! What is told besides tokens: loading's progress, statistics, memory, and what is in a program; and every callback
//! failing at every place.

use crate::common;
use crate::host::*;
use crate::steps::filled;
use llama_runner::capi::decoding_options::llr_eval_mode;
use llama_runner::capi::load_progress::*;
use llama_runner::capi::memory::*;
use llama_runner::capi::program::*;
use llama_runner::capi::runner::*;
use llama_runner::capi::runner_facts::*;
use llama_runner::capi::stats::*;
use llama_runner::capi::status::llr_status;
use serde_json::Value;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// The JSON that a call writes.
fn json(call: impl FnMut(*mut c_char, usize, *mut usize) -> llr_status) -> Value {
    let text: Vec<u8> = filled(call).into_iter().map(|c: c_char| c as u8).collect();
    serde_json::from_str(CStr::from_bytes_with_nul(&text).unwrap().to_str().unwrap()).unwrap()
}

/// What a progress callback saw, and what it answers at which step.
struct Steps {
    seen: Vec<(i32, f32, String)>,
    answer_at: usize,
    answer: i32,
}

unsafe extern "C" fn on_progress(progress: *const llr_load_progress, user_data: *mut c_void) -> i32 {
    // SAFETY: the library hands back the `Steps` of `load`, and a live progress.
    unsafe {
        let steps = &mut *user_data.cast::<Steps>();
        let detail = CStr::from_ptr(llr_load_progress_detail(progress)).to_str().unwrap().to_owned();
        steps.seen.push((llr_load_progress_stage(progress) as i32, llr_load_progress_fraction(progress), detail));
        if steps.seen.len() == steps.answer_at { steps.answer } else { CONTINUE }
    }
}

fn load(host: &Host, answer_at: usize, answer: i32) -> (llr_status, Steps) {
    let mut steps = Steps { seen: Vec::new(), answer_at, answer };
    let user_data = ptr::from_mut(&mut steps).cast();
    // SAFETY: live until the call returns.
    let status = unsafe { llr_runner_load_with_progress(host.0, Some(on_progress), user_data) };
    (status, steps)
}

#[test]
fn loading_tells_its_steps_and_can_be_called_off_at_each() {
    let host = Host::without_model();
    let (status, steps) = load(&host, 0, CONTINUE);
    assert_eq!(status, llr_status::Ok, "{}", message());
    let stages: Vec<i32> = steps.seen.iter().map(|(stage, ..)| *stage).collect();
    assert_eq!(stages, [1, 2, 3, 4, 5]);
    assert!(steps.seen.is_sorted_by_key(|(_, fraction, _)| *fraction));
    assert_eq!((steps.seen[0].1, steps.seen[4].1, steps.seen[2].2.as_str()), (0.0, 1.0, "forward"));
    assert!(load(&host, 0, CONTINUE).1.seen.is_empty(), "it is loaded already");
    let want = host.tokens(3).tokens;

    let host = Host::without_model();
    for at in 1..=5 {
        assert_eq!(load(&host, at, STOP).0, llr_status::Cancelled, "step {at}");
        assert!(message().contains("called off"), "{}", message());
        assert_eq!(load(&host, at, 7).0, llr_status::InvalidArgument);
        assert!(message().contains("answered 7"), "{}", message());
        // SAFETY: live.
        assert!(!unsafe { llr_runner_is_loaded(host.0) });
    }
    // SAFETY: live; no callback to be called.
    assert_eq!(unsafe { llr_runner_load_with_progress(host.0, None, ptr::null_mut()) }, llr_status::Ok);
    assert_eq!(host.tokens(3).tokens, want);
}

/// What a callback does with the runner that is loading, at its second step.
struct Meddler {
    runner: *mut llr_runner,
    meddle: unsafe extern "C" fn(*mut llr_runner),
    seen: usize,
}

unsafe extern "C" fn meddle(_: *const llr_load_progress, user_data: *mut c_void) -> i32 {
    // SAFETY: the library hands back the `Meddler`.
    let meddler = unsafe { &mut *user_data.cast::<Meddler>() };
    meddler.seen += 1;
    if meddler.seen == 2 {
        // SAFETY: the runner is live, and a callback may do this.
        unsafe { (meddler.meddle)(meddler.runner) };
    }
    CONTINUE
}

unsafe extern "C" fn cancel(runner: *mut llr_runner) {
    // SAFETY: live.
    assert_eq!(unsafe { llr_runner_cancel(runner) }, llr_status::Ok);
}

unsafe extern "C" fn free(runner: *mut llr_runner) {
    // SAFETY: live, and not used any more by the test.
    unsafe { llr_runner_free(runner) };
}

#[test]
fn cancelling_or_freeing_a_runner_ends_its_loading() {
    for (change, freed) in [(cancel as unsafe extern "C" fn(*mut llr_runner), false), (free, true)] {
        let host = std::mem::ManuallyDrop::new(Host::without_model());
        let mut meddler = Meddler { runner: host.0, meddle: change, seen: 0 };
        let user_data = ptr::from_mut(&mut meddler).cast();
        // SAFETY: live until the call returns.
        let status = unsafe { llr_runner_load_with_progress(host.0, Some(meddle), user_data) };
        assert_eq!((status, meddler.seen), (llr_status::Cancelled, 2));
        if !freed {
            assert_eq!(host.tokens(3).tokens.len(), 3, "what was cancelled is over");
            drop(std::mem::ManuallyDrop::into_inner(host));
        }
    }
}

#[test]
fn a_stream_that_stops_or_fails_at_any_chunk_leaves_the_runner_usable() {
    let host = Host::without_model();
    let want = host.tokens(5);
    for at in 1..=5 {
        for (answer, status) in [(STOP, llr_status::Ok), (9, llr_status::InvalidArgument)] {
            host.reset();
            let mut turn = |_, count| if count == at { answer } else { CONTINUE };
            let (found, seen) = host.with_answer(&mut turn);
            assert_eq!((found, seen.tokens.as_slice()), (status, &want.tokens[..at]));
            host.reset();
            assert_eq!(host.tokens(5), want, "after {answer} at {at}");
        }
    }
}

#[test]
fn statistics_are_kept_and_come_as_json_too() {
    let host = Host::without_model();
    let mut stats = ptr::null_mut();
    // SAFETY: live until freed.
    unsafe {
        assert_eq!(llr_stats_create(host.0, &mut stats), llr_status::InvalidState);
        assert!(stats.is_null() && message().contains("no turn"), "{}", message());
        host.tokens(6);
        assert_eq!(llr_stats_create(host.0, &mut stats), llr_status::Ok, "{}", message());
        let value = json(|buffer, capacity, count| llr_stats_to_json(stats, buffer, capacity, count));
        assert_eq!(value["generated_tokens"], 5);
        assert_eq!(value["prompt_tokens"], llr_stats_num_prompt_tokens(stats));
        assert_eq!(value["inference_end_ms"], llr_stats_inference_end_ms(stats));
        assert_eq!(value["SCALING_FACTOR_UNITS_PER_SECOND"], 1000);
        llr_stats_free(stats);
        llr_stats_free(ptr::null_mut());
        assert_eq!(llr_stats_create(ptr::null(), &mut stats), llr_status::InvalidArgument);
        assert_eq!(llr_stats_to_json(ptr::null(), ptr::null_mut(), 0, ptr::null_mut()), llr_status::InvalidArgument);
    }
}

#[test]
fn memory_is_told_by_getters_and_as_json_alike() {
    let host = Host::without_model();
    host.tokens(2);
    let mut memory = ptr::null_mut();
    // SAFETY: live until freed.
    unsafe {
        assert_eq!(llr_memory_create(host.0, &mut memory), llr_status::Ok, "{}", message());
        let value = json(|buffer, capacity, count| llr_memory_to_json(memory, buffer, capacity, count));
        let getters = [
            ("program_bytes", llr_memory_program_bytes as unsafe extern "C" fn(_) -> _),
            ("data_bytes", llr_memory_data_bytes),
            ("planned_bytes", llr_memory_planned_bytes),
            ("io_bytes", llr_memory_io_bytes),
            ("kv_cache_bytes", llr_memory_kv_cache_bytes),
            ("weight_bytes", llr_memory_weight_bytes),
            ("scratch_bytes", llr_memory_scratch_bytes),
            ("total_bytes", llr_memory_total_bytes),
            ("process_peak_bytes", llr_memory_process_peak_bytes),
        ];
        for (key, getter) in getters {
            assert_eq!(value[key], getter(memory), "{key}");
            assert_eq!(getter(ptr::null()), 0);
            assert!(key == "data_bytes" || getter(memory) > 0, "{key}");
        }
        assert!(!llr_memory_is_program_mapped(memory), "it is a part of the library");
        assert!(llr_memory_kv_cache_bytes(memory) <= llr_memory_planned_bytes(memory));
        // Keys and values of eight layers or fewer, 256 positions or more: what is named, not all that is planned.
        assert!(llr_memory_kv_cache_bytes(memory) < llr_memory_planned_bytes(memory));
        assert!(llr_runner_cpu_threads(host.0) >= 1);
        llr_memory_free(memory);
        llr_memory_free(ptr::null_mut());
        assert_eq!(llr_memory_create(ptr::null_mut(), &mut memory), llr_status::InvalidArgument);
    }
}

struct Program(*mut llr_program);

impl Program {
    fn new(path: Option<&str>) -> Self {
        let mut program = ptr::null_mut();
        let (at, len) = path.map_or((ptr::null(), 0), |path| (path.as_ptr().cast(), path.len()));
        // SAFETY: a live text or none, a pointer to write to.
        assert_eq!(unsafe { llr_program_create(at, len, &mut program) }, llr_status::Ok, "{}", message());
        Self(program)
    }

    fn json(&self) -> Value {
        // SAFETY: live.
        json(|buffer, capacity, count| unsafe { llr_program_to_json(self.0, buffer, capacity, count) })
    }

    fn constant(&self, name: &str) -> (llr_status, i64) {
        let mut value = -7;
        // SAFETY: live.
        (unsafe { llr_program_constant_int(self.0, name.as_ptr().cast(), name.len(), &mut value) }, value)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the one free.
        unsafe { llr_program_free(self.0) }
    }
}

/// A name that a getter gives with its length.
fn name(get: impl FnOnce(*mut usize) -> *const c_char) -> Option<String> {
    let mut len = 77;
    let at = get(&mut len);
    // SAFETY: the getters give NULL or so many bytes.
    let bytes = (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) });
    assert!(bytes.is_some() || len == 0);
    bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

#[test]
fn the_built_in_program_is_told_without_running_it() {
    let program = Program::new(None);
    let host = Host::without_model();
    host.load();
    // SAFETY: live.
    unsafe {
        assert_eq!(llr_program_kind(program.0), llr_model_kind::Forward);
        assert_eq!(llr_program_context_length(program.0), llr_runner_context_length(host.0));
        assert_eq!(llr_program_vocabulary_size(program.0), llr_runner_vocabulary_size(host.0));
        assert_eq!(program.constant("get_n_layers"), (llr_status::Ok, llr_program_layer_count(program.0) as i64));
        assert_eq!(llr_program_kv_bits(program.0), 32);
        assert!(!llr_program_allows_eval_mode(program.0, llr_eval_mode::Kv as i32), "it has no modes");
        assert_eq!(llr_program_method_count(program.0), 1);
        assert_eq!(name(|len| llr_program_method_name(program.0, 0, len)).as_deref(), Some("forward"));
        assert_eq!(name(|len| llr_program_method_name(program.0, 1, len)), None);
        let (input, output) = (llr_side::Input as i32, llr_side::Output as i32);
        assert_eq!(llr_program_tensor_count(program.0, 0, input), 2);
        assert_eq!((llr_program_tensor_count(program.0, 0, 9), llr_program_tensor_count(program.0, 1, input)), (0, 0));
        assert_eq!(name(|len| llr_program_tensor_dtype(program.0, 0, input, 0, len)).as_deref(), Some("i64"));
        assert_eq!(name(|len| llr_program_tensor_dtype(program.0, 0, output, 0, len)).as_deref(), Some("f32"));
        assert_eq!(name(|len| llr_program_tensor_dtype(program.0, 0, output, 5, len)), None);
        let dims =
            filled(|dims, capacity, count| llr_program_tensor_dims(program.0, 0, output, 0, dims, capacity, count));
        assert_eq!(dims.last(), Some(&llr_program_vocabulary_size(program.0)));
        let mut count = 0;
        let none = llr_program_tensor_dims(program.0, 0, input, 9, ptr::null_mut(), 0, &mut count);
        assert_eq!(none, llr_status::NotFound);
        let unknown = llr_program_tensor_dims(program.0, 0, 9, 0, ptr::null_mut(), 0, &mut count);
        assert_eq!(unknown, llr_status::InvalidArgument);
        assert_eq!(llr_program_backend_count(program.0), 1);
        assert_eq!(name(|len| llr_program_backend_name(program.0, 0, len)).as_deref(), Some("XnnpackBackend"));
    }
    assert_eq!(program.constant("no_such"), (llr_status::NotFound, -7));
    assert_eq!(program.constant("").0, llr_status::InvalidArgument);
    let value = program.json();
    assert_eq!(value["summary"]["kind"], "forward");
    assert_eq!(value["methods"][0]["name"], "forward");
    assert_eq!(value["backends"][0], "XnnpackBackend");
    assert!(!value["states"].as_array().unwrap().is_empty());
}

#[test]
fn a_file_that_is_no_program_and_null_are_refused() {
    let mut program = ptr::null_mut();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"no program at all, only text").unwrap();
    let path = file.path().to_str().unwrap();
    // SAFETY: live texts, or NULL where it is refused.
    unsafe {
        for (at, len, status) in [
            (path.as_ptr(), path.len(), llr_status::InvalidProgram),
            (c"/no/such.pte".as_ptr().cast(), 12, llr_status::AccessFailed),
            (ptr::null(), 3, llr_status::InvalidArgument),
            (path.as_ptr(), 0, llr_status::InvalidArgument),
        ] {
            assert_eq!(llr_program_create(at.cast(), len, &mut program), status, "{}", message());
        }
        assert!(program.is_null());
        assert_eq!(llr_program_create(ptr::null(), 0, ptr::null_mut()), llr_status::InvalidArgument);
        let none = ptr::null();
        assert_eq!((llr_program_kind(none), llr_program_method_count(none)), (llr_model_kind::Unknown, 0));
        assert_eq!(llr_program_to_json(none, ptr::null_mut(), 0, ptr::null_mut()), llr_status::InvalidArgument);
        llr_program_free(ptr::null_mut());
    }
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn static_programs_are_told_without_qnn() {
    let path = |file: &str| common::model("qnn").join(file).to_str().unwrap().to_owned();
    for (file, modes, kv_bits) in [
        ("ec8f0994ff.pte", [true, true, false], 8),
        ("00e3f99401.pte", [true, true, false], 0),
        ("qnn_s260k_lookahead_ar32.pte", [true, true, true], 8),
        ("qnn_s260k_hybrid_ar32_kv16.pte", [true, true, false], 16),
        ("qnn_s260k_kv.pte", [true, false, false], 8),
    ] {
        let program = Program::new(Some(&path(file)));
        // SAFETY: live.
        unsafe {
            assert_eq!(llr_program_kind(program.0), llr_model_kind::Static, "{file}");
            assert_eq!((llr_program_context_length(program.0), llr_program_vocabulary_size(program.0)), (128, 512));
            assert_eq!((llr_program_layer_count(program.0), llr_program_kv_bits(program.0)), (5, kv_bits), "{file}");
            let found = [0, 1, 2].map(|mode| llr_program_allows_eval_mode(program.0, mode));
            assert_eq!(found, modes, "{file}");
            assert!(!llr_program_allows_eval_mode(program.0, 3) && !llr_program_allows_eval_mode(program.0, -1));
            assert_eq!(name(|len| llr_program_backend_name(program.0, 0, len)).as_deref(), Some("QnnBackend"));
        }
        assert_eq!(program.json()["summary"]["kind"], "static");
    }
}
