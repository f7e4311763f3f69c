//! Dynamic methods: any number of tokens at any position, the cache inside.

use super::super::{ModelConfig, WeightSource};
use super::builder::{Attention, Builder, Heads};
use crate::error::Result;
use crate::graph::{CacheLayout, Graph, Int, Op, SymbolSource, ValueId};
use crate::passes::{DecomposeAttention, Pass};
use crate::tensor::DType;

/// A dynamic method's, as [`MethodSpec`](super::MethodSpec) has them.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub max_seq_len: usize,
    pub max_context_len: usize,
    pub full_logits: bool,
    pub fused_attention: bool,
}

pub(super) fn build(config: &ModelConfig, weights: &dyn WeightSource, name: &str, sizes: Sizes) -> Result<Graph> {
    let mut graph = Graph::new(name);
    let most = sizes.max_seq_len as i64 - 1;
    let tokens = graph.symbol("tokens", SymbolSource::InputDim { input: 0, axis: 1 }, 1, most);
    let ids = graph.add_input("tokens", DType::I64, vec![1.into(), tokens]);
    graph.add_input("input_pos", DType::I64, vec![1.into()]);
    let last_position = sizes.max_context_len as i64 - 1;
    let start = graph.symbol("input_pos", SymbolSource::InputItem { input: 1, index: 0 }, 0, last_position);
    let mut builder = Builder::new(config, weights, graph, tokens);
    let tables = builder.rope_constants(sizes.max_context_len)?;
    let rows = Op::Slice { axis: 0, start, step: 1 };
    let shape = vec![tokens, (config.head_dim / 2).into()];
    let rope = [("rope.cos", tables[0]), ("rope.sin", tables[1])]
        .map(|(name, table)| builder.emit(name, rows.clone(), &[table], shape.clone()));
    let layout = if sizes.fused_attention { CacheLayout::PositionMajor } else { CacheLayout::HeadMajor };
    let mut x = builder.layers(ids, rope, &mut CachedAttention { layout, start, positions: sizes.max_context_len })?;
    if !sizes.full_logits {
        let last = SymbolSource::Difference(tokens, Int::Const(1));
        let start = builder.graph.symbol("last token", last, 0, most - 1);
        let dim = Int::from(config.dim);
        let row = builder.emit("last.row", Op::Slice { axis: 1, start, step: 1 }, &[x], vec![1.into(), 1.into(), dim]);
        x = builder.reshape("last", row, vec![1.into(), dim]);
    }
    builder.head(x)?;
    let mut graph = builder.graph;
    if !sizes.fused_attention {
        DecomposeAttention.run(&mut graph)?;
    }
    Ok(graph)
}

struct CachedAttention {
    layout: CacheLayout,
    start: Int,
    positions: usize,
}

impl CachedAttention {
    /// Puts `new [1, tokens, kv_heads, head_dim]` into the state `name`, and gives the whole cache.
    fn update(&self, builder: &mut Builder<'_>, name: &str, new: ValueId) -> ValueId {
        let (kv_heads, d) = (builder.config.kv_heads, builder.config.head_dim);
        let shape = match self.layout {
            CacheLayout::PositionMajor => [1, self.positions, kv_heads, d],
            CacheLayout::HeadMajor => [1, kv_heads, self.positions, d],
        };
        let (state, cache) = builder.graph.add_state(name, DType::F32, &shape);
        let op = Op::CacheUpdate { layout: self.layout, start: self.start };
        let shape = builder.graph.value(cache).shape.clone();
        let updated = builder.emit(&format!("{name}.updated"), op, &[cache, new], shape);
        builder.graph.state_updates.push((state, updated));
        updated
    }
}

impl Attention for CachedAttention {
    fn attend(&mut self, builder: &mut Builder<'_>, layer: usize, heads: Heads) -> ValueId {
        let key = self.update(builder, &format!("k_cache.{layer}"), heads.key);
        let value = self.update(builder, &format!("v_cache.{layer}"), heads.value);
        let scale = 1.0 / (builder.config.head_dim as f32).sqrt();
        let op = Op::Attention { layout: self.layout, start: self.start, scale };
        let shape = builder.graph.value(heads.query).shape.clone();
        builder.emit(&format!("layers.{layer}.attention.attended"), op, &[heads.query, key, value], shape)
    }
}
