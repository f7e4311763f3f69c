//! Real programs: what the reader finds in them is what independent dumps of the files say, the writer reproduces
//! them, and damage to them is refused without a panic.

mod common;

use common::{model, shared};
use llama_runner::pte::{EValue, Program, PteError, Storage};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every `.pte` of `../shared/models`.
fn real_programs() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(shared().join("models")).unwrap() {
        let dir = entry.unwrap().path();
        if dir.is_dir() {
            found.extend(std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()));
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "pte"));
    found.sort();
    assert!(found.len() >= 26, "{found:?}");
    found
}

fn open(path: &Path) -> Program {
    Program::open(path).unwrap_or_else(|error| panic!("{error:?}"))
}

fn read(bytes: Vec<u8>) -> llama_runner::Result<Program> {
    Program::from_storage(Arc::new(Storage::Owned(bytes)))
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn counts_are_those_of_the_files() {
    // Counted with flatc: methods, values, instructions, delegates, constants, named data, segments.
    for (name, expected) in [
        ("portable/portable_s260k_fp32_kv", [10, 1640, 540, 0, 54, 0, 1]),
        ("portable/portable_s260k_fp32_kv_sdpa_fulllogits", [10, 917, 339, 0, 51, 0, 1]),
        ("qnn/00e3f99401", [15, 181, 2, 2, 1, 0, 2]),
        ("qnn/0d61efc21d", [18, 64, 2, 2, 1, 0, 2]),
        ("qnn/1ad9d64212.respec", [18, 64, 2, 2, 1, 0, 2]),
        ("qnn/22d0c1cae9", [49, 135, 2, 2, 1, 0, 2]),
        ("qnn/595baeef2c", [18, 64, 2, 2, 1, 0, 2]),
        ("qnn/5fc929fa88", [29, 115, 2, 2, 1, 0, 2]),
        ("qnn/ec8f0994ff", [29, 115, 2, 2, 1, 0, 2]),
        ("qnn/qnn_s260k_hybrid_ar32_shard2", [29, 127, 10, 6, 1, 0, 4]),
        ("smollm2/smollm2_135m_8da4w_emb432_sdpa", [10, 4851, 1875, 121, 67, 422, 544]),
        ("xnnpack/xnn_s260k_8da4w_emb432_kv", [10, 1640, 540, 21, 20, 67, 89]),
        ("xnnpack/xnn_s260k_8da4w_emb432_kv_sdpa", [10, 850, 325, 21, 17, 67, 89]),
        ("xnnpack/xnn_s260k_8da4w_emb432_kv_sdpa_q8kv", [10, 1105, 405, 21, 17, 67, 89]),
        ("xnnpack/xnn_s260k_fp32_kv", [10, 1638, 540, 21, 19, 36, 58]),
        ("xnnpack/xnn_s260k_fp32_kv_sdpa", [10, 848, 325, 21, 16, 36, 58]),
    ] {
        let program = open(&model(&format!("{name}.pte")));
        let plans = || program.plans.iter();
        let found = [
            program.plans.len(),
            plans().map(|plan| plan.values.len()).sum(),
            plans().flat_map(|plan| &plan.chains).map(|chain| chain.instructions.len()).sum(),
            plans().map(|plan| plan.delegates.len()).sum(),
            program.constants.len(),
            program.named_data.len(),
            program.segments.len(),
        ];
        assert_eq!(found, expected, "{name}");
    }
}

/// The text between `before` and `after` in `line`.
fn between<'a>(line: &'a str, before: &str, after: &str) -> &'a str {
    let start = line.find(before).unwrap_or_else(|| panic!("{before:?} not in {line:?}")) + before.len();
    &line[start..start + line[start..].find(after).unwrap_or_else(|| panic!("{after:?} not in {line:?}"))]
}

fn dims(dims: &[usize]) -> String {
    dims.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// Compares `program` with one line of its dump; false for a kind of line that is not compared.
fn agrees_with_line(program: &Program, method: &mut String, line: &str) -> bool {
    if let Some(rest) = line.strip_prefix("## method ") {
        *method = between(rest, "", ":").into();
        let plan = program.plan(method).expect("the method is there");
        let sizes = format!("{:?}", plan.non_const_buffer_sizes);
        let instructions: Vec<_> = plan.chains.iter().map(|chain| chain.instructions.len()).collect();
        let expected = format!(
            "{method}: {} inputs, {} outputs, {} values, non_const_buffer_sizes={sizes}, instr={instructions:?}",
            plan.inputs.len(),
            plan.outputs.len(),
            plan.values.len(),
        );
        assert_eq!(rest, expected);
    } else if line.starts_with("  in[") || line.starts_with("  out[") {
        let plan = program.plan(method).unwrap();
        let values = if line.starts_with("  in[") { &plan.inputs } else { &plan.outputs };
        let index = values[between(line, "[", "]").parse::<usize>().unwrap()];
        let EValue::Tensor(tensor) = &plan.values[index as usize] else { panic!("{line}") };
        let expected = format!("] v{index} {}[{}]", tensor.dtype, dims(&tensor.sizes));
        assert!(line.contains(&expected), "{line:?} lacks {expected:?}");
    } else if let Some(rest) = line.strip_prefix("const-method ") {
        let plan = program.plan(between(rest, "", " -> ")).expect("the method is there");
        let dumped: Vec<_> = rest[rest.find(" -> ").unwrap() + 4..].split("}, ").collect();
        assert_eq!(dumped.len(), plan.outputs.len(), "{line}");
        for (dumped, &output) in dumped.into_iter().zip(&plan.outputs) {
            let (kind, text) =
                (between(dumped, "", ":"), dumped[dumped.find(": ").unwrap() + 2..].trim_end_matches('}'));
            let agrees = match &plan.values[output as usize] {
                EValue::Int(number) => kind == "Int" && text == number.to_string(),
                EValue::Bool(truth) => kind == "Bool" && text == truth.to_string(),
                EValue::String(found) => kind == "String" && text == format!("{found:?}"),
                // Dumped with twelve places.
                EValue::Double(number) => kind == "Double" && (text.parse::<f64>().unwrap() - number).abs() < 1e-12,
                other => panic!("{other:?}"),
            };
            assert!(agrees, "{line}");
        }
    } else if line.starts_with("segments=[") {
        let base = program.segments.iter().map(|segment| segment.range().start).min().unwrap();
        let segments = program
            .segments
            .iter()
            .map(|segment| format!("{{'offset': {}, 'size': {}}}", segment.range().start - base, segment.len()));
        assert_eq!(line, format!("segments=[{}]", segments.collect::<Vec<_>>().join(", ")));
    } else {
        return false;
    }
    true
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn methods_values_and_segments_are_those_of_the_dumps() {
    let mut compared = 0;
    for path in real_programs() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let Ok(dump) = std::fs::read_to_string(shared().join(format!("facts/dumps/{name}.txt"))) else { continue };
        let program = open(&path);
        let mut method = String::new();
        compared += dump.lines().filter(|line| agrees_with_line(&program, &mut method, line)).count();
    }
    assert!(compared > 500, "only {compared} lines");
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn real_programs_survive_a_round_trip() {
    for path in real_programs() {
        let program = open(&path);
        let again = read(program.to_bytes().unwrap()).unwrap();
        assert!(again == program, "{}", path.display());
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn methods_of_one_context_share_its_blob() {
    let program = open(&model("qnn/qnn_s260k_hybrid_ar32.pte"));
    let blob = |method: &str| &program.plan(method).unwrap().delegates[0].processed;
    assert!(blob("kv_forward").same_place(blob("prefill_forward")));
    assert_eq!(blob("kv_forward")[..4], 0x5678_abcd_u32.to_le_bytes());
    let again = read(program.to_bytes().unwrap()).unwrap();
    assert_eq!(again.segments.len(), program.segments.len());
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn o24_neighbours_of_a_program_are_told_apart() {
    let cases = [
        ("tok512.model", "begins with the bytes"),
        ("story/tokenizer.json", "text that begins"),
        ("story/model.safetensors", "safetensors"),
    ];
    for (name, part) in cases {
        let error = Program::open(&model(name)).unwrap_err();
        let chain = error.chain();
        assert!(matches!(error.find(), Some(PteError::NotAProgram { .. })), "{chain}");
        assert!(chain.contains(name) && chain.contains(part), "{chain} lacks {part}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn damaged_real_programs_end_in_an_error_or_a_sound_program() {
    const EACH: usize = 1000;
    let mut state = 7u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for name in ["qnn/qnn_s260k_kv", "xnnpack/xnn_s260k_8da4w_emb432_kv_sdpa", "qnn/00e3f99401"] {
        let original = std::fs::read(model(&format!("{name}.pte"))).unwrap();
        // Most of the structure, and none of the weights, is in the flatbuffer.
        let tables = u64::from_le_bytes(original[16..24].try_into().unwrap()) as usize;
        let mut refused = 0;
        for round in 0..EACH {
            let mut bytes = original.clone();
            for _ in 0..1 + random(6) {
                let at = random(tables.min(bytes.len()));
                match random(8) {
                    0 if round % 8 == 0 => bytes.truncate(random(original.len())),
                    1 => {
                        let (from, len) = (random(tables), 1 + random(64));
                        let splice = original[from..(from + len).min(tables)].to_vec();
                        let end = (at + splice.len()).min(bytes.len());
                        bytes.splice(at..end, splice);
                    }
                    _ => bytes[at] ^= 1 << random(8),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            let start = Instant::now();
            refused += usize::from(read(bytes).is_err());
            assert!(start.elapsed() < Duration::from_secs(10), "{name}, round {round}");
        }
        assert!((EACH / 10..EACH).contains(&refused), "{name}: {refused} refused");
    }
}
