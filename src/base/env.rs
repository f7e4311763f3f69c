//! Every environment variable that the library reads, in one place.

use std::path::PathBuf;

/// Directory that holds `libQnnHtp.so` and `libQnnSystem.so`.
pub const QNN_LIB_DIR: &str = "LLR_QNN_LIB_DIR";

/// The directory named by [`QNN_LIB_DIR`]; an empty value counts as unset.
pub fn qnn_lib_dir() -> Option<PathBuf> {
    std::env::var_os(QNN_LIB_DIR).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The library through which ExecuTorch runs programs, or its directory.
pub const MODULE_EXECUTORCH: &str = "LLR_MODULE_EXECUTORCH";

/// The path named by [`MODULE_EXECUTORCH`]; an empty value counts as unset.
pub fn module_executorch() -> Option<PathBuf> {
    std::env::var_os(MODULE_EXECUTORCH).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// `libcdsprpc.so`, or the directory that holds it.
pub const RPCMEM_LIB: &str = "LLR_RPCMEM_LIB";

/// The path named by [`RPCMEM_LIB`]; an empty value counts as unset.
pub fn rpcmem_lib() -> Option<PathBuf> {
    std::env::var_os(RPCMEM_LIB).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// How methods are executed where no option says: `auto`, `compiled` or `instructions`.
pub const EXECUTION: &str = "LLR_EXECUTION";

/// The value of [`EXECUTION`]; an empty value counts as unset.
pub fn execution() -> Option<String> {
    std::env::var(EXECUTION).ok().filter(|value| !value.is_empty())
}

/// Kernel set to use instead of the best one: `scalar`, `avx2`, `avx512`, `neon` or `neon-i8mm`.
pub const KERNELS: &str = "LLR_KERNELS";

/// The value of [`KERNELS`]; an empty value counts as unset.
pub fn kernels() -> Option<String> {
    std::env::var(KERNELS).ok().filter(|value| !value.is_empty())
}
