//! Codes and scales stand for the weights they came from.

use super::*;
use crate::export::quantize::{Feedback, Grid, Knowledge, Matrix, Moments, ScaleMethod, WeightFormat, quantize};
use crate::export::testing::blob;
use crate::graph::interpret::Interpreter;
use crate::graph::testing::Rng;
use crate::graph::{Op, ValueId};

fn matrix(graph: &mut Graph, rows: usize, columns: usize) -> (ValueId, Vec<f32>) {
    let reals: Vec<f32> = Rng(23).reals(rows * columns).into_iter().map(|x| x * x.abs()).collect();
    (graph.add_constant("w", DType::F32, &[rows, columns], None, blob(DType::F32, &reals)), reals)
}

/// The reals that the codes stand for, as the interpreter sees them.
fn decoded(format: WeightFormat, method: ScaleMethod, knowledge: Knowledge<'_>) -> (Vec<f32>, Vec<f32>) {
    let (rows, columns) = (150, 32);
    let mut graph = Graph::new("g");
    let (id, reals) = matrix(&mut graph, rows, columns);
    let matrix = Matrix::of(&graph, id).unwrap().unwrap();
    let codes = quantize(&matrix, format, method, knowledge).unwrap();
    assert_eq!(codes.data.len() + codes.scales.len(), format.bytes([rows, columns]));
    let scales = crate::base::storage::Blob::from_vec(codes.scales.clone());
    let (quantization, data) = (codes.quantization(scales), crate::base::storage::Blob::from_vec(codes.data));
    let codes = graph.add_constant("codes", codes.dtype, &[rows, columns], Some(quantization), data);
    let real = graph.emit("real", Op::Convert, &[codes], DType::F32, vec![rows.into(), columns.into()]);
    graph.outputs.push(real);
    let outputs = Interpreter::new(&graph).unwrap().run(&[]).unwrap();
    (reals, outputs[0].reals().unwrap().to_vec())
}

fn loss(pair: &(Vec<f32>, Vec<f32>)) -> f64 {
    pair.0.iter().zip(&pair.1).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

fn formats() -> Vec<WeightFormat> {
    let mut formats = vec![WeightFormat::blockwise_4(8), WeightFormat::blockwise_4(32)];
    for bits in [2, 4, 8] {
        formats.extend([WeightFormat::per_channel(bits), WeightFormat::embedding(bits, 8)]);
    }
    formats
}

#[test]
fn codes_times_scales_are_the_weights_to_half_a_step() {
    for format in formats() {
        let (reals, decoded) = decoded(format, ScaleMethod::AbsMax, Knowledge::None);
        let block = format.block.unwrap_or(32);
        let half_range = Grid::of_bits(format.bits).max as f32 + 0.5;
        for (reals, decoded) in reals.chunks(block).zip(decoded.chunks(block)) {
            let step = reals.iter().fold(0f32, |m, x| m.max(x.abs())) / half_range;
            for (a, b) in reals.iter().zip(decoded) {
                assert!((a - b).abs() <= step * 0.55, "{format:?}: {b} for {a}, step {step}");
            }
        }
    }
}

#[test]
fn searched_scales_lose_less_in_every_format() {
    for format in formats() {
        let of = |method| loss(&decoded(format, method, Knowledge::None));
        let (plain, searched) = (of(ScaleMethod::AbsMax), of(ScaleMethod::Search));
        let most = if format.bits == 8 { 1.0 } else { 0.97 };
        assert!(searched <= most * plain, "{format:?}: {searched} of {plain}");
    }
}

#[test]
fn moments_make_the_product_better_though_not_the_weights() {
    let columns = 32;
    let mut rng = Rng(31);
    let mix = rng.reals(columns * 4);
    let token = |rng: &mut Rng| {
        let causes = rng.reals(4);
        (0..columns).map(|c| (0..4).map(|k| causes[k] * mix[c * 4 + k]).sum::<f32>() + 0.05 * rng.real()).collect()
    };
    let tokens: Vec<Vec<f32>> = (0..100).map(|_| token(&mut rng)).collect();
    let turned: Vec<f32> = (0..columns).flat_map(|column| tokens.iter().map(move |token| token[column])).collect();
    let feedback = Feedback::new(Moments::of(&turned, columns).unwrap(), "w").unwrap();
    for format in [WeightFormat::blockwise_4(8), WeightFormat::per_channel(4)] {
        let product_loss = |knowledge| {
            let (reals, decoded) = decoded(format, ScaleMethod::Search, knowledge);
            let rows = reals.chunks(columns).zip(decoded.chunks(columns));
            let error = |token: &Vec<f32>, (a, b): (&[f32], &[f32])| {
                token.iter().enumerate().map(|(i, x)| x * (a[i] - b[i])).sum::<f32>().powi(2)
            };
            rows.map(|row| tokens.iter().map(|token| error(token, row)).sum::<f32>()).sum::<f32>()
        };
        let (plain, fed) = (product_loss(Knowledge::None), product_loss(Knowledge::Feedback(&feedback)));
        assert!(fed < 0.4 * plain, "{format:?}: {fed} of {plain}");
    }
}

#[test]
fn formats_that_do_not_fit_are_refused() {
    let mut graph = Graph::new("g");
    let (id, _) = matrix(&mut graph, 2, 20);
    let matrix = Matrix::of(&graph, id).unwrap().unwrap();
    let refused = |format| quantize(&matrix, format, ScaleMethod::AbsMax, Knowledge::None).unwrap_err().to_string();
    assert_eq!(refused(WeightFormat::blockwise_4(32)), "weight w: 20 columns are not whole blocks of 32");
    assert_eq!(refused(WeightFormat::blockwise_4(0)), "weight w: 20 columns are not whole blocks of 0");
    assert_eq!(refused(WeightFormat::per_channel(3)), "weights: codes of 3 bits; 2, 4 and 8 exist");
}
