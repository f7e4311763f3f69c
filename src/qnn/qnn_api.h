/*
 * The part of Qualcomm's QNN C interface that llama-runner calls, declared in our own words from measured layouts
 * (64-bit targets). `sys.rs` is generated from it; `tests/qnn_bindings.rs` regenerates and compares.
 *
 * Function tables end with what is used here; libraries have more entries behind.
 */
#ifndef LLR_QNN_API_H
#define LLR_QNN_API_H

#include <stddef.h>
#include <stdint.h>

/* Return value of every call: 0 is success, else the low 16 bits are the code. */
typedef uint64_t Qnn_ErrorHandle_t;

/* Opaque objects of the library. */
typedef void *Qnn_LogHandle_t;
typedef void *Qnn_BackendHandle_t;
typedef void *Qnn_DeviceHandle_t;
typedef void *Qnn_ContextHandle_t;
typedef void *Qnn_GraphHandle_t;
typedef void *Qnn_ProfileHandle_t;
typedef void *Qnn_SignalHandle_t;
typedef void *Qnn_MemHandle_t;
typedef void *QnnSystemContext_Handle_t;

#define QNN_BACKEND_ID_HTP 6

typedef struct {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
} Qnn_Version_t;

typedef struct {
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
} Qnn_ApiVersion_t;

/* ---- tensors ---- */

#define QNN_DATATYPE_INT_8 0x0008
#define QNN_DATATYPE_INT_16 0x0016
#define QNN_DATATYPE_INT_32 0x0032
#define QNN_DATATYPE_INT_64 0x0064
#define QNN_DATATYPE_UINT_8 0x0108
#define QNN_DATATYPE_UINT_16 0x0116
#define QNN_DATATYPE_UINT_32 0x0132
#define QNN_DATATYPE_UINT_64 0x0164
#define QNN_DATATYPE_FLOAT_16 0x0216
#define QNN_DATATYPE_FLOAT_32 0x0232
#define QNN_DATATYPE_FLOAT_64 0x0264
#define QNN_DATATYPE_SFIXED_POINT_4 0x0304
#define QNN_DATATYPE_SFIXED_POINT_8 0x0308
#define QNN_DATATYPE_SFIXED_POINT_16 0x0316
#define QNN_DATATYPE_SFIXED_POINT_32 0x0332
#define QNN_DATATYPE_UFIXED_POINT_4 0x0404
#define QNN_DATATYPE_UFIXED_POINT_8 0x0408
#define QNN_DATATYPE_UFIXED_POINT_16 0x0416
#define QNN_DATATYPE_UFIXED_POINT_32 0x0432
#define QNN_DATATYPE_BOOL_8 0x0508

#define QNN_TENSOR_TYPE_APP_WRITE 0
#define QNN_TENSOR_TYPE_APP_READ 1
#define QNN_TENSOR_TYPE_APP_READWRITE 2
#define QNN_TENSOR_TYPE_NATIVE 3
#define QNN_TENSOR_TYPE_STATIC 4
#define QNN_TENSOR_TYPE_NULL 5

#define QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER 0
#define QNN_TENSORMEMTYPE_RAW 0
#define QNN_TENSORMEMTYPE_MEMHANDLE 1

#define QNN_TENSOR_VERSION_1 1
#define QNN_TENSOR_VERSION_2 2

/* Quantization: `encodingDefinition` says whether there is one, `quantizationEncoding` which member of the union. */
#define QNN_DEFINITION_DEFINED 1
#define QNN_DEFINITION_UNDEFINED 0x7fffffff
#define QNN_QUANTIZATION_ENCODING_SCALE_OFFSET 0
#define QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET 1
#define QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET 2
#define QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET 3
#define QNN_QUANTIZATION_ENCODING_BLOCK 4
#define QNN_QUANTIZATION_ENCODING_BLOCKWISE_EXPANSION 5
#define QNN_QUANTIZATION_ENCODING_UNDEFINED 0x7fffffff

/* real = (code + offset) * scale */
typedef struct {
  float scale;
  int32_t offset;
} Qnn_ScaleOffset_t;

typedef struct {
  int32_t axis;
  uint32_t numScaleOffsets;
  Qnn_ScaleOffset_t *scaleOffset;
} Qnn_AxisScaleOffset_t;

typedef struct {
  uint32_t bitwidth;
  float scale;
  int32_t offset;
} Qnn_BwScaleOffset_t;

typedef struct {
  uint32_t bitwidth;
  int32_t axis;
  uint32_t numElements;
  float *scales;
  int32_t *offsets;
} Qnn_BwAxisScaleOffset_t;

typedef struct {
  uint32_t *blockSize;
  Qnn_ScaleOffset_t *scaleOffset;
} Qnn_BlockEncoding_t;

typedef struct {
  int32_t axis;
  Qnn_ScaleOffset_t *scaleOffsets;
  uint32_t numBlocksPerAxis;
  uint32_t blockScaleBitwidth;
  uint32_t blockScaleStorageType;
  void *blockScales;
} Qnn_BlockwiseExpansion_t;

typedef union {
  Qnn_ScaleOffset_t scaleOffset;
  Qnn_AxisScaleOffset_t axisScaleOffset;
  Qnn_BwScaleOffset_t bwScaleOffset;
  Qnn_BwAxisScaleOffset_t bwAxisScaleOffset;
  Qnn_BlockEncoding_t block;
  Qnn_BlockwiseExpansion_t *blockwiseExpansion;
} Qnn_QuantizeUnion_t;

typedef struct {
  uint32_t encodingDefinition;
  uint32_t quantizationEncoding;
  Qnn_QuantizeUnion_t u;
} Qnn_QuantizeParams_t;

typedef struct {
  void *data;
  uint32_t dataSize;
} Qnn_ClientBuffer_t;

typedef union {
  Qnn_ClientBuffer_t clientBuf;
  Qnn_MemHandle_t memHandle;
} Qnn_TensorMemory_t;

typedef struct {
  uint32_t type;
  uint32_t numSpecifiedElements;
  uint32_t numSparseDimensions;
} Qnn_SparseParams_t;

typedef struct {
  uint32_t id;
  const char *name;
  uint32_t type;
  uint32_t dataFormat;
  uint32_t dataType;
  Qnn_QuantizeParams_t quantizeParams;
  uint32_t rank;
  uint32_t *dimensions;
  uint32_t memType;
  Qnn_TensorMemory_t memory;
} Qnn_TensorV1_t;

/* Version 2 is version 1 with more at the end. */
typedef struct {
  Qnn_TensorV1_t v1;
  uint8_t *isDynamicDimensions;
  Qnn_SparseParams_t sparseParams;
  uint8_t isProduced;
} Qnn_TensorV2_t;

typedef union {
  Qnn_TensorV1_t v1;
  Qnn_TensorV2_t v2;
} Qnn_TensorUnion_t;

typedef struct {
  uint32_t version;
  Qnn_TensorUnion_t u;
} Qnn_Tensor_t;

/* ---- configuration: NULL-terminated arrays of pointers to these ---- */

/* Which member holds depends on the option. */
typedef union {
  const void *customConfig;
  uint64_t number;
  uint32_t enumerator;
  const char *text;
} Qnn_ConfigUnion_t;

/* Backend, device, context and graph options all have this layout. */
typedef struct {
  uint32_t option;
  Qnn_ConfigUnion_t u;
} Qnn_Config_t;

#define QNN_DEVICE_CONFIG_OPTION_CUSTOM 0
#define QNN_HTP_DEVICE_CONFIG_OPTION_SOC 0

/*
 * Custom HTP device option. SDKs disagree on whether the payload begins at byte 4 or 8, so the SoC model is written at
 * both; every SDK from 2.47 to 2.51 accepts it.
 */
typedef struct {
  uint32_t option;
  uint32_t socModelAt4;
  uint32_t socModelAt8;
  uint32_t reserved;
} QnnHtpDevice_SocConfig_t;

#define QNN_CONTEXT_CONFIG_OPTION_CUSTOM 0
#define QNN_HTP_CONTEXT_CONFIG_OPTION_WEIGHT_SHARING 1

/* Custom HTP context option. */
typedef struct {
  uint32_t option;
  uint64_t payload[2];
} QnnHtpContext_CustomConfig_t;

#define QNN_GRAPH_CONFIG_OPTION_CUSTOM 0
#define QNN_HTP_GRAPH_CONFIG_OPTION_OPTIMIZATION 1
#define QNN_HTP_GRAPH_CONFIG_OPTION_VTCM_SIZE 3
#define QNN_HTP_GRAPH_OPTIMIZATION_TYPE_FINALIZE_OPTIMIZATION_FLAG 3

typedef struct {
  uint32_t type;
  float value;
} QnnHtpGraph_OptimizationOption_t;

typedef union {
  QnnHtpGraph_OptimizationOption_t optimization;
  uint32_t vtcmSizeInMb;
  uint64_t reserved[6];
} QnnHtpGraph_CustomUnion_t;

/* Custom HTP graph option. */
typedef struct {
  uint32_t option;
  QnnHtpGraph_CustomUnion_t u;
} QnnHtpGraph_CustomConfig_t;

/* ---- nodes of a graph ---- */

typedef union {
  float floatValue;
  double doubleValue;
  uint64_t uint64Value;
  uint32_t uint32Value;
  int32_t int32Value;
  uint8_t bool8Value;
  const char *stringValue;
} Qnn_ScalarUnion_t;

typedef struct {
  uint32_t dataType;
  Qnn_ScalarUnion_t u;
} Qnn_Scalar_t;

#define QNN_PARAMTYPE_SCALAR 0
#define QNN_PARAMTYPE_TENSOR 1

typedef union {
  Qnn_Scalar_t scalar;
  Qnn_Tensor_t tensor;
} Qnn_ParamUnion_t;

typedef struct {
  uint32_t paramType;
  const char *name;
  Qnn_ParamUnion_t u;
} Qnn_Param_t;

#define QNN_OPCONFIG_VERSION_1 1

/* Passed by value. */
typedef struct {
  uint32_t version;
  const char *name;
  const char *packageName;
  const char *typeName;
  uint32_t numOfParams;
  Qnn_Param_t *params;
  uint32_t numOfInputs;
  Qnn_Tensor_t *inputTensors;
  uint32_t numOfOutputs;
  Qnn_Tensor_t *outputTensors;
} Qnn_OpConfig_t;

/* ---- log ---- */

#define QNN_LOG_LEVEL_ERROR 1
#define QNN_LOG_LEVEL_WARN 2
#define QNN_LOG_LEVEL_INFO 3
#define QNN_LOG_LEVEL_VERBOSE 4
#define QNN_LOG_LEVEL_DEBUG 5

/* `args` is a va_list; on x86-64 and AArch64 it is passed as a pointer. */
typedef void (*QnnLog_Callback_t)(const char *format, uint32_t level, uint64_t timestamp, void *args);

/* ---- memory that the library knows by a handle ---- */

#define QNN_MEM_TYPE_ION 1
#define QNN_MEM_TYPE_CUSTOM 2

typedef struct {
  uint32_t numDim;
  uint32_t *dimSize;
  const char *shapeConfig;
} Qnn_MemShape_t;

typedef struct {
  int32_t fd;
} Qnn_MemIonInfo_t;

typedef struct {
  int32_t fd;
  void *data;
} Qnn_MemDmaBufInfo_t;

typedef union {
  Qnn_MemIonInfo_t ionInfo;
  void *customInfo;
  Qnn_MemDmaBufInfo_t dmaBufInfo;
} Qnn_MemInfo_t;

typedef struct {
  Qnn_MemShape_t memShape;
  uint32_t dataType;
  uint32_t memType;
  Qnn_MemInfo_t u;
} Qnn_MemDescriptor_t;

#define QNN_HTP_MEM_QURT 0
#define QNN_HTP_MEM_SHARED_BUFFER 1

typedef struct {
  int32_t fd;
  uint64_t offset;
} QnnHtpMem_SharedBufferConfig_t;

typedef union {
  uint32_t qurtAddress;
  QnnHtpMem_SharedBufferConfig_t sharedBufferConfig;
} QnnMemHtp_Place_t;

/* What `customInfo` leads to: a tensor at an offset of a block that is `size` bytes in all. */
typedef struct {
  uint32_t type;
  uint64_t size;
  QnnMemHtp_Place_t u;
} QnnMemHtp_Descriptor_t;

/* ---- function table of a backend library ---- */

typedef void (*Qnn_Unused_t)(void);

typedef struct {
  Qnn_Unused_t propertyHasCapability;
  Qnn_ErrorHandle_t (*backendCreate)(Qnn_LogHandle_t log, const Qnn_Config_t **config, Qnn_BackendHandle_t *backend);
  Qnn_Unused_t backendSetConfig;
  Qnn_ErrorHandle_t (*backendGetApiVersion)(Qnn_ApiVersion_t *version);
  Qnn_ErrorHandle_t (*backendGetBuildId)(const char **id);
  Qnn_Unused_t backendRegisterOpPackage;
  Qnn_Unused_t backendGetSupportedOperations;
  Qnn_ErrorHandle_t (*backendValidateOpConfig)(Qnn_BackendHandle_t backend, Qnn_OpConfig_t op);
  Qnn_ErrorHandle_t (*backendFree)(Qnn_BackendHandle_t backend);
  Qnn_ErrorHandle_t (*contextCreate)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                     const Qnn_Config_t **config, Qnn_ContextHandle_t *context);
  Qnn_Unused_t contextSetConfig;
  Qnn_ErrorHandle_t (*contextGetBinarySize)(Qnn_ContextHandle_t context, uint64_t *size);
  Qnn_ErrorHandle_t (*contextGetBinary)(Qnn_ContextHandle_t context, void *binary, uint64_t size, uint64_t *written);
  Qnn_ErrorHandle_t (*contextCreateFromBinary)(Qnn_BackendHandle_t backend, Qnn_DeviceHandle_t device,
                                               const Qnn_Config_t **config, const void *binary, uint64_t size,
                                               Qnn_ContextHandle_t *context, Qnn_ProfileHandle_t profile);
  Qnn_ErrorHandle_t (*contextFree)(Qnn_ContextHandle_t context, Qnn_ProfileHandle_t profile);
  Qnn_ErrorHandle_t (*graphCreate)(Qnn_ContextHandle_t context, const char *name, const Qnn_Config_t **config,
                                   Qnn_GraphHandle_t *graph);
  Qnn_Unused_t graphCreateSubgraph;
  Qnn_Unused_t graphSetConfig;
  Qnn_ErrorHandle_t (*graphAddNode)(Qnn_GraphHandle_t graph, Qnn_OpConfig_t op);
  Qnn_ErrorHandle_t (*graphFinalize)(Qnn_GraphHandle_t graph, Qnn_ProfileHandle_t profile, Qnn_SignalHandle_t signal);
  Qnn_ErrorHandle_t (*graphRetrieve)(Qnn_ContextHandle_t context, const char *name, Qnn_GraphHandle_t *graph);
  Qnn_ErrorHandle_t (*graphExecute)(Qnn_GraphHandle_t graph, const Qnn_Tensor_t *inputs, uint32_t numInputs,
                                    Qnn_Tensor_t *outputs, uint32_t numOutputs, Qnn_ProfileHandle_t profile,
                                    Qnn_SignalHandle_t signal);
  Qnn_Unused_t graphExecuteAsync;
  Qnn_Unused_t tensorCreateContextTensor;
  Qnn_ErrorHandle_t (*tensorCreateGraphTensor)(Qnn_GraphHandle_t graph, Qnn_Tensor_t *tensor);
  Qnn_ErrorHandle_t (*logCreate)(QnnLog_Callback_t callback, uint32_t maxLevel, Qnn_LogHandle_t *log);
  Qnn_Unused_t logSetLogLevel;
  Qnn_ErrorHandle_t (*logFree)(Qnn_LogHandle_t log);
  Qnn_Unused_t profile[7];
  Qnn_ErrorHandle_t (*memRegister)(Qnn_ContextHandle_t context, const Qnn_MemDescriptor_t *descriptors, uint32_t count,
                                   Qnn_MemHandle_t *handles);
  Qnn_ErrorHandle_t (*memDeRegister)(const Qnn_MemHandle_t *handles, uint32_t count);
  Qnn_Unused_t deviceGetPlatformInfo;
  Qnn_Unused_t deviceFreePlatformInfo;
  Qnn_Unused_t deviceGetInfrastructure;
  Qnn_ErrorHandle_t (*deviceCreate)(Qnn_LogHandle_t log, const Qnn_Config_t **config, Qnn_DeviceHandle_t *device);
  Qnn_Unused_t deviceSetConfig;
  Qnn_Unused_t deviceGetInfo;
  Qnn_ErrorHandle_t (*deviceFree)(Qnn_DeviceHandle_t device);
  Qnn_Unused_t signal[4];
  Qnn_ErrorHandle_t (*errorGetMessage)(Qnn_ErrorHandle_t error, const char **message);
} QnnInterface_Functions_t;

typedef struct {
  uint32_t backendId;
  const char *providerName;
  Qnn_ApiVersion_t apiVersion;
  QnnInterface_Functions_t functions;
} QnnInterface_t;

typedef Qnn_ErrorHandle_t (*QnnInterface_GetProviders_t)(const QnnInterface_t ***providers, uint32_t *count);

/* ---- libQnnSystem: what a context binary holds ---- */

#define QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_1 1
#define QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_2 2
#define QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3 3
#define QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1 1
#define QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_2 2
#define QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3 3

typedef struct {
  const char *graphName;
  uint32_t numGraphInputs;
  Qnn_Tensor_t *graphInputs;
  uint32_t numGraphOutputs;
  Qnn_Tensor_t *graphOutputs;
} QnnSystemContext_GraphInfoV1_t;

typedef struct {
  QnnSystemContext_GraphInfoV1_t v1;
  uint32_t numUpdateableTensors;
  Qnn_Tensor_t *updateableTensors;
} QnnSystemContext_GraphInfoV2_t;

/* What HTP says of a graph behind `graphBlobInfo`. */
typedef struct {
  uint32_t version;
  uint64_t spillFillBufferSize;
  uint32_t vtcmSize;
  uint32_t optimizationLevel;
} QnnHtpSystemContext_GraphBlobInfo_t;

/* The last two fields are left uninitialised by the library. */
typedef struct {
  QnnSystemContext_GraphInfoV2_t v2;
  uint32_t graphBlobInfoSize;
  void *graphBlobInfo;
  uint32_t startOpIndex;
  uint32_t endOpIndex;
} QnnSystemContext_GraphInfoV3_t;

typedef union {
  QnnSystemContext_GraphInfoV1_t v1;
  QnnSystemContext_GraphInfoV2_t v2;
  QnnSystemContext_GraphInfoV3_t v3;
} QnnSystemContext_GraphInfoUnion_t;

typedef struct {
  uint32_t version;
  QnnSystemContext_GraphInfoUnion_t u;
} QnnSystemContext_GraphInfo_t;

typedef struct {
  uint32_t backendId;
  const char *buildId;
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
  const char *socVersion;
  Qnn_Version_t hwInfoBlobVersion;
  Qnn_Version_t contextBlobVersion;
  uint32_t hwInfoBlobSize;
  void *hwInfoBlob;
  uint64_t contextBlobSize;
  uint32_t numContextTensors;
  Qnn_Tensor_t *contextTensors;
  uint32_t numGraphs;
  QnnSystemContext_GraphInfo_t *graphs;
} QnnSystemContext_BinaryInfoV1_t;

typedef struct {
  QnnSystemContext_BinaryInfoV1_t v1;
  void *platformInfo;
} QnnSystemContext_BinaryInfoV2_t;

typedef struct {
  uint32_t backendId;
  const char *buildId;
  Qnn_Version_t coreApiVersion;
  Qnn_Version_t backendApiVersion;
  const char *socVersion;
  Qnn_Version_t contextBlobVersion;
  uint64_t contextBlobSize;
  uint32_t numContextTensors;
  Qnn_Tensor_t *contextTensors;
  uint32_t numGraphs;
  QnnSystemContext_GraphInfo_t *graphs;
  void *platformInfo;
  uint32_t contextMetadataSize;
  void *contextMetadata;
  uint32_t socModel;
} QnnSystemContext_BinaryInfoV3_t;

typedef union {
  QnnSystemContext_BinaryInfoV1_t v1;
  QnnSystemContext_BinaryInfoV2_t v2;
  QnnSystemContext_BinaryInfoV3_t v3;
} QnnSystemContext_BinaryInfoUnion_t;

typedef struct {
  uint32_t version;
  QnnSystemContext_BinaryInfoUnion_t u;
} QnnSystemContext_BinaryInfo_t;

typedef struct {
  Qnn_ErrorHandle_t (*systemContextCreate)(QnnSystemContext_Handle_t *context);
  Qnn_ErrorHandle_t (*systemContextGetBinaryInfo)(QnnSystemContext_Handle_t context, void *binary, uint64_t size,
                                                  const QnnSystemContext_BinaryInfo_t **info, uint64_t *infoSize);
  Qnn_ErrorHandle_t (*systemContextGetMetaData)(QnnSystemContext_Handle_t context, const void *binary, uint64_t size,
                                                const QnnSystemContext_BinaryInfo_t **info);
  Qnn_ErrorHandle_t (*systemContextFree)(QnnSystemContext_Handle_t context);
} QnnSystemInterface_Functions_t;

typedef struct {
  uint32_t backendId;
  const char *providerName;
  Qnn_Version_t systemApiVersion;
  QnnSystemInterface_Functions_t functions;
} QnnSystemInterface_t;

typedef Qnn_ErrorHandle_t (*QnnSystemInterface_GetProviders_t)(const QnnSystemInterface_t ***providers,
                                                               uint32_t *count);

#endif
