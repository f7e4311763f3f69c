//! The facts about a program in the order and form that they are shown in; text and JSON are written from this alone.

use crate::pte::{BackendDelegate, Blob, EValue, ExecutionPlan, Instruction, Program, ShapeDynamism, TensorData};
use crate::tensor::{DType, Dims, Encoding};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A whole program.
#[derive(Debug, Clone)]
pub struct Report {
    /// The file's name.
    pub file: String,
    /// Schema version.
    pub version: u32,
    /// Offset and size of each segment, in bytes.
    pub segments: Vec<Extent>,
    /// Number of constant tensors in the program, and their bytes.
    pub constants: (usize, u64),
    /// Keys and sizes of the blobs that delegates ask for by name.
    pub named_data: Vec<(String, u64)>,
    /// Methods that do something.
    pub methods: Vec<Method>,
    /// Methods that take nothing and only return constants: name and values.
    pub constant_methods: Vec<(String, Vec<Constant>)>,
    /// Each distinct delegate blob once.
    pub delegates: Vec<Delegate>,
    /// Mutable buffers that the program names, each once: name, type and sizes.
    pub states: Vec<(String, DType, Dims)>,
}

/// A range of bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A method.
#[derive(Debug, Clone)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// In the caller's order.
    pub inputs: Vec<Io>,
    /// In the caller's order.
    pub outputs: Vec<Io>,
    /// Number of values.
    pub values: usize,
    /// Number of instructions in all chains.
    pub instructions: usize,
    /// Bytes of planned memory, all buffers together.
    pub planned_bytes: u64,
    /// What is called, how often: backends, then operators, then control flow.
    pub calls: Vec<(String, usize)>,
}

/// An input or output.
#[derive(Debug, Clone, PartialEq)]
pub enum Io {
    /// A tensor.
    Tensor {
        /// Element type, as the program says.
        dtype: DType,
        /// Sizes; upper bounds where dynamic.
        dims: Dims,
        /// Whether the sizes may change.
        dynamic: bool,
        /// Whether the program gives the memory itself.
        planned: bool,
    },
    /// Something else, by its kind: `int`, `bool`.
    Other(&'static str),
}

/// A value that a constant method returns.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Constant {
    Null,
    Int(i64),
    Bool(bool),
    Double(f64),
    Text(String),
    Ints(Vec<i64>),
    Doubles(Vec<f64>),
    Bools(Vec<bool>),
    /// A tensor, by type and shape.
    Tensor(DType, Dims),
    /// A list of tensors, by its length.
    Tensors(usize),
}

/// A delegate blob and who calls it.
#[derive(Debug, Clone)]
pub struct Delegate {
    /// `QnnBackend`, …
    pub id: String,
    /// Where the blob is.
    pub blob: Extent,
    /// The segment it is in, when it is one.
    pub segment: Option<usize>,
    /// Methods, each with the delegate's index in it.
    pub callers: Vec<(String, usize)>,
    /// Keys and sizes of the exporter's options, as its first caller has them.
    pub compile_specs: Vec<(String, usize)>,
    /// What only a QNN delegate has.
    pub qnn: Option<Qnn>,
}

/// The inside of a QNN delegate.
#[derive(Debug, Clone)]
pub struct Qnn {
    /// From the compile spec: SoC, HTP architecture, options that are on.
    pub options: Vec<(String, String)>,
    /// The context binary's graphs, or why they are not known.
    pub graphs: std::result::Result<Vec<QnnGraph>, String>,
}

/// A graph of a context binary.
#[derive(Debug, Clone)]
pub struct QnnGraph {
    /// Its name; the method's.
    pub name: String,
    /// In the graph's order.
    pub inputs: Vec<QnnTensor>,
    /// In the graph's order.
    pub outputs: Vec<QnnTensor>,
}

/// An input or output of a graph.
#[derive(Debug, Clone)]
pub struct QnnTensor {
    /// Its name.
    pub name: String,
    /// Element type, by name.
    pub dtype: String,
    /// Sizes.
    pub dims: Dims,
    /// How its integers stand for reals.
    pub encoding: Option<Encoding>,
}

impl Report {
    /// Collects everything about `program`; `qnn` looks into a QNN delegate.
    pub fn new(path: &Path, program: &Program, qnn: &dyn Fn(&BackendDelegate) -> Option<Qnn>) -> Self {
        let (constant_plans, plans): (Vec<_>, Vec<_>) = program.plans.iter().partition(|plan| only_constants(plan));
        Self {
            file: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            version: program.version,
            segments: program.segments.iter().map(extent).collect(),
            constants: (
                // The first entry stands for "no constant".
                program.constants.len().saturating_sub(1),
                program.constants.iter().map(|blob| blob.len() as u64).sum(),
            ),
            named_data: program.named_data.iter().map(|(key, blob)| (key.clone(), blob.len() as u64)).collect(),
            methods: plans.into_iter().map(Method::new).collect(),
            constant_methods: constant_plans.into_iter().map(constants).collect(),
            delegates: delegates(program, qnn),
            states: states(program),
        }
    }

    /// The values of constant method `name`.
    pub fn constant(&self, name: &str) -> Option<&[Constant]> {
        let found = self.constant_methods.iter().find(|(known, _)| known == name);
        found.map(|(_, values)| values.as_slice())
    }

    /// The ids of the backends that the program calls, each once.
    pub fn backends(&self) -> Vec<&str> {
        let ids: BTreeSet<&str> = self.delegates.iter().map(|delegate| delegate.id.as_str()).collect();
        ids.into_iter().collect()
    }
}

impl Method {
    fn new(plan: &ExecutionPlan) -> Self {
        let io = |indices: &[u32]| indices.iter().map(|&index| Io::new(&plan.values[index as usize])).collect();
        let steps = || plan.chains.iter().flat_map(|chain| &chain.instructions);
        let mut calls: BTreeMap<(u8, String), usize> = BTreeMap::new();
        for step in steps() {
            let call = match step {
                Instruction::Delegate { delegate, .. } => (0, plan.delegates[*delegate as usize].id.clone()),
                Instruction::Kernel { operator, .. } => (1, plan.operators[*operator as usize].to_string()),
                Instruction::Move { .. } => (2, "move".to_owned()),
                Instruction::JumpFalse { .. } => (2, "jump if false".to_owned()),
                Instruction::Free { .. } => (2, "free".to_owned()),
            };
            *calls.entry(call).or_default() += 1;
        }
        Self {
            name: plan.name.clone(),
            inputs: io(&plan.inputs),
            outputs: io(&plan.outputs),
            values: plan.values.len(),
            instructions: steps().count(),
            planned_bytes: plan.non_const_buffer_sizes.iter().sum(),
            calls: calls.into_iter().map(|((_, name), count)| (name, count)).collect(),
        }
    }
}

impl Io {
    fn new(value: &EValue) -> Self {
        match value {
            EValue::Tensor(tensor) => Self::Tensor {
                dtype: tensor.dtype,
                dims: tensor.sizes.clone(),
                dynamic: tensor.dynamism != ShapeDynamism::Static,
                planned: matches!(tensor.data, TensorData::Planned { .. } | TensorData::ExternalMutable { .. }),
            },
            EValue::Null => Self::Other("null"),
            EValue::Int(_) => Self::Other("int"),
            EValue::Bool(_) => Self::Other("bool"),
            EValue::Double(_) => Self::Other("double"),
            EValue::String(_) => Self::Other("string"),
            EValue::IntList(_) => Self::Other("int list"),
            EValue::DoubleList(_) => Self::Other("double list"),
            EValue::BoolList(_) => Self::Other("bool list"),
            EValue::TensorList(_) | EValue::OptionalTensorList(_) => Self::Other("tensor list"),
        }
    }
}

fn extent(blob: &Blob) -> Extent {
    let range = blob.range();
    Extent { offset: range.start as u64, size: range.len() as u64 }
}

/// Whether a method takes nothing and does nothing.
fn only_constants(plan: &ExecutionPlan) -> bool {
    plan.inputs.is_empty() && plan.chains.iter().all(|chain| chain.instructions.is_empty())
}

fn constants(plan: &ExecutionPlan) -> (String, Vec<Constant>) {
    let int = |&index: &u32| if let EValue::Int(number) = plan.values[index as usize] { Some(number) } else { None };
    let constant = |&output: &u32| match &plan.values[output as usize] {
        EValue::Null => Constant::Null,
        EValue::Int(number) => Constant::Int(*number),
        EValue::Bool(on) => Constant::Bool(*on),
        EValue::Double(number) => Constant::Double(*number),
        EValue::String(text) => Constant::Text(text.clone()),
        EValue::IntList(indices) => Constant::Ints(indices.iter().filter_map(int).collect()),
        EValue::DoubleList(numbers) => Constant::Doubles(numbers.clone()),
        EValue::BoolList(bits) => Constant::Bools(bits.clone()),
        EValue::Tensor(tensor) => Constant::Tensor(tensor.dtype, tensor.sizes.clone()),
        EValue::TensorList(list) => Constant::Tensors(list.len()),
        EValue::OptionalTensorList(list) => Constant::Tensors(list.len()),
    };
    (plan.name.clone(), plan.outputs.iter().map(constant).collect())
}

fn states(program: &Program) -> Vec<(String, DType, Dims)> {
    let mut states: Vec<(String, DType, Dims)> = Vec::new();
    for value in program.plans.iter().flat_map(|plan| &plan.values) {
        if let EValue::Tensor(tensor) = value
            && let Some(name) = &tensor.fully_qualified_name
            && matches!(tensor.data, TensorData::Planned { .. } | TensorData::ExternalMutable { .. })
            && !states.iter().any(|(known, ..)| known == name)
        {
            states.push((name.clone(), tensor.dtype, tensor.sizes.clone()));
        }
    }
    states
}

/// Every distinct blob, in the order of its first caller; the methods of one context binary share it.
fn delegates(program: &Program, qnn: &dyn Fn(&BackendDelegate) -> Option<Qnn>) -> Vec<Delegate> {
    let mut seen: Vec<(&BackendDelegate, Delegate)> = Vec::new();
    for plan in &program.plans {
        for (index, delegate) in plan.delegates.iter().enumerate() {
            let caller = (plan.name.clone(), index);
            let known = seen
                .iter_mut()
                .find(|(first, _)| first.id == delegate.id && first.processed.same_place(&delegate.processed));
            if let Some((_, known)) = known {
                known.callers.push(caller);
                continue;
            }
            let specs = delegate.compile_specs.iter().map(|spec| (spec.key.clone(), spec.value.len()));
            let found = Delegate {
                id: delegate.id.clone(),
                blob: extent(&delegate.processed),
                segment: program.segments.iter().position(|segment| segment.same_place(&delegate.processed)),
                callers: vec![caller],
                compile_specs: specs.collect(),
                qnn: qnn(delegate),
            };
            seen.push((delegate, found));
        }
    }
    seen.into_iter().map(|(_, delegate)| delegate).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::pte::{Chain, CompileSpec, OperatorName, Storage, TensorValue};
    use std::sync::Arc;

    fn tensor(dtype: DType, sizes: &[usize]) -> EValue {
        EValue::Tensor(TensorValue {
            dtype,
            sizes: sizes.to_vec(),
            dim_order: (0..sizes.len() as u8).collect(),
            dynamism: ShapeDynamism::Static,
            data: TensorData::Unplanned,
            fully_qualified_name: None,
        })
    }

    /// Two methods that share one QNN blob, and two constant methods.
    pub fn report() -> Report {
        let storage = Arc::new(Storage::Owned(vec![0; 4096]));
        let blob = |range: std::ops::Range<usize>| Blob::new(&storage, range).unwrap();
        let delegate = |spec: &[u8]| BackendDelegate {
            id: "QnnBackend".into(),
            processed: blob(1024..4096),
            compile_specs: vec![CompileSpec { key: "qnn_compile_spec".into(), value: spec.to_vec() }],
        };
        let method = |name: &str, rows: usize| ExecutionPlan {
            name: name.into(),
            values: vec![
                tensor(DType::I32, &[1, rows]),
                tensor(DType::U8, &[1, 4, 8, 128 - rows]),
                tensor(DType::U8, &[1, 4, 8, 128 - rows]),
                tensor(DType::U16, &[1, rows, 512]),
            ],
            inputs: vec![0, 1, 2],
            outputs: vec![3],
            chains: vec![Chain {
                instructions: vec![
                    Instruction::Kernel { operator: 0, args: vec![0] },
                    Instruction::Delegate { delegate: 0, args: vec![0, 1, 2, 3] },
                    Instruction::Kernel { operator: 0, args: vec![0] },
                    Instruction::Free { value: 0 },
                ],
            }],
            operators: vec![OperatorName { name: "aten::add".into(), overload: "out".into() }],
            delegates: vec![delegate(&[7; 200])],
            non_const_buffer_sizes: vec![0, 256],
        };
        let constant = |name: &str, values: Vec<EValue>| ExecutionPlan {
            name: name.into(),
            outputs: (0..values.len() as u32).collect(),
            values,
            ..ExecutionPlan::default()
        };
        let program = Program {
            plans: vec![
                method("kv_forward", 1),
                method("prefill_forward", 32),
                constant("get_n_layers", vec![EValue::Int(5)]),
                constant(
                    "get_attr",
                    vec![EValue::Double(0.25), EValue::Int(128), EValue::String("torch.uint8".into())],
                ),
            ],
            constants: vec![blob(0..0), blob(0..512)],
            segments: vec![blob(0..1024), blob(1024..4096)],
            ..Program::default()
        };
        Report::new(Path::new("dir/model.pte"), &program, &|delegate| {
            let tensor = |name: &str, dtype: &str, scale: Option<f32>| QnnTensor {
                name: name.into(),
                dtype: dtype.into(),
                dims: vec![1, 4],
                encoding: scale.map(|scale| Encoding { scale, zero_point: 128 }),
            };
            assert_eq!(delegate.compile_specs[0].value.len(), 200);
            Some(Qnn {
                options: vec![("soc".into(), "SM8650".into()), ("htp".into(), "V75".into())],
                graphs: Ok(vec![QnnGraph {
                    name: "kv_forward".into(),
                    inputs: vec![tensor("k_0", "u8", Some(0.5)), tensor("k_1", "u8", Some(0.25))],
                    outputs: vec![tensor("logits", "u16", None)],
                }]),
            })
        })
    }

    #[test]
    fn constant_methods_are_told_from_methods() {
        let report = report();
        let names: Vec<&str> = report.methods.iter().map(|method| method.name.as_str()).collect();
        assert_eq!(names, ["kv_forward", "prefill_forward"]);
        assert_eq!(report.constant_methods[0], ("get_n_layers".into(), vec![Constant::Int(5)]));
        assert_eq!(
            report.constant_methods[1].1,
            [Constant::Double(0.25), Constant::Int(128), Constant::Text("torch.uint8".into())]
        );
    }

    #[test]
    fn a_blob_that_methods_share_is_one_delegate() {
        let report = report();
        assert_eq!(report.delegates.len(), 1);
        let delegate = &report.delegates[0];
        assert_eq!(delegate.callers, [("kv_forward".to_owned(), 0), ("prefill_forward".to_owned(), 0)]);
        assert_eq!((delegate.segment, delegate.blob), (Some(1), Extent { offset: 1024, size: 3072 }));
        assert_eq!(delegate.compile_specs, [("qnn_compile_spec".to_owned(), 200)]);
    }

    #[test]
    fn calls_are_counted() {
        let calls = &report().methods[0].calls;
        assert_eq!(*calls, [("QnnBackend".to_owned(), 1), ("aten::add.out".to_owned(), 2), ("free".to_owned(), 1)]);
    }
}
