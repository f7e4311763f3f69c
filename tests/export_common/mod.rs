//! The small story model as a source of weights, and programs made of it for the CPU.
#![allow(dead_code)] // Each test program uses its own part.

use super::common;
use half::bf16;
use llama_runner::base::storage::Blob;
use llama_runner::error::Result;
use llama_runner::export::lower::{Assets, portable, xnnpack};
use llama_runner::export::{
    KvLayout, LayerWeight, MethodSpec, ModelConfig, Rope, RopeScaling, Weight, WeightRole, WeightSource, emit, model,
};
use llama_runner::graph::{
    CodeOrder, Constant, Graph, Op, Quantization, RotaryStyle, ValueId, ValueKind, interpret::Tensor,
};
use llama_runner::passes::PassManager;
use llama_runner::pte::Program;
use llama_runner::tensor::DType;

pub const CONTEXT: usize = 128;

/// A checkpoint of llama2.c.
pub struct Stories {
    pub config: ModelConfig,
    numbers: Vec<f32>,
}

impl Stories {
    pub fn read() -> Self {
        let bytes = std::fs::read(common::model("stories260K.bin")).unwrap();
        let (header, rest) = bytes.split_at(28);
        let header: Vec<usize> =
            header.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()) as usize).collect();
        let numbers = rest.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let &[dim, hidden, layers, heads, kv_heads, vocab, _] = &header[..] else { panic!() };
        let rope = Rope { theta: 10_000.0, style: RotaryStyle::Interleaved, scaling: RopeScaling::None };
        let config = ModelConfig {
            architecture: "stories".into(),
            dim,
            layers,
            heads,
            kv_heads,
            head_dim: dim / heads,
            hidden,
            vocab,
            norm_epsilon: 1e-5,
            rope,
            max_positions: Some(512),
            bos_id: Some(1),
            eos_ids: vec![2],
        };
        Self { config, numbers }
    }
}

impl WeightSource for Stories {
    fn weight(&self, role: WeightRole) -> Result<Option<Weight>> {
        use LayerWeight::*;
        let ModelConfig { dim, hidden, layers, vocab, .. } = self.config;
        let kv = self.config.kv_heads * self.config.head_dim;
        let order = [
            (AttentionNorm, vec![dim]),
            (Query, vec![dim, dim]),
            (Key, vec![kv, dim]),
            (Value, vec![kv, dim]),
            (Output, vec![dim, dim]),
            (FeedForwardNorm, vec![dim]),
            (Gate, vec![hidden, dim]),
            (Down, vec![dim, hidden]),
            (Up, vec![hidden, dim]),
        ];
        let size = |shape: &[usize]| shape.iter().product::<usize>();
        let mut at = vocab * dim;
        let (shape, first) = match role {
            WeightRole::TokenEmbedding => (vec![vocab, dim], 0),
            WeightRole::FinalNorm => {
                at += order.iter().map(|(_, shape)| layers * size(shape)).sum::<usize>();
                (vec![dim], at)
            }
            WeightRole::OutputHead => return Ok(None),
            WeightRole::Layer(layer, weight) => {
                let Some(index) = order.iter().position(|(known, _)| *known == weight) else { return Ok(None) };
                at += order[..index].iter().map(|(_, shape)| layers * size(shape)).sum::<usize>();
                (order[index].1.clone(), at + layer * size(&order[index].1))
            }
        };
        let numbers = &self.numbers[first..first + size(&shape)];
        let data = Blob::from_vec(numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
        Ok(Some(Weight { name: format!("{role:?}"), dtype: DType::F32, shape, data }))
    }
}

/// Who computes linear layers, and from what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Portable,
    XnnpackFp32,
    Xnnpack8da4w,
}

pub const BACKENDS: [Backend; 3] = [Backend::Portable, Backend::XnnpackFp32, Backend::Xnnpack8da4w];

pub fn dynamic(fused_attention: bool, full_logits: bool) -> MethodSpec {
    let (max_seq_len, max_context_len) = (CONTEXT, CONTEXT);
    MethodSpec::Dynamic { name: "forward".into(), max_seq_len, max_context_len, full_logits, fused_attention }
}

/// `kv_forward`, and `prefill_forward` of 16 tokens.
pub fn hybrid(layout: KvLayout) -> [MethodSpec; 2] {
    [("kv_forward", 1), ("prefill_forward", 16)].map(|(name, ar)| MethodSpec::Static {
        name: name.into(),
        ar,
        context: CONTEXT,
        layout,
        tokens: DType::I32,
    })
}

/// The story model's program of these methods.
pub fn export(specs: &[MethodSpec], backend: Backend) -> Program {
    let stories = Stories::read();
    let graphs: Vec<Graph> = specs.iter().map(|spec| plain_graph(&stories, spec, backend)).collect();
    let mut assets = Assets::default();
    let lower = |graph| match backend {
        Backend::Portable => portable::lower(graph, &mut assets),
        _ => xnnpack::lower(graph, &mut assets),
    };
    let plans = graphs.iter().map(lower).collect::<std::result::Result<Vec<_>, _>>();
    let plans = plans.unwrap_or_else(|error| panic!("{error}"));
    let methods: Vec<_> = specs.iter().zip(&graphs).collect();
    let metadata = match &specs[0] {
        spec @ MethodSpec::Dynamic { .. } => emit::dynamic_metadata(&stories.config, spec),
        MethodSpec::Static { .. } => emit::static_metadata(&stories.config, &methods),
    };
    emit::assemble(assets, plans, metadata)
}

fn plain_graph(stories: &Stories, spec: &MethodSpec, backend: Backend) -> Graph {
    let mut graph = model::build(&stories.config, stories, spec).unwrap_or_else(|error| panic!("{}", error.chain()));
    if backend == Backend::Xnnpack8da4w {
        quantize(&mut graph);
    }
    let passes = PassManager::new(portable::decompositions()).unwrap();
    passes.run(&mut graph, None, &mut |_, _| Ok(())).unwrap_or_else(|error| panic!("{}", error.chain()));
    graph
}

/// Four-bit weights by blocks of 32, wherever that divides a row: rounded to the nearest, so that tests of lowering need
/// no recipe of quantization.
fn quantize(graph: &mut Graph) {
    let mut nodes = Vec::new();
    for mut node in std::mem::take(&mut graph.nodes) {
        if node.op == Op::FullyConnected && graph.max_shape(node.inputs[1])[1].is_multiple_of(32) {
            let [x, w] = [node.inputs[0], node.inputs[1]];
            let shape = graph.value(x).shape.clone();
            let rows = graph.add_computed(format!("{}.rows", node.origin), DType::I8, shape);
            graph.value_mut(rows).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
            let origin = format!("{}.rows", node.origin);
            nodes.push(llama_runner::graph::Node { origin, op: Op::Convert, inputs: vec![x], outputs: vec![rows] });
            let codes = four_bits(graph, w);
            node.inputs[..2].copy_from_slice(&[rows, codes]);
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
}

fn four_bits(graph: &mut Graph, weights: ValueId) -> ValueId {
    let value = graph.value(weights).clone();
    let ValueKind::Constant(Constant { data }) = &value.kind else { panic!("weights that are computed") };
    let shape = graph.max_shape(weights);
    let tensor = Tensor::from_bytes(value.dtype, &shape, data).unwrap();
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in tensor.reals().unwrap().chunks_exact(32) {
        let largest = block.iter().fold(1e-6f32, |largest, x| largest.max(x.abs()));
        let scale = bf16::from_f32(largest / 7.5);
        scales.extend(scale.to_le_bytes());
        let code = |x: f32| ((x / scale.to_f32()).round() + 8.0).clamp(0.0, 15.0) as u8;
        codes.extend(block.chunks_exact(2).map(|pair| code(pair[0]) | code(pair[1]) << 4));
    }
    let quantization = Quantization::Blockwise {
        bits: 4,
        block: 32,
        scales: Constant { data: Blob::from_vec(scales) },
        scale_dtype: DType::BF16,
        zero_points: None,
        order: CodeOrder::LowFirst,
    };
    graph.add_constant(format!("{}.codes", value.name), DType::U8, &shape, Some(quantization), Blob::from_vec(codes))
}
