//! The 4-bit embedding against a real export and the float table it was made from.

mod common;
mod runtime_support;

use llama_runner::pte::{Blob, EValue, Storage};
use llama_runner::runtime::{BackendRegistry, IoArena, KernelRegistry, Module, NativeModule};
use llama_runner::tensor::DType;
use runtime_support::{constant, forward, kernel, operator, planned, program, tensor};
use std::sync::Arc;

const ROWS: usize = 512;
const DIM: usize = 64;
const GROUPS: usize = 2;

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_real_table_is_the_float_table_within_half_a_step() {
    let file = std::fs::read(common::model("qnn/qnn_s260k_hybrid_ar32_emb432.pte")).unwrap();
    let segments = u64::from_le_bytes(file[24..32].try_into().unwrap()) as usize;
    let storage = Arc::new(Storage::Owned(file));
    let codes = Blob::new(&storage, segments..segments + ROWS * DIM / 2).unwrap();
    let scales_at = segments + codes.len();
    let scales = Blob::new(&storage, scales_at..scales_at + ROWS * GROUPS * 4).unwrap();

    let floats = std::fs::read(common::model("stories260K.bin")).unwrap();
    let floats: Vec<f32> = floats[28..].chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();

    let ids: Vec<u8> = (0..ROWS as i64).flat_map(i64::to_le_bytes).collect();
    let values = vec![
        tensor(DType::U8, &[ROWS, DIM / 2], constant(1)),
        tensor(DType::F32, &[ROWS, GROUPS], constant(2)),
        EValue::Null,
        EValue::Int(-8),
        EValue::Int(7),
        tensor(DType::I64, &[1, ROWS], constant(3)),
        EValue::Int(6),
        tensor(DType::F32, &[1, ROWS, DIM], planned(0)),
    ];
    let mut plan = forward(values, &[], &[7], vec![kernel(0, &[0, 1, 2, 3, 4, 5, 6, 7, 7])]);
    plan.operators = vec![operator("quantized_decomposed::embedding_4bit.dtype_out")];
    plan.delegates.clear();
    plan.non_const_buffer_sizes = vec![0, (ROWS * DIM * 4) as u64];
    let mut program = program(plan);
    program.constants = vec![Blob::from_vec(Vec::new()), codes, scales.clone(), Blob::from_vec(ids)];
    let mut kernels = KernelRegistry::default();
    llama_runner::ops::register(&mut kernels);
    let mut module = NativeModule::new(program, kernels, BackendRegistry::default()).unwrap();
    let (method, mut arena) = (module.load_method("forward").unwrap(), IoArena::new(0).unwrap());
    module.execute(method, &mut arena).unwrap();

    let (dims, bytes) = module.output(method, 0, &arena).unwrap();
    assert_eq!(dims, [1, ROWS, DIM]);
    let mut outliers = 0;
    for (at, (bytes, float)) in bytes.chunks_exact(4).zip(floats).enumerate() {
        let real = f32::from_le_bytes(bytes.try_into().unwrap());
        let group = at / (DIM / GROUPS);
        let scale = f32::from_le_bytes(scales[group * 4..][..4].try_into().unwrap());
        // The exporter clips a few outliers of a group to the smallest or largest code.
        let clipped = [-8.0, 7.0].contains(&(real / scale).round()) && real.abs() < float.abs();
        let near = (real - float).abs() <= 0.5001 * scale;
        assert!(near || clipped, "element {at}: {real} for {float}, step {scale}");
        outliers += usize::from(!near);
    }
    assert!(outliers < ROWS * DIM / 50, "{outliers} elements are far off");
}
