//! A small llama, spelled out in plain operations in the ways that exports have.

use super::{Rng, broadcast_shape, dims, f32_blob};
use crate::base::storage::Blob;
use crate::graph::interpret::{Interpreter, Tensor};
use crate::graph::{
    BinaryOp, CacheLayout, CodeOrder, Constant, Graph, Int, Op, Quantization, StateId, SymbolSource, UnaryOp, ValueId,
};
use crate::tensor::DType;

/// How rotary embedding is spelled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum RotaryForm {
    /// `[.., d/2, 2]`, two slices, and a concat of rank 5.
    Interleaved,
    /// Slices with step 2 instead.
    Strided,
    /// Both halves rotated on their own, then joined.
    Halves,
    /// `x * cos + rotate_half(x) * sin` with doubled tables.
    RotateHalf,
}

/// How attention is spelled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum AttentionForm {
    /// As `portable_*_kv.pte` has it: head-major caches, boolean mask table, guard for rows without any position.
    Plain,
    /// Position-major caches and a real mask table; one scale after `q·k`.
    PositionMajor,
    /// No cache: the tokens of this run see each other.
    CacheLess,
    /// As `Plain`, with a mask that the caller gives.
    MaskInput,
    /// As custom operators give it.
    Fused,
}

/// A small llama.
#[derive(Clone)]
pub(crate) struct Llama {
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub hidden: usize,
    pub vocab: usize,
    pub positions: usize,
    /// A fixed number of tokens instead of a dynamic one.
    pub tokens: Option<usize>,
    pub rotary: RotaryForm,
    pub attention: AttentionForm,
    /// 4-bit weights with a dynamic quantization of their operand.
    pub quantized: bool,
    pub epsilon: f32,
}

impl Default for Llama {
    fn default() -> Self {
        Self {
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 4,
            hidden: 24,
            vocab: 20,
            positions: 12,
            tokens: None,
            rotary: RotaryForm::Interleaved,
            attention: AttentionForm::Plain,
            quantized: false,
            epsilon: 1e-5,
        }
    }
}

impl Llama {
    pub fn build(&self) -> Graph {
        let mut graph = Graph::new("forward");
        let most = self.positions as i64 - 1;
        let tokens = match self.tokens {
            Some(tokens) => tokens.into(),
            None => graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 1 }, 1, most),
        };
        let ids = graph.add_input("tokens", DType::I64, vec![1.into(), tokens]);
        let input_pos = graph.add_input("input_pos", DType::I64, dims(&[1]));
        let start = graph.symbol("input_pos", SymbolSource::InputItem { input: 1, index: 0 }, 0, most);
        let mask = (self.attention == AttentionForm::MaskInput)
            .then(|| graph.add_input("mask", DType::Bool, vec![tokens, self.positions.into()]));
        let _ = input_pos;
        Builder { spec: self, graph, rng: Rng(7), tokens, start, mask }.model(ids)
    }

    /// Inputs for the tokens at `start..`.
    pub fn inputs(&self, ids: &[i64], start: usize) -> Vec<Tensor> {
        let mut inputs = vec![
            Tensor::integers(DType::I64, &[1, ids.len()], ids),
            Tensor::integers(DType::I64, &[1], [start as i64]),
        ];
        if self.attention == AttentionForm::MaskInput {
            // Token 1 sees nothing: its row is the guard's business.
            let sees = |token: usize, position: usize| token != 1 && position <= start + token && position % 3 != 2;
            let all = (0..ids.len()).flat_map(|t| (0..self.positions).map(move |p| i64::from(sees(t, p))));
            inputs.push(Tensor::integers(DType::Bool, &[ids.len(), self.positions], all.collect::<Vec<_>>()));
        }
        inputs
    }

    /// Logits of a prefill of three tokens and of two decode steps (or of fixed runs).
    pub fn logits(&self, graph: &Graph) -> Vec<Vec<f32>> {
        let mut interpreter = Interpreter::new(graph).expect("a well-formed graph");
        let fixed: [(&[i64], usize); 2] = [(&[3, 1, 4], 0), (&[5, 19, 2], 3)];
        let dynamic: [(&[i64], usize); 3] = [(&[3, 1, 4], 0), (&[1], 3), (&[5, 9], 4)];
        let runs: &[(&[i64], usize)] = if self.tokens == Some(3) { &fixed } else { &dynamic };
        let run = |&(ids, start): &(&[i64], usize)| {
            let outputs = interpreter.run(&self.inputs(ids, start)).unwrap();
            outputs[0].reals().unwrap().to_vec()
        };
        runs.iter().map(run).collect()
    }
}

struct Builder<'a> {
    spec: &'a Llama,
    graph: Graph,
    rng: Rng,
    tokens: Int,
    start: Int,
    mask: Option<ValueId>,
}

impl Builder<'_> {
    fn model(mut self, ids: ValueId) -> Graph {
        let (dim, vocab) = (self.spec.heads * self.spec.head_dim, self.spec.vocab);
        let table = self.weights("embedding", &[vocab, dim]);
        let mut x = self.emit(Op::Embedding, &[table, ids], vec![1.into(), self.tokens, dim.into()]);
        let tables = self.rotary_tables();
        for layer in 0..self.spec.layers {
            let normed = self.norm(x);
            let attended = self.attention(layer, normed, tables);
            x = self.binary(BinaryOp::Add, x, attended);
            let normed = self.norm(x);
            let hidden = self.spec.hidden;
            let [gate, up] = [self.linear(normed, hidden), self.linear(normed, hidden)];
            let sigmoid = self.unary(UnaryOp::Sigmoid, gate);
            let silu = self.binary(BinaryOp::Multiply, gate, sigmoid);
            let product = self.binary(BinaryOp::Multiply, silu, up);
            let down = self.linear(product, dim);
            x = self.binary(BinaryOp::Add, x, down);
        }
        let normed = self.norm(x);
        let logits = self.linear(normed, vocab);
        self.graph.outputs.push(logits);
        self.graph
    }

    fn emit(&mut self, op: Op, inputs: &[ValueId], shape: Vec<Int>) -> ValueId {
        let origin = format!("test #{}", self.graph.nodes.len());
        let dtype = match op {
            Op::Embedding => DType::F32,
            Op::Any { .. } | Op::Unary(UnaryOp::LogicalNot) => DType::Bool,
            Op::Binary(op) if op.gives_bool() => DType::Bool,
            Op::Where => self.graph.value(inputs[1]).dtype,
            _ => inputs.first().map_or(DType::F32, |&id| self.graph.value(id).dtype),
        };
        self.graph.emit(origin, op, inputs, dtype, shape)
    }

    fn shape(&self, id: ValueId) -> Vec<Int> {
        self.graph.value(id).shape.clone()
    }

    fn unary(&mut self, op: UnaryOp, x: ValueId) -> ValueId {
        self.emit(Op::Unary(op), &[x], self.shape(x))
    }

    fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let shape = broadcast_shape(&self.shape(a), &self.shape(b));
        self.emit(Op::Binary(op), &[a, b], shape)
    }

    fn weights(&mut self, name: &str, shape: &[usize]) -> ValueId {
        let data = self.rng.reals(shape.iter().product());
        self.graph.add_constant(name, DType::F32, shape, None, f32_blob(&data))
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let shape = self.shape(x);
        let last = shape.len() - 1;
        let squares = self.binary(BinaryOp::Multiply, x, x);
        let mut one = shape.clone();
        one[last] = 1.into();
        let mean = self.emit(Op::Mean { axes: vec![last] }, &[squares], one);
        let epsilon = self.graph.add_scalar_f32("epsilon", self.spec.epsilon);
        let sum = self.binary(BinaryOp::Add, mean, epsilon);
        let factor = self.unary(UnaryOp::Rsqrt, sum);
        let normed = self.binary(BinaryOp::Multiply, x, factor);
        let gamma = self.weights("gamma", &[self.spec.heads * self.spec.head_dim]);
        self.binary(BinaryOp::Multiply, normed, gamma)
    }

    fn linear(&mut self, x: ValueId, outputs: usize) -> ValueId {
        let mut shape = self.shape(x);
        let inputs = self.graph.max_shape(x)[shape.len() - 1];
        *shape.last_mut().unwrap() = outputs.into();
        if !self.spec.quantized {
            let w = self.weights("w", &[outputs, inputs]);
            return self.emit(Op::FullyConnected, &[x, w], shape);
        }
        let (x, w) = (self.quantize(x), self.quantized_weights(outputs, inputs));
        let bias = self.weights("bias", &[outputs]);
        let output = self.graph.add_computed("linear", DType::F32, shape);
        self.graph.add_node("linear", Op::FullyConnected, &[x, w, bias], &[output]);
        output
    }

    fn quantize(&mut self, x: ValueId) -> ValueId {
        let shape = self.shape(x);
        let output = self.graph.add_computed("quantized", DType::I8, shape);
        self.graph.value_mut(output).quantization = Some(Quantization::DynamicPerRow { nonbatch_dims: 1 });
        self.graph.add_node("convert", Op::Convert, &[x], &[output]);
        output
    }

    fn quantized_weights(&mut self, rows: usize, columns: usize) -> ValueId {
        let codes: Vec<u8> = (0..rows * columns / 2).map(|_| self.rng.below(256) as u8).collect();
        let scales: Vec<f32> = (0..rows * columns / 4).map(|_| 0.02 + self.rng.real().abs() * 0.1).collect();
        let quantization = Quantization::Blockwise {
            bits: 4,
            block: 4,
            scales: Constant { data: f32_blob(&scales) },
            scale_dtype: DType::F32,
            zero_points: None,
            order: CodeOrder::LowFirst,
        };
        self.graph.add_constant("w4", DType::U8, &[rows, columns], Some(quantization), Blob::from_vec(codes))
    }

    /// Cosines and sines `[positions, d/2]`, or `[positions, d]` with both halves equal.
    fn rotary_tables(&mut self) -> [ValueId; 2] {
        let half = self.spec.head_dim / 2;
        let columns = if self.spec.rotary == RotaryForm::RotateHalf { 2 * half } else { half };
        let angle = |index: usize| (index / columns) as f32 * 0.7f32.powi((index % columns % half) as i32);
        let shape = [self.spec.positions, columns];
        let mut table = |name: &str, f: fn(f32) -> f32| {
            let data: Vec<f32> = (0..shape[0] * shape[1]).map(|index| f(angle(index))).collect();
            self.graph.add_constant(name, DType::F32, &shape, None, f32_blob(&data))
        };
        [table("cos", f32::cos), table("sin", f32::sin)]
    }

    fn slice(&mut self, x: ValueId, axis: usize, start: Int, count: Int) -> ValueId {
        let mut shape = self.shape(x);
        shape[axis] = count;
        self.emit(Op::Slice { axis, start, step: 1 }, &[x], shape)
    }

    fn reshape(&mut self, x: ValueId, shape: Vec<Int>) -> ValueId {
        self.emit(Op::Reshape, &[x], shape)
    }

    fn permute<const N: usize>(&mut self, x: ValueId, perm: [usize; N]) -> ValueId {
        let from = self.shape(x);
        self.emit(Op::Permute { perm: perm.to_vec() }, &[x], perm.iter().map(|&axis| from[axis]).collect())
    }

    /// `x [1, tokens, heads, d]`; the tables are sliced anew each time, as exports do.
    fn rotary(&mut self, x: ValueId, tables: [ValueId; 2]) -> ValueId {
        let shape = self.shape(x);
        let (heads, d) = (shape[2], self.spec.head_dim);
        let columns = self.graph.max_shape(tables[0])[1];
        let [cos, sin] = tables.map(|table| {
            let rows = self.slice(table, 0, self.start, self.tokens);
            self.reshape(rows, vec![1.into(), self.tokens, 1.into(), columns.into()])
        });
        if self.spec.rotary == RotaryForm::RotateHalf {
            let first = self.slice(x, 3, 0.into(), (d / 2).into());
            let second = self.slice(x, 3, (d / 2).into(), (d / 2).into());
            let negative = self.unary(UnaryOp::Negate, second);
            let rotated = self.emit(Op::Concat { axis: 3 }, &[negative, first], shape);
            let [a, b] = [(x, cos), (rotated, sin)].map(|(x, table)| self.binary(BinaryOp::Multiply, x, table));
            return self.binary(BinaryOp::Add, a, b);
        }
        let half = vec![1.into(), self.tokens, heads, (d / 2).into()];
        let pairs = vec![1.into(), self.tokens, heads, (d / 2).into(), 2.into()];
        let [re, im] = match self.spec.rotary {
            RotaryForm::Interleaved => {
                let x = self.reshape(x, pairs.clone());
                [0usize, 1].map(|i| {
                    let part = self.slice(x, 4, i.into(), 1.into());
                    self.reshape(part, half.clone())
                })
            }
            RotaryForm::Strided => {
                [0usize, 1].map(|i| self.emit(Op::Slice { axis: 3, start: i.into(), step: 2 }, &[x], half.clone()))
            }
            _ => [0, d / 2].map(|start| self.slice(x, 3, start.into(), (d / 2).into())),
        };
        let products = [(re, cos), (im, sin), (re, sin), (im, cos)];
        let [rc, is, rs, ic] = products.map(|(x, table)| self.binary(BinaryOp::Multiply, x, table));
        let new_re = self.binary(BinaryOp::Subtract, rc, is);
        let new_im = self.binary(BinaryOp::Add, rs, ic);
        if self.spec.rotary == RotaryForm::Halves {
            return self.emit(Op::Concat { axis: 3 }, &[new_re, new_im], shape);
        }
        let mut one = half;
        one.push(1.into());
        let parts = [new_re, new_im].map(|part| self.reshape(part, one.clone()));
        let joined = self.emit(Op::Concat { axis: 4 }, &parts, pairs);
        self.reshape(joined, shape)
    }

    fn attention(&mut self, layer: usize, x: ValueId, tables: [ValueId; 2]) -> ValueId {
        let (heads, kv_heads, d) = (self.spec.heads, self.spec.kv_heads, self.spec.head_dim);
        let [q, k, v] = [heads, kv_heads, kv_heads].map(|heads| {
            let x = self.linear(x, heads * d);
            self.reshape(x, vec![1.into(), self.tokens, heads.into(), d.into()])
        });
        let [q, k] = [q, k].map(|x| self.rotary(x, tables));
        let attended = match self.spec.attention {
            AttentionForm::Fused => self.fused_attention(layer, [q, k, v]),
            _ => self.plain_attention(layer, [q, k, v]),
        };
        let joined = self.reshape(attended, vec![1.into(), self.tokens, (heads * d).into()]);
        self.linear(joined, heads * d)
    }

    fn state(&mut self, name: String, layout: CacheLayout) -> (StateId, ValueId) {
        let (kv_heads, positions, d) = (self.spec.kv_heads, self.spec.positions, self.spec.head_dim);
        let shape = match layout {
            CacheLayout::PositionMajor => [1, positions, kv_heads, d],
            CacheLayout::HeadMajor => [1, kv_heads, positions, d],
        };
        self.graph.add_state(name, DType::F32, &shape)
    }

    fn fused_attention(&mut self, layer: usize, [q, k, v]: [ValueId; 3]) -> ValueId {
        let layout = CacheLayout::PositionMajor;
        let start = self.start;
        let [k, v] = [("k", k), ("v", v)].map(|(name, new)| {
            let (state, cache) = self.state(format!("{name}_cache_{layer}"), layout);
            let updated = self.emit(Op::CacheUpdate { layout, start }, &[cache, new], self.shape(cache));
            self.graph.state_updates.push((state, updated));
            updated
        });
        let scale = 1.0 / (self.spec.head_dim as f32).sqrt();
        self.emit(Op::Attention { layout, start, scale }, &[q, k, v], self.shape(q))
    }

    /// The whole cache after writing `new [1, tokens, heads, d]`, head-major; without caches, `new` itself.
    fn cached(&mut self, name: String, new: ValueId) -> ValueId {
        let start = self.start;
        match self.spec.attention {
            AttentionForm::CacheLess => self.permute(new, [0, 2, 1, 3]),
            AttentionForm::PositionMajor => {
                let (state, cache) = self.state(name, CacheLayout::PositionMajor);
                let updated = self.emit(Op::SliceUpdate { axis: 1, start }, &[cache, new], self.shape(cache));
                self.graph.state_updates.push((state, updated));
                self.permute(updated, [0, 2, 1, 3])
            }
            _ => {
                let (state, cache) = self.state(name, CacheLayout::HeadMajor);
                let new = self.permute(new, [0, 2, 1, 3]);
                let updated = self.emit(Op::SliceUpdate { axis: 2, start }, &[cache, new], self.shape(cache));
                self.graph.state_updates.push((state, updated));
                updated
            }
        }
    }

    fn plain_attention(&mut self, layer: usize, [q, k, v]: [ValueId; 3]) -> ValueId {
        let (heads, kv_heads, d) = (self.spec.heads, self.spec.kv_heads, self.spec.head_dim);
        let (one, tokens) = (Int::from(1), self.tokens);
        let positions = match self.spec.attention {
            AttentionForm::CacheLess => tokens,
            _ => self.spec.positions.into(),
        };
        let [k, v] = [("k", k), ("v", v)].map(|(name, new)| {
            let cache = self.cached(format!("{name}_cache_{layer}"), new);
            let grouped = vec![one, kv_heads.into(), one, positions, d.into()];
            let mut repeated = grouped.clone();
            repeated[2] = (heads / kv_heads).into();
            let grouped = self.reshape(cache, grouped);
            let repeated = self.emit(Op::Expand, &[grouped], repeated);
            self.reshape(repeated, vec![one, heads.into(), positions, d.into()])
        });
        let mut q = self.permute(q, [0, 2, 1, 3]);
        let mut k = self.permute(k, [0, 1, 3, 2]);
        let split_scale = self.spec.attention != AttentionForm::PositionMajor;
        if split_scale {
            let root = self.graph.add_scalar_f32("root of scale", (d as f32).powf(-0.25));
            [q, k] = [q, k].map(|x| self.binary(BinaryOp::Multiply, x, root));
        }
        q = self.emit(Op::Expand, &[q], self.shape(q));
        let q = self.reshape(q, vec![heads.into(), tokens, d.into()]);
        let k = self.reshape(k, vec![heads.into(), d.into(), positions]);
        let scores = self.emit(Op::MatMul { transpose_b: false }, &[q, k], vec![heads.into(), tokens, positions]);
        let mut scores = self.reshape(scores, vec![one, heads.into(), tokens, positions]);
        if !split_scale {
            let root = self.graph.add_scalar_f32("root of d", (d as f32).sqrt());
            scores = self.binary(BinaryOp::Divide, scores, root);
        }
        let mask = self.additive_mask(positions);
        let scores = self.binary(BinaryOp::Add, scores, mask);
        let mut weights = self.emit(Op::Softmax { axis: 3 }, &[scores], self.shape(scores));
        if split_scale {
            weights = self.guard(scores, weights);
        }
        let weights = self.reshape(weights, vec![heads.into(), tokens, positions]);
        let v = self.reshape(v, vec![heads.into(), positions, d.into()]);
        let attended =
            self.emit(Op::MatMul { transpose_b: false }, &[weights, v], vec![heads.into(), tokens, d.into()]);
        let attended = self.reshape(attended, vec![one, heads.into(), tokens, d.into()]);
        if layer == 0 {
            return self.permute(attended, [0, 2, 1, 3]);
        }
        let there = self.permute(attended, [2, 0, 1, 3]);
        let back = self.permute(there, [1, 2, 0, 3]);
        self.permute(back, [0, 2, 1, 3])
    }

    /// A table of its own for each layer, as exports have it.
    fn additive_mask(&mut self, positions: Int) -> ValueId {
        let size = self.spec.positions;
        let sees = |index: usize| index % size <= index / size;
        if self.spec.attention == AttentionForm::PositionMajor {
            let data: Vec<f32> = (0..size * size).map(|i| if sees(i) { 0.0 } else { f32::NEG_INFINITY }).collect();
            let table = self.graph.add_constant("mask", DType::F32, &[size, size], None, f32_blob(&data));
            return self.slice(table, 0, self.start, self.tokens);
        }
        let visible = match self.mask {
            Some(mask) => mask,
            None => {
                let data = Blob::from_vec((0..size * size).map(|index| u8::from(sees(index))).collect());
                let table = self.graph.add_constant("mask", DType::Bool, &[size, size], None, data);
                if self.spec.attention == AttentionForm::CacheLess {
                    let rows = self.slice(table, 0, 0.into(), self.tokens);
                    self.slice(rows, 1, 0.into(), self.tokens)
                } else {
                    self.slice(table, 0, self.start, self.tokens)
                }
            }
        };
        let zero = self.graph.add_scalar_f32("zero", 0.0);
        let hidden = self.graph.add_scalar_f32("hidden", f32::NEG_INFINITY);
        self.emit(Op::Where, &[visible, zero, hidden], vec![self.tokens, positions])
    }

    /// Zeros where a whole row of `scores` is −∞.
    fn guard(&mut self, scores: ValueId, weights: ValueId) -> ValueId {
        let hidden = self.graph.add_scalar_f32("hidden", f32::NEG_INFINITY);
        let shape = self.shape(scores);
        let mut row = shape.clone();
        row[3] = 1.into();
        let is_hidden = self.binary(BinaryOp::Equal, scores, hidden);
        let seen = self.unary(UnaryOp::LogicalNot, is_hidden);
        let any = self.emit(Op::Any { axis: 3 }, &[seen], row);
        let none = self.unary(UnaryOp::LogicalNot, any);
        let zeros = self.emit(Op::Fill { value: 0.0 }, &[], shape.clone());
        self.emit(Op::Where, &[none, zeros, weights], shape)
    }
}
