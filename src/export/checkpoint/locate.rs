//! Which files a checkpoint has, and what each of them is.

use super::error::CheckpointError;
use super::json::Document;
use super::{gguf, llama2c, not_recognized, safetensors, torch};
use crate::base::storage::Storage;
use crate::error::Result;
use crate::pte::is_program;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files of one checkpoint; the largest models of the field have 200.
const MAX_FILES: usize = 4096;
/// Most entries of a folder that are looked at.
const MAX_ENTRIES: usize = 1 << 16;

/// What a folder may hold, in the order of preference.
const WHOLE: [&str; 4] =
    ["model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin"];
/// If a folder holds exactly one file with such an ending, that is it.
const ENDINGS: [&str; 5] = ["safetensors", "gguf", "pth", "pt", "bin"];

/// The files of a checkpoint.
#[derive(Debug)]
pub(super) struct Files {
    /// What the caller named.
    pub named: PathBuf,
    /// In order.
    pub weights: Vec<PathBuf>,
    /// Whether each file has a part of every tensor, instead of all of some.
    pub parallel: bool,
    folder: PathBuf,
}

impl Files {
    /// The file `name` in the checkpoint's folder, if there is one.
    pub fn beside(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.join(name)).filter(|path| path.is_file())
    }
}

/// What a file of weights is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Safetensors,
    Torch,
    Llama2c,
    Gguf,
}

impl Container {
    /// Maps the file and looks at its beginning.
    pub fn of(path: &Path) -> Result<(Self, Arc<Storage>)> {
        let storage = Storage::map(path)?;
        let container = match &storage[..] {
            bytes if bytes.starts_with(gguf::MAGIC) => Self::Gguf,
            bytes if bytes.starts_with(torch::MAGIC) => Self::Torch,
            bytes if safetensors::sniff(bytes) => Self::Safetensors,
            // A bare pickle: how torch.save wrote before PyTorch 1.6.
            [0x80, 2..=5, ..] => {
                let value = format!("of {} (a bare pickle)", path.display());
                let supported = "the zip form that torch.save writes since PyTorch 1.6";
                return Err(CheckpointError::Unsupported { feature: "PyTorch file", value, supported }.into());
            }
            _ if is_program(path) => return Err(CheckpointError::Program { path: path.into() }.into()),
            bytes if llama2c::sniff(bytes) => Self::Llama2c,
            _ => return Err(not_recognized(path, &storage).into()),
        };
        Ok((container, storage))
    }
}

/// The files of the checkpoint at `path`, a file or folder.
pub(super) fn find(path: &Path) -> Result<Files, CheckpointError> {
    let unreadable = |source| CheckpointError::Unreadable { path: path.into(), source };
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return of_file(path, path);
    }
    if let Some(whole) = WHOLE.iter().map(|name| path.join(name)).find(|path| path.is_file()) {
        return of_file(&whole, path);
    }
    let entries = std::fs::read_dir(path).map_err(unreadable)?.take(MAX_ENTRIES);
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    if let Some(first) = files.iter().find(|path| part_number(path).is_some()) {
        return of_file(first, path);
    }
    let ending = |path: &PathBuf| ENDINGS.iter().any(|ending| path.extension().is_some_and(|own| own == *ending));
    // A tokenizer of llama2.c has the same ending as its models.
    let one = |path: &PathBuf| ending(path) && path.file_name().is_none_or(|name| name != "tokenizer.bin");
    let mut candidates = files.iter().filter(|path| one(path));
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => of_file(only, path),
        _ => Err(CheckpointError::NothingInFolder { path: path.into() }),
    }
}

fn of_file(file: &Path, named: &Path) -> Result<Files, CheckpointError> {
    let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (weights, parallel) = if name.ends_with(".index.json") {
        (of_index(file, &folder)?, false)
    } else if part_number(file).is_some() {
        (parts(file, &folder)?, true)
    } else {
        (vec![file.to_path_buf()], false)
    };
    Ok(Files { named: named.into(), weights, parallel, folder })
}

/// `NN` of `consolidated.NN.pth`.
fn part_number(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix("consolidated.")?.strip_suffix(".pth")?;
    number.parse().ok().filter(|_| number.len() == 2)
}

/// All parts of a tensor-parallel checkpoint of which `file` is one, in order.
fn parts(file: &Path, folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let exists = |number: &u32| folder.join(format!("consolidated.{number:02}.pth")).is_file();
    let count = (0..100).take_while(exists).count() as u32;
    let number = part_number(file).unwrap_or(0);
    if number >= count {
        let name = format!("the parts before {}", file.display());
        return Err(CheckpointError::MissingTensor { name });
    }
    Ok((0..count).map(|number| folder.join(format!("consolidated.{number:02}.pth"))).collect())
}

/// The files that an index names, each once.
fn of_index(index: &Path, folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let document = Document::read(index)?;
    let map = document.object("weight_map")?.ok_or_else(|| document.missing("weight_map"))?;
    let mut names = std::collections::BTreeSet::new();
    for file in map.fields().values() {
        let name = file.as_str().unwrap_or_default();
        let plain = !name.is_empty() && Path::new(name).file_name().is_some_and(|own| own == name);
        if !plain {
            return Err(CheckpointError::ShardName { path: index.into(), name: file.to_string() });
        }
        names.insert(name);
    }
    if names.len() > MAX_FILES {
        let (count, limit) = (names.len(), MAX_FILES);
        return Err(CheckpointError::TooManyShards { path: index.into(), count, limit });
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
