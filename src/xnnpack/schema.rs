//! Field numbers, tags and flag bits of XNNPACK graphs (`schema.fbs`), shared by decoder and encoder so that they cannot
//! disagree.

use super::model::{Binary, Node, NodeOp, Unary};

/// Starts the header, 4 bytes into the blob.
pub const HEADER_MAGIC: [u8; 4] = *b"XH00";
/// Bytes of the header.
pub const HEADER_LEN: usize = 30;
/// Graphs are stored under either identifier; the second is the one that is written.
pub const IDENTIFIERS: [[u8; 4]; 2] = [*b"XN00", *b"XN01"];
/// Constants, and what precedes them, lie at multiples of this.
pub const ALIGNMENT: usize = 16;
/// A value id that names nothing, and the external id of values that are inside.
pub const NO_VALUE: u32 = u32::MAX;
/// The offset of a constant that is found by name.
pub const NO_OFFSET: u64 = u64::MAX;
/// Most dimensions of a value.
pub const MAX_DIMS: usize = 6;
/// Most values that a graph may exchange with its caller.
pub const MAX_EXTERNS: u32 = 4096;

macro_rules! fields {
    ($($(#[$doc:meta])* $table:ident { $($field:ident = $id:expr),+ $(,)? })+) => {$(
        $(#[$doc])*
        pub mod $table { $(pub const $field: u16 = $id;)+ }
    )+};
}

fields! {
    graph {
        VERSION = 0, NODES = 1, VALUES = 2, EXTERN_COUNT = 3, INPUT_IDS = 4, OUTPUT_IDS = 5, CONSTANT_BUFFER = 6,
        CONSTANT_DATA = 8,
    }
    /// Also the first two fields of a node: tables with a union.
    union { TAG = 0, TABLE = 1 }
    node { DEBUG_HANDLE = 2, BOUNDS = 3 }
    bounds { MIN = 0, MAX = 1 }
    buffer { STORAGE = 0 }
    constant { OFFSET = 0, SIZE = 1, KEY = 2 }
    tensor {
        DATATYPE = 0, RANK = 1, DIMS = 2, CONSTANT = 3, EXTERNAL_ID = 4, FLAGS = 5, ID = 6, DYNAMIC_DATATYPE = 7,
    }
    quantized_tensor { TENSOR = 0, TAG = 1, PARAMS = 2 }
    per_tensor { SCALE = 0, ZERO_POINT = 1 }
    per_channel { SCALE = 0, AXIS = 1, SCALE_CONSTANT = 2, SCALE_COUNT = 3 }
    per_group { SCALE = 0, AXIS = 1, GROUP = 2, SCALE_BF16 = 3, SCALE_CONSTANT = 4, SCALE_COUNT = 5 }
    per_token { NONBATCH_DIMS = 0 }
    unary { INPUT = 0, OUTPUT = 1, FLAGS = 2 }
    binary { A = 0, B = 1, OUTPUT = 2, FLAGS = 3 }
    fully_connected { INPUT = 0, FILTER = 1, BIAS = 2, OUTPUT = 3, FLAGS = 4 }
    /// Also reshape: tables with the length of a list and the list.
    transpose { RANK = 0, LIST = 1, INPUT = 2, OUTPUT = 3, FLAGS = 4 }
    slice { RANK = 0, OFFSETS = 1, SIZES = 2, INPUT = 3, OUTPUT = 4, FLAGS = 5 }
    concatenate { AXIS = 0, INPUT_1 = 1, INPUT_2 = 2, INPUT_3 = 3, INPUT_4 = 4, OUTPUT = 5, FLAGS = 6, INPUT_5 = 7 }
    attention { QUERY = 0, KEY = 1, VALUE = 2, SCALE = 3, MASK = 4, OUTPUT = 5, FLAGS = 6 }
}

/// The operands of a concatenation, in order.
pub const CONCATENATE_INPUTS: [u16; 5] =
    [concatenate::INPUT_1, concatenate::INPUT_2, concatenate::INPUT_3, concatenate::INPUT_4, concatenate::INPUT_5];

/// Tags of `XValueUnion`.
pub mod value_kind {
    pub const TENSOR: u8 = 1;
    pub const QUANTIZED_TENSOR: u8 = 2;
}

/// Tags of `XNNQuantParams`.
pub mod quantization_kind {
    pub const PER_CHANNEL: u8 = 1;
    pub const PER_TENSOR: u8 = 2;
    pub const PER_TOKEN: u8 = 3;
    pub const PER_GROUP: u8 = 4;
}

/// Flag bits of values.
pub mod value_flag {
    pub const INPUT: u32 = 1;
    pub const OUTPUT: u32 = 2;
}

/// Flag bits of nodes.
pub mod node_flag {
    /// Fully connected and batch matrix multiply: the second operand is transposed.
    pub const TRANSPOSE: u32 = 0x01;
    /// A hint to the thread pool, without influence on results.
    pub const YIELD_WORKERS: u32 = 0x10;
    /// Pooling: reduced dimensions stay with size 1.
    pub const KEEP_DIMS: u32 = 0x40;
}

/// Names of the nodes; the position is the tag of `XNodeUnion`.
pub const NODE_NAMES: [&str; 48] = [
    "NONE",
    "XNNAdd",
    "XNNFullyConnected",
    "XNNSoftmax",
    "XNNSigmoid",
    "XNNStaticTranspose",
    "XNNClamp",
    "XNNConv2d",
    "XNNDiv",
    "XNNStaticResizeBilinear2D",
    "XNNStaticConstantPad",
    "XNNAvgPooling2d",
    "XNNMinimum",
    "XNNDepthwiseConv2d",
    "XNNMaxPooling2d",
    "XNNMultiply",
    "XNNSubtract",
    "XNNFloor",
    "XNNConvert",
    "XNNGlobalAvgPooling2d",
    "XNNStaticReshape",
    "XNNArgMaxPooling2d",
    "XNNSquareRoot",
    "XNNCeiling",
    "XNNHardswish",
    "XNNLeakyReLU",
    "XNNMaximum",
    "XNNNegate",
    "XNNSquare",
    "XNNELU",
    "XNNAbs",
    "XNNPReLU",
    "XNNConcatenate2",
    "XNNConcatenate3",
    "XNNConcatenate4",
    "XNNStaticSlice",
    "XNNScaledDotProductAttention",
    "XNNBatchMatrixMultiply",
    "XNNConcatenate5",
    "XNNConvTranspose2d",
    "XNNReciprocalSquareRoot",
    "XNNLog",
    "XNNGelu",
    "XNNTanh",
    "XNNExp",
    "XNNSin",
    "XNNCopy",
    "XNNCos",
];

/// Tags of `XNodeUnion` that have attributes or a shape of their own.
pub mod node_kind {
    pub const FULLY_CONNECTED: u8 = 2;
    pub const SOFTMAX: u8 = 3;
    pub const TRANSPOSE: u8 = 5;
    pub const CLAMP: u8 = 6;
    pub const CONVERT: u8 = 18;
    pub const GLOBAL_AVERAGE_POOLING: u8 = 19;
    pub const RESHAPE: u8 = 20;
    pub const SLICE: u8 = 35;
    pub const ATTENTION: u8 = 36;
    pub const BATCH_MATRIX_MULTIPLY: u8 = 37;
    pub const COPY: u8 = 46;
    /// Concatenations of 2, 3, 4 and 5 operands.
    pub const CONCATENATE: [u8; 4] = [32, 33, 34, 38];
}

/// Tags of the element-wise nodes of one operand.
pub const UNARY: [(u8, Unary); 15] = [
    (4, Unary::Sigmoid),
    (17, Unary::Floor),
    (22, Unary::SquareRoot),
    (23, Unary::Ceiling),
    (24, Unary::HardSwish),
    (27, Unary::Negate),
    (28, Unary::Square),
    (30, Unary::Abs),
    (40, Unary::ReciprocalSquareRoot),
    (41, Unary::Log),
    (42, Unary::Gelu),
    (43, Unary::Tanh),
    (44, Unary::Exp),
    (45, Unary::Sin),
    (47, Unary::Cos),
];

/// Tags of the element-wise nodes of two operands.
pub const BINARY: [(u8, Binary); 6] = [
    (1, Binary::Add),
    (8, Binary::Divide),
    (12, Binary::Minimum),
    (15, Binary::Multiply),
    (16, Binary::Subtract),
    (26, Binary::Maximum),
];

/// The schema's name of the node with `tag`, if there is such a node.
pub fn node_name(tag: u8) -> Option<&'static str> {
    NODE_NAMES.get(usize::from(tag)).copied().filter(|_| tag != 0)
}

/// The tag of a node, and with it its name. A concatenation of a number of operands that the schema lacks counts as
/// the smallest.
pub fn node_tag(node: &Node) -> u8 {
    match &node.op {
        NodeOp::Unary(op) => tag_of(&UNARY, op),
        NodeOp::Binary(op) => tag_of(&BINARY, op),
        NodeOp::Clamp => node_kind::CLAMP,
        NodeOp::Convert => node_kind::CONVERT,
        NodeOp::Copy => node_kind::COPY,
        NodeOp::Softmax => node_kind::SOFTMAX,
        NodeOp::GlobalAveragePooling2d { .. } => node_kind::GLOBAL_AVERAGE_POOLING,
        NodeOp::FullyConnected { .. } => node_kind::FULLY_CONNECTED,
        NodeOp::BatchMatrixMultiply { .. } => node_kind::BATCH_MATRIX_MULTIPLY,
        NodeOp::StaticTranspose { .. } => node_kind::TRANSPOSE,
        NodeOp::StaticReshape { .. } => node_kind::RESHAPE,
        NodeOp::StaticSlice { .. } => node_kind::SLICE,
        NodeOp::Concatenate { .. } => {
            let tag = node.inputs.len().checked_sub(2).and_then(|more| node_kind::CONCATENATE.get(more));
            tag.copied().unwrap_or(node_kind::CONCATENATE[0])
        }
        NodeOp::ScaledDotProductAttention => node_kind::ATTENTION,
    }
}

/// The tag of `op`; each table lists every operation, as a test proves.
fn tag_of<T: PartialEq>(table: &[(u8, T)], op: &T) -> u8 {
    table.iter().find(|(_, known)| known == op).map_or(0, |&(tag, _)| tag)
}
