//! Runs: states, symbols, hooks, and how they are refused.

use super::*;
use crate::base::storage::Blob;
use crate::graph::{BinaryOp, Int, SymbolSource};
use crate::tensor::Encoding;

/// `y = x + state`, and the state becomes `y`; `n` rows of dynamic number.
fn accumulator() -> Graph {
    let mut graph = Graph::new("accumulator");
    let n = graph.symbol("n", SymbolSource::InputDim { input: 0, axis: 0 }, 1, 3);
    let offset = graph.symbol("offset", SymbolSource::InputItem { input: 1, index: 1 }, 0, 4);
    let end = graph.symbol("end", SymbolSource::Sum(n, offset), 1, 5);
    let x = graph.add_input("x", DType::F32, vec![n]);
    graph.add_input("offsets", DType::I64, dims(&[2]));
    let (state, contents) = graph.add_state("state", DType::F32, &[4]);
    let window = graph.emit("window", Op::Slice { axis: 0, start: offset, step: 1 }, &[contents], DType::F32, vec![n]);
    let sum = graph.emit("sum", Op::Binary(BinaryOp::Add), &[x, window], DType::F32, vec![n]);
    let update = Op::SliceUpdate { axis: 0, start: offset };
    let written = graph.emit("written", update, &[contents, sum], DType::F32, dims(&[4]));
    let end = graph.emit("end", Op::Scalar { value: end }, &[], DType::I64, vec![]);
    graph.state_updates.push((state, written));
    graph.outputs.extend([sum, end]);
    graph
}

#[test]
fn states_live_from_run_to_run_and_shapes_follow_the_inputs() {
    let graph = accumulator();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let inputs = |x: &[f32], offset: i64| [Tensor::f32(&[x.len()], x), integers(&[2], &[9, offset])];
    let outputs = interpreter.run(&inputs(&[1.0, 2.0], 1)).unwrap();
    assert_eq!(outputs, [Tensor::f32(&[2], [1.0, 2.0]), integers(&[], &[3])]);
    let outputs = interpreter.run(&inputs(&[10.0, 10.0, 10.0], 0)).unwrap();
    assert_eq!(outputs[0].reals().unwrap(), [10.0, 11.0, 12.0]);
    let state = interpreter.state(StateId(0)).unwrap().clone();
    assert_eq!(state.reals().unwrap(), [10.0, 11.0, 12.0, 0.0]);
    // A run that fails leaves the state alone.
    let error = interpreter.run(&inputs(&[1.0, 1.0], 3)).unwrap_err();
    assert!(error.to_string().starts_with("window (Slice"), "{error}");
    assert_eq!(interpreter.state(StateId(0)), Some(&state));
    interpreter.reset();
    assert_eq!(interpreter.state(StateId(0)), Some(&Tensor::zeros(DType::F32, &[4])));
    assert_eq!(interpreter.state(StateId(1)), None);
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let graph = accumulator();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let offsets = integers(&[2], &[0, 0]);
    let x = Tensor::f32(&[1], [0.0]);
    let mut refused = |inputs: &[Tensor]| interpreter.run(inputs).unwrap_err().to_string();
    assert_eq!(refused(std::slice::from_ref(&x)), "1 inputs where the graph has 2");
    assert_eq!(refused(&[Tensor::f32(&[4], [0.0; 4]), offsets.clone()]), "n is 4, outside 1..=3");
    assert_eq!(refused(&[x.clone(), integers(&[2], &[0, -1])]), "offset is -1, outside 0..=4");
    assert_eq!(refused(&[x.clone(), integers(&[1], &[0])]), "offset: the input does not hold it");
    assert_eq!(refused(&[x.clone(), Tensor::f32(&[2], [0.0; 2])]), "offset: the input does not hold it");
    assert_eq!(refused(&[Tensor::f32(&[], [0.0]), offsets.clone()]), "n: the input does not hold it");
    let two = Tensor::f32(&[1, 2], [0.0; 2]);
    assert_eq!(refused(&[two, offsets.clone()]), "input 0 (x): f32[1, 2] where f32[1] is needed");
    let short = Tensor { data: Data::Real(vec![]), ..x.clone() };
    assert_eq!(refused(&[short, offsets.clone()]), "input 0 (x): 0 elements for shape [1]");
    let mixed = Tensor { data: Data::Integer(vec![1]), ..x.clone() };
    assert_eq!(refused(&[mixed, offsets]), "input 0 (x): its data does not fit f32");
    let narrow = Tensor::integers(DType::I32, &[2], [0, 0]);
    assert_eq!(refused(&[x, narrow]), "input 1 (offsets): i32[2] where i64[2] is needed");
}

#[test]
fn what_cannot_be_computed_or_held_is_refused() {
    let mut graph = Graph::new("g");
    let n = graph.symbol("n", SymbolSource::InputItem { input: 0, index: 0 }, i64::MIN, i64::MAX);
    graph.add_input("n", DType::I64, dims(&[1]));
    let quotient = graph.symbol("quotient", SymbolSource::FloorQuotient(100.into(), n), -1 << 40, 1 << 30);
    let filled = graph.emit("fill", Op::Fill { value: 0.0 }, &[], DType::F32, vec![quotient, (1 << 10).into()]);
    graph.outputs.push(filled);
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let mut refused = |n| interpreter.run(&[integers(&[1], &[n])]).unwrap_err();
    assert_eq!(refused(0).to_string(), "quotient: its arithmetic overflows or divides by zero");
    assert_eq!(refused(-1).to_string(), "fill (Fill { value: 0.0 }): a size is -100");
    let source = SymbolSource::FloorQuotient(Int::Const(1 << 30), n);
    let mut graph = graph.clone();
    graph.symbols[1].source = source;
    let error = Interpreter::new(&graph).unwrap().run(&[integers(&[1], &[1])]).unwrap_err();
    assert_eq!(error, InterpretError::TooLarge { value: "fill".into(), shape: vec![1 << 30, 1 << 10] });
    assert_eq!(crate::Error::from(error).status(), Status::OutOfResources);
}

#[test]
fn the_hook_sees_and_may_change_every_value() {
    let graph = accumulator();
    let mut ranges = MinMax::default();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    let inputs = [Tensor::f32(&[2], [-1.3, 2.6]), integers(&[2], &[0, 0])];
    let encoding = Encoding { scale: 0.5, zero_point: 0 };
    let hook = &mut |id: ValueId, tensor: &mut Tensor| {
        if graph.value(id).name == "x" {
            fake_quantize(tensor, &encoding, -128..=127);
        }
        ranges.observe(id, tensor);
    };
    let outputs = interpreter.run_with(&inputs, hook).unwrap();
    assert_eq!(outputs[0].reals().unwrap(), [-1.5, 2.5]);
    let range = |name: &str| {
        let index = graph.values.iter().position(|value| value.name == name).unwrap();
        ranges.range(ValueId(index as u32))
    };
    assert_eq!([range("x"), range("sum"), range("written")], [Some((-1.5, 2.5)); 3]);
    assert_eq!(range("state"), Some((0.0, 0.0)));
    assert_eq!(range("offsets"), None);
    assert_eq!(ranges.range(ValueId(999)), None);
}

#[test]
fn bytes_of_every_type_survive() {
    use DType::*;
    for (dtype, value) in
        [(U8, 200), (I8, -3), (U16, 60_000), (I16, -300), (U32, 1 << 31), (I32, -7), (I64, -1 << 40), (Bool, 1)]
    {
        let tensor = Tensor::integers(dtype, &[2], [value, 0]);
        assert_eq!(Tensor::from_bytes(dtype, &[2], &tensor.to_bytes()).unwrap(), tensor, "{dtype}");
    }
    for dtype in [F16, BF16, F32, F64] {
        let tensor = Tensor { dtype, ..Tensor::f32(&[2], [-1.5, 0.25]) };
        assert_eq!(tensor.to_bytes().len(), 2 * dtype.size());
        assert_eq!(Tensor::from_bytes(dtype, &[2], &tensor.to_bytes()).unwrap(), tensor, "{dtype}");
    }
    assert!(Tensor::from_bytes(F32, &[2], &[0; 7]).is_err());
}

#[test]
fn constants_and_inputs_may_be_results() {
    let mut graph = Graph::new("g");
    let x = graph.add_input("x", DType::F32, dims(&[1]));
    let c = graph.add_constant("c", DType::I32, &[2], None, Blob::from_vec(vec![1, 0, 0, 0, 255, 255, 255, 255]));
    graph.outputs.extend([c, x]);
    let outputs = Interpreter::new(&graph).unwrap().run(&[Tensor::f32(&[1], [5.0])]).unwrap();
    assert_eq!(outputs, [Tensor::integers(DType::I32, &[2], [1, -1]), Tensor::f32(&[1], [5.0])]);
}
