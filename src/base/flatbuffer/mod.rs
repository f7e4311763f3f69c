//! Flatbuffers, read from untrusted bytes and written from a tree of fields: programs, QNN compile specs and XNNPACK
//! graphs are made of them.

mod error;
mod reader;
mod writer;

pub use error::FlatbufferError;
pub(crate) use reader::{Buffer, Scalar, Table, Tables};
pub(crate) use writer::{Fields, build};
