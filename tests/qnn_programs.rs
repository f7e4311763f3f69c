//! Every real QNN program runs on the simulator: the three orders of arguments fit, and the first step says the token
//! that all exports of the model say.

mod common;

use llama_runner::base::fnv::fnv1a64;
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::runtime::{IoArena, IoSlice, MethodId, Module, TensorInfo};
use llama_runner::tensor::DType;
use std::collections::BTreeMap;
use std::path::Path;

/// `Once`, after the begin-of-text token alone.
const FIRST_TOKEN: usize = 403;

fn open(path: &Path) -> Box<dyn Module> {
    builtin::open_program(path, &ProgramOptions { qnn_lib_dir: common::qnn_lib_dir(), ..ProgramOptions::default() })
        .unwrap()
}

struct Bound {
    method: MethodId,
    arena: IoArena,
    inputs: Vec<(TensorInfo, IoSlice)>,
    outputs: Vec<(TensorInfo, IoSlice)>,
}

fn bind(module: &mut dyn Module, name: &str) -> Bound {
    let method = module.load_method(name).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let info = module.method_info(method).clone();
    let tensors = |list: &[Option<TensorInfo>]| list.iter().map(|info| info.clone().unwrap()).collect::<Vec<_>>();
    let (inputs, outputs) = (tensors(&info.inputs), tensors(&info.outputs));
    let size = inputs.iter().chain(&outputs).map(|info| IoArena::footprint(info.byte_len())).sum();
    let mut arena = IoArena::new(size).unwrap();
    let mut place = |infos: Vec<TensorInfo>| {
        let placed = infos.into_iter().map(|info| {
            let slice = arena.alloc(info.byte_len()).unwrap();
            (info, slice)
        });
        placed.collect::<Vec<_>>()
    };
    let (inputs, outputs) = (place(inputs), place(outputs));
    for (index, (_, slice)) in inputs.iter().enumerate() {
        module.bind_input(method, index, &arena, *slice).unwrap();
    }
    for (index, (_, slice)) in outputs.iter().enumerate() {
        module.bind_output(method, index, &arena, *slice).unwrap();
    }
    Bound { method, arena, inputs, outputs }
}

impl Bound {
    /// Token 1 at position 0 with nothing before it; gives the first row of logits.
    fn first_step(&mut self, module: &mut dyn Module) -> Vec<u8> {
        for (index, (info, slice)) in self.inputs.iter().enumerate() {
            let bytes = self.arena.bytes_mut(*slice);
            let rows = info.dims[info.dims.len().saturating_sub(2)];
            match (index, info.dtype) {
                (0, DType::I32 | DType::I64) => bytes[0] = 1,
                (1, DType::U16) => {
                    // The first row's own column, the first of the block at the end.
                    let columns = info.dims[info.dims.len() - 1];
                    bytes[2 * (columns - rows)..][..2].fill(0xff);
                }
                _ => {}
            }
        }
        module.execute(self.method, &mut self.arena).unwrap();
        let (info, slice) = &self.outputs[0];
        let row = info.dims[info.dims.len() - 1] * 2;
        assert_eq!(info.dtype, DType::U16);
        self.arena.bytes(*slice)[..row].to_vec()
    }
}

fn argmax(row: &[u8]) -> usize {
    let logits = row.chunks_exact(2).map(|code| u16::from_le_bytes([code[0], code[1]]));
    logits.enumerate().max_by_key(|&(index, code)| (code, std::cmp::Reverse(index))).unwrap().0
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn every_program_says_the_first_token() {
    let mut rows = BTreeMap::new();
    for entry in std::fs::read_dir(common::model("qnn")).unwrap() {
        let path = entry.unwrap().path();
        let mut module = open(&path);
        for name in ["kv_forward", "prefill_forward"] {
            if !module.method_names().iter().any(|method| method == name) {
                continue;
            }
            let mut bound = bind(&mut *module, name);
            let row = bound.first_step(&mut *module);
            assert_eq!(argmax(&row), FIRST_TOKEN, "{} {name}", path.display());
            let file = path.file_name().unwrap().to_str().unwrap();
            rows.insert(format!("{file} {name}"), fnv1a64(&row));
        }
    }
    assert!(rows.len() >= 35, "{rows:?}");
    for method in ["kv_forward", "prefill_forward"] {
        assert_eq!(rows[&format!("ec8f0994ff.pte {method}")], 0xe3bf_10c9_89c7_db02);
        // Sharding, block length and lookahead do not change a bit.
        let plain = rows[&format!("qnn_s260k_hybrid_ar32.pte {method}")];
        for same in ["hybrid_ar16", "hybrid_ar32_shard2", "lookahead_ar32"] {
            assert_eq!(rows[&format!("qnn_s260k_{same}.pte {method}")], plain, "{same} {method}");
        }
        // A new compile spec and header around the same binary change nothing either.
        for old in ["00e3f99401", "0d61efc21d", "1ad9d64212", "595baeef2c"] {
            let [old, new] = ["pte", "respec.pte"].map(|ext| rows[&format!("{old}.{ext} {method}")]);
            assert_eq!(old, new);
        }
    }
}
