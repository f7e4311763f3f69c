//! Every way in which a flatbuffer can be wrong.

/// What is wrong. Positions (`at`) count from the start of the flatbuffer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum FlatbufferError {
    /// A read past the end.
    #[error("byte {at}: {size} bytes are needed here, but the flatbuffer ends at {len}")]
    Outside { at: usize, size: usize, len: usize },
    /// A table whose field directory is impossible.
    #[error("byte {at}: the table here has an impossible field directory")]
    Vtable { at: usize },
    /// A string that is not UTF-8.
    #[error("byte {at}: the string here is not UTF-8")]
    NotUtf8 { at: usize },
    /// A table without a field that it cannot do without.
    #[error("byte {at}: the table here lacks its field `{field}`")]
    Missing { field: &'static str, at: usize },
    /// The same bytes are used over and over, so that decoding would grow out of proportion.
    #[error("the flatbuffer decodes to more than {limit} bytes, out of proportion to its size")]
    TooManyItems { limit: usize },
}
