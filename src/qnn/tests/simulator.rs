//! Real files on the real library's x86 simulator.

use super::{Call, init};
use crate::base::env;
use crate::base::fnv::fnv1a64;
use crate::pte::{Blob, Storage};
use crate::qnn::fake::Fake;
use crate::qnn::{BlobInfo, GraphInfo, Layout, LibraryOptions, QnnBackend, QnnError, QnnOptions, Quantization};
use crate::runtime::Delegate;
use crate::tensor::DType;
use std::path::{Path, PathBuf};

fn models() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/models/qnn");
    let mut models: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    models.sort();
    models
}

fn model(name: &str) -> PathBuf {
    models().into_iter().find(|path| path.file_name().unwrap() == name).unwrap()
}

/// The QNN blobs of a program, found by their magic; the header of 2025 is the one with a binary at byte 20.
fn blobs(path: &Path) -> Vec<Blob> {
    let storage = Storage::map(path).unwrap();
    let mut blobs = Vec::new();
    for at in (0..storage.len() - 256).step_by(16) {
        if storage[at..at + 4] != [0xcd, 0xab, 0x78, 0x56] {
            continue;
        }
        let size = u64::from_le_bytes(storage[at + 12..at + 20].try_into().unwrap()) as usize;
        let header = if storage[at + 20..at + 24] == [0, 0, 0, 2] { 20 } else { 256 };
        blobs.extend(Blob::new(&storage, at..at + header + size));
    }
    assert!(!blobs.is_empty(), "no QNN blob in {}", path.display());
    blobs
}

fn backend(lib_dir: &Path) -> QnnBackend {
    let library = LibraryOptions { path: Some(lib_dir.to_path_buf()), ..LibraryOptions::default() };
    QnnBackend::new(QnnOptions { library, ..QnnOptions::default() })
}

/// Loads every graph of every blob of every model, as programs that say the real types do, and as those that say float.
/// Models that are newer than the library must say so. Gives the number of blobs loaded.
fn load_all(backend: &QnnBackend) -> usize {
    let library = backend.library().unwrap();
    let mut loaded = 0;
    for path in models() {
        for (index, blob) in blobs(&path).iter().enumerate() {
            let BlobInfo { binary, .. } = backend.describe(blob).unwrap();
            if binary.core > library.info().core {
                let graph = &binary.graphs[0];
                let error = init(backend, &graph.name, index, blob, &[], &Call::of_graph(graph, None)).err().unwrap();
                assert_eq!(error.find::<QnnError>().unwrap().number(), 5000);
                assert!(error.chain().contains("the library is older than the model"), "{error:?}");
                continue;
            }
            loaded += 1;
            for dtype in [None, Some(DType::F32)] {
                let delegates: Vec<Box<dyn Delegate>> = binary
                    .graphs
                    .iter()
                    .map(|graph| {
                        let call = Call::of_graph(graph, dtype);
                        init(backend, &graph.name, index, blob, &[], &call).unwrap()
                    })
                    .collect();
                let per_head = path.file_name().unwrap().to_str().unwrap().starts_with("00e3f99401");
                let retyped = delegates[0].retyped_args().len();
                let quantized = if per_head { 41 + 41 } else { 11 + 11 };
                let sharded = path.to_str().unwrap().contains("shard2");
                assert!(sharded || retyped == quantized || retyped == quantized + 1, "{}: {retyped}", path.display());
            }
        }
    }
    loaded
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn all_models_load() {
    assert!(models().len() >= 18);
    assert!(load_all(&backend(&sdk_dir())) >= 18);
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn_sdks)), ignore = "needs LLR_QNN_SDK_DIRS: libQnnHtp.so of several SDKs")]
fn all_models_load_on_every_sdk() {
    let dirs = std::env::var_os("LLR_QNN_SDK_DIRS").unwrap();
    for dir in std::env::split_paths(&dirs) {
        let backend = backend(&dir);
        assert!(load_all(&backend) >= 11, "{}", dir.display());
        let library = backend.library().unwrap();
        let info = library.info();
        assert!(info.path.starts_with(dir.canonicalize().unwrap()) || info.path.starts_with(&dir), "{info}");
        assert!(info.build_id.starts_with("v2."), "{info}");
    }
}

fn sdk_dir() -> PathBuf {
    env::qnn_lib_dir().unwrap()
}

/// The argument that the input whose name holds `part` is.
fn arg(graph: &GraphInfo, part: &str) -> usize {
    let input = graph.inputs.iter().find(|input| input.name.contains(part)).unwrap();
    input.name.split('_').nth(1).unwrap().parse().unwrap()
}

/// Sets token 1 at position 0 with nothing before it.
fn first_step(graph: &GraphInfo, call: &mut Call) {
    call.bytes_mut(arg(graph, "tokens"))[0] = 1;
    let mask = call.bytes_mut(arg(graph, "atten_mask"));
    let current = mask.len() - 2;
    mask[current..].fill(0xff);
}

const FIRST_ROW: u64 = 0xe3bf_10c9_89c7_db02;

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn first_step_gives_the_recorded_logits() {
    let backend = backend(&sdk_dir());
    let blob = &blobs(&model("ec8f0994ff.pte"))[0];
    let binary = backend.describe(blob).unwrap().binary;
    let graph = binary.graphs.iter().find(|graph| graph.name == "kv_forward").unwrap();
    let mut call = Call::of_graph(graph, None);
    first_step(graph, &mut call);
    let mut delegate = init(&backend, "kv_forward", 0, blob, &[], &call).unwrap();
    for _ in 0..2 {
        call.run(&mut *delegate).unwrap();
        assert_eq!(fnv1a64(call.bytes(call.args.len() - 1)), FIRST_ROW);
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn two_backends_of_one_process_run_side_by_side() {
    let blob = &blobs(&model("ec8f0994ff.pte"))[0];
    let threads = (0..2).map(|_| {
        let blob = blob.clone();
        std::thread::spawn(move || {
            let backend = backend(&sdk_dir());
            let binary = backend.describe(&blob).unwrap().binary;
            let graph = binary.graphs.iter().find(|graph| graph.name == "kv_forward").unwrap();
            let mut call = Call::of_graph(graph, None);
            first_step(graph, &mut call);
            let mut delegate = init(&backend, "kv_forward", 0, &blob, &[], &call).unwrap();
            for _ in 0..3 {
                call.run(&mut *delegate).unwrap();
            }
            fnv1a64(call.bytes(call.args.len() - 1))
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        assert_eq!(thread.join().unwrap(), FIRST_ROW);
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn contents_are_the_recorded_ones() {
    let backend = backend(&sdk_dir());
    let BlobInfo { header, binary } = backend.describe(&blobs(&model("ec8f0994ff.pte"))[0]).unwrap();
    assert_eq!(header.layout, Layout::LongHeader);
    assert_eq!((binary.version, binary.backend_id, binary.soc_model), (3, 6, Some(57)));
    let core = (binary.core.to_string(), binary.backend.to_string(), binary.blob_version.to_string());
    assert_eq!(core, ("2.27.0".into(), "5.37.0".into(), "3.3.3".into()));
    let graph = binary.graphs.iter().find(|graph| graph.name == "kv_forward").unwrap();
    assert_eq!((graph.inputs.len(), graph.outputs.len()), (13, 11));
    let mask = graph.inputs.iter().find(|input| input.name.contains("atten_mask")).unwrap();
    let Quantization::PerTensor(encoding) = mask.quantization else { panic!("{mask}") };
    assert_eq!((mask.dims.as_slice(), encoding.zero_point), (&[1, 1, 1, 128][..], 65_535));
    assert!((encoding.scale - 0.003_891_05).abs() < 1e-8);
    let BlobInfo { header, binary } = backend.describe(&blobs(&model("00e3f99401.pte"))[0]).unwrap();
    assert_eq!(header.layout, Layout::ShortHeader);
    let graph = binary.graphs.iter().find(|graph| graph.name == "kv_forward").unwrap();
    assert_eq!((graph.inputs.len(), graph.outputs.len()), (43, 41));
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn null_device_takes_its_contents_from_the_real_library() {
    let real = backend(&sdk_dir()).library().unwrap();
    let fake = Fake::new();
    let backend = QnnBackend::with_library(fake.library_with_system(*real.system().unwrap()), QnnOptions::default());
    fake.set_null_device(true);
    let blob = &blobs(&model("00e3f99401.pte"))[0];
    let binary = backend.describe(blob).unwrap().binary;
    let mut call = Call::of_graph(&binary.graphs[0], Some(DType::F32));
    let mut delegate = init(&backend, &binary.graphs[0].name, 0, blob, &[], &call).unwrap();
    call.run(&mut *delegate).unwrap();
    assert_eq!(fake.calls(crate::qnn::fake::Call::GraphExecute), 0);
    drop(delegate);
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
}

#[cfg(target_os = "linux")]
#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn o22_loading_and_freeing_leaves_memory_flat() {
    let resident_pages = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let blob = &blobs(&model("ec8f0994ff.pte"))[0];
    let cycle = || {
        let backend = backend(&sdk_dir());
        let binary = backend.describe(blob).unwrap().binary;
        let call = Call::of_graph(&binary.graphs[0], None);
        drop(init(&backend, &binary.graphs[0].name, 0, blob, &[], &call).unwrap());
    };
    (0..20).for_each(|_| cycle());
    // One context of 1.3 MB kept each time would be 130 MB a round. The library's own pools grow by steps of 16 MB, which
    // fall together on a busy machine, but not in every round.
    const LIMIT: usize = (40 << 20) / 4096;
    let growth = || {
        let before = resident_pages();
        (0..100).for_each(|_| cycle());
        resident_pages().saturating_sub(before)
    };
    assert!((0..3).any(|_| growth() < LIMIT), "memory grows in every round");
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn o11_bytes_of_another_backend_are_refused_with_30010() {
    let backend = backend(&sdk_dir());
    let call = Call::new(&[]);
    let blob = Blob::from_vec([&[0, 0, 0, 2][..], b"not a context binary, whatever its start says"].concat());
    let error = init(&backend, "forward", 0, &blob, &[], &call).err().unwrap();
    assert_eq!(error.find::<QnnError>().unwrap().number(), 30_010, "{error:?}");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn truncated_binaries_are_typed_errors() {
    let backend = backend(&sdk_dir());
    let blob = &blobs(&model("ec8f0994ff.pte"))[0];
    let call = Call::new(&[]);
    for kept in [300, 1000, 4096, blob.len() / 2, blob.len() - 1] {
        // As a bare binary, so that no header tells first.
        let cut = Blob::from_vec(blob[256..kept].to_vec());
        let error = init(&backend, "kv_forward", 0, &cut, &[], &call).err().unwrap();
        assert!(error.status() != crate::Status::Internal, "{kept}: {error:?}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn_sdks)), ignore = "needs LLR_QNN_SDK_DIRS: libQnnHtp.so of several SDKs")]
fn loading_prints_nothing_on_standard_output() {
    let dirs = std::env::var_os("LLR_QNN_SDK_DIRS").unwrap();
    for dir in std::env::split_paths(&dirs) {
        // A process of its own, without the test harness's capturing, which does not see C's output anyway.
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "qnn::tests::simulator::contents_are_the_recorded_ones", "--nocapture"])
            .arg("--include-ignored")
            .env(env::QNN_LIB_DIR, &dir)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && text.contains("1 passed"), "{text}");
        let foreign = text.lines().find(|line| {
            let own = ["running 1 test", "test qnn::", "test result:"].iter().any(|start| line.starts_with(start));
            !line.is_empty() && !own
        });
        assert_eq!(foreign, None, "{}", dir.display());
    }
}
