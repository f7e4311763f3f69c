//! Codes and the reals they stand for.

use super::*;
use crate::base::storage::Blob;
use crate::graph::testing::f32_blob;
use crate::graph::{CodeOrder, Constant, Quantization};
use crate::tensor::Encoding;

fn constant_linear(
    x: &[f32],
    dtype: DType,
    shape: &[usize],
    quantization: Quantization,
    codes: &[u8],
    op: Op,
) -> Vec<f32> {
    let mut graph = Graph::new("linear");
    let input = graph.add_input("x", DType::F32, dims(&[1, x.len()]));
    let w = graph.add_constant("w", dtype, shape, Some(quantization), Blob::from_vec(codes.to_vec()));
    let output = graph.emit("linear", op, &[input, w], DType::F32, dims(&[1, shape[0]]));
    graph.outputs.push(output);
    Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[1, x.len()], x)]).unwrap()[0].reals().unwrap().to_vec()
}

#[test]
fn weights_of_every_quantization() {
    let scales = |data: &[f32]| Constant { data: f32_blob(data) };
    let fc = || Op::FullyConnected;
    let per_channel = Quantization::PerChannel { bits: 8, axis: 0, scales: scales(&[0.5, 2.0]) };
    assert_eq!(constant_linear(&[1.0, 10.0], DType::I8, &[2, 2], per_channel, &[2, 255, 3, 4], fc()), [-4.0, 86.0]);
    // Low nibble first; zero point 8; each row starts at a byte.
    let per_channel = Quantization::PerChannel { bits: 4, axis: 0, scales: scales(&[1.0, 3.0]) };
    let codes = [0x7_9, 0x_a, 0x0_f, 0x_8];
    assert_eq!(constant_linear(&[1.0, 10.0, 100.0], DType::U8, &[2, 3], per_channel, &codes, fc()), [191.0, -219.0]);
    let blockwise = |zero_points: Option<&[u8]>| Quantization::Blockwise {
        bits: 4,
        block: 2,
        scales: scales(&[1.0, 10.0]),
        scale_dtype: DType::F32,
        zero_points: zero_points.map(|points| Constant { data: Blob::from_vec(points.to_vec()) }),
        order: CodeOrder::LowFirst,
    };
    let ones = [1.0; 4];
    assert_eq!(constant_linear(&ones, DType::U8, &[1, 4], blockwise(None), &[0x89, 0xab], fc()), [51.0]);
    assert_eq!(constant_linear(&ones, DType::U8, &[1, 4], blockwise(Some(&[8, 9])), &[0x89, 0xab], fc()), [31.0]);
    let tens = [1.0, 10.0, 100.0, 1000.0];
    for (order, sum) in [(CodeOrder::LowFirst, 23_001.0), (CodeOrder::HighFirst, 32_010.0)] {
        let mut ordered = blockwise(None);
        if let Quantization::Blockwise { order: have, .. } = &mut ordered {
            *have = order;
        }
        assert_eq!(constant_linear(&tens, DType::U8, &[1, 4], ordered, &[0x89, 0xab], fc()), [sum]);
    }
    let bf16 = Quantization::Blockwise {
        bits: 2,
        block: 4,
        scales: Constant { data: Blob::from_vec(half::bf16::from_f32(0.5).to_le_bytes().to_vec()) },
        scale_dtype: DType::BF16,
        zero_points: None,
        order: CodeOrder::LowFirst,
    };
    // Codes 3, 2, 1, 0 less 2.
    assert_eq!(
        constant_linear(&[1.0, 10.0, 100.0, 1000.0], DType::U8, &[1, 4], bf16, &[0b00_01_10_11], fc()),
        [-1049.5]
    );
    let encoding = Encoding { scale: 0.25, zero_point: 2 };
    let per_tensor = Quantization::PerTensor { bits: 8, encoding };
    assert_eq!(constant_linear(&[4.0, 8.0], DType::U8, &[1, 2], per_tensor, &[3, 0], fc()), [-3.0]);
}

#[test]
fn a_quantized_table_gives_dequantized_rows() {
    let mut graph = Graph::new("embedding");
    let indices = graph.add_input("indices", DType::I64, dims(&[2]));
    let quantization = Quantization::Blockwise {
        bits: 4,
        block: 2,
        scales: Constant { data: f32_blob(&[1.0, 2.0, 3.0, 4.0]) },
        scale_dtype: DType::F32,
        zero_points: None,
        order: CodeOrder::LowFirst,
    };
    let codes = Blob::from_vec(vec![0x98, 0xba, 0x01, 0x7f]);
    let table = graph.add_constant("table", DType::U8, &[2, 4], Some(quantization), codes);
    let rows = graph.emit("rows", Op::Embedding, &[table, indices], DType::F32, dims(&[2, 4]));
    graph.outputs.push(rows);
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let rows = interpreter.run(&[integers(&[2], &[1, 0])]).unwrap();
    assert_eq!(rows[0].reals().unwrap(), [-21.0, -24.0, 28.0, -4.0, 0.0, 1.0, 4.0, 6.0]);
    for index in [-1, 2] {
        let error = interpreter.run(&[integers(&[2], &[0, index])]).unwrap_err();
        assert_eq!(error.to_string(), format!("rows (Embedding): index {index} into a table of 2 rows"));
    }
}

#[test]
fn rows_are_rounded_as_xnnpack_rounds_them() {
    // Range −1..3: multiplier 63.75, zero point −64 (from the low end: −128 + 63.75 = −64.25).
    let mut row = [-1.0, 0.0, 0.5, 3.0];
    quantized::round_rows(&mut row, 4);
    let code = |code: i32| code as f32 * (1.0 / 63.75);
    assert_eq!(row, [code(-64), 0.0, code(32), code(191)]);
    // All positive: the range reaches down to zero. A row of zeros stays.
    let mut rows = [1.0, 2.0, 0.0, 0.0];
    quantized::round_rows(&mut rows, 2);
    assert_eq!(rows, [128.0 * (1.0 / 127.5), 255.0 * (1.0 / 127.5), 0.0, 0.0]);
    let weights = || Quantization::PerChannel { bits: 8, axis: 0, scales: Constant { data: f32_blob(&[1.0]) } };
    let linear = constant_linear(&[-1.0, 0.5], DType::I8, &[1, 2], weights(), &[1, 2], Op::DynamicQuantLinear);
    // Multiplier 170, zero point 42: codes −128 (−170 less the offset) and 127.
    assert_eq!(linear, [0.0]);
}

#[test]
fn rounding_on_the_way_into_a_layer_is_the_fused_layer() {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, dims(&[2, 2]));
    let codes = graph.add_computed("codes", DType::I8, dims(&[2, 2]));
    graph.value_mut(codes).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
    graph.add_node("convert", Op::Convert, &[x], &[codes]);
    let scales = Constant { data: f32_blob(&[0.1]) };
    let quantization = Quantization::PerChannel { bits: 8, axis: 0, scales };
    let w = graph.add_constant("w", DType::I8, &[1, 2], Some(quantization), Blob::from_vec(vec![100, 30]));
    let bias = graph.add_constant("bias", DType::F32, &[1], None, f32_blob(&[0.5]));
    let apart = graph.emit("apart", Op::FullyConnected, &[codes, w, bias], DType::F32, dims(&[2, 1]));
    let fused = graph.emit("fused", Op::DynamicQuantLinear, &[x, w, bias], DType::F32, dims(&[2, 1]));
    let plain = graph.emit("plain", Op::FullyConnected, &[x, w, bias], DType::F32, dims(&[2, 1]));
    graph.outputs.extend([apart, fused, plain]);
    let x = Tensor::f32(&[2, 2], [0.3, -0.777, 5.0, 0.01]);
    let outputs = Interpreter::new(&graph).unwrap().run(&[x]).unwrap();
    assert_eq!(outputs[0], outputs[1]);
    assert_ne!(outputs[0], outputs[2]);
}

#[test]
fn per_token_quantization() {
    let per_token = |row: &[f32]| {
        let mut graph = Graph::new("g");
        let x = graph.add_input("x", DType::F32, dims(&[1, row.len()]));
        let codes = graph.add_computed("codes", DType::I8, dims(&[1, row.len()]));
        let [scale, point] = [DType::F32, DType::I64].map(|dtype| graph.add_computed("q", dtype, dims(&[1, 1])));
        graph.add_node("q", Op::QuantizePerToken { zero_point_dtype: DType::I64 }, &[x], &[codes, scale, point]);
        graph.outputs.extend([codes, scale, point]);
        let results = Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[1, row.len()], row)]).unwrap();
        results.into_iter().map(|tensor| tensor.data).collect::<Vec<_>>()
    };
    let scale = |wide: f64| Data::Real(vec![wide as f32]);
    let expected = [Data::Integer(vec![-128, -64, 127]), scale(4.0 / 255.0), Data::Integer(vec![-64])];
    assert_eq!(per_token(&[-1.0, 0.0, 3.0]), expected);
    assert_eq!(per_token(&[0.0, 0.0]), [Data::Integer(vec![127, 127]), scale(0.1), Data::Integer(vec![127])]);
    let tiny = per_token(&[1e-4, 0.0]);
    assert_eq!(tiny, [Data::Integer(vec![-126, -128]), scale(6.1e-5), Data::Integer(vec![-128])]);
}

#[test]
fn computed_values_are_rounded_to_their_grid() {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, dims(&[4]));
    let encoding = Encoding { scale: 0.5, zero_point: 10 };
    let codes = graph.add_computed("codes", DType::U8, dims(&[4]));
    graph.value_mut(codes).quantization = Some(Quantization::PerTensor { bits: 8, encoding });
    graph.add_node("q", Op::Convert, &[x], &[codes]);
    let back = graph.emit("back", Op::Convert, &[codes], DType::F32, dims(&[4]));
    graph.outputs.push(back);
    let outputs = Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[4], [0.25, 0.8, -100.0, 1000.0])]).unwrap();
    assert_eq!(outputs[0].reals().unwrap(), [0.0, 1.0, -5.0, 122.5]);
}
