//! `XnnpackBackend`: a delegate's blob becomes a graph of its own, compiled by the engine, with shapes found at each run.

use super::decode::decode_delegate;
use super::error::XnnpackError;
use super::lower_values::dtype;
use super::model::Model;
use super::to_graph::to_graph;
use crate::engine::{InputView, Instance, Resources};
use crate::error::Result;
use crate::runtime::{Backend, Delegate, DelegateInit, Tensor, Value};
use std::sync::Arc;

/// The backend. Delegates share threads and packed weights through its [`Resources`].
pub struct XnnpackBackend {
    resources: Arc<Resources>,
}

impl XnnpackBackend {
    /// The id by which programs name it.
    pub const ID: &str = "XnnpackBackend";

    /// A backend that computes with `resources`.
    pub fn new(resources: Arc<Resources>) -> Self {
        Self { resources }
    }
}

impl Backend for XnnpackBackend {
    fn id(&self) -> &'static str {
        Self::ID
    }

    fn available(&self) -> Result<()> {
        Ok(())
    }

    fn init(&self, init: &DelegateInit<'_>) -> Result<Box<dyn Delegate>> {
        let model = decode_delegate(init.processed, init.named_data)?;
        let (inputs, outputs) = check_call(&model, init)?;
        let graph = to_graph(&model, &format!("XNNPACK delegate {}", init.index))?;
        let instance = Instance::new(self.resources.compile(graph)?)?;
        Ok(Box::new(XnnpackDelegate { instance, inputs, outputs }))
    }
}

/// A delegate that is ready to run.
struct XnnpackDelegate {
    instance: Instance,
    /// Argument of each input of the graph.
    inputs: Vec<usize>,
    /// Argument of each output of the graph.
    outputs: Vec<usize>,
}

impl Delegate for XnnpackDelegate {
    fn execute(&mut self, values: &mut [Value], args: &[u32]) -> Result<()> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for &arg in &self.inputs {
            let tensor = tensor(values, args, arg)?;
            // A scalar is of shape [1] in the blob.
            let dims = if tensor.dims.is_empty() { &[1] } else { &tensor.dims[..] };
            inputs.push(InputView { dims, bytes: tensor.bytes()? });
        }
        self.instance.run(&inputs)?;
        for (index, &arg) in self.outputs.iter().enumerate() {
            let missing = || XnnpackError::Argument { arg, why: "the graph has no such output".into() };
            let output = self.instance.output(index).ok_or_else(missing)?;
            let place = args.get(arg).and_then(|&value| values.get_mut(value as usize));
            let Some(Value::Tensor(tensor)) = place else { return Err(no_tensor(arg).into()) };
            tensor.resize(if tensor.dims.is_empty() { &[] } else { output.dims })?;
            tensor.bytes_mut()?.copy_from_slice(output.bytes);
        }
        Ok(())
    }
}

fn tensor<'a>(values: &'a [Value], args: &[u32], arg: usize) -> Result<&'a Tensor, XnnpackError> {
    match args.get(arg).and_then(|&value| values.get(value as usize)) {
        Some(Value::Tensor(tensor)) => Ok(tensor),
        _ => Err(no_tensor(arg)),
    }
}

fn no_tensor(arg: usize) -> XnnpackError {
    XnnpackError::Argument { arg, why: "it is no tensor".into() }
}

/// The arguments of the graph's inputs and outputs, which must be tensors of the model's types and ranks.
fn check_call(model: &Model, init: &DelegateInit<'_>) -> Result<(Vec<usize>, Vec<usize>), XnnpackError> {
    let check = |indices: Vec<usize>, written: bool| {
        let argument = |index: usize| {
            let value = &model.values[index];
            let arg = value.external.map_or(0, |external| external.arg);
            let fail = |why: String| Err(XnnpackError::Argument { arg, why });
            let tensor = tensor(init.values, init.args, arg)?;
            let want = dtype(value.datatype);
            if tensor.dtype != want {
                return fail(format!("{} given, {want} expected", tensor.dtype));
            }
            if !tensor.is_contiguous() {
                return fail(format!("dimensions in the order {:?}", tensor.dim_order));
            }
            let is_scalar = tensor.bounds.is_empty() && value.dims == [1];
            if tensor.bounds.len() != value.dims.len() && !is_scalar {
                return fail(format!("{} dimensions given, {} expected", tensor.bounds.len(), value.dims.len()));
            }
            if written && tensor.is_constant() {
                return fail("a constant cannot be written".into());
            }
            Ok(arg)
        };
        indices.into_iter().map(argument).collect::<Result<Vec<_>, _>>()
    };
    Ok((check(model.inputs(), false)?, check(model.outputs(), true)?))
}
