//! Runs of a model's graphs over a text, as a runner makes them.

use crate::engine::{InputView, Instance, Resources};
use crate::graph::Graph;
use crate::graph::interpret::{Interpreter, Tensor};
use crate::tensor::DType;
use std::num::NonZeroUsize;

/// Runs of `graph` in the reference interpreter.
pub(crate) fn interpreted(graph: &Graph) -> impl FnMut(&[Tensor]) -> Vec<Tensor> {
    let mut interpreter = Interpreter::new(graph).expect("a well-formed graph");
    move |inputs| interpreter.run(inputs).expect("inputs that fit")
}

/// Runs of `graph` on the engine, which fuses what it can.
pub(crate) fn compiled(graph: &Graph) -> impl FnMut(&[Tensor]) -> Vec<Tensor> + use<> {
    let compiled = Resources::new(NonZeroUsize::new(1)).compile(graph.clone()).expect("a graph for the engine");
    let mut instance = Instance::new(compiled).expect("little memory");
    move |inputs| {
        let bytes: Vec<_> = inputs.iter().map(Tensor::to_bytes).collect();
        let views: Vec<_> =
            inputs.iter().zip(&bytes).map(|(tensor, bytes)| InputView { dims: &tensor.shape, bytes }).collect();
        instance.run(&views).expect("inputs that fit");
        let output = |index| {
            let view = instance.output(index).expect("an output of the last run");
            Tensor::from_bytes(view.dtype, view.dims, view.bytes).expect("as long as its shape")
        };
        (0..instance.output_count()).map(output).collect()
    }
}

/// Rows of the logits of a dynamic method that is given `tokens` in pieces of the lengths `cuts`.
pub(crate) fn dynamic_logits(
    mut run: impl FnMut(&[Tensor]) -> Vec<Tensor>,
    tokens: &[i64],
    cuts: &[usize],
) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    let mut at = 0;
    for &count in cuts {
        let piece = Tensor::integers(DType::I64, &[1, count], &tokens[at..at + count]);
        let start = Tensor::integers(DType::I64, &[1], [at as i64]);
        rows.extend(rows_of(&run(&[piece, start])[0]));
        at += count;
    }
    rows
}

/// Rows of the logits of a static method that is given `tokens` block by block, with the cache outside. `graph` says
/// the shapes of what `run` takes, in reals.
pub(crate) fn static_logits(
    graph: &Graph,
    mut run: impl FnMut(&[Tensor]) -> Vec<Tensor>,
    tokens: &[i64],
) -> Vec<Vec<f32>> {
    let shape = |index: usize| graph.max_shape(graph.inputs[index]);
    let (ar, context) = (shape(0)[1], shape(1)[shape(1).len() - 1]);
    let past = context - ar;
    let mut caches: Vec<Tensor> =
        (3..graph.inputs.len()).map(|index| Tensor::zeros(DType::F32, &shape(index))).collect();
    let mut rows = Vec::new();
    for (block, piece) in tokens.chunks(ar).enumerate() {
        let start = block * ar;
        let mut padded = piece.to_vec();
        padded.resize(ar, 0);
        let sees = |row: usize, column: usize| match column.checked_sub(past) {
            Some(new) => new <= row,
            None => column < start,
        };
        let mask = (0..ar * context).map(|i| if sees(i / context, i % context) { 0.0 } else { -255.0 });
        let positions = (start..start + ar).map(|position| position.min(context - 1) as i64);
        let mut inputs = vec![
            Tensor::integers(graph.value(graph.inputs[0]).dtype, &shape(0), padded),
            Tensor::f32(&shape(1), mask.collect::<Vec<_>>()),
            Tensor::integers(DType::I32, &shape(2), positions.collect::<Vec<_>>()),
        ];
        inputs.extend(caches.iter().cloned());
        let outputs = run(&inputs);
        rows.extend(rows_of(&outputs[0]).into_iter().take(piece.len()));
        let kept = ar.min(past.saturating_sub(start));
        let keys = caches.len() / 2;
        for (slot, (cache, new)) in caches.iter_mut().zip(&outputs[1..]).enumerate() {
            *cache = joined(cache, new, Write { start, kept, is_key: slot < keys });
        }
    }
    rows
}

/// Which columns of a new matrix go where.
struct Write {
    start: usize,
    kept: usize,
    is_key: bool,
}

/// `cache` with the first columns of keys, or rows of values, of `new`.
fn joined(cache: &Tensor, new: &Tensor, write: Write) -> Tensor {
    let [(past, _), (ar, d)] = [cache, new].map(|tensor| {
        let [rows, columns] = tensor.shape[tensor.shape.len() - 2..] else { unreachable!("a matrix") };
        if write.is_key { (columns, rows) } else { (rows, columns) }
    });
    let (mut data, from) = (cache.reals().expect("reals").to_vec(), new.reals().expect("reals"));
    let place = |length: usize, position: usize, element: usize| match write.is_key {
        true => element * length + position,
        false => position * d + element,
    };
    for (cache, new) in data.chunks_mut(past * d).zip(from.chunks(ar * d)) {
        for token in 0..write.kept {
            for element in 0..d {
                cache[place(past, write.start + token, element)] = new[place(ar, token, element)];
            }
        }
    }
    Tensor::f32(&cache.shape, data)
}

fn rows_of(logits: &Tensor) -> Vec<Vec<f32>> {
    let width = logits.shape[logits.shape.len() - 1];
    logits.reals().expect("reals").chunks(width).map(<[f32]>::to_vec).collect()
}
