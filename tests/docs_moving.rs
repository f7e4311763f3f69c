//! `docs/moving-from-the-cpp-runner.md` speaks of every flag that the programs have, of every status that it names by its
//! right number, and of files that exist.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/moving-from-the-cpp-runner.md")).unwrap()
}

/// The flags in the first column of the table under `heading`.
fn described(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `--"));
    let names = rows.flat_map(|row| row.split('|').next().unwrap_or_default().split(','));
    names.map(|name| name.trim().trim_matches('`').trim_start_matches("--").to_owned()).collect()
}

fn has(program: &str) -> BTreeSet<String> {
    let output = Command::new(program).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let names = help.lines().filter_map(|line| line.strip_prefix("  --")?.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_flag_of_the_programs_is_described() {
    let page = page();
    for (heading, program) in [
        ("Flags of qnn_llama_runner", env!("CARGO_BIN_EXE_qnn_llama_runner")),
        ("Flags of llama_main", env!("CARGO_BIN_EXE_llama_main")),
    ] {
        let (described, has) = (described(&page, heading), has(program));
        assert!(has.len() > 15, "{has:?}");
        let missing: Vec<_> = has.difference(&described).collect();
        assert!(missing.is_empty(), "{heading}: no word of {missing:?}");
    }
}

#[test]
fn statuses_and_files_that_are_named_exist() {
    let page = page();
    let header = std::fs::read_to_string(root().join("include/llama_runner.h")).unwrap();
    let words = page.split(|c: char| !(c.is_ascii_alphanumeric() || "_./".contains(c)));
    let mut files = 0;
    for word in words {
        if word.starts_with("LLR_STATUS_") || word.starts_with("llr_") {
            assert!(header.contains(word), "{word} is not in the header");
        }
        if word.starts_with("runner/") && word.ends_with(".rs") {
            assert!(root().join("src").join(word).is_file(), "no src/{word}");
            files += 1;
        }
    }
    assert!(files >= 8, "{files}");
    for (name, number) in [("AccessFailed", 34), ("OperatorMissing", 20), ("InvalidArgument", 18)] {
        assert!(
            page.contains(&format!("{number} (0x{number:x}) is `{name}`"))
                || page.contains(&format!("{number} (0x{number:x}) `{name}`"))
        );
    }
}
