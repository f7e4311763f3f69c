//! Which tensor of a graph is which argument of the delegate call.
//!
//! The context binary lists a graph's inputs in an order of its own; their names `input_<n>_…` say which argument they
//! are. Outputs stand in the order of the call's, behind the inputs.

use super::binary_info::GraphInfo;
use super::tensor_info::{Quantization, TensorInfo};
use crate::error::{Error, Status};
use crate::runtime::{RetypedArg, Tensor};
use crate::tensor::{DType, Dims, element_count};

/// How the program and the graph disagree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BindingError {
    #[error(
        "graph {graph} takes {inputs} and gives {outputs} tensors, but the program calls its delegate with {args} \
         arguments"
    )]
    Count { graph: String, inputs: usize, outputs: usize, args: usize },
    #[error("graph {graph}, tensor {tensor}: its element type {found} cannot be an argument")]
    Type { graph: String, tensor: String, found: String },
    #[error("graph {graph}, tensor {tensor} has shape {found:?}, but argument {arg} of the program has {expected:?}")]
    Shape { graph: String, tensor: String, found: Dims, arg: usize, expected: Dims },
    #[error(
        "graph {graph}, tensor {tensor} has {found} bytes, but argument {arg} of the program ({dtype}) has {expected}"
    )]
    Bytes { graph: String, tensor: String, found: usize, arg: usize, dtype: DType, expected: usize },
    #[error("argument {arg} of the delegate call is no tensor")]
    NoTensor { arg: usize },
}

impl From<BindingError> for Error {
    fn from(error: BindingError) -> Self {
        Self::from_source(Status::InvalidProgram, error)
    }
}

/// One tensor of the graph and the argument that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// Index into the call's arguments.
    pub(super) arg: usize,
    /// Index into the graph's inputs or outputs.
    pub(super) tensor: usize,
    /// Size in bytes.
    pub(super) bytes: usize,
}

/// All of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Binding {
    pub(super) inputs: Vec<Slot>,
    pub(super) outputs: Vec<Slot>,
    pub(super) retyped: Vec<RetypedArg>,
}

impl Binding {
    /// Matches `graph` with the tensors of the delegate call.
    pub(super) fn new(graph: &GraphInfo, args: &[&Tensor]) -> Result<Self, BindingError> {
        let (inputs, outputs) = (graph.inputs.len(), graph.outputs.len());
        let count = || BindingError::Count { graph: graph.name.clone(), inputs, outputs, args: args.len() };
        let input_args = args.len().checked_sub(outputs).ok_or_else(count)?;
        let order = input_order(&graph.inputs, input_args).ok_or_else(count)?;
        let mut retyped = Vec::new();
        let mut slot = |info: &TensorInfo, tensor, arg: usize| {
            let (bytes, retype) = match_arg(&graph.name, info, arg, args[arg])?;
            retyped.extend(retype);
            Ok(Slot { arg, tensor, bytes })
        };
        let inputs = graph.inputs.iter().zip(order).enumerate();
        let inputs = inputs.map(|(tensor, (info, arg))| slot(info, tensor, arg)).collect::<Result<_, _>>()?;
        let outputs = graph.outputs.iter().enumerate();
        let outputs =
            outputs.map(|(tensor, info)| slot(info, tensor, input_args + tensor)).collect::<Result<_, _>>()?;
        retyped.sort_by_key(|retyped| retyped.arg);
        Ok(Self { inputs, outputs, retyped })
    }
}

/// The argument of each input, below `args`; `None` when the inputs do not fit.
fn input_order(inputs: &[TensorInfo], args: usize) -> Option<Vec<usize>> {
    let numbers: Option<Vec<usize>> = inputs.iter().map(|input| input_number(&input.name)).collect();
    let mut sorted = numbers.clone().unwrap_or_default();
    sorted.sort_unstable();
    sorted.dedup();
    match numbers {
        // An argument that the graph does not use has no input.
        Some(numbers) if sorted.len() == inputs.len() && sorted.last().is_none_or(|&last| last < args) => Some(numbers),
        // Numbers of a larger whole: their order counts.
        Some(numbers) if sorted.len() == inputs.len() && args == inputs.len() => {
            numbers.iter().map(|number| sorted.binary_search(number).ok()).collect()
        }
        // Without numbers the order of the list is all there is.
        _ => (args == inputs.len()).then(|| (0..args).collect()),
    }
}

/// `input_3_args_0@0` → 3
fn input_number(name: &str) -> Option<usize> {
    let (digits, _) = name.strip_prefix("input_")?.split_once('_')?;
    digits.parse().ok()
}

/// Compares a graph's tensor with the program's: its size in bytes, and its real type when the program does not say it.
fn match_arg(
    graph: &str,
    info: &TensorInfo,
    arg: usize,
    tensor: &Tensor,
) -> Result<(usize, Option<RetypedArg>), BindingError> {
    let (graph, name) = (graph.to_owned(), info.name.clone());
    let Some(dtype) = info.data_type.dtype() else {
        return Err(BindingError::Type { graph, tensor: name, found: info.data_type.to_string() });
    };
    // Old exports leave out dimensions of one.
    let squeezed = |dims: &[usize]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    let in_order = tensor.dim_order.is_sorted();
    let elements = |dims: &[usize]| element_count(dims).unwrap_or(0);
    let same = if in_order {
        squeezed(&info.dims) == squeezed(&tensor.dims)
    } else {
        elements(&info.dims) == elements(&tensor.dims)
    };
    if !same {
        let (found, expected) = (info.dims.clone(), tensor.dims.clone());
        return Err(BindingError::Shape { graph, tensor: name, found, arg, expected });
    }
    let bytes = elements(&info.dims) * dtype.size();
    let expected = tensor.byte_len();
    if bytes > expected {
        return Err(BindingError::Bytes { graph, tensor: name, found: bytes, arg, dtype: tensor.dtype, expected });
    }
    let encoding = match &info.quantization {
        Quantization::PerTensor(encoding) => Some(*encoding),
        _ => None,
    };
    let retyped = (dtype != tensor.dtype || encoding.is_some()).then_some(RetypedArg { arg, dtype, encoding });
    Ok((bytes, retyped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qnn::sys;
    use crate::qnn::tensor_info::QnnType;
    use crate::tensor::Encoding;

    const U8: u32 = sys::QNN_DATATYPE_UFIXED_POINT_8;
    const U16: u32 = sys::QNN_DATATYPE_UFIXED_POINT_16;
    const I32: u32 = sys::QNN_DATATYPE_INT_32;
    const ENCODING: Encoding = Encoding { scale: 0.5, zero_point: 128 };

    fn info(name: &str, data_type: u32, dims: &[usize]) -> TensorInfo {
        let data_type = QnnType(data_type);
        let quantization =
            if data_type.is_quantized() { Quantization::PerTensor(ENCODING) } else { Quantization::None };
        TensorInfo { version: 2, id: 0, name: name.into(), data_type, dims: dims.to_vec(), quantization }
    }

    fn tensor(dtype: DType, dims: &[usize]) -> Tensor {
        Tensor::unbound(dtype, dims.to_vec(), (0..dims.len() as u8).collect())
    }

    fn graph(inputs: Vec<TensorInfo>, outputs: Vec<TensorInfo>) -> GraphInfo {
        GraphInfo { name: "g".into(), inputs, outputs }
    }

    fn bind(graph: &GraphInfo, args: &[Tensor]) -> Result<Binding, BindingError> {
        Binding::new(graph, &args.iter().collect::<Vec<_>>())
    }

    #[test]
    fn inputs_go_by_their_number_and_outputs_by_their_place() {
        let graph = graph(
            vec![info("input_1_args_5@0", U8, &[2, 3]), info("input_0_tokens@0", I32, &[1, 4])],
            vec![info("output_b", U16, &[5]), info("output_a", U16, &[6])],
        );
        let args = [
            tensor(DType::I32, &[1, 4]),
            tensor(DType::F32, &[2, 3]),
            tensor(DType::U16, &[5]),
            tensor(DType::U16, &[6]),
        ];
        let binding = bind(&graph, &args).unwrap();
        assert_eq!(binding.inputs, [Slot { arg: 1, tensor: 0, bytes: 6 }, Slot { arg: 0, tensor: 1, bytes: 16 }]);
        assert_eq!(binding.outputs, [Slot { arg: 2, tensor: 0, bytes: 10 }, Slot { arg: 3, tensor: 1, bytes: 12 }]);
        let encoding = Some(ENCODING);
        let retyped = [(1, DType::U8), (2, DType::U16), (3, DType::U16)];
        assert_eq!(binding.retyped, retyped.map(|(arg, dtype)| RetypedArg { arg, dtype, encoding }));
    }

    #[test]
    fn order_of_inputs_in_every_naming() {
        let order = |names: &[&str], args| {
            let inputs: Vec<_> = names.iter().map(|name| info(name, U8, &[1])).collect();
            input_order(&inputs, args)
        };
        for (names, args, expected) in [
            (&["input_2_x", "input_0_x", "input_1_x"][..], 3, Some(vec![2, 0, 1])),
            (&["input_2_x", "input_0_x"], 3, Some(vec![2, 0])),
            (&["input_20_x", "input_7_x"], 2, Some(vec![1, 0])),
            (&["input_1_x", "input_1_y"], 2, Some(vec![0, 1])),
            (&["tokens", "input_0_x"], 2, Some(vec![0, 1])),
            (&["tokens", "mask"], 3, None),
            (&["input_5_x", "input_0_x"], 3, None),
            (&[], 0, Some(vec![])),
        ] {
            assert_eq!(order(names, args), expected, "{names:?} of {args}");
        }
    }

    #[test]
    fn dimensions_of_one_do_not_count() {
        let graph = graph(vec![info("input_0_mask", U16, &[1, 1, 32, 128])], vec![]);
        assert!(bind(&graph, &[tensor(DType::F32, &[1, 32, 128])]).is_ok());
    }

    #[test]
    fn disagreement_is_refused_by_name() {
        let one = |data_type, dims: &[usize]| graph(vec![info("input_0_x", data_type, dims)], vec![]);
        for (graph, args, words) in [
            (one(U8, &[2, 3]), vec![tensor(DType::U8, &[3, 2])], "input_0_x has shape [2, 3], but argument 0"),
            (
                one(I32, &[4]),
                vec![tensor(DType::U8, &[4])],
                "input_0_x has 16 bytes, but argument 0 of the program (u8)",
            ),
            (one(sys::QNN_DATATYPE_SFIXED_POINT_4, &[4]), vec![tensor(DType::U8, &[4])], "QNN type 0x304"),
            (one(U8, &[2]), vec![], "takes 1 and gives 0 tensors, but the program calls its delegate with 0"),
            (graph(vec![], vec![info("o", U8, &[1])]), vec![], "takes 0 and gives 1"),
        ] {
            let error = bind(&graph, &args).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
