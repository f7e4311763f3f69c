//! What a delegate call costs the host when the device takes no time: it must stay small against ExecuTorch's 2 to 7 µs.

use super::{Call, init, tensor_info};
use crate::pte::Blob;
use crate::qnn::fake::Fake;
use crate::qnn::{BinaryInfo, DelegateBlob, GraphInfo, QnnBackend, QnnOptions, sys};
use std::time::{Duration, Instant};

/// Per-head caches of five layers with four heads: 43 inputs, 41 outputs.
fn per_head_model() -> BinaryInfo {
    const U8: u32 = sys::QNN_DATATYPE_UFIXED_POINT_8;
    let input = |n: u32| tensor_info(n, &format!("input_{n}_x@0"), U8, &[1, 8, 127]);
    let output = |n: u32| tensor_info(100 + n, &format!("output_{n}"), U8, &[1, 8, 1]);
    let (inputs, outputs) = ((0..43).rev().map(input).collect(), (0..41).map(output).collect());
    let graph = GraphInfo { name: "kv_forward".into(), inputs, outputs };
    BinaryInfo { graphs: vec![graph], ..super::small_model() }
}

#[test]
fn a_call_with_84_arguments_takes_the_host_less_than_two_microseconds() {
    let fake = Fake::new();
    fake.set_model(|_| Some(per_head_model()));
    let backend = QnnBackend::with_library(fake.library(), QnnOptions::default());
    let mut call = Call::of_graph(&per_head_model().graphs[0], None);
    let blob = Blob::from_vec(DelegateBlob::encode(1, &[0, 0, 0, 2]));
    let mut delegate = init(&backend, "kv_forward", 0, &blob, &[], &call).unwrap();
    fake.set_null_device(true);
    const CALLS: u32 = 2000;
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..CALLS {
            call.run(&mut *delegate).unwrap();
        }
        best = best.min(start.elapsed() / CALLS);
    }
    eprintln!("84 arguments: {best:?} a call");
    assert!(best < Duration::from_micros(2), "{best:?}");
}
