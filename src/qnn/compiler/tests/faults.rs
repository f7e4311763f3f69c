//! Every call of the library failing, at every place.

use super::{Sketch, options};
use crate::graph::{Graph, Op};
use crate::qnn::QnnError;
use crate::qnn::compiler::compile;
use crate::qnn::fake::{Call, Fake};
use crate::tensor::DType;

fn graph(name: &str) -> Graph {
    let mut sketch = Sketch::new(name);
    let x = sketch.input(DType::U16, &[1, 2, 8], [-1.0, 1.0]);
    let gamma = sketch.reals(&[8], 1.0);
    let y = sketch.node(Op::RmsNorm { epsilon: 1e-5 }, &[x, gamma], DType::U16, (&[1, 2, 8], [-2.0, 2.0]));
    let z = sketch.node(Op::Permute { perm: vec![0, 2, 1] }, &[y], DType::U16, (&[1, 8, 2], [-2.0, 2.0]));
    sketch.finish(&[z])
}

#[test]
fn o17_a_call_that_fails_leaves_nothing_behind() {
    let graphs = [graph("kv_forward"), graph("prefill_forward")];
    let fake = Fake::new();
    let library = fake.library();
    assert_eq!(compile(&library, &graphs, &options()).unwrap(), [0, 0, 0, 2, 0, 0, 0, 3]);
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
    let calls = [
        (Call::LogCreate, "QnnLog_create"),
        (Call::BackendCreate, "QnnBackend_create"),
        (Call::DeviceCreate, "QnnDevice_create"),
        (Call::ContextCreate, "QnnContext_create"),
        (Call::GraphCreate, "QnnGraph_create"),
        (Call::TensorCreate, "QnnTensor_createGraphTensor"),
        (Call::GraphAddNode, "QnnGraph_addNode"),
        (Call::GraphFinalize, "QnnGraph_finalize"),
        (Call::ContextGetBinarySize, "QnnContext_getBinarySize"),
        (Call::ContextGetBinary, "QnnContext_getBinary"),
    ];
    let each_run = calls.map(|(call, _)| u32::try_from(fake.calls(call)).unwrap());
    for ((call, name), count) in calls.into_iter().zip(each_run) {
        assert!(count > 0, "{call:?} is never made");
        for successes in 0..count {
            let before = fake.calls(call);
            fake.fail_later(call, successes, 1002);
            let error = compile(&library, &graphs, &options()).unwrap_err();
            let error = error.find::<QnnError>().unwrap_or_else(|| panic!("{call:?}: {error:?}"));
            assert_eq!((error.call, error.number()), (name, 1002));
            assert_eq!(fake.calls(call), before + successes as usize + 1);
            assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]), "{call:?} after {successes}");
        }
    }
}
