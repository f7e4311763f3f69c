//! The context as bytes: saved from one runner, restored into another of the same program, in whichever way it updates
//! its cache. Restored bytes come from outside, so everything about them is judged before anything is changed.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `LLRSTATE` |
//! | 4 | version, 2 |
//! | 4 | length of the description |
//! | 8 | length of the whole |
//! | 8 | position: tokens in the context |
//! | 8 | tokens that are kept (a program without a cache), 0 or as many as the position |
//! | 8 | fingerprint of the program's files, weights included; 0 where a host runs a program of its own |
//! | … | description of the model: kind, context length, vocabulary, types and shapes of the caches; UTF-8 |
//! | … | the tokens that are kept, 8 each |
//! | … | keys and values, or the program's own states |
//! | 8 | FNV-1a 64 of everything before |
//!
//! Version 1 had no fingerprint: it is refused, for nobody knows which weights made it.
//!
//! A static program's keys and values are written tensor by tensor, row by row, as many positions as there are, so they
//! do not depend on how a runner arranges them. The states of a `forward(tokens, input_pos)` program are written as they
//! are.

use super::error::RunnerError;
use super::loaded::Loaded;
use super::session::Runner;
use super::token_steps::ByHand;
use crate::base::fnv::fnv1a64;
use crate::error::{Error, Result, Status};
use crate::runtime::Module;
use crate::tokenizer::TokenId;

const MAGIC: [u8; 8] = *b"LLRSTATE";
const VERSION: u32 = 2;
/// Bytes before the description.
const HEADER: usize = 48;
const CHECKSUM: usize = 8;

/// What can be wrong with a saved context, or with the wish to have one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum SnapshotError {
    #[error("no saved context: it does not begin with LLRSTATE")]
    NotASnapshot,
    #[error("a saved context of version {found}, this library reads version {VERSION}")]
    Version { found: u32 },
    #[error("the saved context is cut off or too long: it has {have} bytes and says it has {stated}")]
    Length { have: u64, stated: u64 },
    #[error("the saved context is damaged: its checksum is {found:#018x}, its bytes have {computed:#018x}")]
    Checksum { found: u64, computed: u64 },
    #[error("the saved context is of another model: `{saved}`, this one is `{here}`")]
    OtherModel { saved: String, here: String },
    #[error(
        "the saved context is of another model with the same shapes: its program has fingerprint {saved:#018x}, this one \
         {here:#018x}"
    )]
    OtherProgram { saved: u64, here: u64 },
    #[error("the saved context has {position} tokens, of which this runner holds at most {limit}")]
    Position { position: u64, limit: usize },
    #[error("the saved context keeps {kept} tokens of {position}; {wanted}")]
    Kept { kept: u64, position: u64, wanted: &'static str },
    #[error("token {index} of the saved context is {token}, the vocabulary has {vocab} tokens")]
    Token { index: usize, token: TokenId, vocab: usize },
    #[error("the saved context has {have} bytes of keys, values or states where {need} belong")]
    Contents { have: usize, need: usize },
    #[error(
        "this program keeps its context in memory of the module that runs it, and a host's module has no call that gives \
         it away, so it can be neither saved nor restored"
    )]
    NoStates,
    #[error("no memory for the {bytes} bytes of a saved context")]
    OutOfMemory { bytes: usize },
}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Self {
        use SnapshotError::*;
        let status = match error {
            NotASnapshot
            | Version { .. }
            | Length { .. }
            | Checksum { .. }
            | Position { .. }
            | Kept { .. }
            | Token { .. }
            | Contents { .. } => Status::InvalidExternalData,
            OtherModel { .. } | OtherProgram { .. } => Status::InvalidArgument,
            NoStates => Status::NotSupported,
            OutOfMemory { .. } => Status::MemoryAllocationFailed,
        };
        Error::from_source(status, error)
    }
}

/// What a runner's saved contexts look like.
struct Shape {
    description: String,
    /// Bytes of keys and values for each position.
    per_position: usize,
    /// Bytes of states, however long the context is.
    states: usize,
    keeps_tokens: bool,
    limit: usize,
    vocab: usize,
}

impl Shape {
    fn of(loaded: &mut Loaded) -> Result<Self, SnapshotError> {
        let (context, vocab, dtype) = (loaded.context_len(), loaded.vocab(), loaded.logits().dtype);
        let about = format!("context {context}, vocabulary {vocab}, logits {dtype}");
        match loaded {
            Loaded::Static { model, .. } => Ok(Self {
                description: format!("static program, {about}, caches {}", model.kv.describe()),
                per_position: model.kv.position_bytes(),
                states: 0,
                keeps_tokens: false,
                limit: model.cache_limit(),
                vocab,
            }),
            Loaded::Text(model) => {
                let mut description = format!("{}, {about}", model.signature);
                let (keeps_tokens, mut states) = (!model.is_cached(), 0);
                if !keeps_tokens {
                    let known = model.decoder.visit_states(&mut |name, bytes| {
                        description.push_str(", ");
                        description.push_str(name);
                        states += bytes.len();
                    });
                    if !known {
                        return Err(SnapshotError::NoStates);
                    }
                }
                Ok(Self { description, per_position: 0, states, keeps_tokens, limit: context, vocab })
            }
        }
    }

    fn kept(&self, position: usize) -> usize {
        if self.keeps_tokens { position } else { 0 }
    }

    /// Bytes of a context of `position` tokens, at most `limit`: all of them are in memory already.
    fn len(&self, position: usize) -> usize {
        let contents = self.per_position * position + self.states;
        HEADER + self.description.len() + self.kept(position) * size_of::<TokenId>() + contents + CHECKSUM
    }
}

/// A saved context that has been judged.
struct Judged<'a> {
    position: usize,
    tokens: Vec<TokenId>,
    contents: &'a [u8],
}

impl Runner {
    /// Size in bytes of what [`save_state`](Self::save_state) gives now.
    ///
    /// # Errors
    /// [`SnapshotError::NoStates`].
    pub fn state_len(&mut self) -> Result<usize> {
        let shape = Shape::of(&mut self.loaded)?;
        Ok(shape.len(self.position()))
    }

    /// The context as bytes; see the format above. The sampler and the logits are no part of it.
    ///
    /// # Errors
    /// [`SnapshotError::NoStates`], [`SnapshotError::OutOfMemory`]; [`RunnerError::Poisoned`] after a failed turn.
    pub fn save_state(&mut self) -> Result<Vec<u8>> {
        if self.poisoned {
            return Err(RunnerError::Poisoned.into());
        }
        let shape = Shape::of(&mut self.loaded)?;
        let position = self.position();
        let len = shape.len(position);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| SnapshotError::OutOfMemory { bytes: len })?;
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((shape.description.len() as u32).to_le_bytes());
        for number in [len, position, shape.kept(position)] {
            bytes.extend((number as u64).to_le_bytes());
        }
        bytes.extend(self.loaded.module().fingerprint().unwrap_or(0).to_le_bytes());
        bytes.extend(shape.description.as_bytes());
        match &mut self.loaded {
            Loaded::Static { model, .. } => {
                let saved = model.kv.save(&mut model.decoder.arena);
                bytes.extend(saved);
            }
            Loaded::Text(model) => {
                let tokens = model.kept_tokens().unwrap_or_default();
                bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
                if !shape.keeps_tokens {
                    model.decoder.visit_states(&mut |_, state| bytes.extend_from_slice(state));
                }
            }
        }
        bytes.extend(fnv1a64(&bytes).to_le_bytes());
        debug_assert_eq!(bytes.len(), len);
        Ok(bytes)
    }

    /// The size that no saved context of this runner exceeds.
    ///
    /// # Errors
    /// [`SnapshotError::NoStates`].
    pub fn max_state_len(&mut self) -> Result<usize> {
        let shape = Shape::of(&mut self.loaded)?;
        Ok(shape.len(shape.limit))
    }

    /// Replaces the context by a saved one, also one of another runner or process, if the program is the same. Where a
    /// host runs a program of its own, here or where the context was saved, kind, sizes and types are all that is
    /// compared. Generations continue as they would have where the context was saved. Also ends what a failed turn left.
    ///
    /// # Errors
    /// A [`SnapshotError`]; the context is then as it was.
    pub fn restore_state(&mut self, saved: &[u8]) -> Result<()> {
        let shape = Shape::of(&mut self.loaded)?;
        let Judged { position, tokens, contents } = judge(saved, &shape, self.loaded.module())?;
        match &mut self.loaded {
            Loaded::Static { model, lookahead } => {
                model.arrange_widest();
                let fits = model.kv.restore(&mut model.decoder.arena, contents);
                assert!(fits && model.kv.len() == position, "a judged context fits");
                if let Some(lookahead) = lookahead {
                    lookahead.reset();
                }
            }
            Loaded::Text(model) => {
                let mut rest = contents;
                if !shape.keeps_tokens {
                    model.decoder.visit_states(&mut |_, state| {
                        let (head, tail) = rest.split_at(state.len());
                        state.copy_from_slice(head);
                        rest = tail;
                    });
                }
                model.resume(position, tokens);
            }
        }
        self.by_hand = ByHand::default();
        self.poisoned = false;
        Ok(())
    }
}

fn other_model(description: &[u8], shape: &Shape) -> SnapshotError {
    let saved = String::from_utf8_lossy(&description[..description.len().min(4096)]).into_owned();
    SnapshotError::OtherModel { saved, here: shape.description.clone() }
}

fn judge<'a>(saved: &'a [u8], shape: &Shape, module: &dyn Module) -> Result<Judged<'a>, SnapshotError> {
    if saved.get(..MAGIC.len()) != Some(&MAGIC[..]) {
        return Err(SnapshotError::NotASnapshot);
    }
    let have = saved.len() as u64;
    let cut_off = SnapshotError::Length { have, stated: (HEADER + CHECKSUM) as u64 };
    let (header, rest) = saved.split_at_checked(HEADER).ok_or_else(|| cut_off.clone())?;
    let small = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let large = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let (version, described, stated) = (small(8), small(12), large(16));
    let (position, kept, fingerprint) = (large(24), large(32), large(40));
    if version != VERSION {
        return Err(SnapshotError::Version { found: version });
    }
    if stated != have {
        // The whole of a larger model's context is not even read, and is better told by its model.
        let larger = stated > have && have > shape.len(shape.limit) as u64;
        return Err(match rest.get(..described as usize).filter(|_| larger) {
            Some(description) if description != shape.description.as_bytes() => other_model(description, shape),
            _ => SnapshotError::Length { have, stated },
        });
    }
    let Some((body, checksum)) = rest.split_last_chunk::<CHECKSUM>() else { return Err(cut_off) };
    let (found, computed) = (u64::from_le_bytes(*checksum), fnv1a64(&saved[..saved.len() - CHECKSUM]));
    if found != computed {
        return Err(SnapshotError::Checksum { found, computed });
    }
    // What follows has been written so by somebody, perhaps for another model, perhaps in bad faith.
    let Some((description, rest)) = body.split_at_checked(described as usize) else {
        return Err(SnapshotError::Length { have, stated: HEADER as u64 + u64::from(described) });
    };
    if description != shape.description.as_bytes() {
        return Err(other_model(description, shape));
    }
    if let (saved @ 1.., Some(here)) = (fingerprint, module.fingerprint())
        && saved != here
    {
        return Err(SnapshotError::OtherProgram { saved, here });
    }
    let limit = shape.limit;
    let within = usize::try_from(position).ok().filter(|&position| position <= limit);
    let position = within.ok_or(SnapshotError::Position { position, limit })?;
    if kept != shape.kept(position) as u64 {
        let wanted = if shape.keeps_tokens { "this program needs all" } else { "this program needs none" };
        return Err(SnapshotError::Kept { kept, position: position as u64, wanted });
    }
    let need = shape.len(position) - HEADER - described as usize - CHECKSUM;
    if rest.len() != need {
        return Err(SnapshotError::Contents { have: rest.len(), need });
    }
    let (tokens, contents) = rest.split_at(shape.kept(position) * size_of::<TokenId>());
    let tokens: Vec<TokenId> =
        tokens.chunks_exact(8).map(|token| TokenId::from_le_bytes(token.try_into().expect("eight bytes"))).collect();
    let vocab = shape.vocab;
    match tokens.iter().enumerate().find(|&(_, &token)| token >= vocab as u64) {
        Some((index, &token)) => Err(SnapshotError::Token { index, token, vocab }),
        None => Ok(Judged { position, tokens, contents }),
    }
}
