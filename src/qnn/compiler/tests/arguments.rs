//! What a compiled graph is to its callers, and graphs that are refused.

use super::{Sketch, check, default_backend, executed, options, predicted, random_inputs};
use crate::error::Error;
use crate::graph::testing::dims;
use crate::graph::{BinaryOp, Graph, Int, Op, UnaryOp};
use crate::qnn::compiler::{CompileError, CompilerOptions, compile};
use crate::qnn::fake::Fake;
use crate::qnn::{DelegateBlob, QnnError};
use crate::tensor::DType;

const ONE: [f32; 2] = [-1.0, 1.0];

/// Outputs that are made in another order than they are listed, one of them used inside too.
fn crossing(name: &str, rows: usize) -> Graph {
    let mut sketch = Sketch::new(name);
    let shape = [1, rows, 8];
    let [a, b, c] = [0; 3].map(|_| sketch.input(DType::U16, &shape, ONE));
    let first = sketch.node(Op::Binary(BinaryOp::Add), &[b, c], DType::U16, (&shape, [-2.0, 2.0]));
    let second = sketch.node(Op::Binary(BinaryOp::Subtract), &[first, a], DType::U16, (&shape, [-3.0, 3.0]));
    let third = sketch.node(Op::Unary(UnaryOp::Sigmoid), &[second], DType::U16, (&shape, [0.0, 1.0]));
    sketch.finish(&[third, first, second])
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn arguments_keep_their_order() {
    check(&crossing("crossing", 3), 0, 6);
    let backend = default_backend();
    let binary = compile(&backend.library().unwrap(), &[crossing("crossing", 3)], &options()).unwrap();
    let info = backend.describe(&DelegateBlob::encode(1, &binary)).unwrap().binary;
    assert_eq!(info.soc_model, Some(57));
    let names = |tensors: &[crate::qnn::TensorInfo]| tensors.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let mut inputs = names(&info.graphs[0].inputs);
    inputs.sort();
    assert_eq!(inputs, ["input_0_in_0@0", "input_1_in_1@0", "input_2_in_2@0"]);
    let outputs = names(&info.graphs[0].outputs);
    assert!(outputs.iter().enumerate().all(|(i, name)| name.starts_with(&format!("output_{i}_"))), "{outputs:?}");
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn two_graphs_share_one_context() {
    let graphs = [crossing("kv_forward", 1), crossing("prefill_forward", 8)];
    let backend = default_backend();
    let library = backend.library().unwrap();
    let binary = compile(&library, &graphs, &options()).unwrap();
    for graph in &graphs {
        let inputs = random_inputs(graph, 0, 9);
        let (have, need) = (executed(&backend, &binary, graph, &inputs), predicted(graph, &inputs));
        let all = have.iter().flatten().zip(need.iter().flatten());
        assert!(all.map(|(a, b)| (a - b).abs()).max().unwrap() <= 6, "{}", graph.name);
    }
    let shared = compile(&library, &graphs, &CompilerOptions { weight_sharing: true, ..options() }).unwrap();
    assert!(!shared.is_empty());
}

/// Why the fake's library gets no graph.
fn refused(graph: &Graph) -> Error {
    let fake = Fake::new();
    let error = compile(&fake.library(), std::slice::from_ref(graph), &options()).unwrap_err();
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]));
    error
}

#[test]
fn what_the_htp_cannot_do_is_refused_by_name() {
    let mut sketch = Sketch::new("refused");
    let x = sketch.input(DType::U16, &[1, 8], ONE);
    let y = sketch.node(Op::Unary(UnaryOp::Floor), &[x], DType::U16, (&[1, 8], ONE));
    let error = refused(&sketch.finish(&[y]));
    let why = error.find::<CompileError>().unwrap().to_string();
    assert!(why.contains("graph refused, node test.0 (Unary(Floor))"), "{why}");
}

#[test]
fn a_graph_with_a_dynamic_shape_is_refused_by_name() {
    let mut graph = Graph::new("dynamic");
    let source = crate::graph::SymbolSource::InputDim { input: 0, axis: 0 };
    let rows: Int = graph.symbol("rows", source, 1, 4);
    let x = graph.add_input("tokens", DType::F32, vec![rows]);
    let y = graph.emit("neg", Op::Unary(UnaryOp::Negate), &[x], DType::F32, vec![rows]);
    graph.outputs.push(y);
    let error = refused(&graph);
    assert!(matches!(error.find(), Some(CompileError::Value { value, .. }) if value == "tokens"), "{error:?}");
}

#[test]
fn arguments_that_no_delegate_can_have_are_refused_by_name() {
    let mut unused = crossing("g", 1);
    unused.add_input("spare", DType::I32, dims(&[1]));
    assert!(matches!(refused(&unused).find(), Some(CompileError::UnusedInput { input, .. }) if input == "spare"));
    let mut through = crossing("g", 1);
    through.outputs.push(through.inputs[0]);
    assert!(matches!(refused(&through).find(), Some(CompileError::PassThrough { .. })));
    let mut twice = crossing("g", 1);
    twice.outputs.push(twice.outputs[0]);
    assert!(matches!(refused(&twice).find(), Some(CompileError::RepeatedOutput { .. })));
    let mut state = crossing("g", 1);
    state.add_state("cache", DType::U8, &[4]);
    assert!(matches!(refused(&state).find(), Some(CompileError::State { .. })));
}

#[test]
#[cfg_attr(not(have_qnn), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
fn a_node_that_the_library_refuses_is_named() {
    let mut sketch = Sketch::new("too_many_axes");
    let x = sketch.input(DType::U16, &[1, 8], ONE);
    let y = sketch.node(Op::Reshape, &[x], DType::U16, (&[1, 2, 1, 2, 1, 2, 1], ONE));
    let z = sketch.node(Op::Reshape, &[y], DType::U16, (&[2, 4], ONE));
    let graph = sketch.finish(&[z]);
    let error = compile(&default_backend().library().unwrap(), &[graph], &options()).unwrap_err();
    let call = error.find::<QnnError>().unwrap_or_else(|| panic!("{}", error.chain()));
    assert_eq!((call.call, call.number()), ("QnnTensor_createGraphTensor", 7004));
    let text = call.to_string();
    assert!(text.contains("graph too_many_axes, node test.0 (Reshape)"), "{text}");
}
