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
    for (call, name) in calls {
        let made = fake.calls(call);
        assert!(made > 0, "{call:?} is never made");
        let each_run = u32::try_from(made).unwrap();
        for successes in 0..if call == Call::LogCreate { 1 } else { each_run.min(14) } {
            let before = fake.calls(call);
            fake.fail_later(call, successes, 1002);
            let error = compile(&library, &graphs, &options()).unwrap_err();
            let error = error.find::<QnnError>().unwrap_or_else(|| panic!("{call:?}: {error:?}"));
            assert_eq!((error.call, error.number()), (name, 1002));
            assert_eq!(fake.calls(call), before + successes as usize + 1);
            assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]), "{call:?} after {successes}");
            if fake.calls(call) > 400 {
                break;
            }
        }
    }
}
