//! What holds for operators of every family: tensors without elements, and arguments that overlap the output.

use super::testing::Call;
use crate::error::Error;
use crate::pte::EValue;
use crate::runtime::RuntimeError;
use crate::tensor::DType;

/// Only beside a size of zero are such sizes possible; their product is beyond 64 bits.
const VAST: usize = 1 << 40;

fn vast() -> Call {
    Call::new().constant::<f32>(DType::F32, &[0, VAST, VAST], &[])
}

fn outcome(call: Call, bounds: &[usize], name: &str) -> Result<Vec<usize>, Error> {
    let (name, overload) = name.split_once('.').unwrap();
    call.output(DType::F32, bounds).run(name, overload).map(|(dims, _)| dims)
}

#[test]
fn vast_tensors_without_elements_neither_panic_nor_take_time() {
    let [null, no] = [EValue::Null, EValue::Bool(false)];
    let all = [0, VAST, VAST];
    let both = || vast().constant::<f32>(DType::F32, &all, &[]);
    for (name, call, dims) in [
        ("aten::exp.out", vast(), &all[..]),
        ("aten::mul.out", both(), &all),
        ("aten::bmm.out", both(), &all),
        ("aten::_softmax.out", vast().int(0).value(no.clone()), &all),
        ("aten::select_copy.int_out", vast().int(1).int(-1), &[0, VAST]),
        (
            "aten::slice_copy.Tensor_out",
            vast().int(1).int(VAST as i64 / 2).value(null.clone()).int(1),
            &[0, VAST / 2, VAST],
        ),
        ("aten::permute_copy.out", vast().ints(&[0, 2, 1]), &all),
        ("aten::mean.out", vast().ints(&[1, 2]).value(no.clone()).value(null.clone()), &[0]),
        ("aten::squeeze_copy.dims_out", vast().ints(&[1]), &all),
    ] {
        assert_eq!(outcome(call, dims, name).unwrap(), dims, "{name}");
    }
    let wide = Call::new().constant::<f32>(DType::F32, &[0, 0], &[]).constant::<f32>(DType::F32, &[VAST, 0], &[]);
    assert_eq!(outcome(wide.value(null.clone()), &[0, VAST], "aten::linear.out").unwrap(), [0, VAST]);
    let cached = [VAST, 1, 1, 0];
    let rows = || Call::new().constant::<f32>(DType::F32, &cached, &[]);
    let attention = rows().constant::<f32>(DType::F32, &cached, &[]).constant::<f32>(DType::F32, &cached, &[]).int(0);
    let attention = attention.value(null.clone()).value(EValue::Double(0.0)).value(EValue::Bool(true)).value(null);
    assert_eq!(outcome(attention, &cached, "llama::custom_sdpa.out").unwrap(), cached);
    let cache = rows().state::<f32>(DType::F32, &cached, &[]).int(0);
    assert_eq!(cache.side_output(DType::F32, &[1]).run("llama::update_cache", "out").unwrap().0, cached);
}

#[test]
fn joined_sizes_do_not_overflow() {
    let mut call = Call::new();
    let half = [usize::MAX / 2 + 1, 0];
    let parts = [(); 2].map(|()| call.hidden::<f32>(DType::F32, &half, &[]));
    let text = outcome(call.tensors(&parts).int(0), &[0, 0], "aten::cat.out").unwrap_err().chain();
    assert!(text.ends_with("a size overflows"), "{text}");
}

#[test]
fn index_tensors_do_not_multiply_without_bound() {
    let mut call = Call::new().constant(DType::F32, &[1, 1], &[0.0f32]);
    let ids = vec![0i64; 1 << 14];
    let rows = call.hidden(DType::I64, &[1 << 14, 1], &ids);
    let columns = call.hidden(DType::I64, &[1, 1 << 14], &ids);
    let call = call.optional_tensors(&[Some(rows), Some(columns)]).constant(DType::F32, &[1], &[1.0f32]);
    let text = outcome(call.value(EValue::Bool(false)), &[1, 1], "aten::index_put.out").unwrap_err().chain();
    assert!(text.ends_with("index tensors name 268435456 places together, more than 67108864"), "{text}");
}

#[test]
fn a_listed_tensor_may_not_overlap_the_output() {
    let mut call = Call::new();
    let part = call.hidden_in_next_buffer(DType::F32, &[1]);
    let error = call.tensors(&[part]).int(0).output(DType::F32, &[1]).run("aten::cat", "out").unwrap_err();
    assert!(matches!(error.find(), Some(RuntimeError::SharedMemory { arg: 0, output: 2 })), "{}", error.chain());
    let mut call = Call::new().constant(DType::F32, &[1], &[0.0f32]);
    let part = call.hidden_in_next_buffer(DType::I64, &[1]);
    let call = call.optional_tensors(&[Some(part)]).output(DType::F32, &[2]);
    let error = call.run("aten::index", "Tensor_out").unwrap_err();
    assert!(matches!(error.find(), Some(RuntimeError::SharedMemory { arg: 1, output: 2 })), "{}", error.chain());
}
