//! Every way in which a checkpoint can be unusable.

use super::gguf::GgufDefect;
use super::torch::{PickleDefect, ZipDefect};
use crate::error::{Error, Status};
use crate::tensor::DType;
use std::path::PathBuf;

/// A checkpoint could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A folder without any checkpoint.
    #[error(
        "{} holds no model.safetensors, model.safetensors.index.json, pytorch_model.bin, consolidated.00.pth, \
         and not exactly one .gguf, .pth, .pt or .bin file",
        path.display()
    )]
    NothingInFolder {
        /// The folder.
        path: PathBuf,
    },
    /// No format fits the file's first bytes.
    #[error("{} is no checkpoint that can be read: it begins with {beginning:02x?}", path.display())]
    NotRecognized {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        beginning: Vec<u8>,
    },
    /// It is what an export makes.
    #[error("{} is a program (.pte) already; an export begins with a checkpoint", path.display())]
    Program {
        /// The file.
        path: PathBuf,
    },
    /// The file that describes the model is not there.
    #[error("{} needs {file} beside it, or --params", path.display())]
    MissingConfig {
        /// The checkpoint.
        path: PathBuf,
        /// `config.json` or `params.json`.
        file: &'static str,
    },
    /// A JSON file beside the weights is too large for what it is.
    #[error("{} has {size} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A JSON file beside the weights is not the JSON object that it should be.
    #[error("{file}: {reason}")]
    Json {
        /// The file.
        file: String,
        /// What the parser said.
        reason: String,
    },
    /// A field of the model's description is not there.
    #[error("{file} does not say {field}")]
    MissingField {
        /// `config.json`, `params.json`, `GGUF`.
        file: String,
        /// The field.
        field: String,
    },
    /// A field of the model's description has a value that cannot be.
    #[error("{file}: {field} is {value}, which should be {expected}")]
    Field {
        /// `config.json`, `params.json`, `GGUF`, `the llama2.c header`.
        file: String,
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A model or file with a feature that this library lacks.
    #[error("{feature} {value} is not supported; supported is {supported}")]
    Unsupported {
        /// What it is about: `architecture`, `rope scaling`, `sliding window`.
        feature: &'static str,
        /// What the checkpoint has.
        value: String,
        /// What could be read.
        supported: &'static str,
    },
    /// A weight that the model must have is not there.
    #[error("the checkpoint has no tensor {name}")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor that no supported model has: leaving it out would change what the model computes.
    #[error("tensor {name} belongs to no model of the Llama family that is supported")]
    UnknownTensor {
        /// Its name.
        name: String,
    },
    /// Two tensors of one name.
    #[error("there are two tensors {name}")]
    DuplicateTensor {
        /// Their name.
        name: String,
    },
    /// A tensor of another shape than the model's description asks for.
    #[error("tensor {name} has shape {shape:?}, the model's description asks for {expected:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The right shape.
        expected: Vec<usize>,
    },
    /// A tensor whose elements are no reals that can be read.
    #[error("tensor {name} has elements of type {kind}, which cannot be read")]
    ElementType {
        /// Its name.
        name: String,
        /// Its type in the file.
        kind: String,
    },
    /// A tensor that does not lie inside its file.
    #[error("tensor {name} at bytes {start}..{end} lies outside the file's {size}")]
    OutOfRange {
        /// Its name.
        name: String,
        /// Its first byte.
        start: u64,
        /// The byte behind its last.
        end: u64,
        /// Bytes that are there.
        size: u64,
    },
    /// Two tensors that share some bytes, yet not all.
    #[error("tensors {first} and {second} overlap")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
    },
    /// A safetensors header is damaged.
    #[error("{}: {reason}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An index names a file that is no plain name in its own folder.
    #[error("{}: {name:?} is not the name of a file beside it", path.display())]
    ShardName {
        /// The index.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// An index of more files than any model has.
    #[error("{} names {count} files, at most {limit} are read", path.display())]
    TooManyShards {
        /// The index or folder.
        path: PathBuf,
        /// Files named.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The file of a llama2.c model has not the size that its header asks for.
    #[error("a llama2.c model of this header has {expected} bytes, the file has {size}")]
    Llama2cSize {
        /// What the header asks for.
        expected: u64,
        /// The file's size.
        size: u64,
    },
    /// The container of a `.pt` file is damaged.
    #[error("{}: {defect}", path.display())]
    Zip {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        defect: ZipDefect,
    },
    /// The pickle of a `.pt` file is damaged, or wants code to run.
    #[error("{}: {defect}", path.display())]
    Pickle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        defect: PickleDefect,
    },
    /// A GGUF file is damaged.
    #[error("{}: {defect}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        defect: GgufDefect,
    },
}

impl CheckpointError {
    /// A tensor whose elements are of a type of this library that no weight has.
    pub(super) fn element(name: &str, dtype: DType) -> Self {
        Self::ElementType { name: name.into(), kind: dtype.name().into() }
    }
}

impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Self {
        use CheckpointError::*;
        let status = match &error {
            Unreadable { .. } => Status::AccessFailed,
            NothingInFolder { .. } | MissingConfig { .. } => Status::NotFound,
            Unsupported { .. } | UnknownTensor { .. } | ElementType { .. } => Status::NotSupported,
            Zip { defect: ZipDefect::Compressed { .. } | ZipDefect::Encrypted { .. }, .. } => Status::NotSupported,
            Pickle { defect: PickleDefect::Global { .. }, .. } => Status::NotSupported,
            _ => Status::InvalidExternalData,
        };
        Error::from_source(status, error)
    }
}
