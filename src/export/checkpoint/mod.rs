//! Every checkpoint format in, one [`Checkpoint`] out: the model's description and its weights, read one by one.
//!
//! Files are mapped and judged when they are opened: places, shapes and names of all tensors; elements are touched only
//! when a weight is asked for.

mod describe;
mod error;
mod gguf;
mod huggingface;
mod json;
mod llama2c;
mod locate;
mod meta;
mod naming;
mod safetensors;
mod stored;
mod torch;

pub use error::CheckpointError;
pub use gguf::GgufDefect;
pub use torch::{PickleDefect, ZipDefect};

use self::json::Document;
use self::locate::{Container, Files};
use self::naming::{Assigned, Naming};
use self::stored::{Room, Tensors};
use super::{ModelConfig, Weight, WeightRole, WeightSource};
use crate::base::storage::Storage;
use crate::error::{Context, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a checkpoint is.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// A file, or a folder with a checkpoint's files.
    pub checkpoint: PathBuf,
    /// `params.json` or `config.json`, where it is not beside the weights.
    pub params: Option<PathBuf>,
    /// Folder for a temporary file, which takes the weights that cannot stay where they are: quantized ones as f32,
    /// misaligned ones, parts of several files. The system's folder for such files where absent.
    pub scratch: Option<PathBuf>,
}

/// The form of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Hugging Face's safetensors, in one file or several.
    Safetensors,
    /// PyTorch's `.pt`, `.pth` or `.bin`.
    Torch,
    /// llama2.c's `.bin`.
    Llama2c,
    /// llama.cpp's GGUF.
    Gguf,
}

impl Format {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Torch => "PyTorch",
            Self::Llama2c => "llama2.c",
            Self::Gguf => "GGUF",
        }
    }
}

/// How large a checkpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Numbers in all weights; a tied output head counts once.
    pub parameters: u64,
    /// Bytes that they take in the checkpoint.
    pub bytes: u64,
    /// Weights.
    pub tensors: usize,
}

/// Files for the tokenizer room, made from a GGUF file's own tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerFiles {
    /// `tokenizer.json`
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`: BOS, EOS and the chat template.
    pub config: Vec<u8>,
}

/// An opened checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    format: Format,
    config: ModelConfig,
    weights: Assigned,
    metadata: Option<gguf::Metadata>,
    room: Room,
    given: Mutex<HashMap<WeightRole, Weight>>,
}

impl Checkpoint {
    /// Opens what `source` names. The format is seen from the bytes, the model's description from the files beside.
    ///
    /// # Errors
    /// [`CheckpointError`], for a file that cannot be read, is damaged, or holds a model that is not supported.
    pub fn open(source: &Source) -> Result<Self> {
        let files = locate::find(&source.checkpoint)?;
        let opened = open(&files, source.params.as_deref());
        let (format, metadata, config, weights) =
            opened.with_context(|| format!("reading the checkpoint {}", source.checkpoint.display()))?;
        let room = Room::new(source.scratch.clone().unwrap_or_else(std::env::temp_dir));
        let checkpoint = Self { format, config, weights, metadata, room, given: Mutex::default() };
        let totals = checkpoint.totals();
        crate::log_info!(
            "checkpoint {}: {}, {}, {} layers, {} parameters in {} bytes",
            source.checkpoint.display(),
            format.name(),
            checkpoint.config.architecture,
            checkpoint.config.layers,
            totals.parameters,
            totals.bytes,
        );
        Ok(checkpoint)
    }

    /// Its form.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// How large it is.
    pub fn totals(&self) -> Totals {
        self.weights.values().fold(Totals::default(), |sum, (_, stored)| Totals {
            parameters: sum.parameters + stored.elements() as u64,
            bytes: sum.bytes + stored.bytes(),
            tensors: sum.tensors + 1,
        })
    }

    /// The tokenizer that a GGUF file holds; `None` for other formats, whose tokenizer is a file of its own.
    ///
    /// # Errors
    /// [`CheckpointError`] for a tokenizer that is damaged or of a kind that is not supported.
    pub fn tokenizer_files(&self) -> Result<Option<TokenizerFiles>> {
        Ok(self.metadata.as_ref().map(gguf::tokenizer_files).transpose()?)
    }
}

impl WeightSource for Checkpoint {
    fn weight(&self, role: WeightRole) -> Result<Option<Weight>> {
        let Some((name, stored)) = self.weights.get(&role) else { return Ok(None) };
        let mut given = self.given.lock();
        if let Some(weight) = given.get(&role) {
            return Ok(Some(weight.clone()));
        }
        let (dtype, data) = stored.reals(name, &self.room)?;
        let weight = Weight { name: name.clone(), dtype, shape: stored.shape.clone(), data };
        given.insert(role, weight.clone());
        Ok(Some(weight))
    }
}

type Opened = (Format, Option<gguf::Metadata>, ModelConfig, Assigned);

fn open(files: &Files, params: Option<&Path>) -> Result<Opened> {
    let Files { weights, .. } = files;
    let first = weights.first().ok_or_else(|| CheckpointError::NothingInFolder { path: files.named.clone() })?;
    match Container::of(first)? {
        (Container::Gguf, storage) => {
            let (metadata, tensors) = gguf::read(&storage, first)?;
            let config = gguf::describe(&metadata, &tensors)?;
            describe::check(&config, "GGUF")?;
            let weights = naming::assign(Naming::Gguf, vec![tensors], &config, None)?;
            Ok((Format::Gguf, Some(metadata), config, weights))
        }
        (Container::Llama2c, storage) => {
            let (config, tensors) = llama2c::read(&storage)?;
            let weights = naming::assign(Naming::Meta, vec![tensors], &config, None)?;
            Ok((Format::Llama2c, None, config, weights))
        }
        (container @ (Container::Safetensors | Container::Torch), _) => {
            let shards = weights.iter().map(|path| shard(path)).collect::<Result<Vec<_>>>()?;
            let shards = if files.parallel { shards } else { vec![merge(shards)?] };
            let (config, weights) = described(files, params, shards)?;
            let format = if container == Container::Torch { Format::Torch } else { Format::Safetensors };
            Ok((format, None, config, weights))
        }
    }
}

fn shard(path: &Path) -> Result<Tensors> {
    match Container::of(path)? {
        (Container::Safetensors, storage) => Ok(safetensors::read(&storage, path)?),
        (Container::Torch, storage) => Ok(torch::read(&storage, path)?),
        (_, storage) => Err(not_recognized(path, &storage).into()),
    }
}

fn not_recognized(path: &Path, storage: &Arc<Storage>) -> CheckpointError {
    let beginning = storage.get(..16).unwrap_or(storage).to_vec();
    CheckpointError::NotRecognized { path: path.into(), beginning }
}

/// Files of different tensors as one.
fn merge(shards: Vec<Tensors>) -> Result<Tensors, CheckpointError> {
    let mut all = Tensors::new();
    for (name, stored) in shards.into_iter().flatten() {
        if all.insert(name.clone(), stored).is_some() {
            return Err(CheckpointError::DuplicateTensor { name });
        }
    }
    Ok(all)
}

/// Tensors with the JSON file that describes their model: the one that the names of the tensors go with.
fn described(files: &Files, params: Option<&Path>, shards: Vec<Tensors>) -> Result<(ModelConfig, Assigned)> {
    let empty = Tensors::new();
    let naming = Naming::of(shards.first().unwrap_or(&empty))?;
    let (file, beside) = match naming {
        Naming::Meta => ("params.json", files.beside("params.json")),
        _ => ("config.json", files.beside("config.json")),
    };
    let missing = || CheckpointError::MissingConfig { path: files.named.clone(), file };
    let path = params.map(Path::to_path_buf).or(beside).ok_or_else(missing)?;
    let document = Document::read(&path)?;
    let (config, tied) = match naming {
        Naming::Meta => (meta::describe(&document, &shards)?, None),
        _ => {
            let generation = files.beside("generation_config.json").map(|path| Document::read(&path)).transpose()?;
            huggingface::describe(&document, generation.as_ref())?
        }
    };
    describe::check(&config, document.file())?;
    let weights = naming::assign(naming, shards, &config, tied)?;
    Ok((config, weights))
}

#[cfg(test)]
mod tests;
