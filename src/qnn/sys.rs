//! Bindings of QNN's C interface, generated from `qnn_api.h`. `LLR_REGENERATE=1 cargo test --test qnn_bindings`.
#![allow(missing_docs, non_camel_case_types, non_snake_case, clippy::undocumented_unsafe_blocks)]

pub const QNN_BACKEND_ID_HTP: u32 = 6;
pub const QNN_DATATYPE_INT_8: u32 = 8;
pub const QNN_DATATYPE_INT_16: u32 = 22;
pub const QNN_DATATYPE_INT_32: u32 = 50;
pub const QNN_DATATYPE_INT_64: u32 = 100;
pub const QNN_DATATYPE_UINT_8: u32 = 264;
pub const QNN_DATATYPE_UINT_16: u32 = 278;
pub const QNN_DATATYPE_UINT_32: u32 = 306;
pub const QNN_DATATYPE_UINT_64: u32 = 356;
pub const QNN_DATATYPE_FLOAT_16: u32 = 534;
pub const QNN_DATATYPE_FLOAT_32: u32 = 562;
pub const QNN_DATATYPE_FLOAT_64: u32 = 612;
pub const QNN_DATATYPE_SFIXED_POINT_4: u32 = 772;
pub const QNN_DATATYPE_SFIXED_POINT_8: u32 = 776;
pub const QNN_DATATYPE_SFIXED_POINT_16: u32 = 790;
pub const QNN_DATATYPE_SFIXED_POINT_32: u32 = 818;
pub const QNN_DATATYPE_UFIXED_POINT_4: u32 = 1028;
pub const QNN_DATATYPE_UFIXED_POINT_8: u32 = 1032;
pub const QNN_DATATYPE_UFIXED_POINT_16: u32 = 1046;
pub const QNN_DATATYPE_UFIXED_POINT_32: u32 = 1074;
pub const QNN_DATATYPE_BOOL_8: u32 = 1288;
pub const QNN_TENSOR_TYPE_APP_WRITE: u32 = 0;
pub const QNN_TENSOR_TYPE_APP_READ: u32 = 1;
pub const QNN_TENSOR_TYPE_APP_READWRITE: u32 = 2;
pub const QNN_TENSOR_TYPE_NATIVE: u32 = 3;
pub const QNN_TENSOR_TYPE_STATIC: u32 = 4;
pub const QNN_TENSOR_TYPE_NULL: u32 = 5;
pub const QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER: u32 = 0;
pub const QNN_TENSORMEMTYPE_RAW: u32 = 0;
pub const QNN_TENSORMEMTYPE_MEMHANDLE: u32 = 1;
pub const QNN_TENSOR_VERSION_1: u32 = 1;
pub const QNN_TENSOR_VERSION_2: u32 = 2;
pub const QNN_DEFINITION_DEFINED: u32 = 1;
pub const QNN_DEFINITION_UNDEFINED: u32 = 2147483647;
pub const QNN_QUANTIZATION_ENCODING_SCALE_OFFSET: u32 = 0;
pub const QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET: u32 = 1;
pub const QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET: u32 = 2;
pub const QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET: u32 = 3;
pub const QNN_QUANTIZATION_ENCODING_BLOCK: u32 = 4;
pub const QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION: u32 = 5;
pub const QNN_QUANTIZATION_ENCODING_UNDEFINED: u32 = 2147483647;
pub const QNN_DEVICE_CONFIG_OPTION_CUSTOM: u32 = 0;
pub const QNN_HTP_DEVICE_CONFIG_OPTION_SOC: u32 = 0;
pub const QNN_CONTEXT_CONFIG_OPTION_CUSTOM: u32 = 0;
pub const QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING: u32 = 1;
pub const QNN_GRAPH_CONFIG_OPTION_CUSTOM: u32 = 0;
pub const QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION: u32 = 1;
pub const QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE: u32 = 3;
pub const QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG: u32 = 3;
pub const QNN_PARAMTYPE_SCALAR: u32 = 0;
pub const QNN_PARAMTYPE_TENSOR: u32 = 1;
pub const QNN_OPCONFIG_VERSION_1: u32 = 1;
pub const QNN_LOG_LEVEL_ERROR: u32 = 1;
pub const QNN_LOG_LEVEL_WARN: u32 = 2;
pub const QNN_LOG_LEVEL_INFO: u32 = 3;
pub const QNN_LOG_LEVEL_VERBOSE: u32 = 4;
pub const QNN_LOG_LEVEL_DEBUG: u32 = 5;
pub const QNN_MEM_TYPE_ION: u32 = 1;
pub const QNN_MEM_TYPE_CUSTOM: u32 = 2;
pub const QNN_HTP_MEM_QURT: u32 = 0;
pub const QNN_HTP_MEM_SHARED_BUFFER: u32 = 1;
pub const QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_1: u32 = 1;
pub const QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_2: u32 = 2;
pub const QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3: u32 = 3;
pub const QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1: u32 = 1;
pub const QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_2: u32 = 2;
pub const QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3: u32 = 3;
pub type Qnn_ErrorHandle_t = u64;
pub type Qnn_LogHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_BackendHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_DeviceHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_ContextHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_GraphHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_ProfileHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_SignalHandle_t = *mut ::std::os::raw::c_void;
pub type Qnn_MemHandle_t = *mut ::std::os::raw::c_void;
pub type QnnSystemContext_Handle_t = *mut ::std::os::raw::c_void;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct Qnn_Version_t {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_Version_t"][::std::mem::size_of::<Qnn_Version_t>() - 12usize];
    ["Alignment of Qnn_Version_t"][::std::mem::align_of::<Qnn_Version_t>() - 4usize];
    [
        "Offset of field: Qnn_Version_t::major",
    ][::std::mem::offset_of!(Qnn_Version_t, major) - 0usize];
    [
        "Offset of field: Qnn_Version_t::minor",
    ][::std::mem::offset_of!(Qnn_Version_t, minor) - 4usize];
    [
        "Offset of field: Qnn_Version_t::patch",
    ][::std::mem::offset_of!(Qnn_Version_t, patch) - 8usize];
};
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct Qnn_ApiVersion_t {
    pub coreApiVersion: Qnn_Version_t,
    pub backendApiVersion: Qnn_Version_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_ApiVersion_t"][::std::mem::size_of::<Qnn_ApiVersion_t>() - 24usize];
    [
        "Alignment of Qnn_ApiVersion_t",
    ][::std::mem::align_of::<Qnn_ApiVersion_t>() - 4usize];
    [
        "Offset of field: Qnn_ApiVersion_t::coreApiVersion",
    ][::std::mem::offset_of!(Qnn_ApiVersion_t, coreApiVersion) - 0usize];
    [
        "Offset of field: Qnn_ApiVersion_t::backendApiVersion",
    ][::std::mem::offset_of!(Qnn_ApiVersion_t, backendApiVersion) - 12usize];
};
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct Qnn_ScaleOffset_t {
    pub scale: f32,
    pub offset: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_ScaleOffset_t"][::std::mem::size_of::<Qnn_ScaleOffset_t>() - 8usize];
    [
        "Alignment of Qnn_ScaleOffset_t",
    ][::std::mem::align_of::<Qnn_ScaleOffset_t>() - 4usize];
    [
        "Offset of field: Qnn_ScaleOffset_t::scale",
    ][::std::mem::offset_of!(Qnn_ScaleOffset_t, scale) - 0usize];
    [
        "Offset of field: Qnn_ScaleOffset_t::offset",
    ][::std::mem::offset_of!(Qnn_ScaleOffset_t, offset) - 4usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_AxisScaleOffset_t {
    pub axis: i32,
    pub numScaleOffsets: u32,
    pub scaleOffset: *mut Qnn_ScaleOffset_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_AxisScaleOffset_t",
    ][::std::mem::size_of::<Qnn_AxisScaleOffset_t>() - 16usize];
    [
        "Alignment of Qnn_AxisScaleOffset_t",
    ][::std::mem::align_of::<Qnn_AxisScaleOffset_t>() - 8usize];
    [
        "Offset of field: Qnn_AxisScaleOffset_t::axis",
    ][::std::mem::offset_of!(Qnn_AxisScaleOffset_t, axis) - 0usize];
    [
        "Offset of field: Qnn_AxisScaleOffset_t::numScaleOffsets",
    ][::std::mem::offset_of!(Qnn_AxisScaleOffset_t, numScaleOffsets) - 4usize];
    [
        "Offset of field: Qnn_AxisScaleOffset_t::scaleOffset",
    ][::std::mem::offset_of!(Qnn_AxisScaleOffset_t, scaleOffset) - 8usize];
};
impl Default for Qnn_AxisScaleOffset_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct Qnn_BwScaleOffset_t {
    pub bitwidth: u32,
    pub scale: f32,
    pub offset: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_BwScaleOffset_t",
    ][::std::mem::size_of::<Qnn_BwScaleOffset_t>() - 12usize];
    [
        "Alignment of Qnn_BwScaleOffset_t",
    ][::std::mem::align_of::<Qnn_BwScaleOffset_t>() - 4usize];
    [
        "Offset of field: Qnn_BwScaleOffset_t::bitwidth",
    ][::std::mem::offset_of!(Qnn_BwScaleOffset_t, bitwidth) - 0usize];
    [
        "Offset of field: Qnn_BwScaleOffset_t::scale",
    ][::std::mem::offset_of!(Qnn_BwScaleOffset_t, scale) - 4usize];
    [
        "Offset of field: Qnn_BwScaleOffset_t::offset",
    ][::std::mem::offset_of!(Qnn_BwScaleOffset_t, offset) - 8usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_BwAxisScaleOffset_t {
    pub bitwidth: u32,
    pub axis: i32,
    pub numElements: u32,
    pub scales: *mut f32,
    pub offsets: *mut i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_BwAxisScaleOffset_t",
    ][::std::mem::size_of::<Qnn_BwAxisScaleOffset_t>() - 32usize];
    [
        "Alignment of Qnn_BwAxisScaleOffset_t",
    ][::std::mem::align_of::<Qnn_BwAxisScaleOffset_t>() - 8usize];
    [
        "Offset of field: Qnn_BwAxisScaleOffset_t::bitwidth",
    ][::std::mem::offset_of!(Qnn_BwAxisScaleOffset_t, bitwidth) - 0usize];
    [
        "Offset of field: Qnn_BwAxisScaleOffset_t::axis",
    ][::std::mem::offset_of!(Qnn_BwAxisScaleOffset_t, axis) - 4usize];
    [
        "Offset of field: Qnn_BwAxisScaleOffset_t::numElements",
    ][::std::mem::offset_of!(Qnn_BwAxisScaleOffset_t, numElements) - 8usize];
    [
        "Offset of field: Qnn_BwAxisScaleOffset_t::scales",
    ][::std::mem::offset_of!(Qnn_BwAxisScaleOffset_t, scales) - 16usize];
    [
        "Offset of field: Qnn_BwAxisScaleOffset_t::offsets",
    ][::std::mem::offset_of!(Qnn_BwAxisScaleOffset_t, offsets) - 24usize];
};
impl Default for Qnn_BwAxisScaleOffset_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_BlockEncoding_t {
    pub blockSize: *mut u32,
    pub scaleOffset: *mut Qnn_ScaleOffset_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_BlockEncoding_t",
    ][::std::mem::size_of::<Qnn_BlockEncoding_t>() - 16usize];
    [
        "Alignment of Qnn_BlockEncoding_t",
    ][::std::mem::align_of::<Qnn_BlockEncoding_t>() - 8usize];
    [
        "Offset of field: Qnn_BlockEncoding_t::blockSize",
    ][::std::mem::offset_of!(Qnn_BlockEncoding_t, blockSize) - 0usize];
    [
        "Offset of field: Qnn_BlockEncoding_t::scaleOffset",
    ][::std::mem::offset_of!(Qnn_BlockEncoding_t, scaleOffset) - 8usize];
};
impl Default for Qnn_BlockEncoding_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_BlockwiseExpansion_t {
    pub axis: i32,
    pub scaleOffsets: *mut Qnn_ScaleOffset_t,
    pub numBlocksPerAxis: u32,
    pub blockScaleBitwidth: u32,
    pub blockScaleStorageType: u32,
    pub blockScales: *mut ::std::os::raw::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_BlockwiseExpansion_t",
    ][::std::mem::size_of::<Qnn_BlockwiseExpansion_t>() - 40usize];
    [
        "Alignment of Qnn_BlockwiseExpansion_t",
    ][::std::mem::align_of::<Qnn_BlockwiseExpansion_t>() - 8usize];
    [
        "Offset of field: Qnn_BlockwiseExpansion_t::axis",
    ][::std::mem::offset_of!(Qnn_BlockwiseExpansion_t, axis) - 0usize];
    [
        "Offset of field: Qnn_BlockwiseExpansion_t::scaleOffsets",
    ][::std::mem::offset_of!(Qnn_BlockwiseExpansion_t, scaleOffsets) - 8usize];
    [
        "Offset of field: Qnn_BlockwiseExpansion_t::numBlocksPerAxis",
    ][::std::mem::offset_of!(Qnn_BlockwiseExpansion_t, numBlocksPerAxis) - 16usize];
    [
        "Offset of field: Qnn_BlockwiseExpansion_t::blockScaleBitwidth",
    ][::std::mem::offset_of!(Qnn_BlockwiseExpansion_t, blockScaleBitwidth) - 20usize];
    [
        "Offset of field: Qnn_BlockwiseExpansion_t::blockScaleStorageType",
    ][::std::mem::offset_of!(Qnn_BlockwiseExpansion_t, blockScaleStorageType) - 24usize];
    [
        "Offset of field: Qnn_BlockwiseExpansion_t::blockScales",
    ][::std::mem::offset_of!(Qnn_BlockwiseExpansion_t, blockScales) - 32usize];
};
impl Default for Qnn_BlockwiseExpansion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_QuantizeUnion_t {
    pub scaleOffset: Qnn_ScaleOffset_t,
    pub axisScaleOffset: Qnn_AxisScaleOffset_t,
    pub bwScaleOffset: Qnn_BwScaleOffset_t,
    pub bwAxisScaleOffset: Qnn_BwAxisScaleOffset_t,
    pub block: Qnn_BlockEncoding_t,
    pub blockwiseExpansion: *mut Qnn_BlockwiseExpansion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_QuantizeUnion_t",
    ][::std::mem::size_of::<Qnn_QuantizeUnion_t>() - 32usize];
    [
        "Alignment of Qnn_QuantizeUnion_t",
    ][::std::mem::align_of::<Qnn_QuantizeUnion_t>() - 8usize];
    [
        "Offset of field: Qnn_QuantizeUnion_t::scaleOffset",
    ][::std::mem::offset_of!(Qnn_QuantizeUnion_t, scaleOffset) - 0usize];
    [
        "Offset of field: Qnn_QuantizeUnion_t::axisScaleOffset",
    ][::std::mem::offset_of!(Qnn_QuantizeUnion_t, axisScaleOffset) - 0usize];
    [
        "Offset of field: Qnn_QuantizeUnion_t::bwScaleOffset",
    ][::std::mem::offset_of!(Qnn_QuantizeUnion_t, bwScaleOffset) - 0usize];
    [
        "Offset of field: Qnn_QuantizeUnion_t::bwAxisScaleOffset",
    ][::std::mem::offset_of!(Qnn_QuantizeUnion_t, bwAxisScaleOffset) - 0usize];
    [
        "Offset of field: Qnn_QuantizeUnion_t::block",
    ][::std::mem::offset_of!(Qnn_QuantizeUnion_t, block) - 0usize];
    [
        "Offset of field: Qnn_QuantizeUnion_t::blockwiseExpansion",
    ][::std::mem::offset_of!(Qnn_QuantizeUnion_t, blockwiseExpansion) - 0usize];
};
impl Default for Qnn_QuantizeUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_QuantizeParams_t {
    pub encodingDefinition: u32,
    pub quantizationEncoding: u32,
    pub u: Qnn_QuantizeUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_QuantizeParams_t",
    ][::std::mem::size_of::<Qnn_QuantizeParams_t>() - 40usize];
    [
        "Alignment of Qnn_QuantizeParams_t",
    ][::std::mem::align_of::<Qnn_QuantizeParams_t>() - 8usize];
    [
        "Offset of field: Qnn_QuantizeParams_t::encodingDefinition",
    ][::std::mem::offset_of!(Qnn_QuantizeParams_t, encodingDefinition) - 0usize];
    [
        "Offset of field: Qnn_QuantizeParams_t::quantizationEncoding",
    ][::std::mem::offset_of!(Qnn_QuantizeParams_t, quantizationEncoding) - 4usize];
    [
        "Offset of field: Qnn_QuantizeParams_t::u",
    ][::std::mem::offset_of!(Qnn_QuantizeParams_t, u) - 8usize];
};
impl Default for Qnn_QuantizeParams_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_ClientBuffer_t {
    pub data: *mut ::std::os::raw::c_void,
    pub dataSize: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_ClientBuffer_t",
    ][::std::mem::size_of::<Qnn_ClientBuffer_t>() - 16usize];
    [
        "Alignment of Qnn_ClientBuffer_t",
    ][::std::mem::align_of::<Qnn_ClientBuffer_t>() - 8usize];
    [
        "Offset of field: Qnn_ClientBuffer_t::data",
    ][::std::mem::offset_of!(Qnn_ClientBuffer_t, data) - 0usize];
    [
        "Offset of field: Qnn_ClientBuffer_t::dataSize",
    ][::std::mem::offset_of!(Qnn_ClientBuffer_t, dataSize) - 8usize];
};
impl Default for Qnn_ClientBuffer_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_TensorMemory_t {
    pub clientBuf: Qnn_ClientBuffer_t,
    pub memHandle: Qnn_MemHandle_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_TensorMemory_t",
    ][::std::mem::size_of::<Qnn_TensorMemory_t>() - 16usize];
    [
        "Alignment of Qnn_TensorMemory_t",
    ][::std::mem::align_of::<Qnn_TensorMemory_t>() - 8usize];
    [
        "Offset of field: Qnn_TensorMemory_t::clientBuf",
    ][::std::mem::offset_of!(Qnn_TensorMemory_t, clientBuf) - 0usize];
    [
        "Offset of field: Qnn_TensorMemory_t::memHandle",
    ][::std::mem::offset_of!(Qnn_TensorMemory_t, memHandle) - 0usize];
};
impl Default for Qnn_TensorMemory_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct Qnn_SparseParams_t {
    pub type_: u32,
    pub numSpecifiedElements: u32,
    pub numSparseDimensions: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_SparseParams_t",
    ][::std::mem::size_of::<Qnn_SparseParams_t>() - 12usize];
    [
        "Alignment of Qnn_SparseParams_t",
    ][::std::mem::align_of::<Qnn_SparseParams_t>() - 4usize];
    [
        "Offset of field: Qnn_SparseParams_t::type_",
    ][::std::mem::offset_of!(Qnn_SparseParams_t, type_) - 0usize];
    [
        "Offset of field: Qnn_SparseParams_t::numSpecifiedElements",
    ][::std::mem::offset_of!(Qnn_SparseParams_t, numSpecifiedElements) - 4usize];
    [
        "Offset of field: Qnn_SparseParams_t::numSparseDimensions",
    ][::std::mem::offset_of!(Qnn_SparseParams_t, numSparseDimensions) - 8usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_TensorV1_t {
    pub id: u32,
    pub name: *const ::std::os::raw::c_char,
    pub type_: u32,
    pub dataFormat: u32,
    pub dataType: u32,
    pub quantizeParams: Qnn_QuantizeParams_t,
    pub rank: u32,
    pub dimensions: *mut u32,
    pub memType: u32,
    pub memory: Qnn_TensorMemory_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_TensorV1_t"][::std::mem::size_of::<Qnn_TensorV1_t>() - 112usize];
    ["Alignment of Qnn_TensorV1_t"][::std::mem::align_of::<Qnn_TensorV1_t>() - 8usize];
    [
        "Offset of field: Qnn_TensorV1_t::id",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, id) - 0usize];
    [
        "Offset of field: Qnn_TensorV1_t::name",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, name) - 8usize];
    [
        "Offset of field: Qnn_TensorV1_t::type_",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, type_) - 16usize];
    [
        "Offset of field: Qnn_TensorV1_t::dataFormat",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, dataFormat) - 20usize];
    [
        "Offset of field: Qnn_TensorV1_t::dataType",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, dataType) - 24usize];
    [
        "Offset of field: Qnn_TensorV1_t::quantizeParams",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, quantizeParams) - 32usize];
    [
        "Offset of field: Qnn_TensorV1_t::rank",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, rank) - 72usize];
    [
        "Offset of field: Qnn_TensorV1_t::dimensions",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, dimensions) - 80usize];
    [
        "Offset of field: Qnn_TensorV1_t::memType",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, memType) - 88usize];
    [
        "Offset of field: Qnn_TensorV1_t::memory",
    ][::std::mem::offset_of!(Qnn_TensorV1_t, memory) - 96usize];
};
impl Default for Qnn_TensorV1_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_TensorV2_t {
    pub v1: Qnn_TensorV1_t,
    pub isDynamicDimensions: *mut u8,
    pub sparseParams: Qnn_SparseParams_t,
    pub isProduced: u8,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_TensorV2_t"][::std::mem::size_of::<Qnn_TensorV2_t>() - 136usize];
    ["Alignment of Qnn_TensorV2_t"][::std::mem::align_of::<Qnn_TensorV2_t>() - 8usize];
    [
        "Offset of field: Qnn_TensorV2_t::v1",
    ][::std::mem::offset_of!(Qnn_TensorV2_t, v1) - 0usize];
    [
        "Offset of field: Qnn_TensorV2_t::isDynamicDimensions",
    ][::std::mem::offset_of!(Qnn_TensorV2_t, isDynamicDimensions) - 112usize];
    [
        "Offset of field: Qnn_TensorV2_t::sparseParams",
    ][::std::mem::offset_of!(Qnn_TensorV2_t, sparseParams) - 120usize];
    [
        "Offset of field: Qnn_TensorV2_t::isProduced",
    ][::std::mem::offset_of!(Qnn_TensorV2_t, isProduced) - 132usize];
};
impl Default for Qnn_TensorV2_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_TensorUnion_t {
    pub v1: Qnn_TensorV1_t,
    pub v2: Qnn_TensorV2_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_TensorUnion_t"][::std::mem::size_of::<Qnn_TensorUnion_t>() - 136usize];
    [
        "Alignment of Qnn_TensorUnion_t",
    ][::std::mem::align_of::<Qnn_TensorUnion_t>() - 8usize];
    [
        "Offset of field: Qnn_TensorUnion_t::v1",
    ][::std::mem::offset_of!(Qnn_TensorUnion_t, v1) - 0usize];
    [
        "Offset of field: Qnn_TensorUnion_t::v2",
    ][::std::mem::offset_of!(Qnn_TensorUnion_t, v2) - 0usize];
};
impl Default for Qnn_TensorUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_Tensor_t {
    pub version: u32,
    pub u: Qnn_TensorUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_Tensor_t"][::std::mem::size_of::<Qnn_Tensor_t>() - 144usize];
    ["Alignment of Qnn_Tensor_t"][::std::mem::align_of::<Qnn_Tensor_t>() - 8usize];
    [
        "Offset of field: Qnn_Tensor_t::version",
    ][::std::mem::offset_of!(Qnn_Tensor_t, version) - 0usize];
    [
        "Offset of field: Qnn_Tensor_t::u",
    ][::std::mem::offset_of!(Qnn_Tensor_t, u) - 8usize];
};
impl Default for Qnn_Tensor_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_ConfigUnion_t {
    pub customConfig: *const ::std::os::raw::c_void,
    pub number: u64,
    pub enumerator: u32,
    pub text: *const ::std::os::raw::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_ConfigUnion_t"][::std::mem::size_of::<Qnn_ConfigUnion_t>() - 8usize];
    [
        "Alignment of Qnn_ConfigUnion_t",
    ][::std::mem::align_of::<Qnn_ConfigUnion_t>() - 8usize];
    [
        "Offset of field: Qnn_ConfigUnion_t::customConfig",
    ][::std::mem::offset_of!(Qnn_ConfigUnion_t, customConfig) - 0usize];
    [
        "Offset of field: Qnn_ConfigUnion_t::number",
    ][::std::mem::offset_of!(Qnn_ConfigUnion_t, number) - 0usize];
    [
        "Offset of field: Qnn_ConfigUnion_t::enumerator",
    ][::std::mem::offset_of!(Qnn_ConfigUnion_t, enumerator) - 0usize];
    [
        "Offset of field: Qnn_ConfigUnion_t::text",
    ][::std::mem::offset_of!(Qnn_ConfigUnion_t, text) - 0usize];
};
impl Default for Qnn_ConfigUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_Config_t {
    pub option: u32,
    pub u: Qnn_ConfigUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_Config_t"][::std::mem::size_of::<Qnn_Config_t>() - 16usize];
    ["Alignment of Qnn_Config_t"][::std::mem::align_of::<Qnn_Config_t>() - 8usize];
    [
        "Offset of field: Qnn_Config_t::option",
    ][::std::mem::offset_of!(Qnn_Config_t, option) - 0usize];
    [
        "Offset of field: Qnn_Config_t::u",
    ][::std::mem::offset_of!(Qnn_Config_t, u) - 8usize];
};
impl Default for Qnn_Config_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnHtpDevice_SocConfig_t {
    pub option: u32,
    pub socModelAt4: u32,
    pub socModelAt8: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpDevice_SocConfig_t",
    ][::std::mem::size_of::<QnnHtpDevice_SocConfig_t>() - 16usize];
    [
        "Alignment of QnnHtpDevice_SocConfig_t",
    ][::std::mem::align_of::<QnnHtpDevice_SocConfig_t>() - 4usize];
    [
        "Offset of field: QnnHtpDevice_SocConfig_t::option",
    ][::std::mem::offset_of!(QnnHtpDevice_SocConfig_t, option) - 0usize];
    [
        "Offset of field: QnnHtpDevice_SocConfig_t::socModelAt4",
    ][::std::mem::offset_of!(QnnHtpDevice_SocConfig_t, socModelAt4) - 4usize];
    [
        "Offset of field: QnnHtpDevice_SocConfig_t::socModelAt8",
    ][::std::mem::offset_of!(QnnHtpDevice_SocConfig_t, socModelAt8) - 8usize];
    [
        "Offset of field: QnnHtpDevice_SocConfig_t::reserved",
    ][::std::mem::offset_of!(QnnHtpDevice_SocConfig_t, reserved) - 12usize];
};
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnHtpContext_CustomConfig_t {
    pub option: u32,
    pub payload: [u64; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpContext_CustomConfig_t",
    ][::std::mem::size_of::<QnnHtpContext_CustomConfig_t>() - 24usize];
    [
        "Alignment of QnnHtpContext_CustomConfig_t",
    ][::std::mem::align_of::<QnnHtpContext_CustomConfig_t>() - 8usize];
    [
        "Offset of field: QnnHtpContext_CustomConfig_t::option",
    ][::std::mem::offset_of!(QnnHtpContext_CustomConfig_t, option) - 0usize];
    [
        "Offset of field: QnnHtpContext_CustomConfig_t::payload",
    ][::std::mem::offset_of!(QnnHtpContext_CustomConfig_t, payload) - 8usize];
};
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnHtpGraph_OptimizationOption_t {
    pub type_: u32,
    pub value: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpGraph_OptimizationOption_t",
    ][::std::mem::size_of::<QnnHtpGraph_OptimizationOption_t>() - 8usize];
    [
        "Alignment of QnnHtpGraph_OptimizationOption_t",
    ][::std::mem::align_of::<QnnHtpGraph_OptimizationOption_t>() - 4usize];
    [
        "Offset of field: QnnHtpGraph_OptimizationOption_t::type_",
    ][::std::mem::offset_of!(QnnHtpGraph_OptimizationOption_t, type_) - 0usize];
    [
        "Offset of field: QnnHtpGraph_OptimizationOption_t::value",
    ][::std::mem::offset_of!(QnnHtpGraph_OptimizationOption_t, value) - 4usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union QnnHtpGraph_CustomUnion_t {
    pub optimization: QnnHtpGraph_OptimizationOption_t,
    pub vtcmSizeInMb: u32,
    pub reserved: [u64; 6usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpGraph_CustomUnion_t",
    ][::std::mem::size_of::<QnnHtpGraph_CustomUnion_t>() - 48usize];
    [
        "Alignment of QnnHtpGraph_CustomUnion_t",
    ][::std::mem::align_of::<QnnHtpGraph_CustomUnion_t>() - 8usize];
    [
        "Offset of field: QnnHtpGraph_CustomUnion_t::optimization",
    ][::std::mem::offset_of!(QnnHtpGraph_CustomUnion_t, optimization) - 0usize];
    [
        "Offset of field: QnnHtpGraph_CustomUnion_t::vtcmSizeInMb",
    ][::std::mem::offset_of!(QnnHtpGraph_CustomUnion_t, vtcmSizeInMb) - 0usize];
    [
        "Offset of field: QnnHtpGraph_CustomUnion_t::reserved",
    ][::std::mem::offset_of!(QnnHtpGraph_CustomUnion_t, reserved) - 0usize];
};
impl Default for QnnHtpGraph_CustomUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnHtpGraph_CustomConfig_t {
    pub option: u32,
    pub u: QnnHtpGraph_CustomUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpGraph_CustomConfig_t",
    ][::std::mem::size_of::<QnnHtpGraph_CustomConfig_t>() - 56usize];
    [
        "Alignment of QnnHtpGraph_CustomConfig_t",
    ][::std::mem::align_of::<QnnHtpGraph_CustomConfig_t>() - 8usize];
    [
        "Offset of field: QnnHtpGraph_CustomConfig_t::option",
    ][::std::mem::offset_of!(QnnHtpGraph_CustomConfig_t, option) - 0usize];
    [
        "Offset of field: QnnHtpGraph_CustomConfig_t::u",
    ][::std::mem::offset_of!(QnnHtpGraph_CustomConfig_t, u) - 8usize];
};
impl Default for QnnHtpGraph_CustomConfig_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_ScalarUnion_t {
    pub floatValue: f32,
    pub doubleValue: f64,
    pub uint64Value: u64,
    pub uint32Value: u32,
    pub int32Value: i32,
    pub bool8Value: u8,
    pub stringValue: *const ::std::os::raw::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_ScalarUnion_t"][::std::mem::size_of::<Qnn_ScalarUnion_t>() - 8usize];
    [
        "Alignment of Qnn_ScalarUnion_t",
    ][::std::mem::align_of::<Qnn_ScalarUnion_t>() - 8usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::floatValue",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, floatValue) - 0usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::doubleValue",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, doubleValue) - 0usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::uint64Value",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, uint64Value) - 0usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::uint32Value",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, uint32Value) - 0usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::int32Value",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, int32Value) - 0usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::bool8Value",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, bool8Value) - 0usize];
    [
        "Offset of field: Qnn_ScalarUnion_t::stringValue",
    ][::std::mem::offset_of!(Qnn_ScalarUnion_t, stringValue) - 0usize];
};
impl Default for Qnn_ScalarUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_Scalar_t {
    pub dataType: u32,
    pub u: Qnn_ScalarUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_Scalar_t"][::std::mem::size_of::<Qnn_Scalar_t>() - 16usize];
    ["Alignment of Qnn_Scalar_t"][::std::mem::align_of::<Qnn_Scalar_t>() - 8usize];
    [
        "Offset of field: Qnn_Scalar_t::dataType",
    ][::std::mem::offset_of!(Qnn_Scalar_t, dataType) - 0usize];
    [
        "Offset of field: Qnn_Scalar_t::u",
    ][::std::mem::offset_of!(Qnn_Scalar_t, u) - 8usize];
};
impl Default for Qnn_Scalar_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_ParamUnion_t {
    pub scalar: Qnn_Scalar_t,
    pub tensor: Qnn_Tensor_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_ParamUnion_t"][::std::mem::size_of::<Qnn_ParamUnion_t>() - 144usize];
    [
        "Alignment of Qnn_ParamUnion_t",
    ][::std::mem::align_of::<Qnn_ParamUnion_t>() - 8usize];
    [
        "Offset of field: Qnn_ParamUnion_t::scalar",
    ][::std::mem::offset_of!(Qnn_ParamUnion_t, scalar) - 0usize];
    [
        "Offset of field: Qnn_ParamUnion_t::tensor",
    ][::std::mem::offset_of!(Qnn_ParamUnion_t, tensor) - 0usize];
};
impl Default for Qnn_ParamUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_Param_t {
    pub paramType: u32,
    pub name: *const ::std::os::raw::c_char,
    pub u: Qnn_ParamUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_Param_t"][::std::mem::size_of::<Qnn_Param_t>() - 160usize];
    ["Alignment of Qnn_Param_t"][::std::mem::align_of::<Qnn_Param_t>() - 8usize];
    [
        "Offset of field: Qnn_Param_t::paramType",
    ][::std::mem::offset_of!(Qnn_Param_t, paramType) - 0usize];
    [
        "Offset of field: Qnn_Param_t::name",
    ][::std::mem::offset_of!(Qnn_Param_t, name) - 8usize];
    [
        "Offset of field: Qnn_Param_t::u",
    ][::std::mem::offset_of!(Qnn_Param_t, u) - 16usize];
};
impl Default for Qnn_Param_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_OpConfig_t {
    pub version: u32,
    pub name: *const ::std::os::raw::c_char,
    pub packageName: *const ::std::os::raw::c_char,
    pub typeName: *const ::std::os::raw::c_char,
    pub numOfParams: u32,
    pub params: *mut Qnn_Param_t,
    pub numOfInputs: u32,
    pub inputTensors: *mut Qnn_Tensor_t,
    pub numOfOutputs: u32,
    pub outputTensors: *mut Qnn_Tensor_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_OpConfig_t"][::std::mem::size_of::<Qnn_OpConfig_t>() - 80usize];
    ["Alignment of Qnn_OpConfig_t"][::std::mem::align_of::<Qnn_OpConfig_t>() - 8usize];
    [
        "Offset of field: Qnn_OpConfig_t::version",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, version) - 0usize];
    [
        "Offset of field: Qnn_OpConfig_t::name",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, name) - 8usize];
    [
        "Offset of field: Qnn_OpConfig_t::packageName",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, packageName) - 16usize];
    [
        "Offset of field: Qnn_OpConfig_t::typeName",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, typeName) - 24usize];
    [
        "Offset of field: Qnn_OpConfig_t::numOfParams",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, numOfParams) - 32usize];
    [
        "Offset of field: Qnn_OpConfig_t::params",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, params) - 40usize];
    [
        "Offset of field: Qnn_OpConfig_t::numOfInputs",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, numOfInputs) - 48usize];
    [
        "Offset of field: Qnn_OpConfig_t::inputTensors",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, inputTensors) - 56usize];
    [
        "Offset of field: Qnn_OpConfig_t::numOfOutputs",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, numOfOutputs) - 64usize];
    [
        "Offset of field: Qnn_OpConfig_t::outputTensors",
    ][::std::mem::offset_of!(Qnn_OpConfig_t, outputTensors) - 72usize];
};
impl Default for Qnn_OpConfig_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type QnnLog_Callback_t = ::std::option::Option<
    unsafe extern "C" fn(
        format: *const ::std::os::raw::c_char,
        level: u32,
        timestamp: u64,
        args: *mut ::std::os::raw::c_void,
    ),
>;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_MemShape_t {
    pub numDim: u32,
    pub dimSize: *mut u32,
    pub shapeConfig: *const ::std::os::raw::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_MemShape_t"][::std::mem::size_of::<Qnn_MemShape_t>() - 24usize];
    ["Alignment of Qnn_MemShape_t"][::std::mem::align_of::<Qnn_MemShape_t>() - 8usize];
    [
        "Offset of field: Qnn_MemShape_t::numDim",
    ][::std::mem::offset_of!(Qnn_MemShape_t, numDim) - 0usize];
    [
        "Offset of field: Qnn_MemShape_t::dimSize",
    ][::std::mem::offset_of!(Qnn_MemShape_t, dimSize) - 8usize];
    [
        "Offset of field: Qnn_MemShape_t::shapeConfig",
    ][::std::mem::offset_of!(Qnn_MemShape_t, shapeConfig) - 16usize];
};
impl Default for Qnn_MemShape_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct Qnn_MemIonInfo_t {
    pub fd: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_MemIonInfo_t"][::std::mem::size_of::<Qnn_MemIonInfo_t>() - 4usize];
    [
        "Alignment of Qnn_MemIonInfo_t",
    ][::std::mem::align_of::<Qnn_MemIonInfo_t>() - 4usize];
    [
        "Offset of field: Qnn_MemIonInfo_t::fd",
    ][::std::mem::offset_of!(Qnn_MemIonInfo_t, fd) - 0usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_MemDmaBufInfo_t {
    pub fd: i32,
    pub data: *mut ::std::os::raw::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_MemDmaBufInfo_t",
    ][::std::mem::size_of::<Qnn_MemDmaBufInfo_t>() - 16usize];
    [
        "Alignment of Qnn_MemDmaBufInfo_t",
    ][::std::mem::align_of::<Qnn_MemDmaBufInfo_t>() - 8usize];
    [
        "Offset of field: Qnn_MemDmaBufInfo_t::fd",
    ][::std::mem::offset_of!(Qnn_MemDmaBufInfo_t, fd) - 0usize];
    [
        "Offset of field: Qnn_MemDmaBufInfo_t::data",
    ][::std::mem::offset_of!(Qnn_MemDmaBufInfo_t, data) - 8usize];
};
impl Default for Qnn_MemDmaBufInfo_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union Qnn_MemInfo_t {
    pub ionInfo: Qnn_MemIonInfo_t,
    pub customInfo: *mut ::std::os::raw::c_void,
    pub dmaBufInfo: Qnn_MemDmaBufInfo_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of Qnn_MemInfo_t"][::std::mem::size_of::<Qnn_MemInfo_t>() - 16usize];
    ["Alignment of Qnn_MemInfo_t"][::std::mem::align_of::<Qnn_MemInfo_t>() - 8usize];
    [
        "Offset of field: Qnn_MemInfo_t::ionInfo",
    ][::std::mem::offset_of!(Qnn_MemInfo_t, ionInfo) - 0usize];
    [
        "Offset of field: Qnn_MemInfo_t::customInfo",
    ][::std::mem::offset_of!(Qnn_MemInfo_t, customInfo) - 0usize];
    [
        "Offset of field: Qnn_MemInfo_t::dmaBufInfo",
    ][::std::mem::offset_of!(Qnn_MemInfo_t, dmaBufInfo) - 0usize];
};
impl Default for Qnn_MemInfo_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct Qnn_MemDescriptor_t {
    pub memShape: Qnn_MemShape_t,
    pub dataType: u32,
    pub memType: u32,
    pub u: Qnn_MemInfo_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of Qnn_MemDescriptor_t",
    ][::std::mem::size_of::<Qnn_MemDescriptor_t>() - 48usize];
    [
        "Alignment of Qnn_MemDescriptor_t",
    ][::std::mem::align_of::<Qnn_MemDescriptor_t>() - 8usize];
    [
        "Offset of field: Qnn_MemDescriptor_t::memShape",
    ][::std::mem::offset_of!(Qnn_MemDescriptor_t, memShape) - 0usize];
    [
        "Offset of field: Qnn_MemDescriptor_t::dataType",
    ][::std::mem::offset_of!(Qnn_MemDescriptor_t, dataType) - 24usize];
    [
        "Offset of field: Qnn_MemDescriptor_t::memType",
    ][::std::mem::offset_of!(Qnn_MemDescriptor_t, memType) - 28usize];
    [
        "Offset of field: Qnn_MemDescriptor_t::u",
    ][::std::mem::offset_of!(Qnn_MemDescriptor_t, u) - 32usize];
};
impl Default for Qnn_MemDescriptor_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnHtpMem_SharedBufferConfig_t {
    pub fd: i32,
    pub offset: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpMem_SharedBufferConfig_t",
    ][::std::mem::size_of::<QnnHtpMem_SharedBufferConfig_t>() - 16usize];
    [
        "Alignment of QnnHtpMem_SharedBufferConfig_t",
    ][::std::mem::align_of::<QnnHtpMem_SharedBufferConfig_t>() - 8usize];
    [
        "Offset of field: QnnHtpMem_SharedBufferConfig_t::fd",
    ][::std::mem::offset_of!(QnnHtpMem_SharedBufferConfig_t, fd) - 0usize];
    [
        "Offset of field: QnnHtpMem_SharedBufferConfig_t::offset",
    ][::std::mem::offset_of!(QnnHtpMem_SharedBufferConfig_t, offset) - 8usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub union QnnMemHtp_Place_t {
    pub qurtAddress: u32,
    pub sharedBufferConfig: QnnHtpMem_SharedBufferConfig_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QnnMemHtp_Place_t"][::std::mem::size_of::<QnnMemHtp_Place_t>() - 16usize];
    [
        "Alignment of QnnMemHtp_Place_t",
    ][::std::mem::align_of::<QnnMemHtp_Place_t>() - 8usize];
    [
        "Offset of field: QnnMemHtp_Place_t::qurtAddress",
    ][::std::mem::offset_of!(QnnMemHtp_Place_t, qurtAddress) - 0usize];
    [
        "Offset of field: QnnMemHtp_Place_t::sharedBufferConfig",
    ][::std::mem::offset_of!(QnnMemHtp_Place_t, sharedBufferConfig) - 0usize];
};
impl Default for QnnMemHtp_Place_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnMemHtp_Descriptor_t {
    pub type_: u32,
    pub size: u64,
    pub u: QnnMemHtp_Place_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnMemHtp_Descriptor_t",
    ][::std::mem::size_of::<QnnMemHtp_Descriptor_t>() - 32usize];
    [
        "Alignment of QnnMemHtp_Descriptor_t",
    ][::std::mem::align_of::<QnnMemHtp_Descriptor_t>() - 8usize];
    [
        "Offset of field: QnnMemHtp_Descriptor_t::type_",
    ][::std::mem::offset_of!(QnnMemHtp_Descriptor_t, type_) - 0usize];
    [
        "Offset of field: QnnMemHtp_Descriptor_t::size",
    ][::std::mem::offset_of!(QnnMemHtp_Descriptor_t, size) - 8usize];
    [
        "Offset of field: QnnMemHtp_Descriptor_t::u",
    ][::std::mem::offset_of!(QnnMemHtp_Descriptor_t, u) - 16usize];
};
impl Default for QnnMemHtp_Descriptor_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type Qnn_Unused_t = ::std::option::Option<unsafe extern "C" fn()>;
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnInterface_Functions_t {
    pub propertyHasCapability: Qnn_Unused_t,
    pub backendCreate: ::std::option::Option<
        unsafe extern "C" fn(
            log: Qnn_LogHandle_t,
            config: *mut *const Qnn_Config_t,
            backend: *mut Qnn_BackendHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub backendSetConfig: Qnn_Unused_t,
    pub backendGetApiVersion: ::std::option::Option<
        unsafe extern "C" fn(version: *mut Qnn_ApiVersion_t) -> Qnn_ErrorHandle_t,
    >,
    pub backendGetBuildId: ::std::option::Option<
        unsafe extern "C" fn(id: *mut *const ::std::os::raw::c_char) -> Qnn_ErrorHandle_t,
    >,
    pub backendRegisterOpPackage: Qnn_Unused_t,
    pub backendGetSupportedOperations: Qnn_Unused_t,
    pub backendValidateOpConfig: ::std::option::Option<
        unsafe extern "C" fn(
            backend: Qnn_BackendHandle_t,
            op: Qnn_OpConfig_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub backendFree: ::std::option::Option<
        unsafe extern "C" fn(backend: Qnn_BackendHandle_t) -> Qnn_ErrorHandle_t,
    >,
    pub contextCreate: ::std::option::Option<
        unsafe extern "C" fn(
            backend: Qnn_BackendHandle_t,
            device: Qnn_DeviceHandle_t,
            config: *mut *const Qnn_Config_t,
            context: *mut Qnn_ContextHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub contextSetConfig: Qnn_Unused_t,
    pub contextGetBinarySize: ::std::option::Option<
        unsafe extern "C" fn(
            context: Qnn_ContextHandle_t,
            size: *mut u64,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub contextGetBinary: ::std::option::Option<
        unsafe extern "C" fn(
            context: Qnn_ContextHandle_t,
            binary: *mut ::std::os::raw::c_void,
            size: u64,
            written: *mut u64,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub contextCreateFromBinary: ::std::option::Option<
        unsafe extern "C" fn(
            backend: Qnn_BackendHandle_t,
            device: Qnn_DeviceHandle_t,
            config: *mut *const Qnn_Config_t,
            binary: *const ::std::os::raw::c_void,
            size: u64,
            context: *mut Qnn_ContextHandle_t,
            profile: Qnn_ProfileHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub contextFree: ::std::option::Option<
        unsafe extern "C" fn(
            context: Qnn_ContextHandle_t,
            profile: Qnn_ProfileHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub graphCreate: ::std::option::Option<
        unsafe extern "C" fn(
            context: Qnn_ContextHandle_t,
            name: *const ::std::os::raw::c_char,
            config: *mut *const Qnn_Config_t,
            graph: *mut Qnn_GraphHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub graphCreateSubgraph: Qnn_Unused_t,
    pub graphSetConfig: Qnn_Unused_t,
    pub graphAddNode: ::std::option::Option<
        unsafe extern "C" fn(
            graph: Qnn_GraphHandle_t,
            op: Qnn_OpConfig_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub graphFinalize: ::std::option::Option<
        unsafe extern "C" fn(
            graph: Qnn_GraphHandle_t,
            profile: Qnn_ProfileHandle_t,
            signal: Qnn_SignalHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub graphRetrieve: ::std::option::Option<
        unsafe extern "C" fn(
            context: Qnn_ContextHandle_t,
            name: *const ::std::os::raw::c_char,
            graph: *mut Qnn_GraphHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub graphExecute: ::std::option::Option<
        unsafe extern "C" fn(
            graph: Qnn_GraphHandle_t,
            inputs: *const Qnn_Tensor_t,
            numInputs: u32,
            outputs: *mut Qnn_Tensor_t,
            numOutputs: u32,
            profile: Qnn_ProfileHandle_t,
            signal: Qnn_SignalHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub graphExecuteAsync: Qnn_Unused_t,
    pub tensorCreateContextTensor: Qnn_Unused_t,
    pub tensorCreateGraphTensor: ::std::option::Option<
        unsafe extern "C" fn(
            graph: Qnn_GraphHandle_t,
            tensor: *mut Qnn_Tensor_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub logCreate: ::std::option::Option<
        unsafe extern "C" fn(
            callback: QnnLog_Callback_t,
            maxLevel: u32,
            log: *mut Qnn_LogHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub logSetLogLevel: Qnn_Unused_t,
    pub logFree: ::std::option::Option<
        unsafe extern "C" fn(log: Qnn_LogHandle_t) -> Qnn_ErrorHandle_t,
    >,
    pub profile: [Qnn_Unused_t; 7usize],
    pub memRegister: ::std::option::Option<
        unsafe extern "C" fn(
            context: Qnn_ContextHandle_t,
            descriptors: *const Qnn_MemDescriptor_t,
            count: u32,
            handles: *mut Qnn_MemHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub memDeRegister: ::std::option::Option<
        unsafe extern "C" fn(
            handles: *const Qnn_MemHandle_t,
            count: u32,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub deviceGetPlatformInfo: Qnn_Unused_t,
    pub deviceFreePlatformInfo: Qnn_Unused_t,
    pub deviceGetInfrastructure: Qnn_Unused_t,
    pub deviceCreate: ::std::option::Option<
        unsafe extern "C" fn(
            log: Qnn_LogHandle_t,
            config: *mut *const Qnn_Config_t,
            device: *mut Qnn_DeviceHandle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub deviceSetConfig: Qnn_Unused_t,
    pub deviceGetInfo: Qnn_Unused_t,
    pub deviceFree: ::std::option::Option<
        unsafe extern "C" fn(device: Qnn_DeviceHandle_t) -> Qnn_ErrorHandle_t,
    >,
    pub signal: [Qnn_Unused_t; 4usize],
    pub errorGetMessage: ::std::option::Option<
        unsafe extern "C" fn(
            error: Qnn_ErrorHandle_t,
            message: *mut *const ::std::os::raw::c_char,
        ) -> Qnn_ErrorHandle_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnInterface_Functions_t",
    ][::std::mem::size_of::<QnnInterface_Functions_t>() - 392usize];
    [
        "Alignment of QnnInterface_Functions_t",
    ][::std::mem::align_of::<QnnInterface_Functions_t>() - 8usize];
    [
        "Offset of field: QnnInterface_Functions_t::propertyHasCapability",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, propertyHasCapability) - 0usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendCreate",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendCreate) - 8usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendSetConfig",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendSetConfig) - 16usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendGetApiVersion",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendGetApiVersion) - 24usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendGetBuildId",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendGetBuildId) - 32usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendRegisterOpPackage",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendRegisterOpPackage)
        - 40usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendGetSupportedOperations",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendGetSupportedOperations)
        - 48usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendValidateOpConfig",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendValidateOpConfig)
        - 56usize];
    [
        "Offset of field: QnnInterface_Functions_t::backendFree",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, backendFree) - 64usize];
    [
        "Offset of field: QnnInterface_Functions_t::contextCreate",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, contextCreate) - 72usize];
    [
        "Offset of field: QnnInterface_Functions_t::contextSetConfig",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, contextSetConfig) - 80usize];
    [
        "Offset of field: QnnInterface_Functions_t::contextGetBinarySize",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, contextGetBinarySize) - 88usize];
    [
        "Offset of field: QnnInterface_Functions_t::contextGetBinary",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, contextGetBinary) - 96usize];
    [
        "Offset of field: QnnInterface_Functions_t::contextCreateFromBinary",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, contextCreateFromBinary)
        - 104usize];
    [
        "Offset of field: QnnInterface_Functions_t::contextFree",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, contextFree) - 112usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphCreate",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphCreate) - 120usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphCreateSubgraph",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphCreateSubgraph) - 128usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphSetConfig",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphSetConfig) - 136usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphAddNode",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphAddNode) - 144usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphFinalize",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphFinalize) - 152usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphRetrieve",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphRetrieve) - 160usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphExecute",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphExecute) - 168usize];
    [
        "Offset of field: QnnInterface_Functions_t::graphExecuteAsync",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, graphExecuteAsync) - 176usize];
    [
        "Offset of field: QnnInterface_Functions_t::tensorCreateContextTensor",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, tensorCreateContextTensor)
        - 184usize];
    [
        "Offset of field: QnnInterface_Functions_t::tensorCreateGraphTensor",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, tensorCreateGraphTensor)
        - 192usize];
    [
        "Offset of field: QnnInterface_Functions_t::logCreate",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, logCreate) - 200usize];
    [
        "Offset of field: QnnInterface_Functions_t::logSetLogLevel",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, logSetLogLevel) - 208usize];
    [
        "Offset of field: QnnInterface_Functions_t::logFree",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, logFree) - 216usize];
    [
        "Offset of field: QnnInterface_Functions_t::profile",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, profile) - 224usize];
    [
        "Offset of field: QnnInterface_Functions_t::memRegister",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, memRegister) - 280usize];
    [
        "Offset of field: QnnInterface_Functions_t::memDeRegister",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, memDeRegister) - 288usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceGetPlatformInfo",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceGetPlatformInfo)
        - 296usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceFreePlatformInfo",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceFreePlatformInfo)
        - 304usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceGetInfrastructure",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceGetInfrastructure)
        - 312usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceCreate",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceCreate) - 320usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceSetConfig",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceSetConfig) - 328usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceGetInfo",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceGetInfo) - 336usize];
    [
        "Offset of field: QnnInterface_Functions_t::deviceFree",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, deviceFree) - 344usize];
    [
        "Offset of field: QnnInterface_Functions_t::signal",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, signal) - 352usize];
    [
        "Offset of field: QnnInterface_Functions_t::errorGetMessage",
    ][::std::mem::offset_of!(QnnInterface_Functions_t, errorGetMessage) - 384usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnInterface_t {
    pub backendId: u32,
    pub providerName: *const ::std::os::raw::c_char,
    pub apiVersion: Qnn_ApiVersion_t,
    pub functions: QnnInterface_Functions_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QnnInterface_t"][::std::mem::size_of::<QnnInterface_t>() - 432usize];
    ["Alignment of QnnInterface_t"][::std::mem::align_of::<QnnInterface_t>() - 8usize];
    [
        "Offset of field: QnnInterface_t::backendId",
    ][::std::mem::offset_of!(QnnInterface_t, backendId) - 0usize];
    [
        "Offset of field: QnnInterface_t::providerName",
    ][::std::mem::offset_of!(QnnInterface_t, providerName) - 8usize];
    [
        "Offset of field: QnnInterface_t::apiVersion",
    ][::std::mem::offset_of!(QnnInterface_t, apiVersion) - 16usize];
    [
        "Offset of field: QnnInterface_t::functions",
    ][::std::mem::offset_of!(QnnInterface_t, functions) - 40usize];
};
impl Default for QnnInterface_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type QnnInterface_GetProviders_t = ::std::option::Option<
    unsafe extern "C" fn(
        providers: *mut *mut *const QnnInterface_t,
        count: *mut u32,
    ) -> Qnn_ErrorHandle_t,
>;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_GraphInfoV1_t {
    pub graphName: *const ::std::os::raw::c_char,
    pub numGraphInputs: u32,
    pub graphInputs: *mut Qnn_Tensor_t,
    pub numGraphOutputs: u32,
    pub graphOutputs: *mut Qnn_Tensor_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_GraphInfoV1_t",
    ][::std::mem::size_of::<QnnSystemContext_GraphInfoV1_t>() - 40usize];
    [
        "Alignment of QnnSystemContext_GraphInfoV1_t",
    ][::std::mem::align_of::<QnnSystemContext_GraphInfoV1_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV1_t::graphName",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV1_t, graphName) - 0usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV1_t::numGraphInputs",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV1_t, numGraphInputs) - 8usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV1_t::graphInputs",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV1_t, graphInputs) - 16usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV1_t::numGraphOutputs",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV1_t, numGraphOutputs) - 24usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV1_t::graphOutputs",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV1_t, graphOutputs) - 32usize];
};
impl Default for QnnSystemContext_GraphInfoV1_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_GraphInfoV2_t {
    pub v1: QnnSystemContext_GraphInfoV1_t,
    pub numUpdateableTensors: u32,
    pub updateableTensors: *mut Qnn_Tensor_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_GraphInfoV2_t",
    ][::std::mem::size_of::<QnnSystemContext_GraphInfoV2_t>() - 56usize];
    [
        "Alignment of QnnSystemContext_GraphInfoV2_t",
    ][::std::mem::align_of::<QnnSystemContext_GraphInfoV2_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV2_t::v1",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV2_t, v1) - 0usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV2_t::numUpdateableTensors",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV2_t, numUpdateableTensors)
        - 40usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV2_t::updateableTensors",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV2_t, updateableTensors)
        - 48usize];
};
impl Default for QnnSystemContext_GraphInfoV2_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnHtpSystemContext_GraphBlobInfo_t {
    pub version: u32,
    pub spillFillBufferSize: u64,
    pub vtcmSize: u32,
    pub optimizationLevel: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnHtpSystemContext_GraphBlobInfo_t",
    ][::std::mem::size_of::<QnnHtpSystemContext_GraphBlobInfo_t>() - 24usize];
    [
        "Alignment of QnnHtpSystemContext_GraphBlobInfo_t",
    ][::std::mem::align_of::<QnnHtpSystemContext_GraphBlobInfo_t>() - 8usize];
    [
        "Offset of field: QnnHtpSystemContext_GraphBlobInfo_t::version",
    ][::std::mem::offset_of!(QnnHtpSystemContext_GraphBlobInfo_t, version) - 0usize];
    [
        "Offset of field: QnnHtpSystemContext_GraphBlobInfo_t::spillFillBufferSize",
    ][::std::mem::offset_of!(QnnHtpSystemContext_GraphBlobInfo_t, spillFillBufferSize)
        - 8usize];
    [
        "Offset of field: QnnHtpSystemContext_GraphBlobInfo_t::vtcmSize",
    ][::std::mem::offset_of!(QnnHtpSystemContext_GraphBlobInfo_t, vtcmSize) - 16usize];
    [
        "Offset of field: QnnHtpSystemContext_GraphBlobInfo_t::optimizationLevel",
    ][::std::mem::offset_of!(QnnHtpSystemContext_GraphBlobInfo_t, optimizationLevel)
        - 20usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_GraphInfoV3_t {
    pub v2: QnnSystemContext_GraphInfoV2_t,
    pub graphBlobInfoSize: u32,
    pub graphBlobInfo: *mut ::std::os::raw::c_void,
    pub startOpIndex: u32,
    pub endOpIndex: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_GraphInfoV3_t",
    ][::std::mem::size_of::<QnnSystemContext_GraphInfoV3_t>() - 80usize];
    [
        "Alignment of QnnSystemContext_GraphInfoV3_t",
    ][::std::mem::align_of::<QnnSystemContext_GraphInfoV3_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV3_t::v2",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV3_t, v2) - 0usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV3_t::graphBlobInfoSize",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV3_t, graphBlobInfoSize)
        - 56usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV3_t::graphBlobInfo",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV3_t, graphBlobInfo) - 64usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV3_t::startOpIndex",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV3_t, startOpIndex) - 72usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoV3_t::endOpIndex",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoV3_t, endOpIndex) - 76usize];
};
impl Default for QnnSystemContext_GraphInfoV3_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union QnnSystemContext_GraphInfoUnion_t {
    pub v1: QnnSystemContext_GraphInfoV1_t,
    pub v2: QnnSystemContext_GraphInfoV2_t,
    pub v3: QnnSystemContext_GraphInfoV3_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_GraphInfoUnion_t",
    ][::std::mem::size_of::<QnnSystemContext_GraphInfoUnion_t>() - 80usize];
    [
        "Alignment of QnnSystemContext_GraphInfoUnion_t",
    ][::std::mem::align_of::<QnnSystemContext_GraphInfoUnion_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoUnion_t::v1",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoUnion_t, v1) - 0usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoUnion_t::v2",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoUnion_t, v2) - 0usize];
    [
        "Offset of field: QnnSystemContext_GraphInfoUnion_t::v3",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfoUnion_t, v3) - 0usize];
};
impl Default for QnnSystemContext_GraphInfoUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_GraphInfo_t {
    pub version: u32,
    pub u: QnnSystemContext_GraphInfoUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_GraphInfo_t",
    ][::std::mem::size_of::<QnnSystemContext_GraphInfo_t>() - 88usize];
    [
        "Alignment of QnnSystemContext_GraphInfo_t",
    ][::std::mem::align_of::<QnnSystemContext_GraphInfo_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_GraphInfo_t::version",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfo_t, version) - 0usize];
    [
        "Offset of field: QnnSystemContext_GraphInfo_t::u",
    ][::std::mem::offset_of!(QnnSystemContext_GraphInfo_t, u) - 8usize];
};
impl Default for QnnSystemContext_GraphInfo_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_BinaryInfoV1_t {
    pub backendId: u32,
    pub buildId: *const ::std::os::raw::c_char,
    pub coreApiVersion: Qnn_Version_t,
    pub backendApiVersion: Qnn_Version_t,
    pub socVersion: *const ::std::os::raw::c_char,
    pub hwInfoBlobVersion: Qnn_Version_t,
    pub contextBlobVersion: Qnn_Version_t,
    pub hwInfoBlobSize: u32,
    pub hwInfoBlob: *mut ::std::os::raw::c_void,
    pub contextBlobSize: u64,
    pub numContextTensors: u32,
    pub contextTensors: *mut Qnn_Tensor_t,
    pub numGraphs: u32,
    pub graphs: *mut QnnSystemContext_GraphInfo_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_BinaryInfoV1_t",
    ][::std::mem::size_of::<QnnSystemContext_BinaryInfoV1_t>() - 128usize];
    [
        "Alignment of QnnSystemContext_BinaryInfoV1_t",
    ][::std::mem::align_of::<QnnSystemContext_BinaryInfoV1_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::backendId",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, backendId) - 0usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::buildId",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, buildId) - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::coreApiVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, coreApiVersion) - 16usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::backendApiVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, backendApiVersion)
        - 28usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::socVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, socVersion) - 40usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::hwInfoBlobVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, hwInfoBlobVersion)
        - 48usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::contextBlobVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, contextBlobVersion)
        - 60usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::hwInfoBlobSize",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, hwInfoBlobSize) - 72usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::hwInfoBlob",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, hwInfoBlob) - 80usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::contextBlobSize",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, contextBlobSize)
        - 88usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::numContextTensors",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, numContextTensors)
        - 96usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::contextTensors",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, contextTensors)
        - 104usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::numGraphs",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, numGraphs) - 112usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV1_t::graphs",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV1_t, graphs) - 120usize];
};
impl Default for QnnSystemContext_BinaryInfoV1_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_BinaryInfoV2_t {
    pub v1: QnnSystemContext_BinaryInfoV1_t,
    pub platformInfo: *mut ::std::os::raw::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_BinaryInfoV2_t",
    ][::std::mem::size_of::<QnnSystemContext_BinaryInfoV2_t>() - 136usize];
    [
        "Alignment of QnnSystemContext_BinaryInfoV2_t",
    ][::std::mem::align_of::<QnnSystemContext_BinaryInfoV2_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV2_t::v1",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV2_t, v1) - 0usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV2_t::platformInfo",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV2_t, platformInfo) - 128usize];
};
impl Default for QnnSystemContext_BinaryInfoV2_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_BinaryInfoV3_t {
    pub backendId: u32,
    pub buildId: *const ::std::os::raw::c_char,
    pub coreApiVersion: Qnn_Version_t,
    pub backendApiVersion: Qnn_Version_t,
    pub socVersion: *const ::std::os::raw::c_char,
    pub contextBlobVersion: Qnn_Version_t,
    pub contextBlobSize: u64,
    pub numContextTensors: u32,
    pub contextTensors: *mut Qnn_Tensor_t,
    pub numGraphs: u32,
    pub graphs: *mut QnnSystemContext_GraphInfo_t,
    pub platformInfo: *mut ::std::os::raw::c_void,
    pub contextMetadataSize: u32,
    pub contextMetadata: *mut ::std::os::raw::c_void,
    pub socModel: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_BinaryInfoV3_t",
    ][::std::mem::size_of::<QnnSystemContext_BinaryInfoV3_t>() - 136usize];
    [
        "Alignment of QnnSystemContext_BinaryInfoV3_t",
    ][::std::mem::align_of::<QnnSystemContext_BinaryInfoV3_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::backendId",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, backendId) - 0usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::buildId",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, buildId) - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::coreApiVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, coreApiVersion) - 16usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::backendApiVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, backendApiVersion)
        - 28usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::socVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, socVersion) - 40usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::contextBlobVersion",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, contextBlobVersion)
        - 48usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::contextBlobSize",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, contextBlobSize)
        - 64usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::numContextTensors",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, numContextTensors)
        - 72usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::contextTensors",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, contextTensors) - 80usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::numGraphs",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, numGraphs) - 88usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::graphs",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, graphs) - 96usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::platformInfo",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, platformInfo) - 104usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::contextMetadataSize",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, contextMetadataSize)
        - 112usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::contextMetadata",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, contextMetadata)
        - 120usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoV3_t::socModel",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoV3_t, socModel) - 128usize];
};
impl Default for QnnSystemContext_BinaryInfoV3_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union QnnSystemContext_BinaryInfoUnion_t {
    pub v1: QnnSystemContext_BinaryInfoV1_t,
    pub v2: QnnSystemContext_BinaryInfoV2_t,
    pub v3: QnnSystemContext_BinaryInfoV3_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_BinaryInfoUnion_t",
    ][::std::mem::size_of::<QnnSystemContext_BinaryInfoUnion_t>() - 136usize];
    [
        "Alignment of QnnSystemContext_BinaryInfoUnion_t",
    ][::std::mem::align_of::<QnnSystemContext_BinaryInfoUnion_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoUnion_t::v1",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoUnion_t, v1) - 0usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoUnion_t::v2",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoUnion_t, v2) - 0usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfoUnion_t::v3",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfoUnion_t, v3) - 0usize];
};
impl Default for QnnSystemContext_BinaryInfoUnion_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemContext_BinaryInfo_t {
    pub version: u32,
    pub u: QnnSystemContext_BinaryInfoUnion_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemContext_BinaryInfo_t",
    ][::std::mem::size_of::<QnnSystemContext_BinaryInfo_t>() - 144usize];
    [
        "Alignment of QnnSystemContext_BinaryInfo_t",
    ][::std::mem::align_of::<QnnSystemContext_BinaryInfo_t>() - 8usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfo_t::version",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfo_t, version) - 0usize];
    [
        "Offset of field: QnnSystemContext_BinaryInfo_t::u",
    ][::std::mem::offset_of!(QnnSystemContext_BinaryInfo_t, u) - 8usize];
};
impl Default for QnnSystemContext_BinaryInfo_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Default, Copy, Clone)]
pub struct QnnSystemInterface_Functions_t {
    pub systemContextCreate: ::std::option::Option<
        unsafe extern "C" fn(
            context: *mut QnnSystemContext_Handle_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub systemContextGetBinaryInfo: ::std::option::Option<
        unsafe extern "C" fn(
            context: QnnSystemContext_Handle_t,
            binary: *mut ::std::os::raw::c_void,
            size: u64,
            info: *mut *const QnnSystemContext_BinaryInfo_t,
            infoSize: *mut u64,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub systemContextGetMetaData: ::std::option::Option<
        unsafe extern "C" fn(
            context: QnnSystemContext_Handle_t,
            binary: *const ::std::os::raw::c_void,
            size: u64,
            info: *mut *const QnnSystemContext_BinaryInfo_t,
        ) -> Qnn_ErrorHandle_t,
    >,
    pub systemContextFree: ::std::option::Option<
        unsafe extern "C" fn(context: QnnSystemContext_Handle_t) -> Qnn_ErrorHandle_t,
    >,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemInterface_Functions_t",
    ][::std::mem::size_of::<QnnSystemInterface_Functions_t>() - 32usize];
    [
        "Alignment of QnnSystemInterface_Functions_t",
    ][::std::mem::align_of::<QnnSystemInterface_Functions_t>() - 8usize];
    [
        "Offset of field: QnnSystemInterface_Functions_t::systemContextCreate",
    ][::std::mem::offset_of!(QnnSystemInterface_Functions_t, systemContextCreate)
        - 0usize];
    [
        "Offset of field: QnnSystemInterface_Functions_t::systemContextGetBinaryInfo",
    ][::std::mem::offset_of!(QnnSystemInterface_Functions_t, systemContextGetBinaryInfo)
        - 8usize];
    [
        "Offset of field: QnnSystemInterface_Functions_t::systemContextGetMetaData",
    ][::std::mem::offset_of!(QnnSystemInterface_Functions_t, systemContextGetMetaData)
        - 16usize];
    [
        "Offset of field: QnnSystemInterface_Functions_t::systemContextFree",
    ][::std::mem::offset_of!(QnnSystemInterface_Functions_t, systemContextFree)
        - 24usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct QnnSystemInterface_t {
    pub backendId: u32,
    pub providerName: *const ::std::os::raw::c_char,
    pub systemApiVersion: Qnn_Version_t,
    pub functions: QnnSystemInterface_Functions_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of QnnSystemInterface_t",
    ][::std::mem::size_of::<QnnSystemInterface_t>() - 64usize];
    [
        "Alignment of QnnSystemInterface_t",
    ][::std::mem::align_of::<QnnSystemInterface_t>() - 8usize];
    [
        "Offset of field: QnnSystemInterface_t::backendId",
    ][::std::mem::offset_of!(QnnSystemInterface_t, backendId) - 0usize];
    [
        "Offset of field: QnnSystemInterface_t::providerName",
    ][::std::mem::offset_of!(QnnSystemInterface_t, providerName) - 8usize];
    [
        "Offset of field: QnnSystemInterface_t::systemApiVersion",
    ][::std::mem::offset_of!(QnnSystemInterface_t, systemApiVersion) - 16usize];
    [
        "Offset of field: QnnSystemInterface_t::functions",
    ][::std::mem::offset_of!(QnnSystemInterface_t, functions) - 32usize];
};
impl Default for QnnSystemInterface_t {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub type QnnSystemInterface_GetProviders_t = ::std::option::Option<
    unsafe extern "C" fn(
        providers: *mut *mut *const QnnSystemInterface_t,
        count: *mut u32,
    ) -> Qnn_ErrorHandle_t,
>;
