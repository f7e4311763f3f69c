//! A pickle machine that only builds state dictionaries: no import, no call, no object of any other kind.

use std::collections::HashMap;

/// Most bytes of a pickle; a checkpoint of ten thousand tensors has 3 MB.
const MAX_PICKLE: usize = 16 << 20;

/// What can be wrong with the pickle.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleDefect {
    /// Larger than any state dictionary.
    #[error("the pickle has {size} bytes, at most {limit} are read")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// It ends in the middle.
    #[error("the pickle ends at byte {offset}, in the middle of an instruction")]
    Truncated {
        /// Where.
        offset: usize,
    },
    /// An instruction that no state dictionary needs: it makes objects, or does not exist.
    #[error("pickle instruction {opcode:#04x} at byte {offset} is not run")]
    Opcode {
        /// The instruction.
        opcode: u8,
        /// Where.
        offset: usize,
    },
    /// The pickle wants to import something: running it would run code.
    #[error("the pickle asks for {module}.{name}, which is not run; only tensors and dictionaries are read")]
    Global {
        /// Its module.
        module: String,
        /// Its name.
        name: String,
    },
    /// The stack or memo has not what an instruction needs.
    #[error("pickle instruction {opcode:#04x} at byte {offset} finds no {expected}")]
    Operand {
        /// The instruction.
        opcode: u8,
        /// Where.
        offset: usize,
        /// What it needs.
        expected: &'static str,
    },
    /// A text is not UTF-8.
    #[error("the text at byte {offset} of the pickle is not UTF-8")]
    Text {
        /// Where.
        offset: usize,
    },
    /// A constructor was given what it cannot take.
    #[error("{constructor} at byte {offset} of the pickle was given something else than {expected}")]
    Arguments {
        /// The constructor.
        constructor: &'static str,
        /// Where.
        offset: usize,
        /// What it takes.
        expected: &'static str,
    },
    /// What was pickled is no dictionary of tensors.
    #[error("the pickle holds no dictionary of tensors")]
    NoStateDict,
    /// A tensor whose storage is not in the container.
    #[error("tensor {name} needs the member {member}, which is not there")]
    NoStorage {
        /// Its name.
        name: String,
        /// The member.
        member: String,
    },
    /// A tensor's sizes, strides and offset do not fit each other: elements would lie upon one another.
    #[error("tensor {name} has sizes {size:?} and strides {stride:?}, which do not fit")]
    Strides {
        /// Its name.
        name: String,
        /// Its sizes.
        size: Vec<i64>,
        /// Its strides.
        stride: Vec<i64>,
    },
}

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
    fn find(module: &str, name: &str) -> Result<Self, PickleDefect> {
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

/// The machine and all that it has built.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value<'a>>,
    /// Heights of the stack at each mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    objects: Vec<Object<'a>>,
    /// Where the instruction that runs is, for messages.
    opcode: u8,
    offset: usize,
}

impl<'a> Machine<'a> {
    /// Runs `pickle` to its end and gives the value that it leaves. Each instruction takes time and memory in
    /// proportion to its own bytes and what it takes off the stack.
    pub fn run(pickle: &'a [u8]) -> Result<(Self, Value<'a>), PickleDefect> {
        if pickle.len() > MAX_PICKLE {
            return Err(PickleDefect::TooLarge { size: pickle.len(), limit: MAX_PICKLE });
        }
        let mut machine = Self {
            bytes: pickle,
            at: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            objects: Vec::new(),
            opcode: 0,
            offset: 0,
        };
        loop {
            machine.offset = machine.at;
            machine.opcode = machine.byte()?;
            if machine.opcode == b'.' {
                let value = machine.pop("value")?;
                return Ok((machine, value));
            }
            machine.step()?;
        }
    }

    /// The object that `value` stands for.
    pub fn object(&self, value: Value<'a>) -> Option<&Object<'a>> {
        match value {
            Value::Object(index) => self.objects.get(index),
            _ => None,
        }
    }

    fn step(&mut self) -> Result<(), PickleDefect> {
        match self.opcode {
            0x80 => drop(self.byte()?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop("value")?),
            b'2' => {
                let top = self.pop("value")?;
                self.stack.extend([top, top]);
            }
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Flag(true)),
            0x89 => self.stack.push(Value::Flag(false)),
            b'K' => {
                let value = self.byte()?;
                self.stack.push(Value::Integer(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.stack.push(Value::Integer(value.into()));
            }
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.stack.push(Value::Integer(value.into()));
            }
            0x8a => self.long()?,
            b'G' => {
                self.take(8)?;
                self.stack.push(Value::Real);
            }
            b'X' => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(length.into())?;
            }
            0x8c => {
                let length = self.byte()?;
                self.text(length.into())?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.array()?);
                self.text(length)?;
            }
            b'}' => self.make(Object::Dict(Vec::new())),
            b']' => self.make(Object::List(Vec::new())),
            b')' => self.make(Object::Tuple(Vec::new())),
            b't' => {
                let items = self.pop_to_mark()?;
                self.make(Object::Tuple(items));
            }
            0x85..=0x87 => {
                let count = usize::from(self.opcode - 0x84);
                let start = self.stack.len().checked_sub(count).ok_or_else(|| self.lacks("values"))?;
                let items = self.stack.split_off(start);
                self.make(Object::Tuple(items));
            }
            b'q' => {
                let slot = self.byte()?;
                self.put(slot.into())?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.put(slot)?;
            }
            0x94 => self.put(self.memo.len() as u32)?,
            b'h' => {
                let slot = self.byte()?;
                self.get(slot.into())?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.get(slot)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.stack.push(Value::Global(Global::find(module, name)?));
            }
            0x93 => {
                let (name, module) = (self.pop("name")?, self.pop("module")?);
                let (Value::Text(module), Value::Text(name)) = (module, name) else { return Err(self.lacks("names")) };
                self.stack.push(Value::Global(Global::find(module, name)?));
            }
            b's' => {
                let (value, key) = (self.pop("value")?, self.pop("key")?);
                self.extend_dict(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.extend_dict(&items)?;
            }
            b'a' => {
                let item = self.pop("value")?;
                self.extend_list(&[item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.extend_list(&items)?;
            }
            // Attributes of a dictionary, `_metadata` of state dictionaries: nothing that weights need.
            b'b' => {
                self.pop("attributes")?;
                if !matches!(self.top_object(), Some(Object::Dict(_))) {
                    return Err(self.lacks("dictionary"));
                }
            }
            b'Q' => {
                let id = self.pop("persistent id")?;
                let storage = self.storage(id)?;
                self.make(Object::Storage(storage));
            }
            b'R' => {
                let (arguments, constructor) = (self.pop("arguments")?, self.pop("constructor")?);
                self.construct(constructor, arguments)?;
            }
            opcode => return Err(PickleDefect::Opcode { opcode, offset: self.offset }),
        }
        Ok(())
    }

    fn construct(&mut self, constructor: Value<'a>, arguments: Value<'a>) -> Result<(), PickleDefect> {
        let Some(Object::Tuple(arguments)) = self.object(arguments) else {
            return Err(self.lacks("tuple of arguments"));
        };
        match constructor {
            Value::Global(Global::OrderedDict) if arguments.is_empty() => self.make(Object::Dict(Vec::new())),
            Value::Global(Global::OrderedDict) => return Err(self.refuse("OrderedDict", "nothing")),
            Value::Global(Global::RebuildTensor) => {
                let tensor = self.tensor(arguments);
                let expected = "a storage, an offset, sizes and strides";
                let tensor = tensor.ok_or_else(|| self.refuse("_rebuild_tensor_v2", expected))?;
                self.make(Object::Tensor(tensor));
            }
            Value::Global(Global::RebuildParameter) => {
                let tensor = arguments.first().copied();
                let tensor = tensor.filter(|&tensor| matches!(self.object(tensor), Some(Object::Tensor(_))));
                let tensor = tensor.ok_or_else(|| self.refuse("_rebuild_parameter", "a tensor"))?;
                self.stack.push(tensor);
            }
            _ => return Err(self.lacks("constructor")),
        }
        Ok(())
    }

    fn tensor(&self, arguments: &[Value<'a>]) -> Option<TensorRef<'a>> {
        let [storage, Value::Integer(offset), size, stride, ..] = arguments else { return None };
        let Object::Storage(storage) = self.object(*storage)? else { return None };
        let integers = |value| match self.object(value)? {
            Object::Tuple(items) => items.iter().map(|item| integer(*item)).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        Some(TensorRef { storage: *storage, offset: *offset, size: integers(*size)?, stride: integers(*stride)? })
    }

    fn storage(&self, id: Value<'a>) -> Result<StorageRef<'a>, PickleDefect> {
        let parts = match self.object(id) {
            Some(Object::Tuple(parts)) => &parts[..],
            _ => &[],
        };
        match parts {
            [
                Value::Text("storage"),
                Value::Global(Global::Storage(kind)),
                Value::Text(key),
                _,
                Value::Integer(elements),
            ] => Ok(StorageRef { kind, key, elements: *elements }),
            _ => Err(self.refuse("a persistent id", "('storage', type, key, device, elements)")),
        }
    }

    fn extend_dict(&mut self, items: &[Value<'a>]) -> Result<(), PickleDefect> {
        let (pairs, rest) = items.as_chunks::<2>();
        let lacks = self.lacks("dictionary and pairs");
        match self.top_object() {
            Some(Object::Dict(entries)) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|&[key, value]| (key, value)))
            }
            _ => return Err(lacks),
        }
        Ok(())
    }

    fn extend_list(&mut self, items: &[Value<'a>]) -> Result<(), PickleDefect> {
        let lacks = self.lacks("list");
        match self.top_object() {
            Some(Object::List(entries)) => entries.extend(items),
            _ => return Err(lacks),
        }
        Ok(())
    }

    fn long(&mut self) -> Result<(), PickleDefect> {
        let length = self.byte()?;
        let bytes = self.take(length.into())?;
        let sign = if bytes.last().is_some_and(|&last| last > 127) { 0xff } else { 0 };
        let mut wide = [sign; 8];
        // Numbers of more than 64 bits are ids and seeds, never sizes.
        let Some(low) = wide.get_mut(..bytes.len()) else {
            self.stack.push(Value::Real);
            return Ok(());
        };
        low.copy_from_slice(bytes);
        self.stack.push(Value::Integer(i64::from_le_bytes(wide)));
        Ok(())
    }

    fn text(&mut self, length: u64) -> Result<(), PickleDefect> {
        let offset = self.at;
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        let text = std::str::from_utf8(bytes).map_err(|_| PickleDefect::Text { offset })?;
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn put(&mut self, slot: u32) -> Result<(), PickleDefect> {
        let top = self.stack.last().copied().ok_or_else(|| self.lacks("value"))?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn get(&mut self, slot: u32) -> Result<(), PickleDefect> {
        let value = self.memo.get(&slot).copied().ok_or_else(|| self.lacks("value in the memo"))?;
        self.stack.push(value);
        Ok(())
    }

    fn make(&mut self, object: Object<'a>) {
        self.stack.push(Value::Object(self.objects.len()));
        self.objects.push(object);
    }

    fn top_object(&mut self) -> Option<&mut Object<'a>> {
        match self.stack.last() {
            Some(Value::Object(index)) => self.objects.get_mut(*index),
            _ => None,
        }
    }

    fn pop(&mut self, expected: &'static str) -> Result<Value<'a>, PickleDefect> {
        self.stack.pop().ok_or_else(|| self.lacks(expected))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value<'a>>, PickleDefect> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or_else(|| self.lacks("mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PickleDefect> {
        let bytes = self.at.checked_add(length).and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or(PickleDefect::Truncated { offset: self.bytes.len() })?;
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleDefect> {
        let truncated = |_| PickleDefect::Truncated { offset: self.bytes.len() };
        let bytes = self.take(N)?;
        bytes.try_into().map_err(truncated)
    }

    fn byte(&mut self) -> Result<u8, PickleDefect> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn line(&mut self) -> Result<&'a str, PickleDefect> {
        let (offset, rest) = (self.at, self.bytes.get(self.at..).unwrap_or_default());
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.ok_or(PickleDefect::Truncated { offset: self.bytes.len() })?)?;
        self.at += 1;
        std::str::from_utf8(line).map_err(|_| PickleDefect::Text { offset })
    }

    fn lacks(&self, expected: &'static str) -> PickleDefect {
        PickleDefect::Operand { opcode: self.opcode, offset: self.offset, expected }
    }

    fn refuse(&self, constructor: &'static str, expected: &'static str) -> PickleDefect {
        PickleDefect::Arguments { constructor, offset: self.offset, expected }
    }
}

fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Integer(value) => Some(value),
        _ => None,
    }
}
