//! The committed C header is what cbindgen makes of `src/capi`, and keeps the rules of the C border.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of `src/capi` with something for the header, in the order of the header.
const SOURCES: [&str; 18] = [
    "version",
    "status",
    "error",
    "log",
    "options",
    "decoding_options",
    "host_module",
    "generation_config",
    "chunk",
    "stream",
    "stats",
    "runner",
    "runner_facts",
    "load_progress",
    "tokens",
    "text_stream",
    "state",
    "memory",
];
const LAST_SOURCE: &str = "program";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn capi(name: &str) -> PathBuf {
    root().join("src/capi").join(name).with_extension("rs")
}

fn sources() -> impl Iterator<Item = &'static str> {
    SOURCES.into_iter().chain([LAST_SOURCE])
}

fn header_path() -> PathBuf {
    root().join("include/llama_runner.h")
}

fn header() -> String {
    fs::read_to_string(header_path()).expect("include/llama_runner.h")
}

/// Every declared function: name → parameters, each without its name.
fn functions() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    let text = header();
    for declaration in text.split("\nLLR_API").skip(1) {
        let (signature, _) = declaration.split_once(");").unwrap();
        let (before, parameters) = signature.split_once('(').unwrap();
        let name = before.rsplit([' ', '*']).next().unwrap();
        let types = parameters
            .split(',')
            .map(|parameter| parameter.split_whitespace().collect::<Vec<_>>().join(" "))
            .map(|parameter| parameter.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').trim().to_owned())
            .collect();
        found.insert(name.to_owned(), types);
    }
    assert!(found.len() > 50, "the header was not understood: {} functions", found.len());
    found
}

/// Every `extern "C"` function of `src/capi`: name → body.
fn rust_functions() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("src/capi")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("#[unsafe(no_mangle)]\n").skip(1) {
            let (_, rest) = part.split_once("extern \"C\" fn ").expect("no_mangle without extern \"C\"");
            let (name, rest) = rest.split_once('(').unwrap();
            let (_, body) = rest.split_once("{\n").unwrap();
            let (body, _) = body.split_once("\n}\n").unwrap();
            assert!(found.insert(name.to_owned(), body.to_owned()).is_none(), "{name} twice");
            let file = path.file_stem().unwrap().to_str().unwrap();
            assert!(sources().any(|source| source == file), "{file} is missing in the list above");
        }
    }
    found
}

/// Every constant of an enumeration: name → number.
fn enum_constants() -> BTreeMap<String, i64> {
    header()
        .lines()
        .filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "))
        .filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?)))
        .collect()
}

/// The interface in lines that do not depend on how the header is laid out: functions with their types, enumerators with
/// their numbers, callbacks, macros, opaque types, fields in their order.
fn abi() -> BTreeSet<String> {
    let text = header();
    // Types of parameters, without their names.
    let types = |parameters: &str| {
        let types = parameters.split(',').map(|parameter| {
            let parameter = parameter.split_whitespace().collect::<Vec<_>>().join(" ");
            match parameter.as_str() {
                "void" => parameter,
                named => named.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').trim().to_owned(),
            }
        });
        types.collect::<Vec<_>>().join(", ")
    };
    let mut lines = BTreeSet::new();
    for declaration in text.split("\nLLR_API").skip(1) {
        let (signature, _) = declaration.split_once(");").unwrap();
        let (before, parameters) = signature.split_once('(').unwrap();
        let at = before.rfind([' ', '*']).unwrap() + 1;
        let result = before[..at].split_whitespace().collect::<Vec<_>>().join(" ");
        lines.insert(format!("function {}({}) -> {result}", &before[at..], types(parameters)));
    }
    lines.extend(enum_constants().iter().map(|(name, number)| format!("enumerator {name} = {number}")));
    for statement in text.split(';') {
        let Some((_, typedef)) = statement.rsplit_once("typedef ") else { continue };
        if let Some((result, rest)) = typedef.split_once("(*") {
            let (name, parameters) = rest.split_once(")(").unwrap();
            let parameters = parameters.trim_end().trim_end_matches(')');
            lines.insert(format!("callback {name}({}) -> {}", types(parameters), result.trim()));
        } else if let Some(opaque) = typedef.strip_prefix("struct ").filter(|rest| !rest.starts_with('{')) {
            lines.insert(format!("opaque {}", opaque.split(' ').next().unwrap()));
        } else if let Some(number) = typedef.strip_prefix("int32_t ") {
            lines.insert(format!("int32_t {number}"));
        }
    }
    for body in text.split("typedef struct {\n").skip(1) {
        let (body, rest) = body.split_once("\n}").unwrap();
        let name = rest.split_once(';').unwrap().0.trim();
        let code = body.lines().filter(|line| !line.trim_start().starts_with(['*', '/'])).collect::<String>();
        let fields = code.split_terminator(';').map(|field| field.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.extend(fields.enumerate().map(|(place, field)| format!("field {name} {place}: {field}")));
    }
    // Which version it is may change.
    let macros = text.lines().filter_map(|line| line.strip_prefix("#define LLR_"));
    let values = macros.filter_map(|line| line.split_once(' ')).filter(|(name, _)| !name.starts_with("VERSION"));
    lines.extend(values.map(|(name, value)| format!("macro LLR_{name} = {}", value.trim())));
    lines
}

/// What of `committed` is gone, and what is new.
fn differences(committed: &BTreeSet<String>, now: &BTreeSet<String>) -> [Vec<String>; 2] {
    [committed.difference(now).cloned().collect(), now.difference(committed).cloned().collect()]
}

#[test]
fn abi_only_grows() {
    let path = root().join("tests/data/abi.txt");
    let committed: BTreeSet<String> =
        fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    let now = abi();
    let [gone, new] = differences(&committed, &now);
    // Whoever means it deletes the lines from the file by hand, and says so in the change log.
    assert!(gone.is_empty(), "ABI break: {gone:#?}, and in their place, or besides: {new:#?}");
    if std::env::var_os("LLR_UPDATE_HEADER").is_some() && !new.is_empty() {
        fs::write(&path, now.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    } else {
        assert!(new.is_empty(), "new in the ABI: {new:#?}; run this test with LLR_UPDATE_HEADER=1 and commit");
    }
}

#[test]
fn abi_lines_say_what_a_caller_compiled_against() {
    let lines = abi();
    for line in [
        "function llr_runner_step(llr_runner *, uint64_t) -> llr_status",
        "function llr_version(void) -> uint32_t",
        "function llr_version_string(void) -> const char *",
        "enumerator LLR_STATUS_NOT_FOUND = 32",
        "callback llr_token_callback(const llr_chunk *, void *) -> int32_t",
        "opaque llr_runner",
        "field llr_module_value 0: size_t struct_size",
        "field llr_module_value 4: const char *text",
        "int32_t llr_status",
        "macro LLR_NO_LIMIT = -1",
    ] {
        assert!(lines.contains(line), "{line} is not among {lines:#?}");
    }
    let mut changed = lines.clone();
    changed.remove("enumerator LLR_STATUS_NOT_FOUND = 32");
    changed.insert("enumerator LLR_STATUS_NOT_FOUND = 33".into());
    let [gone, new] = differences(&lines, &changed);
    assert_eq!((gone.len(), new.len()), (1, 1), "a changed number is one gone and one new");
}

#[test]
fn is_what_cbindgen_makes_now() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let table = root().join("src/runtime/host_module/table.rs");
    let builder = cbindgen::Builder::new().with_config(config).with_src(table);
    let builder = sources().fold(builder, |builder, name| builder.with_src(capi(name)));
    let mut made = Vec::new();
    builder.generate().expect("cbindgen").write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("LLR_UPDATE_HEADER").is_some() {
        fs::write(header_path(), &made).unwrap();
    }
    let differing = made.lines().zip(header().lines()).position(|(made, committed)| made != committed);
    assert!(
        made == header(),
        "include/llama_runner.h is out of date from line {:?}; run this test with LLR_UPDATE_HEADER=1 and commit",
        differing.map(|line| line + 1)
    );
}

#[test]
fn header_and_library_have_the_same_functions() {
    let declared = functions().into_keys().collect::<BTreeSet<_>>();
    let defined = rust_functions().into_keys().collect::<BTreeSet<_>>();
    assert_eq!(declared, defined);
}

#[test]
fn whatever_is_made_can_be_freed() {
    let functions = functions();
    let made = functions.keys().filter_map(|name| name.strip_suffix("_new").or(name.strip_suffix("_create")));
    let made = made.collect::<Vec<_>>();
    assert!(made.len() >= 3, "{made:?}");
    for object in made {
        assert_eq!(functions.get(&format!("{object}_free")), Some(&vec![format!("{object} *")]));
    }
}

/// What a function's comment may say of threads, by its first parameter that is one of our objects: behind a const
/// pointer, behind one without, or none.
fn threads(name: &str, types: &[String]) -> &'static str {
    let opaque = |of: &&String| of.contains("llr_") && of.ends_with('*') && !of.ends_with("**");
    match types.iter().find(opaque) {
        None => "any",
        Some(_) if name.ends_with("_free") => "last",
        Some(object) if object.starts_with("const ") => "shared",
        Some(_) => "one at a time",
    }
}

#[test]
fn every_function_says_which_threads_may_call_it() {
    let text = header();
    let rules = text.split("\n#ifndef LLAMA_RUNNER_H").next().unwrap();
    let mut seen = BTreeSet::new();
    for (name, types) in functions() {
        let at = text.find(&format!("{name}(")).unwrap();
        let declaration = text[..at].rfind("\nLLR_API").unwrap();
        let comment = &text[text[..declaration].rfind("/**").unwrap()..declaration];
        let said: Vec<&str> = comment.lines().filter_map(|line| line.strip_prefix(" * Threads: ")).collect();
        let want = threads(&name, &types);
        assert_eq!(said, [format!("{want}.")], "{name}");
        assert!(rules.contains(&format!("\"Threads: {want}.\"")), "{want}");
        seen.insert(want);
    }
    assert_eq!(seen.len(), rules.matches("\"Threads: ").count(), "each sentence of the rules is used");
}

#[test]
fn every_body_is_guarded() {
    // The fence against panics; llr_last_error_message must not clear what it reports, so it uses guard_value too.
    for (name, body) in rust_functions() {
        let fences = ["guard(||", "guard_value(", "guard_set("];
        assert!(fences.iter().any(|fence| body.contains(fence)), "{name} is outside the fence");
        // Nothing but plain bindings, and the closure that the fence runs, may come before the fence.
        let before = body.split("let set = |").next().unwrap().split("guard").next().unwrap();
        let after = body.rsplit("    };").next().unwrap();
        let setter = body.contains("guard_set(") && after.matches("unsafe {").count() == 1;
        assert!(!before.contains("unsafe {") && !before.contains('*'), "{name} does work before the fence");
        assert!(setter == body.contains("let set = |"), "{name} does work outside the closure of its fence");
    }
}

#[test]
fn o23_no_neighbouring_parameters_of_one_type() {
    for (name, types) in functions() {
        for pair in types.windows(2) {
            assert_ne!(pair[0], pair[1], "{name}: two can be mixed up");
        }
    }
}

#[test]
fn status_names_are_those_of_the_header() {
    for (name, number) in enum_constants().into_iter().filter(|(name, _)| name.starts_with("LLR_STATUS_")) {
        let given = llama_runner::capi::status::llr_status_name(number.try_into().unwrap());
        // SAFETY: a static string that ends with NUL.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(given) }.to_str().unwrap(), name);
    }
}

#[test]
fn version_macros_are_those_of_the_package() {
    let text = header();
    let number = |part: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define LLR_VERSION_{part} ")));
        line.unwrap_or_else(|| panic!("LLR_VERSION_{part}")).to_owned()
    };
    assert_eq!(number("MAJOR"), env!("CARGO_PKG_VERSION_MAJOR"));
    assert_eq!(number("MINOR"), env!("CARGO_PKG_VERSION_MINOR"));
    assert_eq!(number("PATCH"), env!("CARGO_PKG_VERSION_PATCH"));
    assert!(!number("NUMBER").is_empty());
}

#[test]
fn every_declaration_is_documented_and_prefixed() {
    let text = header();
    for (index, _) in text.match_indices("\nLLR_API") {
        assert!(text[..index].trim_end().ends_with("*/"), "undocumented: {}", text[index..].lines().nth(1).unwrap());
    }
    for (name, _) in enum_constants() {
        assert!(name.starts_with("LLR_"), "{name}");
    }
}
