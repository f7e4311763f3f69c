//! `tests/fixtures/cdsprpc.c`, compiled and loaded: a libcdsprpc.so without a DSP, whose counters can be read and whose
//! calls can be made to fail.
#![allow(dead_code)] // Each test program uses its own part.

use llama_runner::runtime::{RpcMem, RpcMemError, SharedMemory, Unshared};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The stand-in's knobs.
#[derive(Clone, Copy)]
pub enum Knob {
    FailAlloc,
    FailFd,
    Shift,
    Allocs,
    Frees,
    WrongFrees,
}

/// A stand-in of its own, with counters of its own.
pub struct StandIn {
    library: libloading::Library,
    pub path: PathBuf,
    _dir: TempDir,
}

impl StandIn {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = compile(dir.path(), &[]);
        // SAFETY: the library runs nothing when it is loaded.
        let library = unsafe { libloading::Library::new(&path) }.unwrap();
        Self { library, path, _dir: dir }
    }

    pub fn set(&self, knob: Knob, value: isize) {
        // SAFETY: the function has this type.
        unsafe { self.library.get::<unsafe extern "C" fn(i32, isize)>(c"standin_set").unwrap()(knob as i32, value) }
    }

    pub fn get(&self, knob: Knob) -> isize {
        // SAFETY: the function has this type.
        unsafe { self.library.get::<unsafe extern "C" fn(i32) -> isize>(c"standin_get").unwrap()(knob as i32) }
    }

    pub fn on_free(&self, call: extern "C" fn()) {
        // SAFETY: the function has this type.
        unsafe { self.library.get::<unsafe extern "C" fn(extern "C" fn())>(c"standin_on_free").unwrap()(call) }
    }

    pub fn memory(&self, len: usize) -> Result<SharedMemory, RpcMemError> {
        SharedMemory::allocate(&RpcMem::load(Some(&self.path))?, len, Unshared::Fails)
    }

    /// Every block was freed, once.
    pub fn check_freed(&self, blocks: isize) {
        assert_eq!([Knob::Allocs, Knob::Frees, Knob::WrongFrees].map(|knob| self.get(knob)), [blocks, blocks, 0]);
    }
}

/// Compiles it to `dir`/libcdsprpc.so.
pub fn compile(dir: &Path, flags: &[&str]) -> PathBuf {
    let library = dir.join("libcdsprpc.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cdsprpc.c");
    let mut cc = Command::new("cc");
    let done = cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source).args(flags).output();
    let done = done.expect("cc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    library
}
