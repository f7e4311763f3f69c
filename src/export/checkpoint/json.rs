//! The JSON files beside weights: read with a limit, and their fields with names in every complaint.

use super::error::CheckpointError;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes of a JSON file that are read; an index of a hundred thousand tensors has 10 MB.
const MAX_FILE: u64 = 64 << 20;

/// A JSON object and the name of its file, or of its place in a file.
#[derive(Debug, Clone)]
pub(super) struct Document {
    file: String,
    fields: Map<String, Value>,
}

impl Document {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let unreadable = |source| CheckpointError::Unreadable { path: path.into(), source };
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(unreadable(std::io::Error::other("it is not a regular file")));
        }
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(CheckpointError::TooLarge { path: path.into(), size: metadata.len(), limit: MAX_FILE });
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Self::parse(&bytes, &name)
    }

    /// Reads the bytes of the file called `file`.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, CheckpointError> {
        let parsed: Result<Map<String, Value>, _> = serde_json::from_slice(bytes);
        let fields = parsed.map_err(|error| CheckpointError::Json { file: file.into(), reason: error.to_string() })?;
        Ok(Self { file: file.into(), fields })
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The field called `key`; `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// The first of the fields that is there.
    pub fn any<'a>(&'a self, keys: &[&'a str]) -> Option<(&'a str, &'a Value)> {
        keys.iter().find_map(|&key| Some((key, self.get(key)?)))
    }

    /// The object in field `key`.
    pub fn object(&self, key: &str) -> Result<Option<Self>, CheckpointError> {
        let object = |value: &Value| value.as_object().cloned();
        let fields = self.typed(key, "an object", object)?;
        Ok(fields.map(|fields| Self { file: format!("{}: {key}", self.file), fields }))
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// A count.
    pub fn count(&self, key: &str) -> Result<Option<usize>, CheckpointError> {
        let count = |value: &Value| whole(value).and_then(|value| usize::try_from(value).ok());
        self.typed(key, "a whole number of at least 0", count)
    }

    /// A whole number.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, CheckpointError> {
        self.typed(key, "a whole number", whole)
    }

    /// A real.
    pub fn real(&self, key: &str) -> Result<Option<f32>, CheckpointError> {
        self.typed(key, "a number", |value| value.as_f64().map(|value| value as f32))
    }

    /// A truth value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        match self.get(key) {
            Some(Value::String(text)) => Ok(Some(text)),
            None => Ok(None),
            Some(value) => Err(self.wrong(key, value, "a text")),
        }
    }

    /// A token number or a list of them.
    pub fn ids(&self, key: &str) -> Result<Vec<u64>, CheckpointError> {
        let ids = |value: &Value| match value {
            Value::Array(ids) => ids.iter().map(Value::as_u64).collect::<Option<Vec<_>>>(),
            one => one.as_u64().map(|id| vec![id]),
        };
        Ok(self.typed(key, "a token number or a list of them", ids)?.unwrap_or_default())
    }

    /// What a field must be for a model to run.
    pub fn missing(&self, field: &str) -> CheckpointError {
        CheckpointError::MissingField { file: self.file.clone(), field: field.into() }
    }

    fn wrong(&self, key: &str, value: &Value, expected: &'static str) -> CheckpointError {
        CheckpointError::Field { file: self.file.clone(), field: key.into(), value: brief(value), expected }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(key, value, expected))
    }
}

/// A whole number, also where it is written as `8192.0`.
fn whole(value: &Value) -> Option<i64> {
    let real = || value.as_f64().filter(|real| real.fract() == 0.0 && real.abs() < 9e15).map(|real| real as i64);
    value.as_i64().or_else(real)
}

/// A value for a message, cut where it is long.
pub(super) fn brief(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}
