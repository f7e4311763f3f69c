//! A C++ program on ExecuTorch's own libraries, which the environment variable `LLR_EXECUTORCH_DIR` says where to find.
#![allow(dead_code)] // Each test program uses its own part.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries of ExecuTorch's package that register what programs need, so that they must be linked though nothing
/// names them.
const LIBRARIES: [&str; 4] = ["", "_kernels_quantized", "_kernels_optimized", "_threadpool"];

fn directory() -> PathBuf {
    PathBuf::from(std::env::var_os("LLR_EXECUTORCH_DIR").unwrap())
}

/// Where its libraries are.
pub fn library_dir() -> PathBuf {
    directory().join("lib")
}

/// What a compiler must be told to find its headers.
pub fn include_flags() -> [OsString; 5] {
    let include = directory().join("include");
    let c10 = include.join("executorch/runtime/core/portable_type/c10");
    let system = || OsString::from("-isystem");
    ["-DC10_USING_CUSTOM_GENERATED_MACROS".into(), system(), include.into(), system(), c10.into()]
}

/// `cpp-harness/executorch/host.cpp`, compiled.
pub struct Host {
    program: PathBuf,
    libraries: PathBuf,
}

impl Host {
    /// Compiles it into `folder`, with these of ExecuTorch's backends, whose own libraries are in `libraries`.
    pub fn compile(folder: &Path, backends: &[&str], libraries: Option<PathBuf>) -> Self {
        let lib = library_dir();
        let backends = backends.iter().map(|backend| format!("_backend_{backend}"));
        let linked = LIBRARIES.map(str::to_owned).into_iter().chain(backends);
        let host = folder.join("host");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cpp-harness/executorch/host.cpp");
        let output = Command::new("g++")
            .args(["-std=c++17", "-Wall"])
            .arg(source)
            .args(include_flags())
            .arg(format!("-L{}", lib.display()))
            .arg("-Wl,--no-as-needed")
            .args(linked.map(|name| format!("-lexecutorch{name}")))
            .arg(format!("-Wl,-rpath,{}", lib.display()))
            .arg("-o")
            .arg(&host)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { program: host, libraries: libraries.unwrap_or_default() }
    }

    /// The ids of `prompt`, and `steps` more that `program` gives. Backends may print before that.
    pub fn run(&self, program: &Path, prompt: &[i64], steps: usize) -> Vec<i64> {
        let output = Command::new(&self.program)
            .arg(program)
            .arg(steps.to_string())
            .args(prompt.iter().map(i64::to_string))
            .env("LD_LIBRARY_PATH", &self.libraries)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let ids = text.lines().last().unwrap_or_default();
        ids.split_whitespace().map(|id| id.parse().unwrap_or_else(|_| panic!("{text}"))).collect()
    }
}
