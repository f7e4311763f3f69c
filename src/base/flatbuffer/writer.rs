//! Writes a flatbuffer from a tree of fields, parents before children, so that every offset points forward as the
//! format demands and no table needs a second visit.

use super::reader::Scalar;
use std::cmp::Reverse;
use std::collections::HashMap;

/// What a field holds.
enum Node<'a> {
    /// The bytes of one number.
    Number(Vec<u8>),
    /// The bytes of a vector of numbers, and the size of one.
    Numbers(Vec<u8>, usize),
    String(&'a str),
    Table(Fields<'a>),
    Tables(Vec<Fields<'a>>),
}

impl Node<'_> {
    /// Bytes that it takes in its table: the number, or an offset to the rest.
    fn size(&self) -> usize {
        match self {
            Self::Number(bytes) => bytes.len(),
            _ => 4,
        }
    }
}

/// The fields of a table.
#[derive(Default)]
pub(crate) struct Fields<'a>(Vec<(u16, Node<'a>)>);

impl<'a> Fields<'a> {
    /// A table without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    pub fn scalar<T: Scalar>(self, id: u16, number: T) -> Self {
        let mut bytes = Vec::with_capacity(T::SIZE);
        number.encode(&mut bytes);
        self.with(id, Node::Number(bytes))
    }

    /// Adds a vector of numbers.
    pub fn scalars<T: Scalar>(self, id: u16, numbers: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        numbers.into_iter().for_each(|number| number.encode(&mut bytes));
        self.with(id, Node::Numbers(bytes, T::SIZE))
    }

    /// Adds a string.
    pub fn string(self, id: u16, text: &'a str) -> Self {
        self.with(id, Node::String(text))
    }

    /// Adds a table.
    pub fn table(self, id: u16, fields: Fields<'a>) -> Self {
        self.with(id, Node::Table(fields))
    }

    /// Adds a vector of tables.
    pub fn tables(self, id: u16, tables: impl IntoIterator<Item = Fields<'a>>) -> Self {
        self.with(id, Node::Tables(tables.into_iter().collect()))
    }

    fn with(mut self, id: u16, node: Node<'a>) -> Self {
        self.0.push((id, node));
        self
    }
}

/// The flatbuffer with `root`. The first 8 bytes are the root offset and `identifier`; after them `reserve` zero bytes
/// are left free.
pub(crate) fn build(root: Fields, identifier: [u8; 4], reserve: usize) -> Vec<u8> {
    let mut builder = Builder { bytes: vec![0; 4], vtables: HashMap::new() };
    builder.bytes.extend(identifier);
    builder.bytes.resize(8 + reserve, 0);
    let at = builder.table(root);
    builder.point(0, at);
    builder.bytes
}

struct Builder {
    bytes: Vec<u8>,
    /// Where each distinct field directory was written.
    vtables: HashMap<Vec<u8>, usize>,
}

impl Builder {
    fn align(&mut self, size: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(size), 0);
    }

    /// Makes the offset at `slot` lead to `target`. Positions beyond 32 bits are wrong here; the caller refuses
    /// buffers of that length.
    fn point(&mut self, slot: usize, target: usize) {
        self.bytes[slot..slot + 4].copy_from_slice(&((target - slot) as u32).to_le_bytes());
    }

    fn table(&mut self, fields: Fields) -> usize {
        let mut fields = fields.0;
        fields.sort_by_key(|(_, node)| Reverse(node.size()));
        let entries = fields.iter().map(|&(id, _)| usize::from(id) + 1).max().unwrap_or(0);
        let mut vtable = vec![0u16; 2 + entries];
        let mut size = 4usize;
        for (id, node) in &fields {
            size = size.next_multiple_of(node.size());
            vtable[2 + usize::from(*id)] = size as u16;
            size += node.size();
        }
        vtable[0] = 2 * vtable.len() as u16;
        vtable[1] = size as u16;
        let vtable_at = self.vtable(&vtable);

        self.align(fields.first().map_or(4, |(_, node)| node.size().max(4)));
        let at = self.bytes.len();
        self.bytes.extend(((at - vtable_at) as i32).to_le_bytes());
        self.bytes.resize(at + size, 0);
        for (id, node) in fields {
            let slot = at + usize::from(vtable[2 + usize::from(id)]);
            let target = match node {
                Node::Number(bytes) => {
                    self.bytes[slot..slot + bytes.len()].copy_from_slice(&bytes);
                    continue;
                }
                Node::Numbers(bytes, size) => self.vector(&bytes, size),
                Node::String(text) => {
                    let at = self.vector(text.as_bytes(), 1);
                    self.bytes.push(0);
                    at
                }
                Node::Table(fields) => self.table(fields),
                Node::Tables(tables) => self.tables(tables),
            };
            self.point(slot, target);
        }
        at
    }

    fn vtable(&mut self, entries: &[u16]) -> usize {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        if let Some(&at) = self.vtables.get(&bytes) {
            return at;
        }
        self.align(2);
        let at = self.bytes.len();
        self.bytes.extend(&bytes);
        self.vtables.insert(bytes, at);
        at
    }

    /// A vector of elements of `size` bytes, which lie at multiples of that size.
    fn vector(&mut self, elements: &[u8], size: usize) -> usize {
        self.align(4);
        while !(self.bytes.len() + 4).is_multiple_of(size) {
            self.bytes.push(0);
        }
        let at = self.bytes.len();
        self.bytes.extend(((elements.len() / size) as u32).to_le_bytes());
        self.bytes.extend(elements);
        at
    }

    fn tables(&mut self, tables: Vec<Fields>) -> usize {
        let at = self.vector(&vec![0; 4 * tables.len()], 4);
        for (index, fields) in tables.into_iter().enumerate() {
            let target = self.table(fields);
            self.point(at + 4 + 4 * index, target);
        }
        at
    }
}
