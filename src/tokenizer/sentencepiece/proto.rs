//! The few protobuf fields of `sentencepiece_model.proto` that encoding needs, read with checks and without copies.

use super::super::MAX_PIECE;
use super::super::error::Defect;

/// A `ModelProto`, with the defaults of the fields that the file leaves out.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) kind: ModelKind,
    pub(super) byte_fallback: bool,
    pub(super) space_is_suffix: bool,
    pub(super) bos_piece: &'a [u8],
    pub(super) eos_piece: &'a [u8],
    pub(super) charsmap: &'a [u8],
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) escape_whitespaces: bool,
}

/// The two kinds of model that language models use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelKind {
    Unigram,
    Bpe,
}

/// One token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a [u8],
    pub(super) score: f32,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    /// Whether text can become this token.
    pub(super) fn is_word(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

impl<'a> Model<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Defect> {
        let mut model = Self {
            pieces: Vec::new(),
            kind: ModelKind::Unigram,
            byte_fallback: false,
            space_is_suffix: false,
            bos_piece: b"<s>",
            eos_piece: b"</s>",
            charsmap: b"",
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        let mut kind = 1;
        let mut message = Message { bytes, at: 0, base: 0 };
        while let Some(field) = message.next()? {
            match field.number {
                1 => model.pieces.push(Piece::parse(field.message()?, model.pieces.len())?),
                2 => model.trainer_spec(field.message()?, &mut kind)?,
                3 => model.normalizer_spec(field.message()?)?,
                _ => {}
            }
        }
        model.kind = match kind {
            1 => ModelKind::Unigram,
            2 => ModelKind::Bpe,
            kind => return Err(Defect::ModelKind { kind }),
        };
        if model.pieces.is_empty() {
            return Err(Defect::VocabSize { vocab: 0 });
        }
        Ok(model)
    }

    fn trainer_spec(&mut self, mut message: Message<'a>, kind: &mut u64) -> Result<(), Defect> {
        while let Some(field) = message.next()? {
            match field.number {
                3 => *kind = field.varint()?,
                24 => self.space_is_suffix = field.varint()? != 0,
                35 => self.byte_fallback = field.varint()? != 0,
                46 => self.bos_piece = field.message()?.bytes,
                47 => self.eos_piece = field.message()?.bytes,
                _ => {}
            }
        }
        Ok(())
    }

    fn normalizer_spec(&mut self, mut message: Message<'a>) -> Result<(), Defect> {
        while let Some(field) = message.next()? {
            match field.number {
                2 => self.charsmap = field.message()?.bytes,
                3 => self.add_dummy_prefix = field.varint()? != 0,
                4 => self.remove_extra_whitespaces = field.varint()? != 0,
                5 => self.escape_whitespaces = field.varint()? != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> Piece<'a> {
    fn parse(mut message: Message<'a>, index: usize) -> Result<Self, Defect> {
        let mut piece = Self { text: b"", score: 0.0, kind: Kind::Normal };
        while let Some(field) = message.next()? {
            match field.number {
                1 => piece.text = field.message()?.bytes,
                2 => piece.score = field.float()?,
                3 => {
                    piece.kind = match field.varint()? {
                        1 => Kind::Normal,
                        2 => Kind::Unknown,
                        3 => Kind::Control,
                        4 => Kind::UserDefined,
                        5 => Kind::Unused,
                        6 => Kind::Byte,
                        kind => return Err(Defect::PieceKind { index, kind }),
                    }
                }
                _ => {}
            }
        }
        if !(1..=MAX_PIECE).contains(&piece.text.len()) {
            return Err(Defect::PieceLength { index, length: piece.text.len() as i64, limit: MAX_PIECE });
        }
        if !piece.score.is_finite() {
            return Err(Defect::Score { index, score: piece.score.to_string() });
        }
        Ok(piece)
    }
}

/// The fields of a message, in the order of the file.
struct Message<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where in the file the message begins.
    base: usize,
}

struct Field<'a> {
    number: u64,
    value: Value<'a>,
    offset: usize,
}

enum Value<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(&'a [u8]),
}

impl<'a> Message<'a> {
    fn next(&mut self) -> Result<Option<Field<'a>>, Defect> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        if !(1..1 << 29).contains(&number) {
            return Err(self.malformed("a field number that cannot be"));
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed64)?,
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Fixed32([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            _ => return Err(self.malformed("a wire type that cannot be")),
        };
        let len = if let Value::Bytes(bytes) = value { bytes.len() } else { 0 };
        Ok(Some(Field { number, value, offset: self.base + self.at - len }))
    }

    fn varint(&mut self) -> Result<u64, Defect> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number of more than ten bytes"))
    }

    fn take(&mut self, need: u64) -> Result<&'a [u8], Defect> {
        let rest = &self.bytes[self.at..];
        let truncated =
            Defect::Truncated { what: "a protobuf field", offset: self.base + self.at, need, have: rest.len() };
        let taken = usize::try_from(need).ok().and_then(|len| rest.get(..len)).ok_or(truncated)?;
        self.at += taken.len();
        Ok(taken)
    }

    fn malformed(&self, problem: &'static str) -> Defect {
        Defect::Protobuf { problem, offset: self.base + self.at }
    }
}

impl<'a> Field<'a> {
    fn message(&self) -> Result<Message<'a>, Defect> {
        match self.value {
            Value::Bytes(bytes) => Ok(Message { bytes, at: 0, base: self.offset }),
            _ => Err(self.other_type()),
        }
    }

    fn varint(&self) -> Result<u64, Defect> {
        match self.value {
            Value::Varint(value) => Ok(value),
            _ => Err(self.other_type()),
        }
    }

    fn float(&self) -> Result<f32, Defect> {
        match self.value {
            Value::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.other_type()),
        }
    }

    fn other_type(&self) -> Defect {
        Defect::Protobuf { problem: "a field of another type than the format has", offset: self.offset }
    }
}
