//! Run-time integers as instructions: sizes and elements of inputs, and arithmetic on them.

use super::plan::PlanBuilder;
use crate::graph::{Int, SymbolSource};

/// The plan's integer that `source` comes to; its instructions go to the end of the plan.
pub(super) fn compute(plan: &mut PlanBuilder<'_, '_>, source: SymbolSource) -> u32 {
    match source {
        SymbolSource::InputDim { input, axis } => {
            let args = [plan.input(input), plan.int(axis as i64)];
            set(plan, "aten::sym_size.int", &args)
        }
        SymbolSource::InputItem { input, index } => item(plan, input, index),
        SymbolSource::Sum(a, b) => arithmetic(plan, "executorch_prim::add.Scalar", [a, b]),
        SymbolSource::Difference(a, b) => arithmetic(plan, "executorch_prim::sub.Scalar", [a, b]),
        SymbolSource::Product(a, b) => arithmetic(plan, "executorch_prim::mul.Scalar", [a, b]),
        SymbolSource::FloorQuotient(a, b) => arithmetic(plan, "executorch_prim::floordiv.Scalar", [a, b]),
    }
}

fn set(plan: &mut PlanBuilder<'_, '_>, name: &str, args: &[u32]) -> u32 {
    let out = plan.integer_result();
    let args: Vec<u32> = args.iter().copied().chain([out]).collect();
    plan.kernel(name, &args);
    out
}

fn arithmetic(plan: &mut PlanBuilder<'_, '_>, name: &str, operands: [Int; 2]) -> u32 {
    let args = operands.map(|int| plan.integer(int));
    set(plan, name, &args)
}

/// One axis after the other is selected away, until one element is left.
fn item(plan: &mut PlanBuilder<'_, '_>, input: usize, mut index: usize) -> u32 {
    let graph = plan.graph();
    let value = graph.value(graph.inputs[input]);
    let mut tensor = plan.input(input);
    for axis in 0..value.shape.len() {
        let rest = &value.shape[axis + 1..];
        let inner: usize = rest.iter().map(|&dim| graph.bounds(dim).1.max(1) as usize).product();
        let args = [tensor, plan.int(0), plan.int((index / inner) as i64)];
        index %= inner;
        tensor = plan.temporary(value.dtype, rest);
        plan.call("aten::select_copy.int_out", &args, tensor);
    }
    set(plan, "aten::_local_scalar_dense", &[tensor])
}
