//! The tensors of a state dictionary: views of the container's members, checked.

use super::machine::{Machine, PickleDefect};
use super::value::{Object, TensorRef, Value};
use super::zip::{self, ZipDefect};
use crate::base::storage::{Blob, Storage};
use crate::export::checkpoint::error::CheckpointError;
use crate::export::checkpoint::stored::{Encoding, Layout, Stored, Tensors};
use crate::tensor::{DType, element_count};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Under which a training script keeps the state dictionary beside other things.
const NESTED: [&str; 3] = ["model", "state_dict", "module"];
/// What `torch.compile` puts before every name.
const COMPILED: &str = "_orig_mod.";

/// The container: where each member is, and the folder in it that holds all.
struct Container<'a> {
    storage: &'a Arc<Storage>,
    members: BTreeMap<String, Range<usize>>,
    folder: String,
}

/// The tensors of the file at `path`.
pub(in crate::export::checkpoint) fn read(storage: &Arc<Storage>, path: &Path) -> Result<Tensors, CheckpointError> {
    let zip = |defect| CheckpointError::Zip { path: path.into(), defect };
    let pickle = |defect| CheckpointError::Pickle { path: path.into(), defect };
    let container = Container::open(storage).map_err(zip)?;
    let bytes = container.member("data.pkl").ok_or(ZipDefect::NoPickle).map_err(zip)?;
    let (machine, top) = Machine::run(&bytes).map_err(pickle)?;
    let entries = state_dict(&machine, top).ok_or(PickleDefect::NoStateDict).map_err(pickle)?;
    let mut tensors = Tensors::new();
    let mut places = Vec::new();
    for (key, value) in entries {
        let (Value::Text(name), Some(Object::Tensor(tensor))) = (key, machine.object(*value)) else { continue };
        let name = name.strip_prefix(COMPILED).unwrap_or(name);
        let stored = container.stored(name, tensor).map_err(pickle)?;
        if let Layout::Dense(blob) | Layout::Strided(blob, _) = &stored.layout {
            places.push((blob.range(), matches!(stored.layout, Layout::Dense(_)), name));
        }
        if tensors.insert(name.into(), stored).is_some() {
            return Err(CheckpointError::DuplicateTensor { name: name.into() });
        }
    }
    refuse_overlap(places)?;
    Ok(tensors)
}

/// The dictionary with tensors: the whole, or the part that a training script nests.
fn state_dict<'m>(machine: &'m Machine<'_>, top: Value<'_>) -> Option<&'m [(Value<'m>, Value<'m>)]> {
    let dict = |value: Value<'m>| match machine.object(value) {
        Some(Object::Dict(entries)) => Some(&entries[..]),
        _ => None,
    };
    let is_tensor = |entry: &&(Value<'m>, Value<'m>)| matches!(machine.object(entry.1), Some(Object::Tensor(_)));
    let Value::Object(index) = top else { return None };
    let top = dict(Value::Object(index))?;
    if top.iter().any(|entry| is_tensor(&entry)) {
        return Some(top);
    }
    let nested = NESTED.iter().find_map(|&nested| {
        let entry = top.iter().find(|(key, _)| *key == Value::Text(nested))?;
        dict(entry.1)
    })?;
    nested.iter().any(|entry| is_tensor(&entry)).then_some(nested)
}

/// Tied weights are the same place; anything between that and two places is damage, or one tensor counted often.
fn refuse_overlap(mut places: Vec<(Range<usize>, bool, &str)>) -> Result<(), CheckpointError> {
    places.retain(|(range, ..)| !range.is_empty());
    places.sort_by_key(|(range, ..)| (range.start, range.end));
    let shared = |a: &(Range<usize>, bool, &str), b: &(Range<usize>, bool, &str)| a.0 == b.0 && a.1 && b.1;
    match places.array_windows().find(|[a, b]| b.0.start < a.0.end && !shared(a, b)) {
        Some([first, second]) => Err(CheckpointError::Overlap { first: first.2.into(), second: second.2.into() }),
        None => Ok(()),
    }
}

impl<'a> Container<'a> {
    fn open(storage: &'a Arc<Storage>) -> Result<Self, ZipDefect> {
        let members = zip::members(storage)?;
        let pickle = members.keys().find_map(|name| {
            let folder = name.strip_suffix("data.pkl")?;
            (folder.is_empty() || folder.ends_with('/')).then(|| folder.to_owned())
        });
        let container = Self { storage, members, folder: pickle.ok_or(ZipDefect::NoPickle)? };
        match container.member("byteorder") {
            Some(order) if &order[..] != b"little" => {
                let order = String::from_utf8_lossy(&order.head(16)).into_owned();
                Err(ZipDefect::ByteOrder { order })
            }
            _ => Ok(container),
        }
    }

    fn member(&self, name: &str) -> Option<Blob> {
        Blob::new(self.storage, self.members.get(&format!("{}{name}", self.folder))?.clone())
    }

    fn stored(&self, name: &str, tensor: &TensorRef<'_>) -> Result<Stored, PickleDefect> {
        let member = format!("data/{}", tensor.storage.key);
        let missing = || PickleDefect::NoStorage { name: name.into(), member: member.clone() };
        let wrong =
            || PickleDefect::Strides { name: name.into(), size: tensor.size.clone(), stride: tensor.stride.clone() };
        let whole = self.member(&member).ok_or_else(missing)?;
        let encoding = match tensor.storage.kind {
            "Float" => Encoding::Plain(DType::F32),
            "Half" => Encoding::Plain(DType::F16),
            "BFloat16" => Encoding::Plain(DType::BF16),
            other => Encoding::Other(other.into()),
        };
        let sizes = |numbers: &[i64]| numbers.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
        let (shape, strides) = sizes(&tensor.size).zip(sizes(&tensor.stride)).ok_or_else(wrong)?;
        let Encoding::Plain(dtype) = encoding else {
            return Ok(Stored { encoding, shape, layout: Layout::Dense(whole.head(0)) });
        };
        let extent = extent(&shape, &strides).ok_or_else(wrong)?;
        let bytes = |elements: usize| elements.checked_mul(dtype.size());
        let start = usize::try_from(tensor.offset).ok().and_then(bytes);
        let view = start.and_then(|start| whole.tail(start)).zip(bytes(extent)).ok_or_else(wrong)?;
        let blob = Some(view.0.head(view.1)).filter(|blob| blob.len() == view.1).ok_or_else(wrong)?;
        let said = usize::try_from(tensor.storage.elements).ok().and_then(bytes);
        if said != Some(whole.len()) {
            return Err(missing());
        }
        let layout = if is_dense(&shape, &strides) { Layout::Dense(blob) } else { Layout::Strided(blob, strides) };
        Ok(Stored { encoding, shape, layout })
    }
}

fn is_dense(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&size, &stride)| {
        let fits = size == 1 || stride == expected;
        expected *= size;
        fits
    })
}

/// Elements from the first to behind the last; `None` when elements lie upon one another or the sizes are absurd.
fn extent(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.len() != strides.len() {
        return None;
    }
    let count = element_count(shape).ok().filter(|_| shape.len() <= crate::tensor::MAX_RANK)?;
    if count == 0 {
        return Some(0);
    }
    let mut axes: Vec<_> = strides.iter().zip(shape).filter(|(_, size)| **size > 1).collect();
    axes.sort();
    axes.iter().try_fold(1usize, |reach, (stride, size)| {
        let stride = Some(**stride).filter(|&stride| stride >= reach)?;
        stride.checked_mul(**size - 1)?.checked_add(reach)
    })
}
