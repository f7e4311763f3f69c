//! Linear layers and matrix products.

use super::{Sketch, check};
use crate::base::storage::Blob;
use crate::graph::testing::f32_blob;
use crate::graph::{CodeOrder, Constant, Graph, Op, Quantization, ValueId};
use crate::qnn::compiler::fit_block_scales;
use crate::tensor::DType;

#[derive(Debug, Clone, Copy)]
enum Weights {
    Bits8,
    Bits4,
    Blocks(usize),
}

impl Sketch {
    fn weights(&mut self, kind: Weights, shape @ [outputs, inputs]: [usize; 2]) -> ValueId {
        let mut scales = |count: usize| {
            let data: Vec<f32> = (0..count).map(|_| 0.01 + 0.02 * self.rng.real().abs()).collect();
            Constant { data: f32_blob(&data) }
        };
        let (dtype, bytes, quantization) = match kind {
            Weights::Bits8 => {
                let scales = scales(outputs);
                (DType::I8, outputs * inputs, Quantization::PerChannel { bits: 8, axis: 0, scales })
            }
            Weights::Bits4 => {
                let scales = scales(outputs);
                (DType::U8, outputs * inputs / 2, Quantization::PerChannel { bits: 4, axis: 0, scales })
            }
            Weights::Blocks(block) => {
                let scales = scales(outputs * (inputs / block));
                let (scale_dtype, zero_points, order) = (DType::F32, None, CodeOrder::LowFirst);
                let quantization = Quantization::Blockwise { bits: 4, block, scales, scale_dtype, zero_points, order };
                (DType::U8, outputs * inputs / 2, quantization)
            }
        };
        let codes: Vec<u8> = (0..bytes).map(|_| self.rng.below(256) as u8).collect();
        self.graph.add_constant("w", dtype, &shape, Some(quantization), Blob::from_vec(codes))
    }
}

fn linear(kind: Weights, dtypes: [DType; 2], bias: bool) -> Graph {
    let mut sketch = Sketch::new(&format!("{kind:?}_{}_{}_{bias}", dtypes[0], dtypes[1]).replace(['(', ')'], "_"));
    let x = sketch.input(dtypes[0], &[1, 5, 64], [-1.0, 1.5]);
    let w = sketch.weights(kind, [48, 64]);
    let mut operands = vec![x, w];
    if bias {
        operands.push(sketch.reals(&[48], 1.0));
    }
    let y = sketch.node(Op::FullyConnected, &operands, dtypes[1], (&[1, 5, 48], [-6.0, 6.0]));
    let mut graph = sketch.finish(&[y]);
    fit_block_scales(&mut graph).unwrap();
    graph
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn linear_layers_compute_what_the_interpreter_does() {
    use DType::{U8, U16};
    for kind in [Weights::Bits8, Weights::Bits4, Weights::Blocks(16), Weights::Blocks(32)] {
        for bias in [false, true] {
            check(&linear(kind, [U16, U16], bias), 0, 6);
        }
        check(&linear(kind, [U16, U8], false), 0, 1);
    }
    for kind in [Weights::Bits8, Weights::Bits4] {
        check(&linear(kind, [U8, U8], true), 0, 1);
    }
}

fn matmul(dtypes: [DType; 3], transpose_b: bool) -> Graph {
    let mut sketch = Sketch::new(&format!("matmul_{}_{}_{}_{transpose_b}", dtypes[0], dtypes[1], dtypes[2]));
    let a = sketch.input(dtypes[0], &[1, 2, 3, 16], [-1.0, 1.5]);
    let b_shape = if transpose_b { [1, 2, 20, 16] } else { [1, 2, 16, 20] };
    // The HTP rounds 8-bit operands whose zero point is not 128 once more.
    let b = sketch.input(dtypes[1], &b_shape, [-2.0, 2.0 * 127.0 / 128.0]);
    let y = sketch.node(Op::MatMul { transpose_b }, &[a, b], dtypes[2], (&[1, 2, 3, 20], [-8.0, 8.0]));
    sketch.finish(&[y])
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn matrix_products_compute_what_the_interpreter_does() {
    use DType::{U8, U16};
    for transpose_b in [false, true] {
        check(&matmul([U16, U8, U16], transpose_b), 0, 4);
        check(&matmul([U16, U16, U16], transpose_b), 0, 4);
        check(&matmul([U16, U16, U8], transpose_b), 0, 1);
        check(&matmul([U8, U8, U8], transpose_b), 0, 1);
    }
}
