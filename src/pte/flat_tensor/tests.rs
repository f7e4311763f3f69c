//! One test a defect: a sound file, broken in one place, is refused with the error that names that place.

use super::FlatTensorError::*;
use super::*;

fn tensor(dtype: DType, sizes: &[usize], bytes: &[u8]) -> NamedBlob {
    let dim_order = (0..sizes.len() as u8).collect();
    let layout = TensorLayout { dtype, sizes: sizes.to_vec(), dim_order };
    NamedBlob { blob: Blob::from_vec(bytes.to_vec()), layout: Some(layout) }
}

fn sample() -> FlatTensor {
    let raw = NamedBlob { blob: Blob::from_vec(vec![9; 5]), layout: None };
    let entries = [
        ("a.weight", tensor(DType::I16, &[2, 3], &[1; 12])),
        ("again", raw.clone()),
        ("raw", raw),
        ("scalar", tensor(DType::F32, &[], &[2; 4])),
    ];
    FlatTensor { entries: entries.map(|(key, blob)| (key.to_owned(), blob)).into() }
}

fn read_bytes(bytes: Vec<u8>) -> Result<FlatTensor, FlatTensorError> {
    read(&Arc::new(Storage::Owned(bytes)))
}

/// The error of the sample after `damage`.
fn damaged(damage: impl FnOnce(&mut FlatTensor)) -> FlatTensorError {
    let mut file = sample();
    damage(&mut file);
    read_bytes(file.to_bytes()).expect_err("the damage is found")
}

/// The error of the sample with the layout of `a.weight` changed.
fn damaged_layout(damage: impl FnOnce(&mut TensorLayout)) -> FlatTensorError {
    damaged(|file| damage(file.entries.get_mut("a.weight").unwrap().layout.as_mut().unwrap()))
}

/// The error of the sample with eight bytes of the header replaced.
fn damaged_header(at: usize, number: u64) -> FlatTensorError {
    let mut bytes = sample().to_bytes();
    bytes[HEADER_AT + at..][..8].copy_from_slice(&number.to_le_bytes());
    read_bytes(bytes).expect_err("the damage is found")
}

/// A file with tables of a test's own and 16 bytes of segment data.
fn with_tables(root: Fields) -> Vec<u8> {
    let mut bytes = build(root, IDENTIFIER, HEADER_LENGTH as usize);
    let tables = bytes.len() as u64 - u64::from(HEADER_LENGTH);
    let mut header = HEADER_MAGIC.to_vec();
    header.extend(HEADER_LENGTH.to_le_bytes());
    for number in [HEADER_LENGTH.into(), tables, bytes.len() as u64, 16] {
        header.extend(number.to_le_bytes());
    }
    bytes[HEADER_AT..HEADER_AT + header.len()].copy_from_slice(&header);
    bytes.extend([7; 16]);
    bytes
}

fn data_segment(offset: u64, size: u64) -> Fields<'static> {
    Fields::new().scalar(data_segment::OFFSET, offset).scalar(data_segment::SIZE, size)
}

fn named(key: &str) -> Fields<'_> {
    Fields::new().string(named_data::KEY, key)
}

fn tables<'a>(segments: Vec<Fields<'a>>, named: Vec<Fields<'a>>) -> Result<FlatTensor, FlatTensorError> {
    read_bytes(with_tables(
        Fields::new().tables(flat_tensor::SEGMENTS, segments).tables(flat_tensor::NAMED_DATA, named),
    ))
}

#[test]
fn what_is_written_is_read() {
    let bytes = sample().to_bytes();
    let read = read_bytes(bytes.clone()).unwrap();
    assert_eq!(read, sample());
    // Blobs at one place are stored once, every blob where its elements can be read.
    assert!(read.entries["raw"].blob.same_place(&read.entries["again"].blob));
    assert!(read.entries.values().all(|entry| entry.blob.range().start.is_multiple_of(16)));
    assert_eq!(read_bytes(FlatTensor::default().to_bytes()), Ok(FlatTensor::default()));
}

#[test]
fn a_file_that_flatc_made_is_read() {
    // ExecuTorch's schema, its header put in as its own writer does.
    let bytes = include_bytes!("../../../tests/data/flat_tensor.ptd");
    let read = read_bytes(bytes.to_vec()).unwrap();
    assert_eq!(read, sample());
    assert!(read.entries["raw"].blob.same_place(&read.entries["again"].blob));
}

#[test]
fn a_file_of_another_kind() {
    for (bytes, part) in [
        (&b""[..], "empty"),
        (b"\x18\x00\x00\x00ET12\x00\x00", "ExecuTorch program (.pte)"),
        (b"GGUF\x03\x00\x00\x00\x00", "GGUF"),
    ] {
        let error = read_bytes(bytes.to_vec()).unwrap_err();
        assert!(matches!(error, NotFlatTensor { .. }) && error.to_string().contains(part), "{error}");
    }
    let error = Error::from(read_bytes(b"\x18\x00\x00\x00FT02\x00\x00".to_vec()).unwrap_err());
    assert_eq!(error.find(), Some(&UnsupportedIdentifier { found: "FT02".into() }));
    assert_eq!(error.status(), Status::InvalidExternalData);
}

#[test]
fn a_header_that_is_missing_short_or_cut_off() {
    assert_eq!(damaged_header(0, 0), NoHeader);
    let length = |length: u64| u64::from(u32::from_le_bytes(HEADER_MAGIC)) | length << 32;
    assert_eq!(damaged_header(0, length(39)), HeaderLength { length: 39 });
    let bytes = sample().to_bytes();
    for len in 12..48 {
        assert_eq!(read_bytes(bytes[..len].to_vec()), Err(Truncated { have: len as u64, need: 48 }));
    }
}

#[test]
fn parts_that_reach_past_the_file() {
    let have = sample().to_bytes().len() as u64;
    assert_eq!(damaged_header(16, 1 << 40), Truncated { have, need: (1 << 40) + 40 });
    assert_eq!(damaged_header(16, u64::MAX), Truncated { have, need: u64::MAX });
    assert_eq!(damaged_header(24, u64::MAX - 3), Truncated { have, need: u64::MAX });
    assert!(matches!(damaged_header(32, have), Truncated { .. }));
    let bytes = sample().to_bytes();
    assert!(matches!(read_bytes(bytes[..bytes.len() - 1].to_vec()), Err(Truncated { .. })));
}

#[test]
fn tables_that_are_damaged() {
    assert!(matches!(damaged_header(16, 4), Flatbuffer(FlatbufferError::Outside { .. })));
    let lacks = |root, wanted| match read_bytes(with_tables(root)) {
        Err(Flatbuffer(FlatbufferError::Missing { field, .. })) => assert_eq!(field, wanted),
        other => panic!("{other:?}"),
    };
    lacks(Fields::new().tables(flat_tensor::NAMED_DATA, []), "segments");
    lacks(Fields::new().tables(flat_tensor::SEGMENTS, []), "named_data");
    let keyless = Fields::new().tables(flat_tensor::SEGMENTS, []).tables(flat_tensor::NAMED_DATA, [Fields::new()]);
    lacks(keyless, "key");
}

#[test]
fn a_segment_outside_the_data() {
    for (offset, size) in [(0, 17), (16, 1), (17, 0), (u64::MAX, 2)] {
        let wanted = SegmentOutside { segment: 0, offset, size, available: 16 };
        assert_eq!(tables(vec![data_segment(offset, size)], vec![]), Err(wanted));
    }
}

#[test]
fn a_key_whose_segment_is_not_there() {
    let entry = named("x").scalar(named_data::SEGMENT_INDEX, 1u32);
    let wanted = SegmentIndex { key: "x".into(), segment: 1, count: 1 };
    assert_eq!(tables(vec![data_segment(0, 16)], vec![entry]), Err(wanted));
}

#[test]
fn a_key_that_is_there_twice() {
    let twice = vec![named("x"), named("x")];
    assert_eq!(tables(vec![data_segment(0, 16)], twice), Err(DuplicateKey { key: "x".into() }));
}

#[test]
fn an_element_type_that_is_unknown() {
    let layout = Fields::new().scalar(tensor_layout::SCALAR_TYPE, 99i8);
    let entry = named("x").table(named_data::TENSOR_LAYOUT, layout);
    let wanted = UnknownDType { key: "x".into(), code: 99 };
    assert_eq!(tables(vec![data_segment(0, 16)], vec![entry]), Err(wanted));
}

#[test]
fn shapes_that_are_impossible() {
    let key = || "a.weight".to_owned();
    assert_eq!(damaged_layout(|layout| layout.sizes = vec![1; 17]), Rank { key: key(), rank: 17 });
    assert_eq!(
        damaged_layout(|layout| layout.sizes = vec![2, u32::MAX as usize]),
        Size { key: key(), dim: 1, size: -1 }
    );
    let sizes = vec![1 << 30, 1 << 30];
    assert_eq!(damaged_layout(|layout| layout.sizes = vec![1 << 30; 2]), TooLarge { key: key(), sizes });
    for order in [vec![0], vec![0, 0], vec![1, 2], vec![0, 1, 2]] {
        let wanted = DimOrder { key: key(), order: order.clone(), rank: 2 };
        assert_eq!(damaged_layout(|layout| layout.dim_order = order), wanted);
    }
}

#[test]
fn a_tensor_longer_than_its_segment() {
    let wanted = DataTooShort { key: "a.weight".into(), need: 14, have: 12 };
    assert_eq!(damaged_layout(|layout| layout.sizes = vec![7, 1]), wanted);
}

#[test]
fn every_flipped_byte_is_read_or_refused() {
    let bytes = sample().to_bytes();
    let tables = bytes.len() - 48;
    for at in 0..tables {
        for mask in [0x01, 0x80, 0xff] {
            let mut flipped = bytes.clone();
            flipped[at] ^= mask;
            let _ = read_bytes(flipped);
        }
    }
}
