//! The `.pte` file: extended header, segments, flatbuffer `Program` (identifier `ET12`); and the `.ptd` file beside it,
//! [`FlatTensor`].
//!
//! [`Program`] is the data model that the reader returns and the writer takes. Every index and range in it has been
//! checked; nothing behind this border sees an unchecked byte.

mod decode;
mod error;
mod flat_tensor;
mod header;
mod program;
mod reader;
mod schema;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use crate::base::storage::{Blob, Storage};
pub use error::{Place, PteError};
pub use flat_tensor::{FlatTensor, FlatTensorError, NamedBlob, TensorLayout};
pub use header::is_program;
pub use program::{
    BackendDelegate, Chain, CompileSpec, EValue, ExecutionPlan, Instruction, OperatorName, Program, ShapeDynamism,
    TensorData, TensorValue,
};
