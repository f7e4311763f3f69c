//! What a context binary holds, asked of libQnnSystem.so and copied out of its structures.
//!
//! The library parses bytes from a file, so its counts and pointers are judged here like any other input: counts are
//! capped, pointers may be null, versions may be unknown.

use super::library::{LibraryError, QnnLibrary};
use super::lock::QnnLock;
use super::result::{QnnError, SystemApi};
use super::sys;
use super::tensor_info::{QnnType, Quantization, TensorInfo};
use super::version::Version;
use crate::error::{Error, Status};
use crate::tensor::{Encoding, MAX_RANK, element_count};
use std::ffi::c_char;

const MAX_GRAPHS: u32 = 1 << 12;
const MAX_TENSORS: u32 = 1 << 16;
const MAX_AXIS_ENCODINGS: u32 = 1 << 20;
const MAX_TEXT: usize = 1 << 12;

/// A context binary's table of contents.
#[derive(Debug, Clone, PartialEq)]
pub struct BinaryInfo {
    /// Version of the structure that the library gave, 1 to 3.
    pub version: u32,
    /// The backend it was compiled for; 6 is HTP.
    pub backend_id: u32,
    /// The SDK it was compiled with.
    pub build_id: String,
    /// Core interface of that SDK.
    pub core: Version,
    /// Backend interface of that SDK.
    pub backend: Version,
    /// Format of the binary.
    pub blob_version: Version,
    /// The SoC's name or revision, where stated.
    pub soc_version: String,
    /// The SoC's number, in version 3.
    pub soc_model: Option<u32>,
    /// Compiled graphs.
    pub graphs: Vec<GraphInfo>,
}

/// One graph.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphInfo {
    /// Graph name; the exporter takes the method's.
    pub name: String,
    /// In the library's order.
    pub inputs: Vec<TensorInfo>,
    /// In the library's order.
    pub outputs: Vec<TensorInfo>,
}

/// Why a context binary's contents are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum InfoError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error(transparent)]
    Call(#[from] QnnError),
    #[error("libQnnSystem.so reports success for the context binary but no contents")]
    Nothing,
    #[error("the context binary's contents come as version {found}, this build knows 1 to 3: the library is newer")]
    BinaryVersion { found: u32 },
    #[error("graph {index} comes as version {found}, this build knows 1 to 3: the library is newer")]
    GraphVersion { index: u32, found: u32 },
    #[error("{place}: a tensor comes as version {found}, this build knows 1 and 2: the library is newer")]
    TensorVersion { place: String, found: u32 },
    #[error("{place}: {count} {what} are more than the {max} allowed")]
    Count { place: String, what: &'static str, count: u32, max: u32 },
    #[error("{place}: {what} missing")]
    Missing { place: String, what: &'static str },
    #[error("{place}: a name is longer than {MAX_TEXT} bytes")]
    LongText { place: String },
    #[error("{place}: tensor {name} has too large a shape {dims:?}")]
    Shape { place: String, name: String, dims: Vec<usize> },
}

impl From<InfoError> for Error {
    fn from(error: InfoError) -> Self {
        match error {
            InfoError::Library(error) => error.into(),
            InfoError::Call(error) => error.into(),
            InfoError::BinaryVersion { .. } | InfoError::GraphVersion { .. } | InfoError::TensorVersion { .. } => {
                Self::from_source(Status::DelegateInvalidCompatibility, error)
            }
            _ => Self::from_source(Status::InvalidProgram, error),
        }
    }
}

type Result<T> = std::result::Result<T, InfoError>;

/// A handle of libQnnSystem's, in which the answer lives.
struct SystemContext<'a> {
    api: &'a SystemApi,
    lock: &'a QnnLock,
    handle: sys::QnnSystemContext_Handle_t,
}

impl Drop for SystemContext<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own and goes with it.
        if let Err(error) = unsafe { self.api.context_free(self.lock, self.handle) } {
            crate::log_warning!("{error}");
        }
    }
}

impl BinaryInfo {
    /// Asks libQnnSystem.so about `binary`.
    pub fn read(library: &QnnLibrary, binary: &[u8]) -> Result<Self> {
        let api = library.system()?;
        let lock = QnnLock::acquire();
        let context = SystemContext { api, lock: &lock, handle: api.context_create(&lock)? };
        // SAFETY: the handle is fresh.
        let info = unsafe { api.binary_info(&lock, context.handle, binary) }?;
        if info.is_null() {
            return Err(InfoError::Nothing);
        }
        // SAFETY: a non-null answer is valid as long as `context`, which outlives the copy.
        unsafe { Self::copy(info) }
    }

    /// # Safety
    /// `info` must be as libQnnSystem.so gives it: fields valid for the version stated, pointers valid for their
    /// counts or null.
    pub(super) unsafe fn copy(info: *const sys::QnnSystemContext_BinaryInfo_t) -> Result<Self> {
        // SAFETY: every version begins with its number.
        let version = unsafe { (*info).version };
        match version {
            sys::QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1 | sys::QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_2 => {
                // SAFETY: the version says that this member holds; version 2 begins with version 1.
                let v1 = unsafe { &(*info).u.v1 };
                Ok(Self {
                    version,
                    backend_id: v1.backendId,
                    // SAFETY: text fields are C strings or null.
                    build_id: unsafe { text(v1.buildId, "context binary") }?,
                    core: v1.coreApiVersion.into(),
                    backend: v1.backendApiVersion.into(),
                    blob_version: v1.contextBlobVersion.into(),
                    // SAFETY: as above.
                    soc_version: unsafe { text(v1.socVersion, "context binary") }?,
                    soc_model: None,
                    // SAFETY: as the caller says.
                    graphs: unsafe { copy_graphs(v1.graphs, v1.numGraphs) }?,
                })
            }
            sys::QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3 => {
                // SAFETY: the version says that this member holds.
                let v3 = unsafe { &(*info).u.v3 };
                Ok(Self {
                    version,
                    backend_id: v3.backendId,
                    // SAFETY: text fields are C strings or null.
                    build_id: unsafe { text(v3.buildId, "context binary") }?,
                    core: v3.coreApiVersion.into(),
                    backend: v3.backendApiVersion.into(),
                    blob_version: v3.contextBlobVersion.into(),
                    // SAFETY: as above.
                    soc_version: unsafe { text(v3.socVersion, "context binary") }?,
                    soc_model: Some(v3.socModel),
                    // SAFETY: as the caller says.
                    graphs: unsafe { copy_graphs(v3.graphs, v3.numGraphs) }?,
                })
            }
            found => Err(InfoError::BinaryVersion { found }),
        }
    }
}

/// The largest buffer that a graph of `binary` has for what does not fit on the chip, in bytes; 0 where the library does
/// not say.
pub fn spill_fill_bytes(library: &QnnLibrary, binary: &[u8]) -> Result<u64> {
    let api = library.system()?;
    let lock = QnnLock::acquire();
    let context = SystemContext { api, lock: &lock, handle: api.context_create(&lock)? };
    // SAFETY: the handle is fresh.
    let info = unsafe { api.binary_info(&lock, context.handle, binary) }?;
    // SAFETY: a non-null answer is valid as long as `context`; every version begins with its number.
    if info.is_null() || unsafe { (*info).version } != sys::QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3 {
        return Ok(0);
    }
    // SAFETY: the version says that this member holds.
    let v3 = unsafe { &(*info).u.v3 };
    let count = check_list(v3.graphs, v3.numGraphs, "context binary", "graphs", MAX_GRAPHS)?;
    // SAFETY: each index is below the count, and the library fills every entry.
    let sizes = (0..count).map(|index| unsafe { graph_spill_fill(&*v3.graphs.add(index)) });
    Ok(sizes.max().unwrap_or(0))
}

/// # Safety
/// `graph` must be as libQnnSystem.so gives it.
unsafe fn graph_spill_fill(graph: &sys::QnnSystemContext_GraphInfo_t) -> u64 {
    if graph.version != sys::QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3 {
        return 0;
    }
    // SAFETY: the version says that this member holds.
    let v3 = unsafe { graph.u.v3 };
    let wanted = size_of::<sys::QnnHtpSystemContext_GraphBlobInfo_t>();
    if v3.graphBlobInfo.is_null() || (v3.graphBlobInfoSize as usize) < wanted {
        return 0;
    }
    let blob = v3.graphBlobInfo.cast::<sys::QnnHtpSystemContext_GraphBlobInfo_t>();
    // SAFETY: the blob has at least this many bytes, says its size.
    let blob = unsafe { blob.read_unaligned() };
    if blob.version == GRAPH_BLOB_VERSION { blob.spillFillBufferSize } else { 0 }
}

/// The one version in which the size of the buffer stands first.
const GRAPH_BLOB_VERSION: u32 = 1;

/// Refuses a count above `max`, and a null pointer where there should be something.
fn check_list<T>(list: *const T, count: u32, place: &str, what: &'static str, max: u32) -> Result<usize> {
    if count > max {
        return Err(InfoError::Count { place: place.to_owned(), what, count, max });
    }
    if count > 0 && list.is_null() {
        return Err(InfoError::Missing { place: place.to_owned(), what });
    }
    Ok(count as usize)
}

/// # Safety
/// `text` must be null, which reads as empty, or a C string.
unsafe fn text(text: *const c_char, place: &str) -> Result<String> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the bytes are read one by one up to the terminator, as the caller says.
    let bytes = (0..MAX_TEXT).map(|at| unsafe { *text.add(at).cast::<u8>() }).take_while(|&byte| byte != 0);
    let bytes: Vec<u8> = bytes.collect();
    if bytes.len() == MAX_TEXT {
        return Err(InfoError::LongText { place: place.to_owned() });
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// # Safety
/// `graphs` must be null or valid for `count` entries.
unsafe fn copy_graphs(graphs: *const sys::QnnSystemContext_GraphInfo_t, count: u32) -> Result<Vec<GraphInfo>> {
    let count = check_list(graphs, count, "context binary", "graphs", MAX_GRAPHS)?;
    (0..count)
        .map(|index| {
            // SAFETY: the index is below the count. All entries have the stride of the largest version.
            let graph = unsafe { graphs.add(index) };
            // SAFETY: as above; every version begins with its number.
            let found = unsafe { (*graph).version };
            if !(1..=sys::QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3).contains(&found) {
                return Err(InfoError::GraphVersion { index: index as u32, found });
            }
            // SAFETY: versions 2 and 3 begin with version 1.
            let v1 = unsafe { &(*graph).u.v1 };
            // SAFETY: a graph's name is a C string or null.
            let name = unsafe { text(v1.graphName, "context binary") }?;
            let place = format!("graph {name}");
            Ok(GraphInfo {
                // SAFETY: as the caller says, for the lists inside too.
                inputs: unsafe { copy_tensors(v1.graphInputs, v1.numGraphInputs, &place, "inputs") }?,
                // SAFETY: as above.
                outputs: unsafe { copy_tensors(v1.graphOutputs, v1.numGraphOutputs, &place, "outputs") }?,
                name,
            })
        })
        .collect()
}

/// # Safety
/// `tensors` must be null or valid for `count` entries.
unsafe fn copy_tensors(
    tensors: *const sys::Qnn_Tensor_t,
    count: u32,
    place: &str,
    what: &'static str,
) -> Result<Vec<TensorInfo>> {
    let count = check_list(tensors, count, place, what, MAX_TENSORS)?;
    // SAFETY: the index is below the count; the rest as the caller says.
    (0..count).map(|index| unsafe { copy_tensor(tensors.add(index), place) }).collect()
}

/// # Safety
/// `tensor` must be valid, its pointers valid for their counts or null.
unsafe fn copy_tensor(tensor: *const sys::Qnn_Tensor_t, place: &str) -> Result<TensorInfo> {
    // SAFETY: every version begins with its number.
    let version = unsafe { (*tensor).version };
    if !(sys::QNN_TENSOR_VERSION_1..=sys::QNN_TENSOR_VERSION_2).contains(&version) {
        return Err(InfoError::TensorVersion { place: place.to_owned(), found: version });
    }
    // SAFETY: version 2 begins with version 1.
    let v1 = unsafe { &(*tensor).u.v1 };
    // SAFETY: a tensor's name is a C string or null.
    let name = unsafe { text(v1.name, place) }?;
    let place = format!("{place}, tensor {name}");
    let rank = check_list(v1.dimensions, v1.rank, &place, "dimensions", MAX_RANK as u32)?;
    // SAFETY: the index is below the rank.
    let dims: Vec<usize> = (0..rank).map(|index| unsafe { *v1.dimensions.add(index) } as usize).collect();
    if element_count(&dims).is_err() {
        return Err(InfoError::Shape { place, name, dims });
    }
    // SAFETY: as the caller says.
    let quantization = unsafe { copy_quantization(&v1.quantizeParams, &place) }?;
    Ok(TensorInfo { version, id: v1.id, name, data_type: QnnType(v1.dataType), dims, quantization })
}

/// # Safety
/// The member that the parameters name must hold, and its pointer be valid for its count or null.
unsafe fn copy_quantization(params: &sys::Qnn_QuantizeParams_t, place: &str) -> Result<Quantization> {
    let encoding = |scale, offset: i32| Encoding { scale, zero_point: 0i32.saturating_sub(offset) };
    if params.encodingDefinition != sys::QNN_DEFINITION_DEFINED {
        return Ok(Quantization::None);
    }
    Ok(match params.quantizationEncoding {
        sys::QNN_QUANTIZATION_ENCODING_SCALE_OFFSET => {
            // SAFETY: the encoding names this member.
            let member = unsafe { params.u.scaleOffset };
            Quantization::PerTensor(encoding(member.scale, member.offset))
        }
        sys::QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET => {
            // SAFETY: as above.
            let member = unsafe { params.u.bwScaleOffset };
            Quantization::PerTensor(encoding(member.scale, member.offset))
        }
        sys::QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET => {
            // SAFETY: as above.
            let member = unsafe { params.u.axisScaleOffset };
            let (list, count) = (member.scaleOffset, member.numScaleOffsets);
            let count = check_list(list, count, place, "encodings", MAX_AXIS_ENCODINGS)?;
            // SAFETY: the index is below the count.
            let entries = (0..count).map(|index| unsafe { *list.add(index) });
            let encodings = entries.map(|entry| encoding(entry.scale, entry.offset)).collect();
            Quantization::PerAxis { axis: member.axis, encodings }
        }
        other => Quantization::Other(other),
    })
}
