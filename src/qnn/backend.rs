//! [`QnnBackend`]: prepares delegates, loading the library at the first one and sharing contexts between them.

use super::binary_info::{BinaryInfo, GraphInfo, InfoError};
use super::binding::BindingError;
use super::blob::{DelegateBlob, Layout};
use super::compile_spec::CompileOptions;
use super::context::Context;
use super::delegate::QnnDelegate;
use super::handles::Device;
use super::hint::Facts;
use super::library::QnnLibrary;
use super::search::LibraryOptions;
use super::sys;
use crate::base::log::Level;
use crate::error::{Error, Result, Status};
use crate::log_info;
use crate::runtime::{Backend, Delegate, DelegateInit, Tensor, Value};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The backend's name in programs.
pub const QNN_BACKEND: &str = "QnnBackend";

/// How QNN is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QnnOptions {
    /// Where the libraries are.
    pub library: LibraryOptions,
    /// Up to which level QNN's lines go to the log sink, which may want fewer. QNN warns at every load of nothing wrong,
    /// so the default is errors.
    pub log_level: Level,
}

impl Default for QnnOptions {
    fn default() -> Self {
        Self { library: LibraryOptions::default(), log_level: Level::Error }
    }
}

/// Backend `QnnBackend`.
pub struct QnnBackend {
    options: QnnOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    library: Option<Arc<QnnLibrary>>,
    device: Weak<Device>,
    contexts: Vec<Weak<Context>>,
}

/// What a delegate's blob holds, for inspection.
#[derive(Debug, Clone, PartialEq)]
pub struct BlobInfo {
    /// Header and place of the context binary.
    pub header: DelegateBlob,
    /// What the context binary holds.
    pub binary: BinaryInfo,
}

/// What is wrong with a delegate apart from its bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DelegateError {
    #[error("the blob is a DLC, to be compiled on the device (online_prepare); only context binaries can be run")]
    Dlc,
    #[error("the context binary is for backend {found}, not for HTP ({})", sys::QNN_BACKEND_ID_HTP)]
    OtherBackend { found: u32 },
    #[error("the context binary has no graph for method {method}, only [{}]", graphs.join(", "))]
    NoGraph { method: String, graphs: Vec<String> },
}

impl From<DelegateError> for Error {
    fn from(error: DelegateError) -> Self {
        let status = match error {
            DelegateError::Dlc => Status::NotSupported,
            DelegateError::OtherBackend { .. } => Status::DelegateInvalidCompatibility,
            DelegateError::NoGraph { .. } => Status::InvalidProgram,
        };
        Self::from_source(status, error)
    }
}

impl QnnBackend {
    /// Looks for no library yet.
    pub fn new(options: QnnOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Uses `library`, a fake's for example.
    pub fn with_library(library: Arc<QnnLibrary>, options: QnnOptions) -> Self {
        Self { options, state: Mutex::new(State { library: Some(library), ..State::default() }) }
    }

    /// The library, loaded if it was not yet. A failure is not remembered.
    pub fn library(&self) -> Result<Arc<QnnLibrary>> {
        self.library_of(&mut self.state.lock())
    }

    fn library_of(&self, state: &mut State) -> Result<Arc<QnnLibrary>> {
        if let Some(library) = &state.library {
            return Ok(Arc::clone(library));
        }
        let library = QnnLibrary::load(&self.options.library)?;
        Ok(Arc::clone(state.library.insert(library)))
    }

    /// What `blob` holds. Needs the libraries, no device.
    pub fn describe(&self, blob: &[u8]) -> Result<BlobInfo> {
        let header = DelegateBlob::parse(blob)?;
        if header.layout == Layout::Dlc {
            return Err(DelegateError::Dlc.into());
        }
        let library = self.library()?;
        let binary = BinaryInfo::read(&library, &blob[header.payload.clone()])?;
        Ok(BlobInfo { header, binary })
    }

    fn context(&self, init: &DelegateInit<'_>) -> Result<Arc<Context>> {
        let header = DelegateBlob::parse(init.processed)?;
        if header.layout == Layout::Dlc {
            return Err(DelegateError::Dlc.into());
        }
        let mut state = self.state.lock();
        state.contexts.retain(|context| context.strong_count() > 0);
        let known = state.contexts.iter().filter_map(Weak::upgrade);
        if let Some(context) = known.into_iter().find(|context| context.serves(init.processed, &header)) {
            return Ok(context);
        }
        let library = self.library_of(&mut state)?;
        let options = CompileOptions::find(init.compile_specs);
        let binary = &init.processed[header.payload.clone()];
        let mut facts = Facts {
            library: library.info(),
            method: init.method,
            delegate: init.index,
            size: binary.len(),
            options: &options,
            info: None,
        };
        let info = match BinaryInfo::read(&library, binary) {
            Ok(info) => info,
            Err(InfoError::Call(error)) => return Err(facts.explain(error).into()),
            Err(error) => {
                return Err(Error::from(error).context(format!("cannot read the model with {}", library.info())));
            }
        };
        if info.backend_id != sys::QNN_BACKEND_ID_HTP {
            return Err(DelegateError::OtherBackend { found: info.backend_id }.into());
        }
        facts.info = Some(&info);
        let soc_model = options.soc_model.or(info.soc_model).filter(|&model| model != 0);
        let device = match state.device.upgrade().filter(|device| device.soc_model() == soc_model) {
            Some(device) => device,
            None => {
                Device::create(&library, soc_model, self.options.log_level).map_err(|error| facts.explain(error))?
            }
        };
        let context = Context::load(&device, init.processed, header, info.clone());
        let context = context.map_err(|error| facts.explain(error))?;
        log_info!(
            "QNN: loaded delegate {} of {}: {} bytes, graphs [{}], built with {} for {}",
            init.index,
            init.method,
            binary.len(),
            graph_names(&info).join(", "),
            info.build_id,
            options.target(),
        );
        state.device = Arc::downgrade(&device);
        state.contexts.push(Arc::downgrade(&context));
        Ok(context)
    }
}

fn graph_names(info: &BinaryInfo) -> Vec<String> {
    info.graphs.iter().map(|graph| graph.name.clone()).collect()
}

/// The graph of `method`: the one of its name, else the only one whose name holds it, else the only one.
fn choose_graph<'a>(info: &'a BinaryInfo, method: &str) -> Result<&'a GraphInfo, DelegateError> {
    if let Some(graph) = info.graphs.iter().find(|graph| graph.name == method) {
        return Ok(graph);
    }
    let mut alike = info.graphs.iter().filter(|graph| graph.name.contains(method));
    match (alike.next(), alike.next(), &info.graphs[..]) {
        (Some(graph), None, _) | (_, _, [graph]) => Ok(graph),
        _ => Err(DelegateError::NoGraph { method: method.to_owned(), graphs: graph_names(info) }),
    }
}

impl Backend for QnnBackend {
    fn id(&self) -> &'static str {
        QNN_BACKEND
    }

    fn available(&self) -> Result<()> {
        self.library()?.system()?;
        Ok(())
    }

    fn init(&self, init: &DelegateInit<'_>) -> Result<Box<dyn Delegate>> {
        let context = self.context(init)?;
        let tensors = init.args.iter().enumerate().map(|(arg, &value)| match init.values.get(value as usize) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => Err(BindingError::NoTensor { arg }),
        });
        let tensors: Vec<&Tensor> = tensors.collect::<Result<_, _>>()?;
        let graph = choose_graph(context.info(), init.method)?;
        Ok(Box::new(QnnDelegate::new(&context, graph, &tensors)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qnn::Version;

    fn info(names: &[&str]) -> BinaryInfo {
        let graph = |name: &&str| GraphInfo { name: (*name).into(), inputs: vec![], outputs: vec![] };
        BinaryInfo {
            version: 3,
            backend_id: 6,
            build_id: String::new(),
            core: Version::default(),
            backend: Version::default(),
            blob_version: Version::default(),
            soc_version: String::new(),
            soc_model: None,
            graphs: names.iter().map(graph).collect(),
        }
    }

    #[test]
    fn graph_is_chosen_by_method() {
        for (names, chosen) in [
            (&["prefill_forward", "kv_forward"][..], Some("kv_forward")),
            (&["shard_0_prefill_forward", "shard_0_kv_forward"], Some("shard_0_kv_forward")),
            (&["forward_0"], Some("forward_0")),
            (&["a_kv_forward", "b_kv_forward"], None),
            (&["a", "b"], None),
            (&[], None),
        ] {
            let info = info(names);
            let graph = choose_graph(&info, "kv_forward").map(|graph| graph.name.as_str());
            assert_eq!(graph.ok(), chosen, "{names:?}");
        }
    }
}
