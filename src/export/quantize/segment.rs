//! A part of a graph as a graph of its own, run by the engine: one decoder layer at a time is in memory.

use crate::engine::{InputView, Instance, Resources};
use crate::error::{Error, Result, Status};
use crate::graph::{Graph, ValueId, ValueKind};

/// What flows between `inputs` and `outputs`; other inputs of the graph that it needs come after `inputs`, and its
/// outputs keep their names.
pub(super) struct Segment {
    pub graph: Graph,
    /// Names of its inputs.
    pub inputs: Vec<String>,
}

impl Segment {
    pub fn new(whole: &Graph, inputs: &[ValueId], outputs: &[ValueId]) -> Self {
        let mut graph = whole.clone();
        graph.nodes.retain(|node| !node.outputs.iter().any(|made| inputs.contains(made)));
        graph.outputs = outputs.to_vec();
        graph.state_updates.clear();
        graph.remove_dead_nodes();
        let used = graph.use_counts();
        let given = graph.inputs.iter().filter(|id| used[id.0 as usize] > 0 && !inputs.contains(id));
        graph.inputs = inputs.iter().chain(given).copied().collect();
        for index in 0..whole.inputs.len() {
            let id = whole.inputs[index];
            if !graph.inputs.contains(&id) {
                graph.value_mut(id).kind = ValueKind::Computed;
            }
        }
        for position in 0..graph.inputs.len() {
            graph.value_mut(graph.inputs[position]).kind = ValueKind::Input(position);
        }
        graph.compact();
        let inputs = graph.inputs.iter().map(|&id| graph.value(id).name.clone()).collect();
        Self { graph, inputs }
    }

    /// Compiles it, and runs it once for each of `runs`, which give the bytes of an input by its name; `take` gets every
    /// output of each run with its number.
    ///
    /// # Errors
    /// When the engine cannot run it, or an input is missing.
    pub fn run(
        &self,
        runs: usize,
        give: &dyn Fn(&str, usize) -> Option<Vec<u8>>,
        take: &mut dyn FnMut(usize, Vec<f32>),
    ) -> Result<()> {
        let mut instance = Instance::new(Resources::new(None).compile(self.graph.clone())?)?;
        let dims: Vec<Vec<usize>> = self.graph.inputs.iter().map(|&id| self.graph.max_shape(id)).collect();
        for run in 0..runs {
            let bytes = self.inputs.iter().map(|name| {
                give(name, run).ok_or_else(|| Error::new(Status::Internal, format!("no calibration data for {name}")))
            });
            let bytes = bytes.collect::<Result<Vec<_>>>()?;
            let views: Vec<_> = dims.iter().zip(&bytes).map(|(dims, bytes)| InputView { dims, bytes }).collect();
            instance.run(&views)?;
            for index in 0..self.graph.outputs.len() {
                take(index, instance.output(index).map_or_else(Vec::new, |output| reals(output.bytes)));
            }
        }
        Ok(())
    }
}

/// Little-endian f32.
pub(super) fn reals(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&four| f32::from_le_bytes(four)).collect()
}

/// The way back.
pub(super) fn bytes(reals: &[f32]) -> Vec<u8> {
    reals.iter().flat_map(|x| x.to_le_bytes()).collect()
}
