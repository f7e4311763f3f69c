//! One test a defect: a sound program, broken in one place, is refused with the error that names that place.

use super::super::schema::{
    boxed, buffer_device, data_reference, delegate, execution_plan, extra_tensor_info, named_data, operator, program,
    segment, subsegments, tensor, union, value_kind,
};
use super::super::writer::unchecked_bytes;
use super::*;
use PteError::*;

/// The error of the sample after `damage`.
fn damaged(damage: impl FnOnce(&mut Program)) -> PteError {
    let mut program = sample();
    damage(&mut program);
    let error = read(unchecked_bytes(&program)).expect_err("the damage is found");
    assert!(!error.to_string().is_empty());
    error
}

/// The same, with value `index` of `forward` replaced.
fn damaged_value(index: usize, value: EValue) -> PteError {
    damaged(|program| program.plans[0].values[index] = value)
}

/// The same, with the tensor at `index` of `forward` changed.
fn damaged_tensor(index: usize, damage: impl FnOnce(&mut TensorValue)) -> PteError {
    damaged(|program| match &mut program.plans[0].values[index] {
        EValue::Tensor(tensor) => damage(tensor),
        other => panic!("{other:?} is no tensor"),
    })
}

/// The same, with the first instruction of `forward` replaced.
fn damaged_instruction(instruction: Instruction) -> PteError {
    damaged(|program| program.plans[0].chains[0].instructions[0] = instruction)
}

/// The error of a bare program with the one value `value`.
fn bare_value(value: Fields) -> PteError {
    read(bare_with_values([value])).expect_err("the damage is found")
}

fn at_value(index: usize) -> Place {
    Place::Value { method: "forward".into(), index }
}

fn at_instruction() -> Place {
    Place::Instruction { method: "forward".into(), chain: 0, index: 0 }
}

fn at_method() -> Place {
    Place::Method { method: "forward".into() }
}

/// Fields of a sound scalar tensor.
fn scalar_tensor() -> Fields<'static> {
    Fields::new().scalars::<i32>(tensor::SIZES, []).scalars::<u8>(tensor::DIM_ORDER, [])
}

fn tensor_with(extra: Fields) -> Fields {
    tagged(value_kind::TENSOR, scalar_tensor().table(tensor::EXTRA_TENSOR_INFO, extra))
}

#[test]
fn the_undamaged_programs_are_sound() {
    assert_eq!(read(unchecked_bytes(&sample())).unwrap(), sample());
    assert!(read(bare_with_values([tagged(value_kind::TENSOR, scalar_tensor())])).is_ok());
}

#[test]
fn missing_execution_plan() {
    assert!(matches!(
        read(bare(Fields::new())),
        Err(Flatbuffer(FlatbufferError::Missing { field: "execution_plan", .. }))
    ));
}

#[test]
fn missing_method_name() {
    assert!(matches!(
        read(bare_with_plan(Fields::new())),
        Err(Flatbuffer(FlatbufferError::Missing { field: "name", .. }))
    ));
}

#[test]
fn missing_value_table() {
    let value = Fields::new().scalar(union::TAG, value_kind::INT);
    assert!(matches!(bare_value(value), Flatbuffer(FlatbufferError::Missing { field: "val", .. })));
}

#[test]
fn missing_list_string_and_shape() {
    for (kind, field) in [
        (value_kind::STRING, "string_val"),
        (value_kind::INT_LIST, "items"),
        (value_kind::DOUBLE_LIST, "items"),
        (value_kind::BOOL_LIST, "items"),
        (value_kind::TENSOR_LIST, "items"),
        (value_kind::OPTIONAL_TENSOR_LIST, "items"),
        (value_kind::TENSOR, "sizes"),
    ] {
        let error = bare_value(tagged(kind, Fields::new()));
        assert!(
            matches!(error, Flatbuffer(FlatbufferError::Missing { field: found, .. }) if found == field),
            "{error}"
        );
    }
    let no_order = tagged(value_kind::TENSOR, Fields::new().scalars::<i32>(tensor::SIZES, []));
    assert!(matches!(bare_value(no_order), Flatbuffer(FlatbufferError::Missing { field: "dim_order", .. })));
}

#[test]
fn missing_delegate_parts() {
    for (delegate, field) in [
        (Fields::new().table(delegate::PROCESSED, Fields::new()), "id"),
        (Fields::new().string(delegate::ID, "B"), "processed"),
    ] {
        let plan = Fields::new().string(execution_plan::NAME, "f").tables(execution_plan::DELEGATES, [delegate]);
        let data = Fields::new().scalars::<u8>(boxed::ITEM, []);
        let root = Fields::new().tables(program::EXECUTION_PLAN, [plan]).tables(program::BACKEND_DELEGATE_DATA, [data]);
        let error = read(bare(root)).unwrap_err();
        assert!(
            matches!(error, Flatbuffer(FlatbufferError::Missing { field: found, .. }) if found == field),
            "{error}"
        );
    }
}

#[test]
fn missing_operator_name() {
    let nameless = Fields::new().string(operator::OVERLOAD, "out");
    let plan = Fields::new().string(execution_plan::NAME, "f").tables(execution_plan::OPERATORS, [nameless]);
    assert!(matches!(read(bare_with_plan(plan)), Err(Flatbuffer(FlatbufferError::Missing { field: "name", .. }))));
}

#[test]
fn unknown_kind_of_value() {
    assert_eq!(bare_value(tagged(12, Fields::new())), UnknownValueKind { place: at_value(0), tag: 12 });
    assert_eq!(bare_value(tagged(0, Fields::new())), UnknownValueKind { place: at_value(0), tag: 0 });
}

#[test]
fn unknown_instruction() {
    let chain = Fields::new().tables(super::super::schema::chain::INSTRUCTIONS, [tagged(6, Fields::new())]);
    let plan = Fields::new().string(execution_plan::NAME, "forward").tables(execution_plan::CHAINS, [chain]);
    let error = read(bare_with_plan(plan)).unwrap_err();
    assert_eq!(error, UnknownInstruction { place: at_instruction(), tag: 6 });
}

#[test]
fn unknown_element_type() {
    let value = tagged(value_kind::TENSOR, scalar_tensor().scalar(tensor::SCALAR_TYPE, 99i8));
    assert_eq!(bare_value(value), UnknownDType { place: at_value(0), code: 99 });
}

#[test]
fn unknown_dynamism() {
    let value = tagged(value_kind::TENSOR, scalar_tensor().scalar(tensor::SHAPE_DYNAMISM, 3i8));
    assert_eq!(bare_value(value), UnknownDynamism { place: at_value(0), code: 3 });
}

#[test]
fn unknown_tensor_location() {
    let value = tensor_with(Fields::new().scalar(extra_tensor_info::LOCATION, 2i8));
    assert_eq!(bare_value(value), UnknownLocation { place: at_value(0), code: 2 });
}

#[test]
fn unknown_delegate_location() {
    let delegate = Fields::new()
        .string(delegate::ID, "B")
        .table(delegate::PROCESSED, Fields::new().scalar(data_reference::LOCATION, 2i8));
    let plan = Fields::new().string(execution_plan::NAME, "forward").tables(execution_plan::DELEGATES, [delegate]);
    let place = Place::Delegate { method: "forward".into(), index: 0 };
    assert_eq!(read(bare_with_plan(plan)).unwrap_err(), UnknownLocation { place, code: 2 });
}

#[test]
fn storage_offset() {
    let value = tagged(value_kind::TENSOR, scalar_tensor().scalar(tensor::STORAGE_OFFSET, 4i32));
    assert_eq!(bare_value(value), StorageOffset { place: at_value(0), offset: 4 });
}

#[test]
fn tensor_or_buffer_of_another_device() {
    let value = tensor_with(Fields::new().scalar(extra_tensor_info::DEVICE_TYPE, 1i8));
    assert_eq!(bare_value(value), Device { place: at_value(0), device: 1 });
    let device = Fields::new().scalar(buffer_device::DEVICE_TYPE, 1i8);
    let plan =
        Fields::new().string(execution_plan::NAME, "forward").tables(execution_plan::NON_CONST_BUFFER_DEVICE, [device]);
    assert_eq!(read(bare_with_plan(plan)).unwrap_err(), Device { place: at_method(), device: 1 });
}

#[test]
fn too_many_dimensions() {
    let error = damaged_value(0, EValue::Tensor(unplanned(DType::U8, &[1; 17])));
    assert_eq!(error, Rank { place: at_value(0), rank: 17 });
}

#[test]
fn negative_size() {
    let error = damaged_tensor(0, |tensor| tensor.sizes = vec![2, u32::MAX as usize]);
    assert_eq!(error, Size { place: at_value(0), dim: 1, size: -1 });
}

#[test]
fn size_beyond_the_format_is_not_written() {
    let mut program = sample();
    program.plans[0].values[0] = EValue::Tensor(unplanned(DType::U8, &[1 << 31]));
    assert_eq!(program.verify().unwrap_err(), Size { place: at_value(0), dim: 0, size: 1 << 31 });
}

#[test]
fn product_of_sizes_too_large() {
    for sizes in [vec![1 << 20, 1 << 20, 2], vec![1 << 30; 5]] {
        let error = damaged_value(0, EValue::Tensor(unplanned(DType::U8, &sizes)));
        assert_eq!(error, TooLarge { place: at_value(0), sizes });
    }
}

#[test]
fn dim_order_is_no_permutation() {
    for order in [vec![0], vec![0, 0], vec![0, 2], vec![0, 1, 2]] {
        let error = damaged_tensor(0, |tensor| tensor.dim_order = order.clone());
        assert_eq!(error, DimOrder { place: at_value(0), order, rank: 2 });
    }
}

#[test]
fn external_tensor_without_name() {
    for index in [15, 18] {
        for name in [None, Some(String::new())] {
            let error = damaged_tensor(index, |tensor| tensor.fully_qualified_name = name);
            assert_eq!(error, ExternalWithoutName { place: at_value(index) });
        }
    }
}

#[test]
fn constant_index_out_of_range() {
    let error = damaged_tensor(1, |tensor| tensor.data = TensorData::Constant { index: 3 });
    assert_eq!(error, Index { place: at_value(1), what: "constant", index: 3, count: 2 });
}

#[test]
fn constant_shorter_than_its_tensor() {
    let error = damaged_tensor(2, |tensor| tensor.sizes = vec![4]);
    assert_eq!(error, DataTooShort { place: at_value(2), stored: "constant 2".into(), need: 4, have: 3 });
}

#[test]
fn constant_at_an_odd_place() {
    let mut program = sample();
    let storage = Arc::new(Storage::Owned(vec![0; 32]));
    program.constants[1] = Blob::new(&storage, 2..18).unwrap();
    assert_eq!(program.verify().unwrap_err(), Misaligned { place: at_value(1), offset: 2, size: 4 });
}

#[test]
fn initial_contents_out_of_range() {
    let planned = |initial| TensorData::Planned { buffer: 1, offset: 32, initial: Some(initial) };
    let error = damaged_tensor(4, |tensor| tensor.data = planned((1, 1)));
    assert_eq!(error, Index { place: at_value(4), what: "mutable data segment", index: 1, count: 1 });
    let error = damaged_tensor(4, |tensor| tensor.data = planned((0, 2)));
    assert_eq!(error, Index { place: at_value(4), what: "mutable data", index: 2, count: 1 });
}

#[test]
fn mutable_segment_number_beyond_32_bits() {
    let value = tensor_with(Fields::new().scalar(extra_tensor_info::MUTABLE_DATA_SEGMENTS_IDX, u64::MAX));
    assert_eq!(bare_value(value), NotAnIndex { place: at_value(0), what: "mutable data segment", index: i64::MAX });
}

#[test]
fn initial_contents_shorter_than_their_tensor() {
    let error = damaged(|program| program.mutable_data[0][1] = Blob::from_vec(vec![0; 3]));
    assert_eq!(error, DataTooShort { place: at_value(4), stored: "mutable data 0/1".into(), need: 4, have: 3 });
}

#[test]
fn planned_buffer_out_of_range() {
    for buffer in [0, 2] {
        let error = damaged_tensor(3, |tensor| tensor.data = TensorData::Planned { buffer, offset: 0, initial: None });
        assert_eq!(error, Index { place: at_value(3), what: "planned buffer", index: buffer.into(), count: 1 });
    }
}

#[test]
fn planned_tensor_past_its_buffer() {
    for offset in [24, u64::MAX - 3] {
        let error = damaged_tensor(3, |tensor| tensor.data = TensorData::Planned { buffer: 1, offset, initial: None });
        assert_eq!(error, PlannedOutside { place: at_value(3), buffer: 1, offset, need: 16, have: 36 });
        let error = damaged_tensor(18, |tensor| tensor.data = TensorData::ExternalMutable { buffer: 1, offset: 32 });
        assert_eq!(error, PlannedOutside { place: at_value(18), buffer: 1, offset: 32, need: 8, have: 36 });
    }
}

#[test]
fn planned_tensor_at_an_odd_offset() {
    let error = damaged_tensor(3, |tensor| tensor.data = TensorData::Planned { buffer: 1, offset: 18, initial: None });
    assert_eq!(error, Misaligned { place: at_value(3), offset: 18, size: 4 });
    let error = damaged_tensor(18, |tensor| tensor.data = TensorData::ExternalMutable { buffer: 1, offset: 18 });
    assert_eq!(error, Misaligned { place: at_value(18), offset: 18, size: 4 });
}

#[test]
fn negative_buffer_size() {
    let error = damaged(|program| program.plans[0].non_const_buffer_sizes = vec![0, u64::MAX]);
    assert_eq!(error, BufferSize { place: at_method(), buffer: 1, size: -1 });
}

#[test]
fn absurd_buffer_sizes() {
    let error = damaged(|program| program.plans[0].non_const_buffer_sizes = vec![0, 1 << 40, 1]);
    assert_eq!(error, BuffersTooLarge { place: at_method(), total: (1 << 40) + 1, limit: 1 << 40 });
    let error =
        damaged(|program| program.plans[0].non_const_buffer_sizes = vec![0, i64::MAX as u64, i64::MAX as u64, 3]);
    assert_eq!(error, BuffersTooLarge { place: at_method(), total: u64::MAX, limit: 1 << 40 });
}

#[test]
fn list_items_out_of_range_or_of_the_wrong_kind() {
    for (value, expected) in [
        (EValue::IntList(vec![7]), "an integer"),
        (EValue::TensorList(vec![7]), "a tensor"),
        (EValue::OptionalTensorList(vec![None, Some(7)]), "a tensor"),
    ] {
        let error = damaged_value(6, value);
        assert_eq!(error, Kind { place: at_value(6), what: "list item", index: 7, expected });
    }
    for value in
        [EValue::IntList(vec![19]), EValue::TensorList(vec![19]), EValue::OptionalTensorList(vec![None, Some(19)])]
    {
        let error = damaged_value(6, value);
        assert_eq!(error, Index { place: at_value(6), what: "list item", index: 19, count: 19 });
    }
}

#[test]
fn negative_list_items() {
    // Only an optional tensor may be -1.
    for (kind, index) in [(value_kind::TENSOR_LIST, -1), (value_kind::OPTIONAL_TENSOR_LIST, -2)] {
        let value = tagged(kind, Fields::new().scalars::<i32>(boxed::ITEM, [index]));
        assert_eq!(bare_value(value), NotAnIndex { place: at_value(0), what: "list item", index: index.into() });
    }
    let value = tagged(value_kind::INT_LIST, Fields::new().scalars::<i64>(boxed::ITEM, [1 << 32]));
    assert_eq!(bare_value(value), NotAnIndex { place: at_value(0), what: "list item", index: 1 << 32 });
}

#[test]
fn method_inputs_and_outputs_out_of_range() {
    let error = damaged(|program| program.plans[0].inputs[0] = 19);
    assert_eq!(error, Index { place: at_method(), what: "input", index: 19, count: 19 });
    let error = damaged(|program| program.plans[0].outputs[0] = 19);
    assert_eq!(error, Index { place: at_method(), what: "output", index: 19, count: 19 });
    let error = damaged(|program| program.plans[0].outputs[0] = u32::MAX);
    assert_eq!(error, NotAnIndex { place: at_method(), what: "output", index: -1 });
}

#[test]
fn instruction_arguments_out_of_range() {
    for (instruction, what) in [
        (Instruction::Kernel { operator: 0, args: vec![19] }, "argument"),
        (Instruction::Delegate { delegate: 0, args: vec![19] }, "argument"),
        (Instruction::Move { from: 19, to: 0 }, "source"),
        (Instruction::Move { from: 0, to: 19 }, "destination"),
        (Instruction::JumpFalse { condition: 19, destination: 0 }, "condition"),
        (Instruction::Free { value: 19 }, "value"),
    ] {
        let error = damaged_instruction(instruction);
        assert_eq!(error, Index { place: at_instruction(), what, index: 19, count: 19 });
    }
    // ExecuTorch has no absent arguments either: -1 is out of range there too.
    let error = damaged_instruction(Instruction::Kernel { operator: 0, args: vec![u32::MAX] });
    assert_eq!(error, NotAnIndex { place: at_instruction(), what: "argument", index: -1 });
}

#[test]
fn callee_out_of_range() {
    let error = damaged_instruction(Instruction::Kernel { operator: 2, args: vec![] });
    assert_eq!(error, Index { place: at_instruction(), what: "operator", index: 2, count: 2 });
    let error = damaged_instruction(Instruction::Delegate { delegate: 2, args: vec![] });
    assert_eq!(error, Index { place: at_instruction(), what: "delegate", index: 2, count: 2 });
}

#[test]
fn jump_past_the_end() {
    let error = damaged_instruction(Instruction::JumpFalse { condition: 7, destination: 7 });
    assert_eq!(error, Index { place: at_instruction(), what: "destination instruction", index: 7, count: 7 });
}

#[test]
fn condition_or_freed_value_of_the_wrong_kind() {
    for condition in [0, 5] {
        let error = damaged_instruction(Instruction::JumpFalse { condition, destination: 0 });
        let expected = "a bool or a tensor of bools";
        assert_eq!(error, Kind { place: at_instruction(), what: "condition", index: condition, expected });
    }
    let error = damaged_instruction(Instruction::Free { value: 5 });
    assert_eq!(error, Kind { place: at_instruction(), what: "value", index: 5, expected: "a tensor" });
}

#[test]
fn two_methods_of_one_name() {
    let error = damaged(|program| program.plans[1].name = "forward".into());
    assert_eq!(error, DuplicateMethod { name: "forward".into() });
}

/// A bare program without methods and with more `fields`.
fn no_methods() -> Fields<'static> {
    Fields::new().tables(program::EXECUTION_PLAN, [])
}

fn segment_of(offset: u64, size: u64) -> Fields<'static> {
    Fields::new().scalar(segment::OFFSET, offset).scalar(segment::SIZE, size)
}

/// A file with an extended header, `root` as its flatbuffer, and eight bytes after the segment base.
fn with_segments(root: Fields) -> Vec<u8> {
    let mut bytes = build(root, IDENTIFIER, 32);
    let program_size = bytes.len();
    bytes.extend([0; 8]);
    let mut header = b"eh00\x20\0\0\0".to_vec();
    for number in [program_size, program_size, 8] {
        header.extend((number as u64).to_le_bytes());
    }
    bytes[8..40].copy_from_slice(&header);
    bytes
}

#[test]
fn segments_without_a_base() {
    let root = no_methods().tables(program::SEGMENTS, [segment_of(0, 0)]);
    assert_eq!(read(bare(root)).unwrap_err(), NoSegmentBase { count: 1 });
}

#[test]
fn segment_past_the_end() {
    for (offset, size) in [(0, 9), (9, 0), (8, 1), (u64::MAX, 2), (2, u64::MAX)] {
        let root = no_methods().tables(program::SEGMENTS, [segment_of(0, 8), segment_of(offset, size)]);
        let error = read(with_segments(root)).unwrap_err();
        assert_eq!(error, SegmentOutside { segment: 1, offset, size, available: 8 });
    }
}

#[test]
fn constant_offset_past_its_segment() {
    let constants = Fields::new().scalars::<u64>(subsegments::OFFSETS, [0, 8, 9]);
    let root = no_methods().tables(program::SEGMENTS, [segment_of(0, 8)]).table(program::CONSTANT_SEGMENT, constants);
    let error = read(with_segments(root)).unwrap_err();
    assert_eq!(error, SubsegmentOutside { place: Place::Constants, index: 2, offset: 9, size: 8 });
}

#[test]
fn subsegments_of_a_missing_segment() {
    let offsets = || Fields::new().scalar(subsegments::SEGMENT_INDEX, 1u32).scalars::<u64>(subsegments::OFFSETS, [0]);
    let root = || no_methods().tables(program::SEGMENTS, [segment_of(0, 8)]);
    let error = read(with_segments(root().table(program::CONSTANT_SEGMENT, offsets()))).unwrap_err();
    assert_eq!(error, Index { place: Place::Constants, what: "segment", index: 1, count: 1 });
    let error = read(with_segments(root().tables(program::MUTABLE_DATA_SEGMENTS, [offsets()]))).unwrap_err();
    assert_eq!(error, Index { place: Place::MutableData { index: 0 }, what: "segment", index: 1, count: 1 });
}

#[test]
fn constants_in_both_places() {
    let constants = Fields::new().scalars::<u64>(subsegments::OFFSETS, [0, 0]);
    let root = no_methods()
        .tables(program::SEGMENTS, [segment_of(0, 8)])
        .table(program::CONSTANT_SEGMENT, constants)
        .tables(program::CONSTANT_BUFFER, [Fields::new()]);
    assert_eq!(read(with_segments(root)).unwrap_err(), ConstantsTwice { inline: 1, segment: 2 });
}

#[test]
fn named_data_of_a_missing_segment() {
    let root = no_methods().tables(program::NAMED_DATA, [Fields::new().string(named_data::KEY, "w")]);
    let place = Place::NamedData { key: "w".into() };
    assert_eq!(read(bare(root)).unwrap_err(), Index { place, what: "segment", index: 0, count: 0 });
}

#[test]
fn named_data_twice() {
    let named = || Fields::new().string(named_data::KEY, "w");
    let root =
        no_methods().tables(program::SEGMENTS, [segment_of(0, 8)]).tables(program::NAMED_DATA, [named(), named()]);
    assert_eq!(read(with_segments(root)).unwrap_err(), DuplicateKey { key: "w".into() });
}

#[test]
fn delegate_data_of_a_missing_entry() {
    for (location, what) in [(0i8, "inline data"), (1, "segment")] {
        let reference = Fields::new().scalar(data_reference::LOCATION, location).scalar(data_reference::INDEX, 5u32);
        let delegate = Fields::new().string(delegate::ID, "B").table(delegate::PROCESSED, reference);
        let plan = Fields::new().string(execution_plan::NAME, "forward").tables(execution_plan::DELEGATES, [delegate]);
        let place = Place::Delegate { method: "forward".into(), index: 0 };
        assert_eq!(read(bare_with_plan(plan)).unwrap_err(), Index { place, what, index: 5, count: 0 });
    }
}

#[test]
fn root_offset_past_the_end() {
    let mut bytes = bare(no_methods());
    bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(
        read(bytes.clone()).unwrap_err(),
        Flatbuffer(FlatbufferError::Outside { at: u32::MAX as usize, size: 4, len: bytes.len() })
    );
}

#[test]
fn impossible_field_directories() {
    let bytes = bare(no_methods());
    let root = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let vtable = root - i32::from_le_bytes(bytes[root..root + 4].try_into().unwrap()) as usize;
    // Directory length, table length, a field's offset: too short, odd, too short, within the directory offset.
    for (at, word) in [(vtable, 2u16), (vtable, 5), (vtable + 2, 3), (vtable + 6, 2)] {
        let mut bytes = bytes.clone();
        bytes[at..at + 2].copy_from_slice(&word.to_le_bytes());
        assert_eq!(read(bytes).unwrap_err(), Flatbuffer(FlatbufferError::Vtable { at: root }), "{word} at {at}");
    }
    let mut far = bytes.clone();
    far[vtable + 6..vtable + 8].copy_from_slice(&u16::MAX.to_le_bytes());
    let at = root + usize::from(u16::MAX);
    assert_eq!(read(far).unwrap_err(), Flatbuffer(FlatbufferError::Outside { at, size: 4, len: bytes.len() }));
    let mut bytes = bytes.clone();
    bytes[root..root + 4].copy_from_slice(&i32::MAX.to_le_bytes());
    assert_eq!(read(bytes).unwrap_err(), Flatbuffer(FlatbufferError::Vtable { at: root }));
}

#[test]
fn method_name_that_is_not_utf8() {
    let mut bytes = bare_with_plan(Fields::new().string(execution_plan::NAME, "forward"));
    let at = bytes.windows(7).position(|window| window == b"forward").unwrap();
    bytes[at + 3] = 0xff;
    assert_eq!(read(bytes).unwrap_err(), Flatbuffer(FlatbufferError::NotUtf8 { at }));
}
