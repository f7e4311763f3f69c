//! Rooms use only the rooms they may, and `unsafe` stays in the rooms it is for.

use std::fs;
use std::path::{Path, PathBuf};

/// Room, and the rooms it may use. Everybody may use itself, `error` and `base`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("base", &[]),
    ("tensor", &[]),
    ("pte", &["tensor"]),
    ("graph", &["tensor"]),
    ("passes", &["graph", "tensor"]),
    ("runtime", &["pte", "tensor"]),
    ("ops", &["runtime", "pte", "tensor", "graph", "xnnpack", "engine"]),
    ("qnn", &["runtime", "pte", "tensor", "graph"]),
    ("tokenizer", &[]),
    ("runner", &["runtime", "tokenizer", "tensor"]),
    ("capi", &["runner", "runtime", "tokenizer", "builtin", "tensor", "pte"]),
    ("kernels", &[]),
    ("engine", &["graph", "passes", "kernels", "tensor"]),
    ("xnnpack", &["runtime", "graph", "passes", "engine", "tensor", "pte"]),
    (
        "export",
        &[
            "graph",
            "passes",
            "pte",
            "qnn",
            "xnnpack",
            "tensor",
            "engine",
            "kernels",
            "runtime",
            "runner",
            "tokenizer",
            "builtin",
        ],
    ),
    ("builtin", &["runtime", "pte", "tensor", "ops", "qnn", "xnnpack", "engine", "kernels"]),
];

/// What a program may use of the library: everything but the C border.
const BIN_MAY_USE: &[&str] = &[
    "error",
    "base",
    "tensor",
    "pte",
    "runtime",
    "ops",
    "qnn",
    "tokenizer",
    "runner",
    "builtin",
    "engine",
    "kernels",
    "export",
];

/// Rooms whose files may hold `unsafe`.
const MAY_BE_UNSAFE: &[&str] = &["base", "tensor", "pte", "runtime", "kernels", "qnn", "capi"];

fn sources(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Every file of `src/` with its room: the first folder, or the file's own name.
fn rooms() -> Vec<(String, PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 20, "only {} files found", files.len());
    let room = |path: PathBuf| {
        let inside = path.strip_prefix(&src).unwrap().to_path_buf();
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        (first.trim_end_matches(".rs").to_owned(), inside, code(&text))
    };
    files.into_iter().map(room).collect()
}

/// The text without comments, as far as whole lines and line ends go.
fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text after each whole word `word`.
fn after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let whole = !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word);
        whole.then(|| &text[at + word.len()..])
    })
}

/// First names behind `crate::`, those in braces included.
fn used(text: &str, root: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in after(text, root) {
        let Some(rest) = rest.strip_prefix("::") else { continue };
        match rest.strip_prefix('{') {
            None => names.push(rest.chars().take_while(|&c| is_word(c)).collect()),
            Some(group) => {
                let mut depth = 0;
                let mut name = String::new();
                for c in group.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => names.push(std::mem::take(&mut name)),
                        c => name.push(c),
                    }
                }
                names.push(name);
            }
        }
    }
    let first = |name: String| name.trim().chars().take_while(|&c| is_word(c)).collect::<String>();
    names.into_iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// `crate::Error` and the like are `error`'s; macros and `self` are nobody's.
fn room_of(name: &str) -> Option<&str> {
    match name {
        "Error" | "Result" | "Status" => Some("error"),
        "self" => None,
        name if name.starts_with("log_") => Some("base"),
        name => Some(name),
    }
}

#[test]
fn rooms_use_only_what_they_may() {
    let mut wrong = Vec::new();
    for (room, path, text) in rooms() {
        let (root, may): (&str, &[&str]) = match room.as_str() {
            "lib" => continue,
            "bin" => ("llama_runner", BIN_MAY_USE),
            room => match MAY_USE.iter().find(|(name, _)| *name == room) {
                Some((_, may)) => ("crate", may),
                None => panic!("{}: room {room} is not in the table", path.display()),
            },
        };
        for name in used(&text, root) {
            let Some(target) = room_of(&name) else { continue };
            let own = target == room || (room == "bin" && MAY_USE.iter().all(|(name, _)| *name != target));
            if !own && !["error", "base"].contains(&target) && !may.contains(&target) {
                wrong.push(format!("{} uses {root}::{name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let mut seen = 0;
    for (room, path, text) in rooms() {
        if after(&text, "unsafe").next().is_some() {
            assert!(MAY_BE_UNSAFE.contains(&room.as_str()), "{} is unsafe", path.display());
            seen += 1;
        }
    }
    assert!(seen > 3, "the search found only {seen} files");
}

#[test]
fn the_search_sees_groups_paths_and_macros() {
    let text =
        code("use crate::{pte::{Blob, Program}, tensor::DType,\n qnn};\n// use crate::capi;\nlet x = crate::ops::y();");
    assert_eq!(used(&text, "crate"), ["pte", "tensor", "qnn", "ops"]);
    assert_eq!(used("$crate::base::log; mycrate::runner::x; crate::log_info!()", "crate"), ["base", "log_info"]);
}
