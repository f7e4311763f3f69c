//! What is written is what is read, and files of older shapes mean the same as ours.

use super::super::header;
use super::super::schema::{boxed, data_reference, delegate, execution_plan, location, program, tensor, value_kind};
use super::*;
use crate::base::flatbuffer::Buffer;
use crate::error::Status;

#[test]
fn program_with_one_of_everything_survives() {
    let program = sample();
    let again = read(program.to_bytes().unwrap()).unwrap();
    assert_eq!(again, program);
    let [first, second] = &again.plan("forward").unwrap().delegates[..] else { panic!("two delegates") };
    assert!(first.processed.same_place(&second.processed));
    // Constants, mutable data, one blob of two delegates, one blob of two names.
    assert_eq!(again.segments.len(), 4);
}

#[test]
fn a_constant_that_a_delegate_has_by_name_is_in_the_file_once() {
    let table = Blob::from_vec(vec![7; 5000]);
    let mut program = Program { constants: vec![Blob::from_vec(Vec::new()), table.clone()], ..Program::default() };
    let alone = program.to_bytes().unwrap().len();
    program.named_data.insert("head".into(), table);
    let bytes = program.to_bytes().unwrap();
    assert!(bytes.len() < alone + 512, "{} bytes, {alone} without the name", bytes.len());
    let again = read(bytes).unwrap();
    let [constants, head] = [&again.segments[0], &again.segments[1]].map(Blob::range);
    assert!(constants.start <= head.start && head.end <= constants.end && head.len() == 5000);
    assert_eq!((again.named_data["head"].range(), &again.named_data["head"][..]), (head.clone(), &[7; 5000][..]));
    assert_eq!(again.constants[1].range().start, head.start);
}

#[test]
fn thousand_random_programs_survive() {
    let mut rng = Rng(1);
    let mut instructions = 0;
    for round in 0..1000 {
        let program = random_program(&mut rng);
        program.verify().unwrap_or_else(|error| panic!("round {round}: {error}"));
        instructions += program.plans.iter().flat_map(|plan| &plan.chains).map(|c| c.instructions.len()).sum::<usize>();
        assert_eq!(read(program.to_bytes().unwrap()).unwrap(), program, "round {round}");
    }
    assert!(instructions > 1000, "the generator makes programs that do something");
}

#[test]
fn header_and_alignments_are_what_executorch_expects() {
    let bytes = sample().to_bytes().unwrap();
    let layout = header::parse(&bytes).unwrap();
    let base = layout.segment_base.unwrap();
    assert_eq!(base, layout.program_size.next_multiple_of(128));
    let read = read(bytes).unwrap();
    for segment in &read.segments {
        assert_eq!(segment.range().start % 128, 0);
    }
    for constant in &read.constants {
        assert_eq!(constant.range().start % 16, 0);
    }
    assert_eq!(read.constants.iter().map(|constant| constant.len()).collect::<Vec<_>>(), [0, 16, 3]);
}

#[test]
fn empty_program_survives() {
    assert_eq!(read(Program::default().to_bytes().unwrap()).unwrap(), Program::default());
}

#[test]
fn file_without_header_holds_everything_inline() {
    let value = Fields::new()
        .scalar(tensor::SCALAR_TYPE, DType::F32 as i8)
        .scalars::<i32>(tensor::SIZES, [2])
        .scalars::<u8>(tensor::DIM_ORDER, [0])
        .scalar(tensor::DATA_BUFFER_IDX, 1u32);
    let delegate = Fields::new().string(delegate::ID, "XnnpackBackend").table(
        delegate::PROCESSED,
        Fields::new().scalar(data_reference::LOCATION, location::INLINE).scalar(data_reference::INDEX, 1u32),
    );
    let plan = Fields::new()
        .string(execution_plan::NAME, "forward")
        .tables(execution_plan::VALUES, [tagged(value_kind::TENSOR, value)])
        .tables(execution_plan::DELEGATES, [delegate]);
    let blobs = |blobs: [&[u8]; 2]| blobs.map(|blob| Fields::new().scalars(boxed::ITEM, blob.iter().copied()));
    let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|float| float.to_le_bytes()).collect();
    let root = Fields::new()
        .tables(program::EXECUTION_PLAN, [plan])
        .tables(program::CONSTANT_BUFFER, blobs([&[], &floats]))
        .tables(program::BACKEND_DELEGATE_DATA, blobs([&[], b"inside"]));

    let program = read(bare(root)).unwrap();
    assert_eq!(program.constants[1][..], floats);
    assert_eq!(program.plans[0].delegates[0].processed[..], *b"inside");
    assert!(program.segments.is_empty());
    // Written in today's shape it means the same.
    assert_eq!(read(program.to_bytes().unwrap()).unwrap(), program);
}

#[test]
fn absent_optional_fields_have_the_defaults_of_the_schema() {
    let program =
        read(bare_with_values([tagged(value_kind::INT, Fields::new()), tagged(value_kind::NULL, Fields::new())]));
    let program = program.unwrap();
    assert_eq!(program.plans[0].values, [EValue::Int(0), EValue::Null]);
    assert!(program.plans[0].chains.is_empty() && program.constants.is_empty());
}

#[test]
fn optional_tensor_that_names_a_null_is_absent() {
    let list = Fields::new().scalars::<i32>(boxed::ITEM, [-1, 1]);
    let program = read(bare_with_values([
        tagged(value_kind::OPTIONAL_TENSOR_LIST, list),
        tagged(value_kind::NULL, Fields::new()),
    ]));
    assert_eq!(program.unwrap().plans[0].values[0], EValue::OptionalTensorList(vec![None, None]));
}

#[test]
fn constant_that_no_tensor_uses_is_dropped() {
    let mut program = sample();
    program.add_constant(vec![1; 64]);
    assert!(read(program.to_bytes().unwrap()).unwrap().constants[3].is_empty());
}

#[test]
fn saved_file_replaces_the_old_one_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pte");
    std::fs::write(&path, b"old").unwrap();
    sample().save(&path).unwrap();
    assert_eq!(Program::open(&path).unwrap(), sample());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let error = sample().save(&dir.path().join("no/model.pte")).unwrap_err();
    assert_eq!(error.status(), Status::AccessFailed);
}

#[test]
fn writer_refuses_a_broken_program() {
    let mut program = sample();
    program.plans[0].inputs = vec![99];
    let error = program.to_bytes().unwrap_err();
    assert!(matches!(error.find(), Some(PteError::Index { what: "input", .. })), "{error}");
}

#[test]
fn o4_open_error_names_the_file_and_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pte");
    let mut bytes = sample().to_bytes().unwrap();
    bytes.pop();
    let need = bytes.len() + 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = Program::open(&path).unwrap_err();
    assert_eq!(error.status(), Status::InvalidProgram);
    let chain = error.chain();
    for part in ["model.pte", "cut off", &bytes.len().to_string(), &need.to_string()] {
        assert!(chain.contains(part), "{chain} lacks {part}");
    }
    let missing = Program::open(&dir.path().join("none.pte")).unwrap_err();
    assert_eq!(missing.status(), Status::AccessFailed);
}

#[test]
fn equal_tables_share_their_field_directory() {
    let values = |count: usize| bare_with_values((0..count).map(|_| tagged(value_kind::INT, number(1)))).len();
    // An offset, two tables of 12 and 16 bytes with their padding, and no directories.
    assert_eq!(values(200) - values(100), 100 * (4 + 16 + 16));
    let bytes = bare_with_values([]);
    assert!(Buffer::new(&bytes).root().is_ok());
}

#[test]
fn field_past_the_declared_table_size_is_read() {
    // As in a program of mid 2026, whose builder shared one directory between tables of 8 and of 12 bytes.
    let mut bytes = bare_with_values([tagged(value_kind::INT, number(77))]);
    let item = bytes.windows(8).position(|window| window == 77i64.to_le_bytes()).unwrap();
    let table = item - 8;
    let vtable = table - i32::from_le_bytes(bytes[table..table + 4].try_into().unwrap()) as usize;
    assert_eq!(bytes[vtable..vtable + 4], [6, 0, 16, 0]);
    bytes[vtable + 2] = 4;
    assert_eq!(read(bytes).unwrap().plans[0].values, [EValue::Int(77)]);
}
