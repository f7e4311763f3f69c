//! A small llama in two spellings: fused, and of the plain operators that an export writes.

use super::{Builder, dims};
use llama_runner::base::storage::Blob;
use llama_runner::graph::{
    BinaryOp, CacheLayout, Graph, Int, Op, Quantization, RotaryStyle, SymbolSource, UnaryOp, ValueId,
};
use llama_runner::tensor::DType;

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub layers: usize,
    pub dim: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub hidden: usize,
    pub vocabulary: usize,
    pub context: usize,
    /// Most tokens of a run.
    pub tokens: usize,
}

pub const SMALL: Sizes =
    Sizes { layers: 2, dim: 64, heads: 4, kv_heads: 2, hidden: 96, vocabulary: 50, context: 40, tokens: 24 };

/// `forward(tokens, input_pos)` → logits of every token. Random 4-bit weights, two caches a layer.
pub fn llama(sizes: Sizes, fused: bool) -> Builder {
    let mut model =
        Model { b: Builder::new("llama", 77), sizes, fused, tokens: Int::Const(0), position: Int::Const(0) };
    model.build();
    model.b
}

struct Model {
    b: Builder,
    sizes: Sizes,
    fused: bool,
    tokens: Int,
    position: Int,
}

const ONE: Int = Int::Const(1);

impl Model {
    fn build(&mut self) {
        let Sizes { layers, dim, heads, kv_heads, vocabulary, context, tokens, .. } = self.sizes;
        let most = tokens as i64;
        self.tokens = self.b.graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 1 }, 1, most);
        let ids = self.b.input_within(DType::I64, &[ONE, self.tokens], (0, vocabulary as i64));
        self.b.input(DType::I64, &[ONE]);
        self.position = self.b.item(1, context as i64 - 1);
        self.b.graph.symbol("end", SymbolSource::Sum(self.tokens, self.position), 1, context as i64);
        let d = dim / heads;
        let angles: Vec<f32> = (0..context * d / 2)
            .map(|i| (i / (d / 2)) as f32 * 10_000f32.powf(-((i % (d / 2)) as f32) / (d / 2) as f32))
            .collect();
        let tables = [angles.iter().map(|x| x.cos()).collect::<Vec<_>>(), angles.iter().map(|x| x.sin()).collect()];
        let tables = tables.map(|table| {
            let table = self.b.constant_of(&[context, d / 2], &table);
            let start = self.position;
            self.b.emit(Op::Slice { axis: 0, start, step: 1 }, &[table], DType::F32, &[self.tokens, (d / 2).into()])
        });
        let table = self.b.constant_f32(&[vocabulary, dim]);
        let mut x = self.b.emit(Op::Embedding, &[table, ids], DType::F32, &[ONE, self.tokens, dim.into()]);
        for layer in 0..layers {
            let normed = self.norm(x);
            let [q, k, v] = [heads, kv_heads, kv_heads].map(|count| {
                let y = self.linear(normed, count * d, false);
                self.b.emit(Op::Reshape, &[y], DType::F32, &[ONE, self.tokens, count.into(), d.into()])
            });
            let (q, k) = (self.rotary(q, tables), self.rotary(k, tables));
            let attended = self.attention(layer, q, k, v);
            let rows = self.b.emit(Op::Reshape, &[attended], DType::F32, &[ONE, self.tokens, dim.into()]);
            let y = self.linear(rows, dim, false);
            x = self.b.same(Op::Binary(BinaryOp::Add), &[x, y], x);
            let normed = self.norm(x);
            let (gate, up) =
                (self.linear(normed, self.sizes.hidden, false), self.linear(normed, self.sizes.hidden, true));
            let y = self.swiglu(gate, up);
            let y = self.linear(y, dim, false);
            x = self.b.same(Op::Binary(BinaryOp::Add), &[x, y], x);
        }
        let x = self.norm(x);
        let logits = self.linear(x, vocabulary, false);
        self.b.output(logits);
    }

    fn linear(&mut self, x: ValueId, n: usize, bias: bool) -> ValueId {
        let shape = self.b.graph.value(x).shape.clone();
        let k = self.b.graph.bounds(shape[2]).1 as usize;
        let w = self.b.blockwise([n, k], 32);
        let mut inputs = vec![x, w];
        if bias {
            inputs.push(self.b.constant_f32(&[n]));
        }
        let out = [ONE, self.tokens, n.into()];
        if self.fused {
            return self.b.emit(Op::DynamicQuantLinear, &inputs, DType::F32, &out);
        }
        inputs[0] = self.b.emit(Op::Convert, &[x], DType::I8, &shape);
        self.b.graph.value_mut(inputs[0]).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
        self.b.emit(Op::FullyConnected, &inputs, DType::F32, &out)
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let gamma = self.b.constant_f32(&[self.sizes.dim]);
        if self.fused {
            return self.b.same(Op::RmsNorm { epsilon: 1e-5 }, &[x, gamma], x);
        }
        let squares = self.b.same(Op::Unary(UnaryOp::Square), &[x], x);
        let row = [ONE, self.tokens, ONE];
        let mean = self.b.emit(Op::Mean { axes: vec![2] }, &[squares], DType::F32, &row);
        let epsilon = self.b.graph.add_scalar_f32("epsilon", 1e-5);
        let sum = self.b.same(Op::Binary(BinaryOp::Add), &[mean, epsilon], mean);
        let scale = self.b.same(Op::Unary(UnaryOp::Rsqrt), &[sum], sum);
        let y = self.b.same(Op::Binary(BinaryOp::Multiply), &[x, scale], x);
        self.b.same(Op::Binary(BinaryOp::Multiply), &[y, gamma], x)
    }

    fn swiglu(&mut self, gate: ValueId, up: ValueId) -> ValueId {
        if self.fused {
            return self.b.same(Op::SwiGlu, &[gate, up], gate);
        }
        let sigmoid = self.b.same(Op::Unary(UnaryOp::Sigmoid), &[gate], gate);
        let silu = self.b.same(Op::Binary(BinaryOp::Multiply), &[gate, sigmoid], gate);
        self.b.same(Op::Binary(BinaryOp::Multiply), &[silu, up], gate)
    }

    fn rotary(&mut self, x: ValueId, [cos, sin]: [ValueId; 2]) -> ValueId {
        if self.fused {
            return self.b.same(Op::Rotary { style: RotaryStyle::Half }, &[x, cos, sin], x);
        }
        let shape = self.b.graph.value(x).shape.clone();
        let half = self.b.graph.bounds(shape[3]).1 as usize / 2;
        let part = [ONE, self.tokens, shape[2], half.into()];
        let [first, second] = [0, half].map(|start| {
            let slice = Op::Slice { axis: 3, start: start.into(), step: 1 };
            self.b.emit(slice, &[x], DType::F32, &part)
        });
        let [cos, sin] = [cos, sin]
            .map(|table| self.b.emit(Op::Reshape, &[table], DType::F32, &[ONE, self.tokens, ONE, half.into()]));
        let mut product = |a, b| self.b.same(Op::Binary(BinaryOp::Multiply), &[a, b], a);
        let [ac, bs, a_s, bc] = [product(first, cos), product(second, sin), product(first, sin), product(second, cos)];
        let re = self.b.same(Op::Binary(BinaryOp::Subtract), &[ac, bs], ac);
        let im = self.b.same(Op::Binary(BinaryOp::Add), &[a_s, bc], ac);
        self.b.same(Op::Concat { axis: 3 }, &[re, im], x)
    }

    fn attention(&mut self, layer: usize, q: ValueId, k: ValueId, v: ValueId) -> ValueId {
        let Sizes { dim, heads, kv_heads, context, .. } = self.sizes;
        let (d, start) = (dim / heads, self.position);
        let layout = if self.fused { CacheLayout::PositionMajor } else { CacheLayout::HeadMajor };
        let shape = if self.fused { [1, context, kv_heads, d] } else { [1, kv_heads, context, d] };
        let [k, v] = [("k", k), ("v", v)].map(|(name, new)| {
            let (state, old) = self.b.graph.add_state(format!("{name}_{layer}"), DType::F32, &shape);
            let cache = self.b.emit(Op::CacheUpdate { layout, start }, &[old, new], DType::F32, &dims(&shape));
            self.b.graph.state_updates.push((state, cache));
            cache
        });
        let scale = 1.0 / (d as f32).sqrt();
        if self.fused {
            return self.b.same(Op::Attention { layout, start, scale }, &[q, k, v], q);
        }
        let (t, p, h, d) = (self.tokens, Int::from(context), Int::from(heads), Int::from(d));
        let q = self.b.emit(Op::Permute { perm: vec![0, 2, 1, 3] }, &[q], DType::F32, &[ONE, h, t, d]);
        let group = Int::from(heads / kv_heads);
        let [k, v] = [k, v].map(|cache| {
            let one = self.b.emit(Op::Reshape, &[cache], DType::F32, &[ONE, kv_heads.into(), ONE, p, d]);
            let all = self.b.emit(Op::Expand, &[one], DType::F32, &[ONE, kv_heads.into(), group, p, d]);
            self.b.emit(Op::Reshape, &[all], DType::F32, &[ONE, h, p, d])
        });
        let scores = self.b.emit(Op::MatMul { transpose_b: true }, &[q, k], DType::F32, &[ONE, h, t, p]);
        let factor = self.b.graph.add_scalar_f32("scale", scale);
        let scores = self.b.same(Op::Binary(BinaryOp::Multiply), &[scores, factor], scores);
        let hidden = |i: usize| if i % context > i / context { f32::NEG_INFINITY } else { 0.0 };
        let mask: Vec<f32> = (0..context * context).map(hidden).collect();
        let mask = self.b.constant_of(&[context, context], &mask);
        let mask = self.b.emit(Op::Slice { axis: 0, start, step: 1 }, &[mask], DType::F32, &[t, p]);
        let scores = self.b.same(Op::Binary(BinaryOp::Add), &[scores, mask], scores);
        let weights = self.b.same(Op::Softmax { axis: 3 }, &[scores], scores);
        let y = self.b.emit(Op::MatMul { transpose_b: false }, &[weights, v], DType::F32, &[ONE, h, t, d]);
        self.b.emit(Op::Permute { perm: vec![0, 2, 1, 3] }, &[y], DType::F32, &[ONE, t, h, d])
    }
}

/// Inputs of a run: these tokens from this position on.
pub fn prompt(ids: &[i64], position: i64) -> [(Vec<usize>, Vec<u8>); 2] {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    [(vec![1, ids.len()], bytes), (vec![1], position.to_le_bytes().to_vec())]
}

/// The same model with its constants in one mapped file.
pub fn mapped(graph: &Graph, file: &std::path::Path) -> Graph {
    use llama_runner::base::storage::Storage;
    use llama_runner::graph::{Constant, ValueKind};
    let mut graph = graph.clone();
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    let mut append = |data: &[u8]| {
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes.extend_from_slice(data);
        bytes.len() - data.len()..bytes.len()
    };
    for value in &graph.values {
        if let ValueKind::Constant(constant) = &value.kind {
            let scales = match &value.quantization {
                Some(Quantization::Blockwise { scales, .. }) => Some(append(&scales.data)),
                _ => None,
            };
            places.push((append(&constant.data), scales));
        }
    }
    std::fs::write(file, &bytes).unwrap();
    let storage = Storage::map(file).unwrap();
    let blob = |range| Blob::new(&storage, range).unwrap();
    let mut places = places.into_iter();
    for value in &mut graph.values {
        if let ValueKind::Constant(constant) = &mut value.kind {
            let (data, new_scales) = places.next().unwrap();
            *constant = Constant { data: blob(data) };
            if let (Some(Quantization::Blockwise { scales, .. }), Some(range)) = (&mut value.quantization, new_scales) {
                *scales = Constant { data: blob(range) };
            }
        }
    }
    graph
}
