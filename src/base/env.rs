//! Every environment variable that the library reads, in one place.

use std::path::PathBuf;

/// Directory that holds `libQnnHtp.so` and `libQnnSystem.so`.
pub const QNN_LIB_DIR: &str = "LLR_QNN_LIB_DIR";

/// The directory named by [`QNN_LIB_DIR`]; an empty value counts as unset.
pub fn qnn_lib_dir() -> Option<PathBuf> {
    std::env::var_os(QNN_LIB_DIR).filter(|value| !value.is_empty()).map(PathBuf::from)
}
