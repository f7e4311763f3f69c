//! Encodings for every value of a static graph, so that interpreting it predicts what an integer accelerator computes.
//!
//! Values that hold the same elements share an encoding: operands and results of movements are one class. What a class
//! is for decides its codes (keys and values, the mask, results of softmax and sigmoid, logits); everything else gets
//! the range that calibration saw, over all names of the class.

use super::constants;
use super::roles::{self, CACHES, MASK, Roles, is_real};
use crate::error::Result;
use crate::export::quantize::recipe::{Activations, EmbeddingFormat, Recipe};
use crate::export::quantize::{Calibration, CodeStore, CodeType, QuantizeError, Range};
use crate::graph::{BinaryOp, Constant, Graph, Node, Op, UnaryOp, ValueId, ValueKind};
use crate::passes::Pass;
use crate::tensor::Encoding;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
pub struct Annotate {
    /// Codes of activations.
    pub recipe: Recipe,
    /// Ranges by name.
    pub calibration: Arc<Calibration>,
    /// Takes the codes of constants.
    pub store: Arc<CodeStore>,
}

impl Pass for Annotate {
    fn name(&self) -> &'static str {
        "annotate"
    }

    fn after(&self) -> &'static [&'static str] {
        &["insert-requantize", "quantize-embedding", "quantize-linear"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let Activations::Static { codes, logits } = self.recipe.activations else { return Ok(0) };
        graph.nodes.iter().try_for_each(|node| supported(graph, node))?;
        let parts = parts_of(graph);
        let mut classes = Classes::of(graph);
        let mut purposes = vec![Purpose::Range(codes); graph.values.len()];
        let kv = self.recipe.kv_codes()?.unwrap_or(codes);
        for (class, purpose) in purposes_of(graph, &mut classes, [codes, kv, logits], self.recipe.embedding) {
            purposes[class] = purpose;
        }
        let mut encodings: Vec<Option<Encoding>> = vec![None; graph.values.len()];
        let names = classes.names(graph, &parts)?;
        let mut count = 0;
        for (index, _) in parts.iter().enumerate().filter(|(_, part)| **part) {
            let id = ValueId(index as u32);
            let class = classes.find(index);
            let encoding = match (encodings[class], purposes[class]) {
                (Some(encoding), _) => encoding,
                (None, Purpose::Fixed(_, encoding)) => encoding,
                (None, Purpose::Range(codes)) => codes.encoding(self.range(&names[class], codes)?),
            };
            encodings[class] = Some(encoding);
            self.assign(graph, id, purposes[class].codes(), encoding)?;
            count += 1;
        }
        quantize_scalar_operands(graph, codes);
        Ok(count)
    }
}

impl Annotate {
    fn range(&self, class: &Names, codes: CodeType) -> Result<Range, QuantizeError> {
        let seen = self.calibration.range(class.names.iter().map(String::as_str), codes, self.recipe.range);
        match (seen, class.constants) {
            (Ok(seen), Some(constants)) => Ok(seen.union(constants)),
            (Err(_), Some(constants)) => Ok(constants),
            (seen, None) => seen,
        }
    }

    /// Gives `id` its encoding; a constant becomes codes.
    fn assign(&self, graph: &mut Graph, id: ValueId, codes: CodeType, encoding: Encoding) -> Result<()> {
        if graph.constant(id).is_some() {
            let data = constants::stored(&self.store, graph, id, codes, encoding)?;
            graph.value_mut(id).kind = ValueKind::Constant(Constant { data });
        }
        let value = graph.value_mut(id);
        (value.dtype, value.quantization) = (codes.dtype(), Some(codes.quantization(encoding)));
        Ok(())
    }
}

/// What the elements of a class are for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    /// Whatever calibration saw.
    Range(CodeType),
    /// Known beforehand.
    Fixed(CodeType, Encoding),
}

impl Purpose {
    fn codes(self) -> CodeType {
        match self {
            Self::Range(codes) | Self::Fixed(codes, _) => codes,
        }
    }
}

/// Classes whose purpose is not the ordinary one. Later ones prevail: what the caller exchanges is fixed for it.
fn purposes_of(
    graph: &Graph,
    classes: &mut Classes,
    [codes, kv, logits]: [CodeType; 3],
    embedding: EmbeddingFormat,
) -> Vec<(usize, Purpose)> {
    let mut purposes = Vec::new();
    let unit = |levels: i32| Purpose::Fixed(codes, Encoding { scale: 1.0 / levels as f32, zero_point: 0 });
    for node in &graph.nodes {
        let made = node.outputs[0].0 as usize;
        match node.op {
            Op::Softmax { .. } => {
                purposes.push((classes.find(made), unit(codes.max())));
            }
            Op::Unary(UnaryOp::Sigmoid) => {
                purposes.push((classes.find(made), unit(codes.max() + 1)));
            }
            Op::Embedding if roles::is_token_embedding(graph, node) => {
                if let EmbeddingFormat::PerTensor(table) = embedding {
                    purposes.push((classes.find(made), Purpose::Range(table)));
                }
            }
            _ => {}
        }
    }
    let roles = Roles::of(graph);
    if let Some(head) = roles.head.map(|head| &graph.nodes[head]) {
        purposes.push((classes.find(head.inputs[0].0 as usize), Purpose::Range(logits)));
        purposes.push((classes.find(head.outputs[0].0 as usize), Purpose::Range(logits)));
    }
    for &id in graph.inputs.iter().chain(&graph.outputs) {
        let name = &graph.value(id).name;
        let class = classes.find(id.0 as usize);
        if CACHES.iter().any(|prefix| name.starts_with(prefix)) {
            purposes.push((class, Purpose::Range(kv)));
        } else if name == MASK {
            let encoding = Encoding { scale: 255.0 / codes.max() as f32, zero_point: codes.max() };
            purposes.push((class, Purpose::Fixed(codes, encoding)));
        }
    }
    purposes
}

/// Names of the values of a class, and the range of its constants.
#[derive(Debug, Clone, Default)]
struct Names {
    names: Vec<String>,
    constants: Option<Range>,
}

/// Values that hold the same elements, by union and find.
struct Classes {
    parents: Vec<usize>,
}

impl Classes {
    fn of(graph: &Graph) -> Self {
        let mut classes = Self { parents: (0..graph.values.len()).collect() };
        for node in &graph.nodes {
            let moved: &[ValueId] = match node.op {
                _ if roles::moves(&node.op) => &node.inputs,
                Op::Embedding if is_real(graph, node.inputs[0]) => &node.inputs[..1],
                _ => &[],
            };
            for operand in moved {
                let (a, b) = (classes.find(operand.0 as usize), classes.find(node.outputs[0].0 as usize));
                classes.parents[a.max(b)] = a.min(b);
            }
        }
        classes
    }

    fn find(&mut self, value: usize) -> usize {
        let mut root = value;
        while self.parents[root] != root {
            root = self.parents[root];
        }
        self.parents[value] = root;
        root
    }

    /// Names by class. A conversion's result was seen under the name of what it converts, and the other way about.
    fn names(&mut self, graph: &Graph, parts: &[bool]) -> Result<Vec<Names>, QuantizeError> {
        let mut names = vec![Names::default(); graph.values.len()];
        for (index, value) in graph.values.iter().enumerate() {
            let class = self.find(index);
            names[class].names.push(value.name.clone());
            let id = ValueId(index as u32);
            if parts[index] && graph.constant(id).is_some() {
                let range = constants::range(graph, id)?;
                names[class].constants = Some(names[class].constants.map_or(range, |other| range.union(other)));
            }
        }
        for node in graph.nodes.iter().filter(|node| node.op == Op::Convert) {
            let (from, to) = (self.find(node.inputs[0].0 as usize), self.find(node.outputs[0].0 as usize));
            let (seen_from, seen_to) = (names[from].names.clone(), names[to].names.clone());
            names[to].names.extend(seen_from);
            names[from].names.extend(seen_to);
        }
        Ok(names)
    }
}

/// The values that get encodings: reals that are exchanged, made or moved. Not among them are biases, constant operands
/// of arithmetic, and rows of a table that the CPU dequantizes.
fn parts_of(graph: &Graph) -> Vec<bool> {
    let mut parts = vec![false; graph.values.len()];
    let mut mark = |id: ValueId| parts[id.0 as usize] = is_real(graph, id);
    graph.inputs.iter().for_each(|&id| mark(id));
    for node in &graph.nodes {
        match node.op {
            Op::Embedding if graph.value(node.inputs[0]).quantization.is_some() => continue,
            Op::FullyConnected => mark(node.inputs[0]),
            Op::Binary(_) => node.inputs.iter().filter(|id| graph.constant(**id).is_none()).for_each(|&id| mark(id)),
            // What only the CPU has made stays real; only its conversion takes part.
            Op::Convert => {}
            _ => node.inputs.iter().for_each(|&id| mark(id)),
        }
        node.outputs.iter().for_each(|&id| mark(id));
    }
    parts
}

fn supported(graph: &Graph, node: &Node) -> Result<(), QuantizeError> {
    use BinaryOp::{Add, Divide, Maximum, Minimum, Multiply, Subtract};
    let known = match node.op {
        Op::Binary(op) => matches!(op, Add | Subtract | Multiply | Divide | Maximum | Minimum),
        Op::FullyConnected => graph.value(node.inputs[1]).quantization.is_some(),
        Op::Unary(UnaryOp::LogicalNot) => false,
        Op::Embedding | Op::Unary(_) | Op::Convert | Op::Mean { .. } | Op::Softmax { .. } | Op::MatMul { .. } => true,
        Op::RmsNorm { .. } | Op::Rotary { .. } | Op::SwiGlu | Op::Clamp { .. } => true,
        _ => roles::moves(&node.op),
    };
    match known {
        true => Ok(()),
        false => Err(QuantizeError::Operation { node: node.origin.clone(), op: format!("{:?}", node.op) }),
    }
}

/// Converts constant operands of arithmetic to `codes`, each once; `quantize-scalars` makes codes of the conversions.
fn quantize_scalar_operands(graph: &mut Graph, codes: CodeType) {
    let mut converted: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    graph.rewrite(|graph, before, id| {
        let node = &before.nodes()[id];
        let is_constant = |id: &&ValueId| graph.constant(**id).is_some() && is_real(graph, **id);
        let &constant = node.inputs.iter().find(is_constant).filter(|_| matches!(node.op, Op::Binary(_)))?;
        let mut nodes = Vec::new();
        let new = *converted.entry(constant).or_insert_with(|| {
            let of = graph.value(constant).clone();
            let name = format!("{}.codes", of.name);
            let new = graph.add_computed(name.clone(), codes.dtype(), of.shape);
            let encoding = codes.encoding(constants::range(graph, constant).unwrap_or(Range { min: 0.0, max: 0.0 }));
            graph.value_mut(new).quantization = Some(codes.quantization(encoding));
            nodes.push(Node { origin: name, op: Op::Convert, inputs: vec![constant], outputs: vec![new] });
            new
        });
        let mut arithmetic = node.clone();
        arithmetic.inputs.iter_mut().filter(|input| **input == constant).for_each(|input| *input = new);
        nodes.push(arithmetic);
        Some(nodes)
    });
}
