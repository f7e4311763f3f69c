//! Static methods: a fixed number of tokens, the cache and the mask from the caller.
//!
//! Query heads of one key-value head are folded into rows, so that keys and values are multiplied as they lie, with
//! nothing repeated and no value of more than four axes.

use super::super::{KvLayout, ModelConfig, WeightSource};
use super::builder::{Attention, Builder, Heads};
use crate::error::Result;
use crate::graph::{BinaryOp, Graph, Int, Op, ValueId};
use crate::tensor::DType;

/// A static method's, as [`MethodSpec`](super::MethodSpec) has them.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub ar: usize,
    pub context: usize,
    pub layout: KvLayout,
    pub tokens: DType,
}

pub(super) fn build(config: &ModelConfig, weights: &dyn WeightSource, name: &str, sizes: Sizes) -> Result<Graph> {
    let Sizes { ar, context, layout, .. } = sizes;
    let mut graph = Graph::new(name);
    let tokens = graph.add_input("tokens", sizes.tokens, dims(&[1, ar]));
    let mask_shape = match layout {
        KvLayout::PerLayer => dims(&[1, 1, ar, context]),
        KvLayout::PerHead => dims(&[1, ar, context]),
    };
    let mask = graph.add_input("atten_mask", DType::F32, mask_shape);
    let positions = graph.add_input("input_pos", DType::I32, dims(&[1, ar]));
    let past = Past::inputs(&mut graph, config, sizes);
    let mut builder = Builder::new(config, weights, graph, ar.into());
    let tables = builder.rope_constants(context)?;
    let half = config.head_dim / 2;
    let rope = [("rope.cos", tables[0]), ("rope.sin", tables[1])].map(|(name, table)| {
        let rows = builder.emit(&format!("{name}.rows"), Op::Embedding, &[table, positions], dims(&[1, ar, half]));
        builder.reshape(name, rows, dims(&[ar, half]))
    });
    let scale = builder.graph.add_scalar_f32("attention.scale", 1.0 / (config.head_dim as f32).sqrt());
    let mut attention = StaticAttention { sizes, mask, past, scale, new_keys: Vec::new(), new_values: Vec::new() };
    let x = builder.layers(tokens, rope, &mut attention)?;
    builder.head(x)?;
    let StaticAttention { new_keys, new_values, .. } = attention;
    builder.graph.outputs.extend(new_keys.into_iter().chain(new_values));
    Ok(builder.graph)
}

fn dims(shape: &[usize]) -> Vec<Int> {
    shape.iter().map(|&dim| dim.into()).collect()
}

/// The inputs that hold the cache, layer by layer, and head by head where each has its own; empty without a past.
struct Past {
    keys: Vec<ValueId>,
    values: Vec<ValueId>,
}

impl Past {
    fn inputs(graph: &mut Graph, config: &ModelConfig, sizes: Sizes) -> Self {
        let (past, kv_heads, d) = (sizes.context - sizes.ar, config.kv_heads, config.head_dim);
        if past == 0 {
            return Self { keys: Vec::new(), values: Vec::new() };
        }
        let mut all = |name: &str, matrix: [usize; 2]| match sizes.layout {
            KvLayout::PerLayer => (0..config.layers)
                .map(|layer| {
                    let shape = dims(&[1, kv_heads, matrix[0], matrix[1]]);
                    graph.add_input(format!("{name}.{layer}"), DType::F32, shape)
                })
                .collect(),
            KvLayout::PerHead => (0..config.layers * kv_heads)
                .map(|index| {
                    let name = format!("{name}.{}.{}", index / kv_heads, index % kv_heads);
                    graph.add_input(name, DType::F32, dims(&[1, matrix[0], matrix[1]]))
                })
                .collect(),
        };
        let keys = all("k_cache", [d, past]);
        Self { keys, values: all("v_cache", [past, d]) }
    }
}

struct StaticAttention {
    sizes: Sizes,
    mask: ValueId,
    past: Past,
    scale: ValueId,
    new_keys: Vec<ValueId>,
    new_values: Vec<ValueId>,
}

impl Attention for StaticAttention {
    fn attend(&mut self, builder: &mut Builder<'_>, layer: usize, heads: Heads) -> ValueId {
        let name = |what: &str| format!("layers.{layer}.attention.{what}");
        let scaled = builder.binary(&name("query.scaled"), BinaryOp::Multiply, [heads.query, self.scale]);
        let by_head = builder.permute(&name("query.by_head"), scaled, [0, 2, 1, 3]); // [1, heads, ar, d]
        let mixed = match self.sizes.layout {
            KvLayout::PerLayer => {
                let key = builder.permute(&format!("k_new.{layer}"), heads.key, [0, 2, 3, 1]); // [1, kv_heads, d, ar]
                let value = builder.permute(&format!("v_new.{layer}"), heads.value, [0, 2, 1, 3]); // [1, kv_heads, ar, d]
                self.matrices(builder, &name(""), Matrices { query: by_head, key, value, slot: layer })
            }
            KvLayout::PerHead => self.head_by_head(builder, layer, [by_head, heads.key, heads.value]),
        };
        let config = builder.config;
        let shape = dims(&[1, config.heads, self.sizes.ar, config.head_dim]);
        let attended = builder.reshape(&name("attended.by_head"), mixed, shape);
        builder.permute(&name("attended"), attended, [0, 2, 1, 3])
    }
}

/// Operands of one attention: of all heads of a layer, or of one.
struct Matrices {
    /// `[1, heads, ar, d]`; of one key-value head, those heads that share it.
    query: ValueId,
    /// `[1, kv_heads, d, ar]`, or `[1, d, ar]`
    key: ValueId,
    /// `[1, kv_heads, ar, d]`, or `[1, ar, d]`
    value: ValueId,
    /// Which of the cache inputs precede them.
    slot: usize,
}

impl StaticAttention {
    /// An attention for each key-value head; the result is `[1, heads * ar, d]`.
    fn head_by_head(&mut self, builder: &mut Builder<'_>, layer: usize, [query, key, value]: [ValueId; 3]) -> ValueId {
        let (ar, kv_heads, d) = (self.sizes.ar, builder.config.kv_heads, builder.config.head_dim);
        let group = builder.config.heads / kv_heads;
        let name = |what: &str| format!("layers.{layer}.attention.{what}");
        let key = builder.permute(&name("key.by_head"), key, [0, 2, 3, 1]); // [1, kv_heads, d, ar]
        let value = builder.permute(&name("value.by_head"), value, [0, 2, 1, 3]); // [1, kv_heads, ar, d]
        let slice = |first: usize| Op::Slice { axis: 1, start: first.into(), step: 1 };
        let mixed: Vec<ValueId> = (0..kv_heads)
            .map(|head| {
                let name = |what: &str| name(&format!("heads.{head}.{what}"));
                let shape = dims(&[1, group, ar, d]);
                let query = builder.emit(&name("query"), slice(head * group), &[query], shape);
                let parts = [("key", "k_new", key, [d, ar]), ("value", "v_new", value, [ar, d])];
                let [key, value] = parts.map(|(part, new, x, [rows, columns])| {
                    let one = builder.emit(&name(part), slice(head), &[x], dims(&[1, 1, rows, columns]));
                    builder.reshape(&format!("{new}.{layer}.{head}"), one, dims(&[1, rows, columns]))
                });
                let slot = layer * kv_heads + head;
                self.matrices(builder, &name(""), Matrices { query, key, value, slot })
            })
            .collect();
        builder.emit(&name("mixed"), Op::Concat { axis: 1 }, &mixed, dims(&[1, kv_heads * group * ar, d]))
    }

    /// `softmax(q·k + mask)·v`, in names that begin with `prefix`; the result has the rank of the value matrices.
    fn matrices(&mut self, builder: &mut Builder<'_>, prefix: &str, of: Matrices) -> ValueId {
        let Sizes { ar, context, .. } = self.sizes;
        let name = |what: &str| format!("{prefix}{what}");
        self.new_keys.push(of.key);
        self.new_values.push(of.value);
        let key_shape = builder.graph.value(of.key).shape.clone();
        let rank = key_shape.len();
        let (leading, d) = (&key_shape[..rank - 2], key_shape[rank - 2]);
        let shape = |rows: Int, columns: Int| [leading, &[rows, columns]].concat();
        let columns = Int::from(context);
        let [mut keys, mut values] = [of.key, of.value];
        if let (Some(&past_keys), Some(&past_values)) = (self.past.keys.get(of.slot), self.past.values.get(of.slot)) {
            keys = builder.emit(&name("keys"), Op::Concat { axis: rank - 1 }, &[past_keys, keys], shape(d, columns));
            let axis = rank - 2;
            values = builder.emit(&name("values"), Op::Concat { axis }, &[past_values, values], shape(columns, d));
        }
        let heads = builder.graph.value(of.query).shape[1];
        let group = builder.config.heads / builder.config.kv_heads;
        let rows = Int::from(group * ar);
        let query = builder.reshape(&name("query.grouped"), of.query, shape(rows, d));
        let product = Op::MatMul { transpose_b: false };
        let products = builder.emit(&name("products"), product.clone(), &[query, keys], shape(rows, columns));
        // Both layouts of a mask broadcast over the heads, which are an axis of their own here.
        let mut apart = vec![Int::from(1), heads, ar.into(), columns];
        let apart = apart.split_off(4 - rank);
        let scores = builder.reshape(&name("scores"), products, apart);
        let masked = builder.binary(&name("masked"), BinaryOp::Add, [scores, self.mask]);
        let softmax = Op::Softmax { axis: rank - 1 };
        let weights = builder.emit(&name("weights"), softmax, &[masked], builder.graph.value(masked).shape.clone());
        let weights = builder.reshape(&name("weights.grouped"), weights, shape(rows, columns));
        builder.emit(&name("mixed"), product, &[weights, values], shape(rows, d))
    }
}
