//! Which libQnnHtp.so is loaded, and what is said of one that cannot be: with real shared objects, compiled here.

use llama_runner::base::log::{self, Level};
use llama_runner::qnn::{LibraryError, LibraryOptions, QnnBackend, QnnLibrary, QnnOptions};
use llama_runner::runtime::Backend;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

const STUB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/qnn_stub.rs");

struct Stub {
    build_id: &'static str,
    backend_id: &'static str,
    core_major: &'static str,
    flags: Vec<String>,
}

impl Stub {
    fn new(build_id: &'static str) -> Self {
        Self { build_id, backend_id: "6", core_major: "2", flags: Vec::new() }
    }

    /// Compiles it to `dir`/libQnnHtp.so.
    fn compile(&self, dir: &Path) -> PathBuf {
        let library = dir.join("libQnnHtp.so");
        rustc(
            Command::new("rustc").args(&self.flags).envs([
                ("STUB_BUILD_ID", self.build_id),
                ("STUB_BACKEND_ID", self.backend_id),
                ("STUB_CORE_MAJOR", self.core_major),
            ]),
            STUB.as_ref(),
            &library,
        );
        library
    }
}

fn rustc(command: &mut Command, source: &Path, library: &Path) {
    let output = command.args(["--edition", "2024", "-Awarnings", "-o"]).arg(library).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn load(path: &Path) -> Result<Arc<QnnLibrary>, LibraryError> {
    QnnLibrary::load(&LibraryOptions { path: Some(path.to_path_buf()), ..LibraryOptions::default() })
}

#[test]
fn a_directory_or_the_file_itself_is_loaded_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = Stub::new("v2.28.0.stub").compile(dir.path());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&lines);
    log::set_sink(Some((Level::Info, Arc::new(move |_, line: &str| heard.lock().unwrap().push(line.to_owned())))));
    for path in [dir.path(), &file] {
        let library = load(path).unwrap();
        assert_eq!((&library.info().path, library.info().build_id.as_str()), (&file, "v2.28.0.stub"));
        assert!(library.system().is_err());
    }
    log::set_sink(None);
    let heard = lines.lock().unwrap().join("\n");
    assert!(heard.contains("v2.28.0.stub") && heard.contains(&file.display().to_string()), "o5: {heard}");
}

#[test]
fn o5_another_build_than_expected_is_refused_with_both_ids() {
    let dir = tempfile::tempdir().unwrap();
    let file = Stub::new("v2.25.0.stub").compile(dir.path());
    let options =
        |expected: &str| LibraryOptions { path: Some(file.clone()), expected_build_id: Some(expected.into()) };
    let error = QnnLibrary::load(&options("v2.28")).unwrap_err();
    assert!(matches!(error, LibraryError::BuildId { .. }));
    let text = error.to_string();
    assert!(text.contains("v2.25.0.stub") && text.contains("v2.28") && text.contains("libQnnHtp.so"), "{text}");
    assert!(QnnLibrary::load(&options("v2.25")).is_ok());
}

/// Says which library a process with this environment loads.
#[test]
#[ignore = "run by o5_search_order, in processes with environments of their own"]
fn child_names_its_library() {
    let path = std::env::var_os("CHILD_PATH").map(PathBuf::from);
    match QnnLibrary::load(&LibraryOptions { path, ..LibraryOptions::default() }) {
        Ok(library) => println!("loaded {}", library.info().build_id),
        Err(error) => println!("error {error}"),
    }
}

#[test]
fn o5_search_order() {
    let dirs = ["v1.given", "v2.variable", "v3.loader"].map(|build_id| {
        let dir = tempfile::tempdir().unwrap();
        Stub::new(build_id).compile(dir.path());
        dir
    });
    let [given, variable, loader] = [0, 1, 2].map(|index| dirs[index].path());
    let empty = tempfile::tempdir().unwrap();
    let child = |environment: &[(&str, &Path)]| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_names_its_library", "--ignored", "--nocapture"])
            .env_remove("LLR_QNN_LIB_DIR")
            .envs(environment.iter().copied())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (environment, expected) in [
        (&[("CHILD_PATH", given), ("LLR_QNN_LIB_DIR", variable), ("LD_LIBRARY_PATH", loader)][..], "loaded v1.given"),
        (&[("LLR_QNN_LIB_DIR", variable), ("LD_LIBRARY_PATH", loader)], "loaded v2.variable"),
        (&[("LLR_QNN_LIB_DIR", Path::new("")), ("LD_LIBRARY_PATH", loader)], "loaded v3.loader"),
        // A place that was named is not silently replaced by another.
        (
            &[("LLR_QNN_LIB_DIR", empty.path()), ("LD_LIBRARY_PATH", loader)],
            "error libQnnHtp.so cannot be loaded; tried",
        ),
    ] {
        let text = child(environment);
        assert!(text.contains(expected), "{expected} not in {text}");
    }
    // With nothing named and nothing there, every place is listed.
    let text = child(&[]);
    assert!(text.contains("beside this library") && text.contains("search path of the loader"), "{text}");
}

#[test]
fn o6_a_missing_dependency_is_named_in_the_loaders_words() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("gone.rs");
    std::fs::write(&source, "#![crate_type = \"cdylib\"]\n#[unsafe(no_mangle)] pub extern \"C\" fn gone() {}\n")
        .unwrap();
    let gone = dir.path().join("libgone.so");
    rustc(&mut Command::new("rustc"), &source, &gone);
    let link = format!("-Clink-args=-Wl,--no-as-needed -L{} -lgone", dir.path().display());
    let file = Stub { flags: vec![link], ..Stub::new("v1") }.compile(dir.path());
    std::fs::remove_file(gone).unwrap();
    let backend = QnnBackend::new(QnnOptions {
        library: LibraryOptions { path: Some(file.clone()), ..LibraryOptions::default() },
        ..QnnOptions::default()
    });
    for _ in 0..2 {
        let error = backend.available().unwrap_err();
        assert_eq!(error.status(), llama_runner::Status::LibraryUnavailable);
        let text = error.chain();
        assert!(text.contains("libgone.so") && text.contains(&file.display().to_string()), "{text}");
    }
}

#[test]
fn libraries_that_are_none_of_ours_are_typed_errors() {
    let dir = |stub: Stub| {
        let dir = tempfile::tempdir().unwrap();
        stub.compile(dir.path());
        dir
    };
    let cpu = dir(Stub { backend_id: "3", ..Stub::new("v1") });
    let error = load(cpu.path()).unwrap_err();
    assert!(matches!(&error, LibraryError::NoProvider { why, .. } if why.contains("STUB (3)")), "{error}");
    let next = dir(Stub { core_major: "3", ..Stub::new("v1") });
    let error = load(next.path()).unwrap_err();
    assert!(matches!(&error, LibraryError::ApiVersion { found, .. } if found.major == 3), "{error}");
    let hole = dir(Stub { flags: vec!["--cfg=stub_no_execute".into()], ..Stub::new("v1") });
    let error = load(hole.path()).unwrap_err();
    assert!(matches!(error, LibraryError::FunctionMissing { function: "graphExecute", .. }), "{error}");
    let empty = tempfile::tempdir().unwrap();
    let source = empty.path().join("other.rs");
    std::fs::write(&source, "#![crate_type = \"cdylib\"]\n").unwrap();
    rustc(&mut Command::new("rustc"), &source, &empty.path().join("libQnnHtp.so"));
    let error = load(empty.path()).unwrap_err();
    assert!(
        matches!(&error, LibraryError::NoEntryPoint { why, .. } if why.contains("QnnInterface_getProviders")),
        "{error}"
    );
}
