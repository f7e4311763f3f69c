//! The decoder around its attention: embedding, norms, projections, feed-forward, head. What differs between static and
//! dynamic methods is behind [`Attention`].

use super::super::{LayerWeight, ModelConfig, Weight, WeightRole, WeightSource};
use super::error::{ModelError, check_table};
use super::rope::rope_tables;
use crate::base::storage::Blob;
use crate::error::Result;
use crate::graph::{BinaryOp, Graph, Int, Op, ValueId};
use crate::tensor::DType;
use half::{bf16, f16};

/// Heads of one layer, rotated where they are to be.
pub(super) struct Heads {
    /// `[1, tokens, heads, head_dim]`
    pub query: ValueId,
    /// `[1, tokens, kv_heads, head_dim]`
    pub key: ValueId,
    /// `[1, tokens, kv_heads, head_dim]`
    pub value: ValueId,
}

/// How queries meet keys and values of earlier tokens.
pub(super) trait Attention {
    /// The attended values of layer `layer`, `[1, tokens, heads, head_dim]`.
    fn attend(&mut self, builder: &mut Builder<'_>, layer: usize, heads: Heads) -> ValueId;
}

/// A graph that grows by named values.
pub(super) struct Builder<'a> {
    pub config: &'a ModelConfig,
    weights: &'a dyn WeightSource,
    pub graph: Graph,
    /// Tokens of a call.
    pub tokens: Int,
}

impl<'a> Builder<'a> {
    pub fn new(config: &'a ModelConfig, weights: &'a dyn WeightSource, graph: Graph, tokens: Int) -> Self {
        Self { config, weights, graph, tokens }
    }

    /// A node with an f32 result, both called `name`.
    pub fn emit(&mut self, name: &str, op: Op, inputs: &[ValueId], shape: Vec<Int>) -> ValueId {
        self.graph.emit(name, op, inputs, DType::F32, shape)
    }

    pub fn reshape(&mut self, name: &str, x: ValueId, shape: Vec<Int>) -> ValueId {
        self.emit(name, Op::Reshape, &[x], shape)
    }

    pub fn permute<const N: usize>(&mut self, name: &str, x: ValueId, perm: [usize; N]) -> ValueId {
        let shape = perm.iter().map(|&axis| self.graph.value(x).shape[axis]).collect();
        self.emit(name, Op::Permute { perm: perm.to_vec() }, &[x], shape)
    }

    /// `a op b` in the shape of `a`.
    pub fn binary(&mut self, name: &str, op: BinaryOp, [a, b]: [ValueId; 2]) -> ValueId {
        self.emit(name, Op::Binary(op), &[a, b], self.graph.value(a).shape.clone())
    }

    /// Cosines and sines for positions `0..context`, `[context, head_dim / 2]`.
    pub fn rope_constants(&mut self, context: usize) -> Result<[ValueId; 2]> {
        check_table(self.config, context)?;
        let tables = rope_tables(self.config, context);
        let shape = [context, self.config.head_dim / 2];
        Ok([("rope.cos.table", &tables.cos), ("rope.sin.table", &tables.sin)]
            .map(|(name, data)| self.graph.add_constant(name, DType::F32, &shape, None, f32_bytes(data))))
    }

    /// `tokens` → residual stream after the last layer, `[1, tokens, dim]`; `rope` is cosines and sines of the call's
    /// positions, `[tokens, head_dim / 2]`.
    pub fn layers(&mut self, tokens: ValueId, rope: [ValueId; 2], attention: &mut dyn Attention) -> Result<ValueId> {
        let (vocab, dim) = (self.config.vocab, self.config.dim);
        let table = self.matrix("embedding.weight", WeightRole::TokenEmbedding, [vocab, dim])?;
        let table = table.ok_or(ModelError::MissingWeight(WeightRole::TokenEmbedding))?;
        let mut x = self.emit("embedding", Op::Embedding, &[table, tokens], vec![1.into(), self.tokens, dim.into()]);
        for layer in 0..self.config.layers {
            x = self.layer(layer, x, rope, attention)?;
        }
        Ok(x)
    }

    /// `x [.., dim]` → logits `[.., vocab]`, an output.
    pub fn head(&mut self, x: ValueId) -> Result<()> {
        let (vocab, dim) = (self.config.vocab, self.config.dim);
        let x = self.norm("final_norm", x, WeightRole::FinalNorm)?;
        let x = x.ok_or(ModelError::MissingWeight(WeightRole::FinalNorm))?;
        let own = self.matrix("logits.weight", WeightRole::OutputHead, [vocab, dim])?;
        let weights = match own {
            Some(weights) => weights,
            None => {
                let tied = self.matrix("logits.weight", WeightRole::TokenEmbedding, [vocab, dim])?;
                tied.ok_or(ModelError::MissingWeight(WeightRole::OutputHead))?
            }
        };
        let logits = self.linear_of("logits", vec![x, weights]);
        self.graph.outputs.push(logits);
        Ok(())
    }

    fn layer(
        &mut self,
        layer: usize,
        x: ValueId,
        rope: [ValueId; 2],
        attention: &mut dyn Attention,
    ) -> Result<ValueId> {
        use LayerWeight::*;
        let config = self.config;
        let role = |weight| WeightRole::Layer(layer, weight);
        let name = |what: &str| format!("layers.{layer}.{what}");
        let need = |value: Option<ValueId>, weight| value.ok_or(ModelError::MissingWeight(role(weight)));

        let normed = self.norm(&name("attention_norm"), x, role(AttentionNorm))?;
        let normed = need(normed, AttentionNorm)?;
        let parts = [
            ("query", config.heads, [Query, QueryBias], Some(QueryNorm)),
            ("key", config.kv_heads, [Key, KeyBias], Some(KeyNorm)),
            ("value", config.kv_heads, [Value, ValueBias], None),
        ];
        let mut heads = Vec::with_capacity(3);
        for (part, count, [weight, bias], norm) in parts {
            let name = name(&format!("attention.{part}"));
            let bias = self.vector(&format!("{name}.bias"), role(bias), count * config.head_dim)?;
            let flat = self.linear(&name, normed, role(weight), Linear { rows: count * config.head_dim, bias })?;
            let shape = vec![1.into(), self.tokens, count.into(), config.head_dim.into()];
            let mut x = self.reshape(&format!("{name}.heads"), flat, shape.clone());
            if let Some(norm) = norm {
                x = self.norm(&format!("{name}.norm"), x, role(norm))?.unwrap_or(x);
                let style = config.rope.style;
                x = self.emit(&format!("{name}.rotated"), Op::Rotary { style }, &[x, rope[0], rope[1]], shape);
            }
            heads.push(x);
        }
        let attended = attention.attend(self, layer, Heads { query: heads[0], key: heads[1], value: heads[2] });
        let width = config.heads * config.head_dim;
        let joined = self.reshape(&name("attention.joined"), attended, vec![1.into(), self.tokens, width.into()]);
        let output = self.linear(&name("attention.output"), joined, role(Output), Linear::to(config.dim))?;
        let x = self.binary(&name("attention_residual"), BinaryOp::Add, [x, output]);

        let normed = self.norm(&name("feed_forward_norm"), x, role(FeedForwardNorm))?;
        let normed = need(normed, FeedForwardNorm)?;
        let gate = self.linear(&name("feed_forward.gate"), normed, role(Gate), Linear::to(config.hidden))?;
        let up = self.linear(&name("feed_forward.up"), normed, role(Up), Linear::to(config.hidden))?;
        let shape = self.graph.value(gate).shape.clone();
        let product = self.emit(&name("feed_forward.swiglu"), Op::SwiGlu, &[gate, up], shape);
        let down = self.linear(&name("feed_forward.down"), product, role(Down), Linear::to(config.dim))?;
        Ok(self.binary(&name("residual"), BinaryOp::Add, [x, down]))
    }

    /// RMS norm along the last axis; `None` where the model has no weight for it.
    fn norm(&mut self, name: &str, x: ValueId, role: WeightRole) -> Result<Option<ValueId>> {
        let shape = self.graph.value(x).shape.clone();
        let width = self.graph.max_shape(x)[shape.len() - 1];
        let gamma = self.vector(&format!("{name}.weight"), role, width)?;
        let op = Op::RmsNorm { epsilon: self.config.norm_epsilon };
        Ok(gamma.map(|gamma| self.emit(name, op, &[x, gamma], shape)))
    }

    fn linear(&mut self, name: &str, x: ValueId, role: WeightRole, to: Linear) -> Result<ValueId> {
        let columns = self.graph.max_shape(x)[self.graph.value(x).shape.len() - 1];
        let weights = self.matrix(&format!("{name}.weight"), role, [to.rows, columns])?;
        let weights = weights.ok_or(ModelError::MissingWeight(role))?;
        Ok(self.linear_of(name, [x, weights].into_iter().chain(to.bias).collect()))
    }

    /// Operands are `x`, the weights, and perhaps a bias.
    fn linear_of(&mut self, name: &str, operands: Vec<ValueId>) -> ValueId {
        let mut shape = self.graph.value(operands[0]).shape.clone();
        let last = shape.len() - 1;
        shape[last] = self.graph.value(operands[1]).shape[0];
        self.emit(name, Op::FullyConnected, &operands, shape)
    }

    fn weight(&self, role: WeightRole, wanted: &[usize]) -> Result<Option<Weight>> {
        let Some(weight) = self.weights.weight(role)? else { return Ok(None) };
        let Weight { name, dtype, shape, .. } = &weight;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(ModelError::Type { name: name.clone(), role, dtype: *dtype }.into());
        }
        if shape != wanted {
            let (found, wanted) = (shape.clone(), wanted.to_vec());
            return Err(ModelError::Shape { name: name.clone(), role, found, wanted }.into());
        }
        Ok(Some(weight))
    }

    fn matrix(&mut self, name: &str, role: WeightRole, shape: [usize; 2]) -> Result<Option<ValueId>> {
        let weight = self.weight(role, &shape)?;
        Ok(weight.map(|weight| self.graph.add_constant(name, weight.dtype, &shape, None, weight.data)))
    }

    /// In f32, whatever the checkpoint has.
    fn vector(&mut self, name: &str, role: WeightRole, length: usize) -> Result<Option<ValueId>> {
        let weight = self.weight(role, &[length])?;
        Ok(weight.map(|weight| self.graph.add_constant(name, DType::F32, &[length], None, widened(weight))))
    }
}

/// Rows of a projection, and its bias.
struct Linear {
    rows: usize,
    bias: Option<ValueId>,
}

impl Linear {
    fn to(rows: usize) -> Self {
        Self { rows, bias: None }
    }
}

fn widened(weight: Weight) -> Blob {
    let pairs = weight.data.as_chunks::<2>().0.iter();
    match weight.dtype {
        DType::F16 => f32_bytes(&pairs.map(|&pair| f16::from_le_bytes(pair).to_f32()).collect::<Vec<_>>()),
        DType::BF16 => f32_bytes(&pairs.map(|&pair| bf16::from_le_bytes(pair).to_f32()).collect::<Vec<_>>()),
        _ => weight.data,
    }
}

fn f32_bytes(data: &[f32]) -> Blob {
    Blob::from_vec(data.iter().flat_map(|x| x.to_le_bytes()).collect())
}
