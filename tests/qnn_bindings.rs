//! `qnn/sys.rs` is what bindgen makes of `qnn/qnn_api.h`, and its layouts are the measured ones.

use llama_runner::qnn::sys;
use std::mem::{offset_of, size_of};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/qnn/qnn_api.h");
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/qnn/sys.rs");
const PREAMBLE: &str =
    "//! Bindings of QNN's C interface, generated from `qnn_api.h`. `LLR_REGENERATE=1 cargo test --test qnn_bindings`.";

#[test]
#[cfg_attr(not(have_libclang), ignore = "needs libclang")]
fn committed_bindings_are_what_bindgen_makes_of_the_header() {
    let generated = bindgen::builder()
        .header(HEADER)
        .allowlist_type("Qnn.*")
        .allowlist_var("QNN_.*")
        .derive_debug(false)
        .derive_default(true)
        .disable_header_comment()
        .raw_line(PREAMBLE)
        .raw_line("#![allow(missing_docs, non_camel_case_types, non_snake_case, clippy::undocumented_unsafe_blocks)]")
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .expect("bindgen reads the header")
        .to_string();
    if std::env::var_os("LLR_REGENERATE").is_some() {
        std::fs::write(COMMITTED, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap();
    assert!(committed == generated, "src/qnn/sys.rs is not what bindgen makes of src/qnn/qnn_api.h");
}

#[test]
fn structures_have_the_measured_sizes() {
    let table = [
        ("ScaleOffset", size_of::<sys::Qnn_ScaleOffset_t>(), 8),
        ("AxisScaleOffset", size_of::<sys::Qnn_AxisScaleOffset_t>(), 16),
        ("BwScaleOffset", size_of::<sys::Qnn_BwScaleOffset_t>(), 12),
        ("BwAxisScaleOffset", size_of::<sys::Qnn_BwAxisScaleOffset_t>(), 32),
        ("BlockwiseExpansion", size_of::<sys::Qnn_BlockwiseExpansion_t>(), 40),
        ("QuantizeParams", size_of::<sys::Qnn_QuantizeParams_t>(), 40),
        ("ClientBuffer", size_of::<sys::Qnn_ClientBuffer_t>(), 16),
        ("TensorV1", size_of::<sys::Qnn_TensorV1_t>(), 112),
        ("TensorV2", size_of::<sys::Qnn_TensorV2_t>(), 136),
        ("Tensor", size_of::<sys::Qnn_Tensor_t>(), 144),
        ("Scalar", size_of::<sys::Qnn_Scalar_t>(), 16),
        ("Param", size_of::<sys::Qnn_Param_t>(), 160),
        ("OpConfig", size_of::<sys::Qnn_OpConfig_t>(), 80),
        ("Config", size_of::<sys::Qnn_Config_t>(), 16),
        ("HtpDevice_SocConfig", size_of::<sys::QnnHtpDevice_SocConfig_t>(), 16),
        ("HtpContext_CustomConfig", size_of::<sys::QnnHtpContext_CustomConfig_t>(), 24),
        ("HtpGraph_CustomConfig", size_of::<sys::QnnHtpGraph_CustomConfig_t>(), 56),
        ("MemDescriptor", size_of::<sys::Qnn_MemDescriptor_t>(), 48),
        ("MemHtp_Descriptor", size_of::<sys::QnnMemHtp_Descriptor_t>(), 32),
        ("GraphInfo", size_of::<sys::QnnSystemContext_GraphInfo_t>(), 88),
        ("BinaryInfo", size_of::<sys::QnnSystemContext_BinaryInfo_t>(), 144),
    ];
    for (name, size, measured) in table {
        assert_eq!(size, measured, "size of {name}");
    }
}

#[test]
fn fields_have_the_measured_offsets() {
    type V1 = sys::Qnn_TensorV1_t;
    type V2 = sys::Qnn_TensorV2_t;
    type Info1 = sys::QnnSystemContext_BinaryInfoV1_t;
    type Info3 = sys::QnnSystemContext_BinaryInfoV3_t;
    type Graph1 = sys::QnnSystemContext_GraphInfoV1_t;
    let table = [
        ("Interface.providerName", offset_of!(sys::QnnInterface_t, providerName), 8),
        ("Interface.apiVersion", offset_of!(sys::QnnInterface_t, apiVersion), 16),
        ("Interface.functions", offset_of!(sys::QnnInterface_t, functions), 40),
        ("SystemInterface.functions", offset_of!(sys::QnnSystemInterface_t, functions), 32),
        ("Tensor.u", offset_of!(sys::Qnn_Tensor_t, u), 8),
        ("TensorV1.name", offset_of!(V1, name), 8),
        ("TensorV1.type", offset_of!(V1, type_), 16),
        ("TensorV1.dataFormat", offset_of!(V1, dataFormat), 20),
        ("TensorV1.dataType", offset_of!(V1, dataType), 24),
        ("TensorV1.quantizeParams", offset_of!(V1, quantizeParams), 32),
        ("TensorV1.rank", offset_of!(V1, rank), 72),
        ("TensorV1.dimensions", offset_of!(V1, dimensions), 80),
        ("TensorV1.memType", offset_of!(V1, memType), 88),
        ("TensorV1.memory", offset_of!(V1, memory), 96),
        ("TensorV2.isDynamicDimensions", offset_of!(V2, isDynamicDimensions), 112),
        ("TensorV2.sparseParams", offset_of!(V2, sparseParams), 120),
        ("TensorV2.isProduced", offset_of!(V2, isProduced), 132),
        ("BinaryInfo.u", offset_of!(sys::QnnSystemContext_BinaryInfo_t, u), 8),
        ("BinaryInfoV1.graphs", offset_of!(Info1, graphs), 120),
        ("BinaryInfoV3.buildId", offset_of!(Info3, buildId), 8),
        ("BinaryInfoV3.coreApiVersion", offset_of!(Info3, coreApiVersion), 16),
        ("BinaryInfoV3.backendApiVersion", offset_of!(Info3, backendApiVersion), 28),
        ("BinaryInfoV3.socVersion", offset_of!(Info3, socVersion), 40),
        ("BinaryInfoV3.contextBlobVersion", offset_of!(Info3, contextBlobVersion), 48),
        ("BinaryInfoV3.contextBlobSize", offset_of!(Info3, contextBlobSize), 64),
        ("BinaryInfoV3.numContextTensors", offset_of!(Info3, numContextTensors), 72),
        ("BinaryInfoV3.numGraphs", offset_of!(Info3, numGraphs), 88),
        ("BinaryInfoV3.graphs", offset_of!(Info3, graphs), 96),
        ("BinaryInfoV3.socModel", offset_of!(Info3, socModel), 128),
        ("GraphInfo.u", offset_of!(sys::QnnSystemContext_GraphInfo_t, u), 8),
        ("GraphInfoV1.numGraphInputs", offset_of!(Graph1, numGraphInputs), 8),
        ("GraphInfoV1.graphOutputs", offset_of!(Graph1, graphOutputs), 32),
        ("HtpContext_CustomConfig.payload", offset_of!(sys::QnnHtpContext_CustomConfig_t, payload), 8),
        ("HtpGraph_CustomConfig.u", offset_of!(sys::QnnHtpGraph_CustomConfig_t, u), 8),
    ];
    for (name, offset, measured) in table {
        assert_eq!(offset, measured, "offset of {name}");
    }
}

#[test]
fn functions_stand_at_their_place_in_the_table() {
    type Table = sys::QnnInterface_Functions_t;
    type System = sys::QnnSystemInterface_Functions_t;
    let table = [
        (1, offset_of!(Table, backendCreate)),
        (3, offset_of!(Table, backendGetApiVersion)),
        (4, offset_of!(Table, backendGetBuildId)),
        (7, offset_of!(Table, backendValidateOpConfig)),
        (8, offset_of!(Table, backendFree)),
        (9, offset_of!(Table, contextCreate)),
        (11, offset_of!(Table, contextGetBinarySize)),
        (12, offset_of!(Table, contextGetBinary)),
        (13, offset_of!(Table, contextCreateFromBinary)),
        (14, offset_of!(Table, contextFree)),
        (15, offset_of!(Table, graphCreate)),
        (18, offset_of!(Table, graphAddNode)),
        (19, offset_of!(Table, graphFinalize)),
        (20, offset_of!(Table, graphRetrieve)),
        (21, offset_of!(Table, graphExecute)),
        (24, offset_of!(Table, tensorCreateGraphTensor)),
        (25, offset_of!(Table, logCreate)),
        (27, offset_of!(Table, logFree)),
        (35, offset_of!(Table, memRegister)),
        (40, offset_of!(Table, deviceCreate)),
        (43, offset_of!(Table, deviceFree)),
        (48, offset_of!(Table, errorGetMessage)),
        (0, offset_of!(System, systemContextCreate)),
        (1, offset_of!(System, systemContextGetBinaryInfo)),
        (2, offset_of!(System, systemContextGetMetaData)),
        (3, offset_of!(System, systemContextFree)),
    ];
    for (index, offset) in table {
        assert_eq!(offset, index * size_of::<usize>());
    }
}
