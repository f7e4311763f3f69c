//! A program whose methods are QNN graphs, on the fake library: the graphs do what a [`FakeModel`] does, so that every
//! token is known.
#![allow(dead_code)] // Each test program uses its own part.

use crate::fake_module::{FakeModel, FakeTokenizer};
use llama_runner::Error;
use llama_runner::pte::{
    BackendDelegate, Blob, Chain, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism, TensorData,
    TensorValue,
};
use llama_runner::qnn::fake::Fake;
use llama_runner::qnn::{
    BinaryInfo, DelegateBlob, GraphInfo, QnnBackend, QnnOptions, QnnType, Quantization, TensorInfo, Version, sys,
};
use llama_runner::runner::{Runner, RunnerOptions};
use llama_runner::runtime::{
    BackendRegistry, IoArena, IoSlice, KernelRegistry, MethodId, Module, NativeModule, TensorInfo as ModuleTensor,
};
use llama_runner::tensor::DType;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const BINARY: [u8; 8] = [0, 0, 0, 2, 9, 9, 9, 9];

/// The program with its library.
pub struct Qnn {
    pub model: FakeModel,
    /// Whether the tokens go through an operator on the CPU first.
    operator_first: bool,
    pub fake: Fake,
    /// What the graphs found wrong.
    faults: Arc<Mutex<Vec<String>>>,
}

/// A method of the model with memory of its own.
pub struct Graph {
    pub method: MethodId,
    pub arena: IoArena,
    pub inputs: Vec<IoSlice>,
    pub outputs: Vec<IoSlice>,
}

impl Graph {
    /// Binds the whole method `name` to places in `arena`.
    pub fn new(module: &mut dyn Module, name: &str, mut arena: IoArena) -> Self {
        let method = module.load_method(name).unwrap();
        let info = module.method_info(method).clone();
        let mut place = |infos: &[Option<ModuleTensor>]| -> Vec<IoSlice> {
            infos.iter().flatten().map(|info| arena.alloc(info.byte_len()).unwrap()).collect()
        };
        let (inputs, outputs) = (place(&info.inputs), place(&info.outputs));
        for (index, slice) in inputs.iter().enumerate() {
            module.bind_input(method, index, &arena, *slice).unwrap();
        }
        for (index, slice) in outputs.iter().enumerate() {
            module.bind_output(method, index, &arena, *slice).unwrap();
        }
        Self { method, arena, inputs, outputs }
    }

    fn run(&mut self, module: &mut dyn Module, given: &[&[u8]], made: &mut [&mut [u8]]) -> Result<(), Error> {
        for (slice, bytes) in self.inputs.iter().zip(given) {
            self.arena.bytes_mut(*slice).copy_from_slice(bytes);
        }
        module.execute(self.method, &mut self.arena)?;
        for (slice, bytes) in self.outputs.iter().zip(made) {
            bytes.copy_from_slice(self.arena.bytes(*slice));
        }
        Ok(())
    }
}

impl Qnn {
    pub fn new(model: FakeModel, operator_first: bool) -> Self {
        let fake = Fake::new();
        let mut module = model.module().0;
        let graphs = model.methods.iter().map(|&(name, _)| {
            let arena = IoArena::new(1 << 16).unwrap();
            (name.to_owned(), Graph::new(&mut *module, name, arena))
        });
        let mut graphs: BTreeMap<String, Graph> = graphs.collect();
        let info = binary_info(&mut *module, &graphs);
        let faults = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&faults);
        fake.set_model(move |binary| (binary == BINARY).then(|| info.clone()));
        fake.set_executor(move |name, given, made| {
            if let Err(error) = graphs.get_mut(name).unwrap().run(&mut *module, given, made) {
                heard.lock().unwrap().push(error.chain());
            }
        });
        Self { model, operator_first, fake, faults }
    }

    pub fn module(&self) -> Box<dyn Module> {
        let mut kernels = KernelRegistry::default();
        kernels.register("test::copy", |args| {
            let (from, to) = args.in_out::<i32, i32>(0, 1)?;
            to.copy_from_slice(from);
            Ok(())
        });
        let mut backends = BackendRegistry::default();
        backends.register(Arc::new(QnnBackend::with_library(self.fake.library(), QnnOptions::default())));
        Box::new(NativeModule::new(self.program(), kernels, backends).unwrap())
    }

    fn program(&self) -> Program {
        let mut module = self.model.module().0;
        let methods = self.model.methods.iter().map(|(name, _)| {
            let method = module.load_method(name).unwrap();
            let info = module.method_info(method);
            let tensors = info.inputs.iter().chain(&info.outputs).flatten();
            let mut values: Vec<EValue> = tensors.map(|info| tensor(info, TensorData::Unplanned)).collect();
            let (inputs, count) = (info.inputs.len() as u32, values.len() as u32);
            let mut args: Vec<u32> = (0..count).collect();
            let mut instructions = Vec::new();
            let mut planned = 0;
            if self.operator_first {
                let tokens = info.inputs[0].as_ref().unwrap();
                planned = tokens.byte_len() as u64;
                values.push(tensor(tokens, TensorData::Planned { buffer: 1, offset: 0, initial: None }));
                instructions.push(Instruction::Kernel { operator: 0, args: vec![0, count] });
                args[0] = count;
            }
            instructions.push(Instruction::Delegate { delegate: 0, args });
            let processed = Blob::from_vec(DelegateBlob::encode(1, &BINARY));
            let operator = OperatorName { name: "test::copy".into(), overload: String::new() };
            ExecutionPlan {
                name: (*name).to_owned(),
                values,
                inputs: (0..inputs).collect(),
                outputs: (inputs..count).collect(),
                chains: vec![Chain { instructions }],
                operators: vec![operator],
                delegates: vec![BackendDelegate { id: "QnnBackend".into(), processed, compile_specs: Vec::new() }],
                non_const_buffer_sizes: vec![0, planned],
            }
        });
        Program { plans: methods.collect(), ..Program::default() }
    }

    pub fn load(&self, options: RunnerOptions) -> Result<Runner, Error> {
        Runner::load(self.module(), Arc::new(FakeTokenizer::default()), options)
    }

    /// Tensors of all methods that lie in the arena of a delegate's call.
    pub fn tensors(&self) -> usize {
        let mut module = self.model.module().0;
        let count = self.model.methods.iter().map(|(name, _)| {
            let method = module.load_method(name).unwrap();
            let info = module.method_info(method);
            info.inputs.len() + info.outputs.len() - usize::from(self.operator_first)
        });
        count.sum()
    }

    pub fn registered(&self) -> usize {
        self.fake.live().iter().filter(|kind| **kind == "memory").count()
    }

    /// Everything was given back, each handle once, and the graphs saw what they ought to.
    pub fn check_returned(&self) {
        assert_eq!((self.fake.live(), self.fake.misuse()), (vec![], vec![]));
        assert_eq!(*self.faults.lock().unwrap(), Vec::<String>::new());
    }
}

fn tensor(info: &ModuleTensor, data: TensorData) -> EValue {
    EValue::Tensor(TensorValue {
        dtype: info.dtype,
        sizes: info.dims.clone(),
        dim_order: (0..info.dims.len() as u8).collect(),
        dynamism: ShapeDynamism::Static,
        data,
        fully_qualified_name: None,
    })
}

fn binary_info(module: &mut dyn Module, graphs: &BTreeMap<String, Graph>) -> BinaryInfo {
    let mut id = 0;
    let mut tensors = |infos: &[Option<ModuleTensor>], side: &str| -> Vec<TensorInfo> {
        let tensors = infos.iter().flatten().enumerate().map(|(index, info)| {
            id += 1;
            let data_type = QnnType(match info.dtype {
                DType::I32 => sys::QNN_DATATYPE_INT_32,
                DType::U16 => sys::QNN_DATATYPE_UINT_16,
                _ => sys::QNN_DATATYPE_UINT_8,
            });
            let (name, dims) = (format!("{side}_{index}_args@0"), info.dims.clone());
            TensorInfo { version: 2, id, name, data_type, dims, quantization: Quantization::None }
        });
        tensors.collect()
    };
    let graphs = graphs.iter().map(|(name, graph)| {
        let info = module.method_info(graph.method);
        let (inputs, outputs) = (tensors(&info.inputs, "input"), tensors(&info.outputs, "output"));
        GraphInfo { name: name.clone(), inputs, outputs }
    });
    BinaryInfo {
        version: 3,
        backend_id: sys::QNN_BACKEND_ID_HTP,
        build_id: "v2.49.40".into(),
        core: Version { major: 2, minor: 38, patch: 0 },
        backend: Version { major: 5, minor: 49, patch: 0 },
        blob_version: Version { major: 3, minor: 3, patch: 3 },
        soc_version: "soc".into(),
        soc_model: Some(57),
        graphs: graphs.collect(),
    }
}
