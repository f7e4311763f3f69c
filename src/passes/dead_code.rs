//! Removes nodes whose results nothing needs, and values that nothing uses.

use super::Pass;
use crate::error::Result;
use crate::graph::Graph;

/// See the module. Values get new numbers.
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead-code"
    }

    fn after(&self) -> &'static [&'static str] {
        &["simplify-fused"]
    }

    fn run(&self, graph: &mut Graph) -> Result<usize> {
        let count = graph.remove_dead_nodes();
        graph.compact();
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::testing::dims;
    use crate::graph::{Op, UnaryOp};
    use crate::tensor::DType;

    #[test]
    fn only_what_results_need_stays() {
        let mut graph = Graph::new("g");
        let unused = graph.add_input("unused", DType::F32, dims(&[1]));
        let (state, contents) = graph.add_state("state", DType::F32, &[1]);
        let mut negate = |x| graph.emit("n", Op::Unary(UnaryOp::Negate), &[x], DType::F32, dims(&[1]));
        let dead = negate(unused);
        negate(dead);
        let next = negate(contents);
        let output = negate(next);
        graph.outputs.push(output);
        graph.state_updates.push((state, next));
        assert_eq!(DeadCode.run(&mut graph).unwrap(), 2);
        assert_eq!((graph.nodes.len(), graph.values.len(), graph.inputs.len()), (2, 4, 1));
        graph.verify().unwrap();
        assert_eq!(graph.value(graph.outputs[0]).name, "n");
        assert_eq!(DeadCode.run(&mut graph).unwrap(), 0);
    }
}
