//! What the pickle machine computes with: numbers, texts, dictionaries, views of storages, and the few constructors.

use super::machine::PickleDefect;

/// The constructors that are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Global {
    /// `torch._utils._rebuild_tensor_v2`
    RebuildTensor,
    /// `torch._utils._rebuild_parameter`
    RebuildParameter,
    /// `collections.OrderedDict`
    OrderedDict,
    /// `torch.FloatStorage` and the like: the name before `Storage`.
    Storage(&'static str),
}

const STORAGES: [(&str, &str); 11] = [
    ("FloatStorage", "Float"),
    ("HalfStorage", "Half"),
    ("BFloat16Storage", "BFloat16"),
    ("DoubleStorage", "Double"),
    ("LongStorage", "Long"),
    ("IntStorage", "Int"),
    ("ShortStorage", "Short"),
    ("CharStorage", "Char"),
    ("ByteStorage", "Byte"),
    ("BoolStorage", "Bool"),
    ("ComplexFloatStorage", "ComplexFloat"),
];

impl Global {
    pub fn find(module: &str, name: &str) -> Result<Self, PickleDefect> {
        let found = match (module, name) {
            ("torch._utils", "_rebuild_tensor_v2") => Some(Self::RebuildTensor),
            ("torch._utils", "_rebuild_parameter") => Some(Self::RebuildParameter),
            ("collections", "OrderedDict") => Some(Self::OrderedDict),
            ("torch", name) => STORAGES.iter().find(|(known, _)| *known == name).map(|(_, kind)| Self::Storage(kind)),
            _ => None,
        };
        found.ok_or_else(|| PickleDefect::Global { module: module.into(), name: name.into() })
    }
}

/// A value. Compound ones live in the machine, so that neither cycles nor depth cost anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Flag(bool),
    Integer(i64),
    Real,
    Text(&'a str),
    Global(Global),
    /// The number of an [`Object`].
    Object(usize),
}

impl Value<'_> {
    /// The number, if it is one.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(value),
            _ => None,
        }
    }
}

/// A compound value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object<'a> {
    Tuple(Vec<Value<'a>>),
    List(Vec<Value<'a>>),
    Dict(Vec<(Value<'a>, Value<'a>)>),
    Storage(StorageRef<'a>),
    Tensor(TensorRef<'a>),
}

/// Where elements are: `('storage', torch.FloatStorage, key, device, elements)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StorageRef<'a> {
    /// The name before `Storage`.
    pub kind: &'static str,
    /// The member `data/<key>`.
    pub key: &'a str,
    /// Number of elements.
    pub elements: i64,
}

/// A view of a storage.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorRef<'a> {
    pub storage: StorageRef<'a>,
    /// In elements.
    pub offset: i64,
    pub size: Vec<i64>,
    pub stride: Vec<i64>,
}
