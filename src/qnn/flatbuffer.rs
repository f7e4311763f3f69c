//! Just enough of flatbuffers for the compile spec: a checked reader of tables and a small writer.

/// A table within a buffer whose vtable has been checked. Every read is bounds-checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
    vtable: usize,
    /// Fields that the vtable has.
    fields: usize,
}

/// Longest list that is read.
const MAX_ENTRIES: usize = 1024;

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn follow(bytes: &[u8], at: usize) -> Option<usize> {
    at.checked_add(u32::from_le_bytes(chunk(bytes, at)?) as usize)
}

impl<'a> Table<'a> {
    /// The buffer's root table.
    pub(super) fn root(bytes: &'a [u8]) -> Option<Self> {
        Self::new(bytes, follow(bytes, 0)?)
    }

    fn new(bytes: &'a [u8], at: usize) -> Option<Self> {
        let back = i32::from_le_bytes(chunk(bytes, at)?);
        let vtable = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let size = usize::from(u16::from_le_bytes(chunk(bytes, vtable)?));
        let fields = size.checked_sub(4)? / 2;
        bytes.get(vtable..vtable.checked_add(size)?)?;
        Some(Self { bytes, at, vtable, fields })
    }

    /// Where field `index` lies; `Some(None)` when it is not stored and has its default.
    fn field(&self, index: usize) -> Option<Option<usize>> {
        if index >= self.fields {
            return Some(None);
        }
        let offset = usize::from(u16::from_le_bytes(chunk(self.bytes, self.vtable + 4 + 2 * index)?));
        Some((offset != 0).then_some(self.at + offset))
    }

    /// An integer or enumerator; 0 when not stored, `None` when unreadable.
    pub(super) fn u32(&self, index: usize) -> Option<u32> {
        match self.field(index)? {
            Some(at) => chunk(self.bytes, at).map(u32::from_le_bytes),
            None => Some(0),
        }
    }

    /// A truth value; false when not stored, `None` when it is neither.
    pub(super) fn bool(&self, index: usize) -> Option<bool> {
        match self.field(index)?.map(|at| self.bytes.get(at)) {
            None | Some(Some(0)) => Some(false),
            Some(Some(1)) => Some(true),
            Some(_) => None,
        }
    }

    /// A table, when stored and readable.
    pub(super) fn table(&self, index: usize) -> Option<Table<'a>> {
        Table::new(self.bytes, follow(self.bytes, self.field(index)??)?)
    }

    /// A list of strings, when stored and nothing else.
    pub(super) fn strings(&self, index: usize) -> Option<Vec<String>> {
        let list = follow(self.bytes, self.field(index)??)?;
        let count = u32::from_le_bytes(chunk(self.bytes, list)?) as usize;
        if count > MAX_ENTRIES {
            return None;
        }
        (0..count)
            .map(|entry| {
                let at = follow(self.bytes, list + 4 + 4 * entry)?;
                let len = u32::from_le_bytes(chunk(self.bytes, at)?) as usize;
                let text = self.bytes.get(at + 4..)?.get(..len)?;
                let end = self.bytes.get(at + 4 + len)?;
                (*end == 0).then(|| String::from_utf8(text.to_vec()).ok()).flatten()
            })
            .collect()
    }
}

/// Where a finished table will lie, counted from the end of the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed(usize);

/// Writes a buffer from its end to its beginning, so that children come before the tables that point at them.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// In reverse order.
    reversed: Vec<u8>,
}

/// The fields of a table being written, by number.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(usize, Field)>);

#[derive(Debug, Clone, Copy)]
enum Field {
    U32(u32),
    Bool(bool),
    Child(Placed),
}

impl Fields {
    pub(super) fn u32(&mut self, index: usize, value: Option<u32>) {
        self.0.extend(value.map(|value| (index, Field::U32(value))));
    }

    pub(super) fn bool(&mut self, index: usize, value: Option<bool>) {
        self.0.extend(value.map(|value| (index, Field::Bool(value))));
    }

    pub(super) fn child(&mut self, index: usize, child: Option<Placed>) {
        self.0.extend(child.map(|child| (index, Field::Child(child))));
    }
}

impl Builder {
    fn push(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    /// Writes a table with the fields that `fill` sets.
    pub(super) fn table(&mut self, fill: impl FnOnce(&mut Fields)) -> Placed {
        let mut fields = Fields::default();
        fill(&mut fields);
        // Every field takes four bytes, so tables stay aligned whatever they hold.
        while !self.reversed.len().is_multiple_of(4) {
            self.reversed.push(0);
        }
        let count = fields.0.iter().map(|&(index, _)| index + 1).max().unwrap_or(0);
        let mut offsets = vec![0u16; count];
        for (place, (index, field)) in fields.0.iter().enumerate().rev() {
            offsets[*index] = 4 + 4 * place as u16;
            match *field {
                Field::U32(value) => self.push(&value.to_le_bytes()),
                Field::Bool(value) => self.push(&u32::from(value).to_le_bytes()),
                Field::Child(Placed(child)) => {
                    let here = self.reversed.len() + 4;
                    self.push(&((here - child) as u32).to_le_bytes());
                }
            }
        }
        let vtable_size = 4 + 2 * count;
        let padding = vtable_size % 4;
        self.push(&((vtable_size + padding) as i32).to_le_bytes());
        let table = Placed(self.reversed.len());
        self.push(&vec![0; padding]);
        for offset in offsets.iter().rev() {
            self.push(&offset.to_le_bytes());
        }
        self.push(&((4 + 4 * fields.0.len()) as u16).to_le_bytes());
        self.push(&(vtable_size as u16).to_le_bytes());
        table
    }

    /// The whole buffer, whose root is `root`.
    pub(super) fn finish(mut self, Placed(root): Placed) -> Vec<u8> {
        let here = self.reversed.len() + 4;
        self.push(&((here - root) as u32).to_le_bytes());
        self.reversed.reverse();
        self.reversed
    }
}
