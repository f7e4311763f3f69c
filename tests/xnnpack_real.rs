//! Real XNNPACK delegates: every one decodes, encodes to the same model, and becomes a sound graph whose weights are those
//! of the checkpoint; damage is refused without a panic.

mod common;

use common::model;
use llama_runner::base::storage::Blob;
use llama_runner::graph::{Graph, Int, Op, Quantization, ValueKind};
use llama_runner::pte::Program;
use llama_runner::tensor::DType;
use llama_runner::xnnpack::{Datatype, Model, Node, NodeOp, decode_delegate, lower_into, to_graph};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Delegates of a program, with the named data that they use.
struct Delegates {
    name: String,
    blobs: Vec<Blob>,
    named_data: BTreeMap<String, Blob>,
}

impl Delegates {
    fn of(path: PathBuf) -> Self {
        let program = Program::open(&path).unwrap_or_else(|error| panic!("{error:?}"));
        let delegates = program.plans.iter().flat_map(|plan| &plan.delegates);
        let blobs: Vec<_> = delegates
            .filter(|delegate| delegate.id == "XnnpackBackend")
            .map(|delegate| delegate.processed.clone())
            .collect();
        Self { name: path.display().to_string(), blobs, named_data: program.named_data }
    }

    fn models(&self) -> Vec<Model> {
        let decode = |(index, blob)| {
            decode_delegate(blob, &self.named_data).unwrap_or_else(|error| panic!("{} #{index}: {error}", self.name))
        };
        self.blobs.iter().enumerate().map(decode).collect()
    }
}

fn small_programs() -> Vec<Delegates> {
    let mut paths: Vec<_> = std::fs::read_dir(model("xnnpack")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pte"));
    paths.sort();
    assert!(paths.len() >= 5, "{paths:?}");
    paths.into_iter().map(Delegates::of).collect()
}

fn all_programs() -> Vec<Delegates> {
    let mut programs = small_programs();
    programs.push(Delegates::of(model("smollm2/smollm2_135m_8da4w_emb432_sdpa.pte")));
    programs
}

fn verified(graph: Graph) -> Graph {
    graph.verify().unwrap_or_else(|error| panic!("{error}\n{graph}"));
    graph
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_delegate_decodes_as_the_dumps_say() {
    for program in all_programs() {
        let models = program.models();
        let count = |wanted: fn(&Node) -> bool| {
            models.iter().flat_map(|model| &model.nodes).filter(|node| wanted(node)).count()
        };
        let linears = count(|node| matches!(node.op, NodeOp::FullyConnected { transpose_weights: false }));
        let converts = count(|node| node.op == NodeOp::Convert);
        let four_bit = models.iter().flat_map(|model| &model.values);
        let four_bit = four_bit.filter(|value| value.datatype == Datatype::QbInt4).count();
        // Layers of 7 linears and the output; w2 of the small model has 172 columns, no multiple of 32.
        let expected = match (program.name.contains("smollm2"), program.name.contains("fp32")) {
            (true, _) => [121, 211, 211, 211],
            (_, true) => [21, 36, 0, 0],
            (_, false) => [21, 36, 31, 31],
        };
        assert_eq!([models.len(), linears, converts, four_bit], expected, "{}", program.name);
        assert_eq!(count(|node| node.bounds.is_some() || node.inputs.len() == 3), 0);
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn encoding_gives_the_same_model_again() {
    for program in all_programs() {
        for mut model in program.models() {
            let bytes = Blob::from_vec(model.to_bytes().unwrap());
            assert_eq!(decode_delegate(&bytes, &program.named_data).unwrap(), model);
            assert!(model.named_data().iter().all(|(key, data)| program.named_data[*key] == **data));
            // The same with the constants in the blob.
            model.constants.iter_mut().for_each(|constant| constant.key = None);
            let bytes = Blob::from_vec(model.to_bytes().unwrap());
            assert_eq!(decode_delegate(&bytes, &BTreeMap::new()).unwrap(), model);
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn every_delegate_becomes_a_sound_graph() {
    for program in all_programs() {
        for (index, model) in program.models().iter().enumerate() {
            let graph = verified(to_graph(model, &format!("delegate {index}")).unwrap());
            for (values, indices) in [(&graph.inputs, model.inputs()), (&graph.outputs, model.outputs())] {
                for (&value, index) in values.iter().zip(indices) {
                    assert_eq!(graph.max_shape(value), model.values[index].dims);
                }
            }
            // Columns are fixed by the weights; the token axis varies, and outputs with it.
            let shape = |value| &graph.value(value).shape;
            let input = shape(graph.inputs[0]);
            assert!(matches!(input.last(), Some(Int::Const(_))), "{graph}");
            for &output in &graph.outputs {
                assert_eq!(shape(output)[..input.len() - 1], input[..input.len() - 1], "{graph}");
            }
            let dynamic = input.iter().filter(|dim| matches!(dim, Int::Symbol(_))).count();
            assert_eq!(dynamic, usize::from(graph.max_shape(graph.inputs[0]).len() == 3), "{graph}");
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_delegate_joins_a_graph_at_the_shape_it_is_given() {
    let program = Delegates::of(model("xnnpack/xnn_s260k_8da4w_emb432_kv.pte"));
    let model = &program.models()[0];
    let mut graph = Graph::new("decode");
    let x = graph.add_input("x", DType::F32, vec![1usize.into(), 1usize.into(), 64usize.into()]);
    graph.outputs = lower_into(&mut graph, model, "XNNPACK delegate 0", &[x]).unwrap();
    let graph = verified(graph);
    let shapes: Vec<_> = graph.outputs.iter().map(|&output| graph.max_shape(output)).collect();
    assert_eq!(shapes, [[1, 1, 64], [1, 1, 32], [1, 1, 32]]);
    assert_eq!(graph.nodes[3].origin, "XNNPACK delegate 0: FullyConnected #3");
}

/// The tensors of `stories260K.bin`.
struct Checkpoint(Vec<f32>);

impl Checkpoint {
    const DIM: usize = 64;
    const HIDDEN: usize = 172;
    const LAYERS: usize = 5;
    const KV: usize = 32;
    const VOCABULARY: usize = 512;

    fn open() -> Self {
        let bytes = std::fs::read(model("stories260K.bin")).unwrap();
        let header: Vec<_> =
            bytes[..20].chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(header, [64, 172, 5, 8, 4]);
        Self(bytes[28..].chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect())
    }

    /// Weights of each linear in the order in which the method's delegates have them: q, k, v; o; w1, w3; w2 of each
    /// layer, then the output, which shares the embedding.
    fn linears(&self) -> Vec<&[f32]> {
        let (dim, hidden, layers, kv) = (Self::DIM, Self::HIDDEN, Self::LAYERS, Self::KV);
        let mut rest = &self.0[..];
        let mut take = |count: usize| {
            let (head, tail) = rest.split_at(count);
            rest = tail;
            head
        };
        let embedding = take(Self::VOCABULARY * dim);
        take(layers * dim);
        let [q, k, v, o] = [dim, kv, kv, dim].map(|rows| take(layers * rows * dim));
        take(layers * dim);
        let [w1, w2, w3] = [(); 3].map(|()| take(layers * hidden * dim));
        let layer = |weights: &[f32], layer: usize| {
            let size = weights.len() / layers;
            layer * size..(layer + 1) * size
        };
        let mut linears = Vec::new();
        for index in 0..layers {
            for weights in [q, k, v, o, w1, w3, w2] {
                linears.push(&weights[layer(weights, index)]);
            }
        }
        linears.push(embedding);
        linears
    }
}

/// A weight as stored.
struct Weight {
    real: f32,
    /// Distance of two codes; 0 for reals.
    scale: f32,
    /// The smallest or largest code, for which rounding may have been clipping.
    extreme: bool,
}

/// The weights of each linear of a program.
fn weights(program: &Delegates) -> Vec<Vec<Weight>> {
    let mut found = Vec::new();
    for model in program.models() {
        let graph = to_graph(&model, "delegate").unwrap();
        for node in graph.nodes.iter().filter(|node| node.op == Op::FullyConnected) {
            let weight = graph.value(node.inputs[1]);
            let ValueKind::Constant(constant) = &weight.kind else { panic!("weights are constant") };
            let columns = graph.max_shape(node.inputs[1])[1];
            found.push(match &weight.quantization {
                None => {
                    let reals = constant.data.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
                    reals.map(|real| Weight { real, scale: 0.0, extreme: false }).collect()
                }
                Some(Quantization::Blockwise { bits: 4, block, scales, scale_dtype: DType::BF16, .. }) => {
                    let codes = constant.data.iter().flat_map(|&byte| [byte & 15, byte >> 4]);
                    let weight = |(index, code): (usize, u8)| {
                        let scale = index / columns * (columns / block) + index % columns / block;
                        let scale = u16::from_le_bytes([scales.data[2 * scale], scales.data[2 * scale + 1]]);
                        let scale = f32::from_bits(u32::from(scale) << 16);
                        Weight { real: (f32::from(code) - 8.0) * scale, scale, extreme: code == 0 || code == 15 }
                    };
                    codes.enumerate().map(weight).collect()
                }
                other => panic!("{other:?}"),
            });
        }
    }
    found
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn weights_are_those_of_the_checkpoint() {
    let checkpoint = Checkpoint::open();
    for program in small_programs() {
        let found = weights(&program);
        assert_eq!(found.len(), 36, "{}", program.name);
        let mut exact = 0;
        for (linear, (found, expected)) in found.iter().zip(checkpoint.linears()).enumerate() {
            assert_eq!(found.len(), expected.len(), "{} linear {linear}", program.name);
            exact += usize::from(found.iter().all(|weight| weight.scale == 0.0));
            for (Weight { real, scale, extreme }, &expected) in found.iter().zip(expected) {
                // The exporter rounds codes to the nearest before it cuts scales to bf16: 2⁻⁸ of up to 8 scales more.
                // Weights beyond the last code lie further out, never nearer to zero.
                let close = (real - expected).abs() <= scale * (0.5 + 8.0 / 256.0);
                let clipped = *extreme && expected / real >= 1.0 && (real - expected).abs() <= scale * 2.0;
                assert!(close || clipped, "{} linear {linear}: {real} {expected} {scale}", program.name);
            }
        }
        assert_eq!(exact, if program.name.contains("fp32") { 36 } else { 5 });
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(bytes.len());
        match rng.below(6) {
            0 if rng.below(4) == 0 => bytes.truncate(at),
            // Offsets, ids and sizes are words.
            0..=2 => {
                let word = [0, 1, 2, 7, 0x7fff_ffff, 0x8000_0000, u32::MAX][rng.below(7)].to_le_bytes();
                let at = at & !3;
                let end = (at + 4).min(bytes.len());
                bytes.splice(at..end, word);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn damaged_blobs_end_in_an_error_or_a_sound_graph() {
    let programs = small_programs();
    let mut rng = Rng(3);
    let (mut graphs, mut refused) = (0, 0);
    for round in 0..5000 {
        let program = &programs[rng.below(programs.len())];
        let blob = &program.blobs[rng.below(program.blobs.len())];
        let mut bytes = blob.to_vec();
        if round % 4 == 0 {
            let mut model = decode_delegate(blob, &program.named_data).unwrap();
            model.constants.iter_mut().for_each(|constant| constant.key = None);
            bytes = model.to_bytes().unwrap();
            // Damage the tables, not the weights behind them.
            let tail = bytes.split_off(bytes.len().min(1500));
            mutate(&mut rng, &mut bytes);
            bytes.extend(tail);
        } else {
            mutate(&mut rng, &mut bytes);
        }
        let start = Instant::now();
        let decoded = decode_delegate(&Blob::from_vec(bytes), &program.named_data);
        if let Ok(model) = &decoded {
            let again = Blob::from_vec(model.to_bytes().unwrap());
            assert_eq!(decode_delegate(&again, &program.named_data).as_ref(), Ok(model), "round {round}");
        }
        match decoded.and_then(|model| to_graph(&model, "damaged")) {
            Ok(graph) => {
                graphs += 1;
                verified(graph);
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        assert!(start.elapsed() < Duration::from_secs(5), "round {round}");
    }
    assert!(graphs > 100 && refused > 1000, "{graphs} graphs, {refused} refused");
}
