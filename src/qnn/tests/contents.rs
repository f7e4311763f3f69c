//! Contents of a context binary survive the way through QNN's structures in every version, and broken ones are refused.

use super::{small_model, tensor_info};
use crate::qnn::fake::{Fake, RawInfo};
use crate::qnn::{BinaryInfo, InfoError, Quantization, sys};
use crate::tensor::Encoding;

fn read(version: u32, spoil: impl FnOnce(&mut RawInfo)) -> Result<BinaryInfo, InfoError> {
    let mut raw = RawInfo::new(&small_model(), version);
    spoil(&mut raw);
    // SAFETY: the structures are whole, except where a test spoils what must be noticed before it is followed.
    unsafe { BinaryInfo::copy(raw.as_ptr()) }
}

#[test]
fn every_version_is_copied_whole() {
    for version in 1..=3 {
        let soc_model = (version == 3).then_some(57);
        assert_eq!(read(version, |_| ()).unwrap(), BinaryInfo { version, soc_model, ..small_model() });
    }
}

#[test]
fn every_quantization_is_copied() {
    let encoding = |scale, zero_point| Encoding { scale, zero_point };
    for quantization in [
        Quantization::None,
        Quantization::PerTensor(encoding(0.5, -3)),
        Quantization::PerAxis { axis: 3, encodings: vec![encoding(0.5, 0), encoding(2.0, 9)] },
        Quantization::Other(sys::QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION),
    ] {
        let mut model = small_model();
        let tensor = tensor_info(5, "input_2_x", sys::QNN_DATATYPE_SFIXED_POINT_8, &[]);
        model.graphs[0].inputs.push(crate::qnn::TensorInfo { version: 1, quantization, ..tensor });
        let raw = RawInfo::new(&model, 3);
        // SAFETY: the structures are whole.
        assert_eq!(unsafe { BinaryInfo::copy(raw.as_ptr()) }.unwrap(), model);
    }
}

#[test]
fn o9_an_unknown_version_of_the_contents_is_a_typed_error() {
    for found in [0, 4, 99] {
        assert_eq!(read(found, |_| ()).unwrap_err(), InfoError::BinaryVersion { found });
    }
    let graph = read(3, |raw| raw.first_graph().version = 99).unwrap_err();
    assert_eq!(graph, InfoError::GraphVersion { index: 0, found: 99 });
    let tensor = read(3, |raw| raw.first_input().version = 3).unwrap_err();
    assert_eq!(tensor, InfoError::TensorVersion { place: "graph kv_forward".into(), found: 3 });
}

#[test]
fn o9_version_99_names_the_library() {
    let fake = Fake::new();
    fake.set_model(|_| Some(small_model()));
    fake.set_info_version(99);
    let backend = crate::qnn::QnnBackend::with_library(fake.library(), Default::default());
    let error = super::faults::load(&backend).err().unwrap();
    assert_eq!(error.status(), crate::Status::DelegateInvalidCompatibility);
    assert_eq!(error.find::<InfoError>(), Some(&InfoError::BinaryVersion { found: 99 }));
    let text = error.chain();
    assert!(text.contains("version 99") && text.contains("v2.49.40.fake") && text.contains("2.38.0"), "{text}");
    assert_eq!(fake.live(), [""; 0]);
}

#[test]
fn absurd_counts_and_null_lists_are_refused_before_they_are_followed() {
    let kind = |error| match error {
        InfoError::Count { what, count, .. } => (what, count),
        InfoError::Missing { what, .. } => (what, 0),
        other => panic!("{other}"),
    };
    let graphs = read(3, |raw| raw.info_mut().u.v3.numGraphs = u32::MAX);
    assert_eq!(kind(graphs.unwrap_err()), ("graphs", u32::MAX));
    let graphs = read(3, |raw| raw.info_mut().u.v3.graphs = std::ptr::null_mut());
    assert_eq!(kind(graphs.unwrap_err()), ("graphs", 0));
    let inputs = read(3, |raw| raw.first_graph().u.v1.numGraphInputs = 1 << 20);
    assert_eq!(kind(inputs.unwrap_err()), ("inputs", 1 << 20));
    let outputs = read(3, |raw| raw.first_graph().u.v1.graphOutputs = std::ptr::null_mut());
    assert_eq!(kind(outputs.unwrap_err()), ("outputs", 0));
    let rank = read(3, |raw| raw.first_input().u.v1.rank = 17);
    assert_eq!(kind(rank.unwrap_err()), ("dimensions", 17));
    let mut encoding = sys::Qnn_QuantizeParams_t {
        encodingDefinition: sys::QNN_DEFINITION_DEFINED,
        quantizationEncoding: sys::QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET,
        ..Default::default()
    };
    encoding.u.axisScaleOffset.numScaleOffsets = 4;
    let axis = read(3, |raw| raw.first_input().u.v1.quantizeParams = encoding);
    assert_eq!(kind(axis.unwrap_err()), ("encodings", 0));
}

#[test]
fn absurd_shapes_and_names_are_refused() {
    let mut dims = [u32::MAX; 3];
    let shape = read(3, |raw| {
        // SAFETY: both versions begin with version 1.
        let tensor = unsafe { &mut raw.first_input().u.v1 };
        (tensor.rank, tensor.dimensions) = (3, dims.as_mut_ptr());
    });
    assert!(matches!(shape, Err(InfoError::Shape { .. })), "{shape:?}");
    let name = std::ffi::CString::new(vec![b'x'; 1 << 16]).unwrap();
    let name = read(3, |raw| raw.first_input().u.v1.name = name.as_ptr());
    assert!(matches!(name, Err(InfoError::LongText { .. })), "{name:?}");
}
