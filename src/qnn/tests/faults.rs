//! Every QNN call fails once: the error is typed, nothing is left behind, and a second attempt works.

use super::{Call, init, small_model};
use crate::base::log::{self, Level};
use crate::error::{Error, Status};
use crate::pte::{Blob, CompileSpec};
use crate::qnn::fake::{self, Fake};
use crate::qnn::{
    BindingError, COMPILE_SPEC_KEY, CompileOptions, DelegateBlob, DelegateError, QnnBackend, QnnError, QnnOptions,
};
use crate::runtime::Delegate;
use crate::tensor::DType;
use parking_lot::Mutex;
use std::sync::Arc;

const BINARY: [u8; 8] = [0, 0, 0, 2, 9, 9, 9, 9];

fn call() -> Call {
    Call::new(&[(DType::I32, vec![1, 1]), (DType::F32, vec![1, 1, 4]), (DType::U8, vec![1, 6])])
}

fn specs() -> Vec<CompileSpec> {
    let options =
        CompileOptions { soc_model: Some(57), htp_arch: Some(75), vtcm_mb: Some(8), ..CompileOptions::default() };
    vec![CompileSpec { key: COMPILE_SPEC_KEY.into(), value: options.encode() }]
}

fn blob() -> Blob {
    Blob::from_vec(DelegateBlob::encode(1, &BINARY))
}

pub(super) fn load(backend: &QnnBackend) -> crate::Result<Box<dyn Delegate>> {
    init(backend, "kv_forward", 0, &blob(), &specs(), &call())
}

/// A fake with the small model, which answers tokens + mask, and a backend on it.
fn fake() -> (Fake, QnnBackend) {
    let fake = Fake::new();
    fake.set_model(|binary| (binary == BINARY).then(small_model));
    fake.set_executor(|graph, inputs, outputs| {
        assert_eq!(graph, "kv_forward");
        let [mask, tokens] = inputs else { panic!("two inputs") };
        outputs[0].fill(mask[0] + tokens[0]);
    });
    let options = QnnOptions { log_level: Level::Warning, ..QnnOptions::default() };
    let backend = QnnBackend::with_library(fake.library(), options);
    (fake, backend)
}

fn run(delegate: &mut dyn Delegate) -> crate::Result<Vec<u8>> {
    let mut call = call();
    call.bytes_mut(0)[0] = 40;
    call.bytes_mut(1)[0] = 2;
    call.run(delegate)?;
    Ok(call.bytes(2).to_vec())
}

fn qnn_error(error: &Error) -> &QnnError {
    error.find::<QnnError>().unwrap_or_else(|| panic!("no QnnError in {error:?}"))
}

#[test]
fn arguments_reach_their_tensors_and_types_are_told() {
    let (fake, backend) = fake();
    let mut delegate = load(&backend).unwrap();
    let retyped: Vec<_> = delegate.retyped_args().iter().map(|arg| (arg.arg, arg.dtype)).collect();
    assert_eq!(retyped, [(1, DType::U16), (2, DType::U8)]);
    assert_eq!(delegate.retyped_args()[0].encoding.unwrap().zero_point, 7);
    assert_eq!(run(&mut *delegate).unwrap(), [42; 6]);
    drop(delegate);
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
}

#[test]
fn each_call_that_fails_once_gives_a_typed_error_leaks_nothing_and_works_again() {
    use fake::Call::*;
    for (call, name) in [
        (LogCreate, "QnnLog_create"),
        (BackendCreate, "QnnBackend_create"),
        (DeviceCreate, "QnnDevice_create"),
        (ContextCreateFromBinary, "QnnContext_createFromBinary"),
        (GraphRetrieve, "QnnGraph_retrieve"),
        (GraphExecute, "QnnGraph_execute"),
        (SystemContextCreate, "QnnSystemContext_create"),
        (SystemContextGetMetaData, "QnnSystemContext_getMetaData"),
    ] {
        let (fake, backend) = fake();
        fake.fail(call, 1003);
        let error = load(&backend).and_then(|mut delegate| run(&mut *delegate)).unwrap_err();
        let found = qnn_error(&error);
        assert_eq!((found.call, found.number(), found.name), (name, 1003, Some("QNN_COMMON_ERROR_SYSTEM")));
        assert_eq!(error.status(), Status::BackendFailed);
        assert!(error.chain().contains("1003 (0x3eb)"), "{error:?}");
        assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]), "after {name}");
        let mut delegate = load(&backend).unwrap();
        assert_eq!(run(&mut *delegate).unwrap(), [42; 6]);
        drop(delegate);
        assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]), "after {name} and a second attempt");
    }
}

#[test]
fn a_free_that_fails_is_logged_and_no_more() {
    use fake::Call::*;
    for call in [ContextFree, DeviceFree, BackendFree, LogFree, SystemContextFree] {
        let (fake, backend) = fake();
        fake.fail(call, 1003);
        drop(load(&backend).unwrap());
        assert!(!fake.live().is_empty(), "the fake keeps what it did not free");
    }
}

#[test]
fn a_failed_execution_names_its_graph_and_leaves_the_delegate_usable() {
    let (fake, backend) = fake();
    let mut delegate = load(&backend).unwrap();
    fake.fail(fake::Call::GraphExecute, 6004);
    let error = run(&mut *delegate).unwrap_err();
    assert!(error.chain().contains("QNN_GRAPH_ERROR_INVALID_TENSOR"), "{error:?}");
    assert!(error.chain().contains("graph kv_forward"), "{error:?}");
    assert_eq!(run(&mut *delegate).unwrap(), [42; 6]);
}

#[test]
fn o7_device_error_14001_is_explained() {
    let (fake, backend) = fake();
    fake.fail(fake::Call::DeviceCreate, 14001);
    let error = load(&backend).err().unwrap();
    let text = error.chain();
    for words in ["14001", "0x36b1", "QNN_DEVICE_ERROR_INVALID_CONFIG", "ADSP_LIBRARY_PATH", "unsigned", "SM8650 (57)"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
}

#[test]
fn o8_log_lines_reach_the_sink_in_order_from_any_thread() {
    let (fake, backend) = fake();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&lines);
    let sink = move |level, line: &str| heard.lock().push((level, line.to_owned()));
    log::set_sink(Some((Level::Warning, Arc::new(sink))));
    let spoken = [
        (Level::Error, "DspTransport.openSession qnn_open failed, 0x80000416"),
        (Level::Warning, "100% odd: %s %n"),
        (Level::Info, "nobody asked for this one"),
        (Level::Error, "Unknown rpc status 0x16\n"),
    ];
    fake.log_at(fake::Call::DeviceCreate, &spoken);
    fake.fail(fake::Call::DeviceCreate, 4000);
    let error = load(&backend).err().unwrap();
    log::set_sink(None);
    assert_eq!(qnn_error(&error).number(), 4000);
    // Other tests of the process may log meanwhile.
    let ours = |line: &str| spoken.iter().any(|(_, text)| line.contains(text.trim_end()));
    let heard: Vec<_> = lines.lock().iter().filter(|(_, line)| ours(line)).cloned().collect();
    let expected = [
        (Level::Error, "QNN: DspTransport.openSession qnn_open failed, 0x80000416"),
        (Level::Warning, "QNN: 100% odd: %s %n"),
        (Level::Error, "QNN: Unknown rpc status 0x16"),
    ];
    assert_eq!(heard, expected.map(|(level, line)| (level, line.to_owned())));
}

#[test]
fn o9_error_5000_names_both_sides() {
    let (fake, backend) = fake();
    fake.fail(fake::Call::ContextCreateFromBinary, 5000);
    let error = load(&backend).err().unwrap();
    assert_eq!(error.status(), Status::DelegateInvalidCompatibility);
    let text = error.chain();
    for words in ["5000", "older than the model", "v2.49.40.fake", "2.38.0", "v2.37.0", "2.27.0"] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn o10_error_5005_names_the_soc_of_the_compile_spec() {
    let (fake, backend) = fake();
    fake.fail(fake::Call::ContextCreateFromBinary, 5005);
    let error = load(&backend).err().unwrap();
    assert_eq!(error.status(), Status::DelegateInvalidCompatibility);
    assert!(error.chain().contains("compiled for SM8650 (57), V75, 8 MB VTCM"), "{error:?}");
}

#[test]
fn o11_bytes_that_libqnnsystem_refuses_are_explained() {
    let (_fake, backend) = fake();
    let foreign = Blob::from_vec(DelegateBlob::encode(1, &[0, 0, 0, 2]));
    let error = init(&backend, "kv_forward", 0, &foreign, &[], &call()).err().unwrap();
    assert_eq!(error.status(), Status::DelegateInvalidCompatibility);
    assert!(error.chain().contains("30010") && error.chain().contains("another backend"), "{error:?}");
}

#[test]
fn o12_blobs_that_are_none_are_refused_before_any_call() {
    let (fake, backend) = fake();
    for bytes in [vec![1, 2, 3], vec![]] {
        let error = init(&backend, "kv_forward", 0, &Blob::from_vec(bytes), &[], &call()).err().unwrap();
        assert_eq!(error.status(), Status::InvalidProgram);
    }
    let dlc = init(&backend, "kv_forward", 0, &Blob::from_vec(b"PK\x03\x04".to_vec()), &[], &call()).err().unwrap();
    assert_eq!((dlc.status(), dlc.find()), (Status::NotSupported, Some(&DelegateError::Dlc)));
    assert_eq!(fake.calls(fake::Call::SystemContextCreate), 0);
}

#[test]
fn o13_out_of_memory_on_shard_3_of_4_releases_the_others() {
    let (fake, backend) = fake();
    let shards: Vec<Blob> = (1..=4).map(|n| Blob::from_vec(DelegateBlob::encode(n, &BINARY))).collect();
    let load_all = || -> crate::Result<Vec<_>> {
        let shards = shards.iter().enumerate();
        shards.map(|(index, shard)| init(&backend, "kv_forward", index, shard, &specs(), &call())).collect()
    };
    fake.fail_later(fake::Call::ContextCreateFromBinary, 2, 1002);
    let error = load_all().err().unwrap();
    assert_eq!(error.status(), Status::OutOfResources);
    for words in ["delegate (shard) 2", "8 bytes", "num_sharding", "address space"] {
        assert!(error.chain().contains(words), "{words} in {error:?}");
    }
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
    let delegates = load_all().unwrap();
    assert_eq!(fake.live().iter().filter(|kind| **kind == "context").count(), 4);
    drop(delegates);
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
}

#[test]
fn delegates_of_the_same_blob_share_a_context_and_the_last_one_frees_it() {
    let (fake, backend) = fake();
    let blob = blob();
    let copy = Blob::from_vec(blob.to_vec());
    let other = Blob::from_vec(DelegateBlob::encode(2, &BINARY));
    let load = |blob| init(&backend, "kv_forward", 0, blob, &specs(), &call()).unwrap();
    let delegates = [load(&blob), load(&blob), load(&copy), load(&other)];
    assert_eq!(fake.calls(fake::Call::ContextCreateFromBinary), 2);
    assert_eq!(fake.calls(fake::Call::DeviceCreate), 1);
    let [first, second, third, fourth] = delegates;
    drop((first, third, fourth));
    assert_eq!(fake.live(), ["log", "backend", "device", "context", "graph", "graph", "graph"]);
    drop(second);
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
}

#[test]
fn unusable_buffers_are_refused_before_the_library_sees_them() {
    let (fake, backend) = fake();
    let mut delegate = load(&backend).unwrap();
    let mut short = Call::new(&[(DType::I32, vec![1, 1]), (DType::U8, vec![7]), (DType::U8, vec![1, 6])]);
    let error = short.run(&mut *delegate).unwrap_err();
    assert_eq!(error.status(), Status::InvalidState);
    assert!(
        error.chain().contains("argument 1 of the QNN delegate has 7 bytes bound to it, 8 are needed"),
        "{error:?}"
    );
    let mut few = call();
    few.args.pop();
    assert_eq!(few.run(&mut *delegate).unwrap_err().status(), Status::InvalidProgram);
    let mut no_tensor = call();
    no_tensor.values[2] = crate::runtime::Value::Int(1);
    let error = no_tensor.run(&mut *delegate).unwrap_err();
    assert_eq!(error.find(), Some(&BindingError::NoTensor { arg: 2 }));
    let mut unbound = call();
    unbound.values[0] =
        crate::runtime::Value::Tensor(crate::runtime::Tensor::unbound(DType::I32, vec![1, 1], vec![0, 1]));
    assert!(unbound.run(&mut *delegate).unwrap_err().chain().contains("no memory bound"));
    assert_eq!(fake.calls(fake::Call::GraphExecute), 0);
}

#[test]
fn a_method_without_graph_and_a_foreign_backend_are_typed_errors() {
    let (fake, backend) = fake();
    fake.set_model(|_| {
        let mut model = small_model();
        model.graphs.push(crate::qnn::GraphInfo { name: "other".into(), ..model.graphs[0].clone() });
        Some(model)
    });
    let error = init(&backend, "forward_2", 0, &blob(), &[], &call()).err().unwrap();
    assert!(error.chain().contains("no graph for method forward_2, only [kv_forward, other]"), "{error:?}");
    fake.set_model(|_| Some(crate::qnn::BinaryInfo { backend_id: 4, ..small_model() }));
    let error = load(&backend).err().unwrap();
    assert_eq!(error.find(), Some(&DelegateError::OtherBackend { found: 4 }));
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
}
