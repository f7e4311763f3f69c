//! `tests/fixtures/qnn_shim.c`, compiled and loaded: QNN's real libraries behind a counter that can make any call fail.

use crate::common;
use llama_runner::base::env;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The functions that this library calls, in the shim's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(pub i32, pub &'static str);

/// All of them, by QNN's names.
pub const FUNCTIONS: [Function; 19] = [
    Function(0, "QnnInterface_getProviders"),
    Function(1, "QnnSystemInterface_getProviders"),
    Function(2, "QnnBackend_getBuildId"),
    Function(3, "QnnSystemContext_create"),
    Function(4, "QnnSystemContext_getMetaData"),
    Function(5, "QnnSystemContext_free"),
    Function(6, "QnnLog_create"),
    Function(7, "QnnBackend_create"),
    Function(8, "QnnDevice_create"),
    Function(9, "QnnContext_createFromBinary"),
    Function(10, "QnnGraph_retrieve"),
    Function(11, "QnnMem_register"),
    Function(12, "QnnGraph_execute"),
    Function(13, "QnnMem_deRegister"),
    Function(14, "QnnContext_free"),
    Function(15, "QnnDevice_free"),
    Function(16, "QnnBackend_free"),
    Function(17, "QnnLog_free"),
    Function(18, "QnnError_getMessage"),
];

/// The shim, with counters of its own.
pub struct Shim {
    library: libloading::Library,
    dir: TempDir,
}

impl Shim {
    /// In front of the libraries that `LLR_QNN_LIB_DIR` names.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libQnnHtp.so");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("src/qnn"));
        cc.arg("-o").arg(&path).arg(root.join("tests/fixtures/qnn_shim.c")).arg("-ldl");
        let done = cc.output().expect("cc runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // One file, so that both names lead to the same counters.
        std::fs::hard_link(&path, dir.path().join("libQnnSystem.so")).unwrap();
        // SAFETY: the library runs nothing when it is loaded.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        let real = common::qnn_lib_dir().unwrap_or_else(|| panic!("{} is not set", env::QNN_LIB_DIR));
        let real = CString::new(real.to_str().unwrap()).unwrap();
        // SAFETY: the function has this type, and the text ends with NUL.
        let opened =
            unsafe { library.get::<unsafe extern "C" fn(*const i8) -> i32>(c"shim_open").unwrap()(real.as_ptr()) };
        assert_eq!(opened, 0, "the real libraries are behind the shim");
        Self { library, dir }
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Lets the `nth` call from now fail, once.
    pub fn fail(&self, function: Function, nth: i32, code: u64) {
        // SAFETY: the function has this type.
        unsafe { self.library.get::<unsafe extern "C" fn(i32, i32, u64)>(c"shim_fail").unwrap()(function.0, nth, code) }
    }

    pub fn calls(&self, function: Function) -> i32 {
        // SAFETY: the function has this type.
        unsafe { self.library.get::<unsafe extern "C" fn(i32) -> i32>(c"shim_calls").unwrap()(function.0) }
    }

    /// Every fault has come, everything made was freed once and in order, and nothing was used that was not alive.
    pub fn check_clean(&self) {
        let number = |name| {
            // SAFETY: the functions have this type.
            unsafe { self.library.get::<unsafe extern "C" fn() -> i32>(name).unwrap()() }
        };
        // SAFETY: the function has this type.
        let live = unsafe { self.library.get::<unsafe extern "C" fn(i32) -> i32>(c"shim_live").unwrap() };
        // SAFETY: any number may be asked for.
        let left = FUNCTIONS.iter().filter(|function| unsafe { live(function.0) } > 0);
        assert_eq!(left.map(|function| function.1).collect::<Vec<_>>(), [""; 0], "made and not freed");
        assert_eq!((number(c"shim_misuses"), number(c"shim_pending")), (0, 0), "misuses, faults that did not come");
    }
}
