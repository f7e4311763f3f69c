//! PyTorch files: what Python writes, and what nobody should.

use super::files::{PARAMS, View, element, in_zip, large_zip, pickle, put, torch, torch_zip, zip};
use super::*;
use crate::error::Status;
use crate::export::LayerWeight;
use crate::tensor::DType;

/// A folder with `params.json` and one `.pth`.
fn folder(bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "params.json", PARAMS);
    put(folder.path(), "consolidated.00.pth", bytes);
    folder
}

fn refused(bytes: &[u8]) -> Error {
    open_at(folder(bytes).path()).unwrap_err()
}

/// The error of the tiny model with one view changed.
fn refused_view(change: impl Fn(&mut View)) -> Error {
    let (mut views, data) = torch();
    change(&mut views[3]);
    refused(&torch_zip(&pickle(&views), &data))
}

fn zip_defect(error: &Error) -> &ZipDefect {
    match defect(error) {
        CheckpointError::Zip { defect, .. } => defect,
        other => panic!("{other:?}"),
    }
}

fn pickle_defect(error: &Error) -> &PickleDefect {
    match defect(error) {
        CheckpointError::Pickle { defect, .. } => defect,
        other => panic!("{other:?}"),
    }
}

/// The defect of a pickle that is nothing but `instructions`.
fn ran(instructions: &[u8]) -> PickleDefect {
    pickle_defect(&refused(&torch_zip(&[b"\x80\x02", instructions].concat(), &[]))).clone()
}

#[test]
fn file_written_by_torch_gives_every_element() {
    let folder = folder(include_bytes!("../../../../tests/data/torch_2_14.pth"));
    let checkpoint = open_at(folder.path()).unwrap();
    assert_eq!(checkpoint.format(), Format::Torch);
    use LayerWeight::*;
    let layer = [AttentionNorm, Query, Key, Value, Output, FeedForwardNorm, Gate, Down, Up];
    let layer = layer.map(|weight| WeightRole::Layer(0, weight));
    let roles = [WeightRole::TokenEmbedding, WeightRole::FinalNorm].into_iter().chain(layer);
    for (number, role) in roles.enumerate() {
        let found = reals(&checkpoint, role);
        let expected: Vec<_> = (0..found.len()).map(|index| element(number, index)).collect();
        assert_eq!(found, expected, "{role:?}");
    }
    let dtype = |weight| checkpoint.weight(WeightRole::Layer(0, weight)).unwrap().unwrap().dtype;
    assert_eq!([Query, Key, Value].map(dtype), [DType::F32, DType::F16, DType::BF16]);
    assert_eq!(reals(&checkpoint, WeightRole::OutputHead), reals(&checkpoint, WeightRole::TokenEmbedding));
}

#[test]
fn sixty_four_bit_zips_are_read() {
    let (views, data) = torch();
    let bytes = in_zip(large_zip, &pickle(&views), &data);
    let checkpoint = open_at(folder(&bytes).path()).unwrap();
    assert_eq!(reals(&checkpoint, WeightRole::FinalNorm), (0..8).map(|i| element(1, i)).collect::<Vec<_>>());
    // A member whose 64-bit numbers are missing, one that begins nowhere, a directory of too many, one that is nowhere.
    let entry = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        refused(&bytes)
    };
    let extra = entry + 46 + "m/data.pkl".len();
    assert!(matches!(zip_defect(&with(extra + 6, 2)), ZipDefect::Size { .. }));
    assert!(matches!(zip_defect(&with(extra + 33, 0xff)), ZipDefect::Record { what: "member", .. }));
    let end = bytes.len() - 22 - 20 - 56;
    assert!(matches!(zip_defect(&with(end + 39, 0xff)), ZipDefect::Count { .. }));
    assert!(matches!(zip_defect(&with(end + 55, 0xff)), ZipDefect::Record { what: "directory entry", .. }));
    assert!(matches!(zip_defect(&with(end + 56 + 15, 0xff)), ZipDefect::Record { what: "64-bit end record", .. }));
}

#[test]
fn parts_of_a_tensor_parallel_checkpoint_are_joined() {
    let (views, data) = torch();
    let file = torch_zip(&pickle(&views), &data);
    let (one, folder) = (folder(&file), folder(&file));
    let whole = open_at(one.path()).unwrap();
    for part in 0..2 {
        let (mut views, mut data) = (views.clone(), data.clone());
        for (key, view) in views.iter_mut().enumerate().filter(|(_, view)| view.size.len() == 2) {
            let (rows, columns) = (view.size[0] as usize, view.size[1] as usize);
            let name = &view.name;
            let by_column = ["wo", "w2", "tok_embeddings"].iter().any(|column| name.contains(column));
            let (rows, columns, from) =
                if by_column { (rows, columns / 2, part * columns / 2) } else { (rows / 2, columns, part * rows / 2) };
            let width = view.size[1] as usize;
            let at = |row: usize, column: usize| {
                if by_column { row * width + from + column } else { (from + row) * width + column }
            };
            let elements = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            data[key] = elements.flat_map(|(row, column)| element(key, at(row, column)).to_le_bytes()).collect();
            *view = View::dense(key as u8, &view.name, &[rows, columns]);
        }
        put(folder.path(), &format!("consolidated.{part:02}.pth"), torch_zip(&pickle(&views), &data));
    }
    let joined = open_at(folder.path().join("consolidated.01.pth")).unwrap();
    assert_eq!(joined.config(), whole.config());
    for (role, ..) in &whole.weights {
        assert_eq!(reals(&joined, *role), reals(&whole, *role), "{role:?}");
    }
    std::fs::remove_file(folder.path().join("consolidated.00.pth")).unwrap();
    assert!(open_at(folder.path()).unwrap_err().chain().contains("parts before"));
}

#[test]
fn pickle_that_would_run_code_is_refused_by_name() {
    for (module, name) in [("os", "system"), ("builtins", "eval"), ("torch", "load"), ("torch._utils", "_import")] {
        let call = format!("c{module}\n{name}\n(X\x02\0\0\0lstR.");
        let expected = PickleDefect::Global { module: module.into(), name: name.into() };
        assert_eq!(ran(call.as_bytes()), expected);
        let texts: Vec<u8> =
            [module, name].iter().flat_map(|t| [&[0x8c, t.len() as u8], t.as_bytes()].concat()).collect();
        assert_eq!(ran(&[&texts[..], b"\x93)R."].concat()), expected);
    }
    let error = refused(&torch_zip(b"\x80\x02cposix\nsystem\n(X\x02\0\0\0lstR.", &[]));
    assert_eq!(error.status(), Status::NotSupported);
    assert!(error.chain().contains("posix.system"), "{error:?}");
}

#[test]
fn instructions_that_make_objects_are_not_run() {
    // INST, OBJ, NEWOBJ, NEWOBJ_EX, REDUCE's old kin, EXT1, PERSID, INT, and one that does not exist.
    for opcode in [b'i', b'o', 0x81, 0x92, 0x82, b'P', b'I', 0xff] {
        assert_eq!(ran(&[opcode]), PickleDefect::Opcode { opcode, offset: 2 });
    }
}

#[test]
fn pickle_of_a_broken_stack_is_refused() {
    for instructions in [
        &b"t."[..],
        b"u.",
        b"}N\x85R.",
        b"}Ns.",
        b"]]s.",
        b"Na.",
        b"h\x05.",
        b"q\x01.",
        b"NNR.",
        b"(0t.",
        b"N}b.",
        b".",
    ] {
        let found = ran(instructions);
        let broken = matches!(found, PickleDefect::Operand { .. } | PickleDefect::NoStateDict);
        assert!(broken, "{:?}: {found:?}", String::from_utf8_lossy(instructions));
    }
    for cut in [&b"X\xff\xff\xff\xff"[..], b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", b"J\0", b"ctorch", b"N"] {
        assert!(matches!(ran(cut), PickleDefect::Truncated { .. }));
    }
    assert_eq!(ran(b"X\x01\0\0\0\xff."), PickleDefect::Text { offset: 7 });
    assert!(matches!(ran(b"NQ."), PickleDefect::Arguments { .. }));
    assert!(matches!(ran(b"ctorch._utils\n_rebuild_tensor_v2\n)R."), PickleDefect::Arguments { .. }));
    assert!(matches!(ran(b"ccollections\nOrderedDict\nN\x85R."), PickleDefect::Arguments { .. }));
}

#[test]
fn depth_and_cycles_cost_nothing() {
    let deep = [vec![b'N'], vec![0x85; 1 << 20], vec![b'.']].concat();
    assert_eq!(ran(&deep), PickleDefect::NoStateDict);
    assert_eq!(ran(b"}q\0X\x05\0\0\0modelh\0s."), PickleDefect::NoStateDict);
}

#[test]
fn pickle_larger_than_any_state_dictionary_is_refused() {
    let size = (16 << 20) + 1;
    let defect = pickle_defect(&refused(&torch_zip(&vec![b'N'; size], &[]))).clone();
    assert_eq!(defect, PickleDefect::TooLarge { size, limit: 16 << 20 });
}

#[test]
fn views_outside_or_upon_their_storage_are_refused() {
    let strides = |change: fn(&mut View)| {
        let error = refused_view(change);
        assert!(matches!(pickle_defect(&error), PickleDefect::Strides { .. }), "{error:?}");
    };
    strides(|view| view.offset = 1);
    strides(|view| view.offset = -1);
    strides(|view| view.stride = vec![0]);
    strides(|view| view.stride = vec![2]);
    strides(|view| view.stride = vec![1, 1]);
    strides(|view| view.size = vec![i32::MAX; 20]);
    strides(|view| view.size = vec![-8]);
    for change in [|view: &mut View| view.key = 77, |view: &mut View| view.elements = 9] {
        assert!(matches!(pickle_defect(&refused_view(change)), PickleDefect::NoStorage { .. }));
    }
}

#[test]
fn views_that_overlap_in_part_are_refused() {
    let (mut views, data) = torch();
    let first = views[0].clone();
    views[2] = View { name: "output.weight".into(), offset: 8, size: vec![15, 8], ..first };
    let error = refused(&torch_zip(&pickle(&views), &data));
    assert!(matches!(defect(&error), CheckpointError::Overlap { .. }), "{error:?}");
}

#[test]
fn storage_of_other_elements_is_refused_when_asked_for() {
    let (mut views, mut data) = torch();
    views[3].kind = "DoubleStorage";
    data[3] = vec![0; 64];
    let folder = folder(&torch_zip(&pickle(&views), &data));
    let error = open_at(folder.path()).unwrap().weight(WeightRole::Layer(0, LayerWeight::AttentionNorm)).unwrap_err();
    assert!(matches!(defect(&error), CheckpointError::ElementType { kind, .. } if kind == "Double"), "{error:?}");
}

#[test]
fn compressed_and_encrypted_members_are_refused_by_name() {
    let whole = zip(&[("m/data.pkl", b"\x80\x02}.")]);
    let central = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[central + at] = value;
        refused(&bytes)
    };
    let name = "m/data.pkl".to_owned();
    assert_eq!(zip_defect(&with(10, 8)), &ZipDefect::Compressed { name: name.clone(), method: 8 });
    assert_eq!(with(10, 8).status(), Status::NotSupported);
    assert_eq!(zip_defect(&with(8, 1)), &ZipDefect::Encrypted { name: name.clone() });
    assert!(matches!(zip_defect(&with(24, 200)), ZipDefect::Size { .. }));
    assert!(matches!(zip_defect(&with(27, 200)), ZipDefect::Size { .. }));
    assert!(matches!(zip_defect(&with(42, 200)), ZipDefect::Record { what: "member", .. }));
    assert!(matches!(zip_defect(&with(0, 0)), ZipDefect::Record { what: "directory entry", .. }));
    assert_eq!(zip_defect(&with(46, 0xff)), &ZipDefect::Name { index: 0 });
}

#[test]
fn zip_whose_members_overlap_is_refused() {
    let (views, data) = torch();
    let mut bytes = torch_zip(&pickle(&views), &data);
    // The second member's description points at the first one's bytes.
    let entries: Vec<_> = bytes.windows(4).enumerate().filter(|(_, w)| w == b"PK\x01\x02").map(|(at, _)| at).collect();
    let (first, last) = (entries[2], entries[3]);
    let place = bytes[first + 42..first + 46].to_vec();
    bytes[last + 42..last + 46].copy_from_slice(&place);
    let error = refused(&bytes);
    assert!(matches!(zip_defect(&error), ZipDefect::Overlap { .. }), "{error:?}");
}

#[test]
fn zip_with_wrong_counts_is_refused() {
    let mut bytes = zip(&[("m/data.pkl", b"\x80\x02}.")]);
    let end = bytes.len() - 22;
    bytes[end + 10] = 0xff;
    bytes[end + 11] = 0xff;
    assert!(matches!(zip_defect(&refused(&bytes)), ZipDefect::Count { count: 65535, .. }));
    bytes.truncate(end);
    assert_eq!(zip_defect(&refused(&bytes)), &ZipDefect::NoEnd);
    let twice = zip(&[("m/data.pkl", b"."), ("m/data.pkl", b".")]);
    assert_eq!(zip_defect(&refused(&twice)), &ZipDefect::Duplicate { name: "m/data.pkl".into() });
    assert_eq!(zip_defect(&refused(&zip(&[("m/x", b".")]))), &ZipDefect::NoPickle);
    let big = zip(&[("m/data.pkl", b"."), ("m/byteorder", b"big")]);
    assert_eq!(zip_defect(&refused(&big)), &ZipDefect::ByteOrder { order: "big".into() });
}

#[test]
fn features_of_params_json_that_are_not_supported_are_refused_by_name() {
    let (views, data) = torch();
    let folder = folder(&torch_zip(&pickle(&views), &data));
    for (field, words) in [
        (r#""moe": true"#, "mixture of experts"),
        (r#""partial_rotary_factor": 0.75"#, "partial rotary embedding"),
        (r#""quantization_args": {}"#, "quantized checkpoint"),
    ] {
        put(folder.path(), "params.json", PARAMS.replace('}', &format!(", {field}}}")));
        let error = open_at(folder.path()).unwrap_err();
        assert_eq!(error.status(), Status::NotSupported);
        assert!(error.chain().contains(words), "{error:?}");
    }
    put(folder.path(), "params.json", PARAMS.replace('}', r#", "use_scaled_rope": true, "rope_theta": 500000}"#));
    let rope = open_at(folder.path()).unwrap().config().rope;
    assert_eq!(rope.theta, 500_000.0);
    assert!(matches!(rope.scaling, crate::export::RopeScaling::Llama3(scaling) if scaling.factor == 8.0));
}
