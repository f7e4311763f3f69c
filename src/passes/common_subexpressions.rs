//! Computes equal things once: exports slice the rotary tables, and build the mask, anew in every layer.

use crate::graph::{Graph, ValueId, ValueKind};
use std::collections::HashMap;

/// Constants above this size are equal only if they are the same place of the same file.
const MAX_COMPARED: usize = 8 << 20;

/// Makes equal constants one, and equal nodes one. Returns how many values went.
pub(super) fn share_common(graph: &mut Graph) -> usize {
    let mut same = equal_leaves(graph);
    let mut count = 0;
    let mut seen: HashMap<(String, Vec<ValueId>), Vec<Vec<ValueId>>> = HashMap::new();
    let mut kept = Vec::new();
    for mut node in std::mem::take(&mut graph.nodes) {
        for input in &mut node.inputs {
            let new = same[input.0 as usize];
            count += usize::from(*input != new && graph.value(*input).kind != ValueKind::Computed);
            *input = new;
        }
        // The text of an operation tells even the zeros apart, which compare equal.
        let known = seen.entry((format!("{:?}", node.op), node.inputs.clone())).or_default();
        match known.iter().find(|outputs| outputs.iter().zip(&node.outputs).all(|(&a, &b)| alike(graph, a, b))) {
            Some(outputs) => {
                node.outputs.iter().zip(outputs).for_each(|(old, new)| same[old.0 as usize] = *new);
                count += 1;
            }
            None => {
                known.push(node.outputs.clone());
                kept.push(node);
            }
        }
    }
    graph.nodes = kept;
    let results = graph.outputs.iter_mut().chain(graph.state_updates.iter_mut().map(|(_, value)| value));
    results.for_each(|value| *value = same[value.0 as usize]);
    count
}

fn alike(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    let (a, b) = (graph.value(a), graph.value(b));
    a.dtype == b.dtype && a.shape == b.shape && a.quantization == b.quantization
}

/// For each value the first constant or state that is equal to it, or itself.
fn equal_leaves(graph: &Graph) -> Vec<ValueId> {
    let mut firsts: HashMap<(i8, usize), Vec<ValueId>> = HashMap::new();
    let find = |id: ValueId| {
        let length = match &graph.value(id).kind {
            ValueKind::Constant(constant) => constant.data.len(),
            ValueKind::State(state) => state.0 as usize,
            _ => return id,
        };
        let known = firsts.entry((graph.value(id).dtype as i8, length)).or_default();
        match known.iter().find(|&&other| alike(graph, other, id) && equal_contents(graph, other, id)) {
            Some(&first) => first,
            None => {
                known.push(id);
                id
            }
        }
    };
    (0..graph.values.len() as u32).map(ValueId).map(find).collect()
}

fn equal_contents(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    match (&graph.value(a).kind, &graph.value(b).kind) {
        (ValueKind::State(a), ValueKind::State(b)) => a == b,
        (ValueKind::Constant(a), ValueKind::Constant(b)) => {
            a.data.same_place(&b.data) || (a.data.len() <= MAX_COMPARED && a.data == b.data)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::{dims, f32_blob};
    use crate::graph::{BinaryOp, Op};
    use crate::tensor::DType;

    #[test]
    fn equal_slices_of_equal_tables_are_one() {
        let mut graph = Graph::new("g");
        let start = graph.symbol("s", crate::graph::SymbolSource::InputItem { input: 0, index: 0 }, 0, 3);
        graph.add_input("pos", DType::I64, dims(&[1]));
        let mut row = |start, data: [f32; 4]| {
            let table = graph.add_constant("table", DType::F32, &[4, 1], None, f32_blob(&data));
            graph.emit("row", Op::Slice { axis: 0, start, step: 1 }, &[table], DType::F32, dims(&[1, 1]))
        };
        let [a, b, c, d] = [
            row(start, [1.0, 2.0, 3.0, 4.0]),
            row(start, [1.0, 2.0, 3.0, 4.0]),
            row(start, [1.0, 2.0, 3.0, 5.0]),
            row(0.into(), [1.0, 2.0, 3.0, 4.0]),
        ];
        for pair in [[a, b], [c, d]] {
            let sum = graph.emit("sum", Op::Binary(BinaryOp::Add), &pair, DType::F32, dims(&[1, 1]));
            graph.outputs.push(sum);
        }
        assert_eq!(share_common(&mut graph), 3);
        assert_eq!(graph.nodes.len(), 5);
        assert_eq!(graph.nodes[3].inputs, [a, a]);
        graph.verify().unwrap();
        assert_eq!(share_common(&mut graph), 0);
    }

    #[test]
    fn results_of_other_types_and_signed_zeros_stay_apart() {
        let mut graph = Graph::new("g");
        for (value, dtype) in [(0.0, DType::F32), (-0.0, DType::F32), (0.0, DType::I64)] {
            let filled = graph.emit("fill", Op::Fill { value }, &[], dtype, dims(&[1]));
            graph.outputs.push(filled);
        }
        assert_eq!(share_common(&mut graph), 0);
        assert_eq!(graph.nodes.len(), 3);
    }
}
