//! What the test batteries of this room share: a builder of models, and a model with one of everything.

mod defects;
mod defects_in_bytes;
mod lowering;
mod round_trip;
mod run_time_shapes;

use super::schema::{BINARY, UNARY};
use super::*;
use crate::base::storage::Blob;

/// Sizes of a tensor, outermost first.
type Shape = &'static [usize];

/// A model under construction.
#[derive(Default)]
struct Sketch(Model);

impl Sketch {
    fn value(&mut self, datatype: Datatype, dims: &[usize]) -> usize {
        let value = Value {
            datatype,
            dims: dims.to_vec(),
            quantization: None,
            constant: None,
            external: None,
            quantize_rows: false,
        };
        self.0.values.push(value);
        self.0.values.len() - 1
    }

    fn quantized(&mut self, datatype: Datatype, dims: &[usize], quantization: Quantization) -> usize {
        let value = self.value(datatype, dims);
        self.0.values[value].quantization = Some(quantization);
        value
    }

    fn external(&mut self, value: usize, direction: Direction) -> usize {
        self.0.values[value].external = Some(External { arg: self.0.args, direction });
        self.0.args += 1;
        value
    }

    fn input(&mut self, dims: &[usize]) -> usize {
        let value = self.value(Datatype::Fp32, dims);
        self.external(value, Direction::Input)
    }

    fn output(&mut self, dims: &[usize]) -> usize {
        let value = self.value(Datatype::Fp32, dims);
        self.external(value, Direction::Output)
    }

    /// Adds data, under a key where it has one.
    fn data(&mut self, key: Option<&str>, bytes: Vec<u8>) -> usize {
        self.0.constants.push(Constant { key: key.map(Into::into), data: Blob::from_vec(bytes) });
        self.0.constants.len() - 1
    }

    /// Makes `value` a constant of as many bytes as it needs.
    fn constant(&mut self, value: usize) -> usize {
        let len = self.0.values[value].byte_len().unwrap();
        self.0.values[value].constant = Some(self.data(None, (0..len).map(|byte| byte as u8).collect()));
        value
    }

    fn node(&mut self, op: NodeOp, inputs: &[usize], output: usize) -> &mut Node {
        let debug_handle = self.0.nodes.len() as u32 + 100;
        self.0.nodes.push(Node { op, inputs: inputs.to_vec(), output, bounds: None, debug_handle });
        self.0.nodes.last_mut().unwrap()
    }
}

/// `x [1, 4, 8]` → rows quantized → fully connected with `weights` → `[1, 4, 6]`.
fn dynamic_linear(datatype: Datatype, quantization: impl FnOnce(&mut Sketch) -> Quantization) -> Sketch {
    let mut sketch = Sketch::default();
    let x = sketch.input(&[1, 4, 8]);
    let rows = Quantization::DynamicPerRow { nonbatch_dims: 1 };
    let codes = sketch.quantized(Datatype::QdInt8, &[1, 4, 8], rows);
    let quantization = quantization(&mut sketch);
    let weights = sketch.quantized(datatype, &[6, 8], quantization);
    sketch.constant(weights);
    let bias = sketch.value(Datatype::Fp32, &[6]);
    sketch.constant(bias);
    let y = sketch.output(&[1, 4, 6]);
    sketch.node(NodeOp::Convert, &[x], codes);
    sketch.node(NodeOp::FullyConnected { transpose_weights: false }, &[codes, weights, bias], y);
    sketch
}

fn bytes_of(scales: &[f32]) -> Vec<u8> {
    scales.iter().flat_map(|scale| scale.to_le_bytes()).collect()
}

/// Every weight quantization of language models, with a name.
fn dynamic_linears() -> Vec<(&'static str, Model)> {
    let six = [0.5, 0.25, 1.0, 2.0, 4.0, 8.0];
    let blocks: Vec<f32> = (1..=12).map(|scale| scale as f32).collect();
    let halves: Vec<u16> = blocks.iter().map(|scale| (scale.to_bits() >> 16) as u16).collect();
    let half_bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let per_channel = |scales| Quantization::PerChannel { axis: 0, scales };
    let blockwise = |scales| Quantization::Blockwise { block: 4, scales };
    let stored = |sketch: &mut Sketch| per_channel(Scales::Stored(sketch.data(Some("scale_a"), bytes_of(&six))));
    vec![
        ("qc8w, stored scales", dynamic_linear(Datatype::QcInt8, stored).0),
        ("qc4w, stored scales", dynamic_linear(Datatype::QcInt4, stored).0),
        ("qc8w", dynamic_linear(Datatype::QcInt8, |_| per_channel(Scales::F32(six.to_vec()))).0),
        (
            "qb4w, stored scales",
            dynamic_linear(Datatype::QbInt4, |sketch| blockwise(Scales::Stored(sketch.data(None, half_bytes)))).0,
        ),
        ("qb4w, f32 scales", dynamic_linear(Datatype::QbInt4, |_| blockwise(Scales::F32(blocks))).0),
        ("qb4w, bf16 scales", dynamic_linear(Datatype::QbInt4, |_| blockwise(Scales::Bf16(halves))).0),
    ]
}

/// A model with one node, between inputs and an output of these shapes.
fn single(op: NodeOp, inputs: &[&[usize]], output: &[usize]) -> Model {
    let mut sketch = Sketch::default();
    let inputs: Vec<_> = inputs.iter().map(|dims| sketch.input(dims)).collect();
    let output = sketch.output(output);
    sketch.node(op, &inputs, output);
    sketch.0
}

/// One model for every kind of node, with a name.
fn singles() -> Vec<(String, Model)> {
    use NodeOp::*;
    let unary = UNARY.iter().map(|&(_, op)| (Unary(op), vec![vec![2, 3]], vec![2, 3]));
    let binary = BINARY.iter().map(|&(_, op)| (Binary(op), vec![vec![2, 3], vec![3]], vec![2, 3]));
    let concatenate = (2..=5).map(|parts| (Concatenate { axis: 1 }, vec![vec![2, 3]; parts], vec![2, 3 * parts]));
    let (offsets, sizes) = (vec![0, 1, 0], vec![2, 2, 0]);
    let others = [
        (Clamp, vec![vec![4]], vec![4]),
        (Convert, vec![vec![4]], vec![4]),
        (Copy, vec![vec![4]], vec![4]),
        (Softmax, vec![vec![2, 4]], vec![2, 4]),
        (GlobalAveragePooling2d { keep_dims: true }, vec![vec![1, 2, 3, 4]], vec![1, 1, 1, 4]),
        (GlobalAveragePooling2d { keep_dims: false }, vec![vec![1, 2, 3, 4]], vec![1, 4]),
        (FullyConnected { transpose_weights: false }, vec![vec![2, 3], vec![5, 3]], vec![2, 5]),
        (FullyConnected { transpose_weights: true }, vec![vec![2, 3], vec![3, 5], vec![5]], vec![2, 5]),
        (BatchMatrixMultiply { transpose_b: false }, vec![vec![7, 2, 3], vec![7, 3, 5]], vec![7, 2, 5]),
        (BatchMatrixMultiply { transpose_b: true }, vec![vec![7, 2, 3], vec![7, 5, 3]], vec![7, 2, 5]),
        (StaticTranspose { perm: vec![2, 0, 1] }, vec![vec![2, 3, 4]], vec![4, 2, 3]),
        (StaticReshape { new_shape: vec![2, 0, 2] }, vec![vec![2, 6]], vec![2, 3, 2]),
        (StaticSlice { offsets, sizes }, vec![vec![2, 3, 4]], vec![2, 2, 4]),
        (
            ScaledDotProductAttention,
            vec![vec![1, 2, 3, 4], vec![1, 2, 5, 4], vec![1, 2, 5, 4], vec![4], vec![3, 5]],
            vec![1, 2, 3, 4],
        ),
    ];
    let model = |(op, inputs, output): (NodeOp, Vec<Vec<usize>>, Vec<usize>)| {
        let inputs: Vec<_> = inputs.iter().map(Vec::as_slice).collect();
        (format!("{op:?} {inputs:?}"), single(op, &inputs, &output))
    };
    unary.chain(binary).chain(concatenate).chain(others).map(model).collect()
}
