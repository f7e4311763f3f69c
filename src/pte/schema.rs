//! Field numbers and tags of `program.fbs` and `flat_tensor.fbs`, shared by reader and writer so that they cannot disagree.

/// The file identifier that this library reads and writes.
pub const IDENTIFIER: [u8; 4] = *b"ET12";
/// Starts the extended header, 8 bytes into the file.
pub const HEADER_MAGIC: [u8; 4] = *b"eh00";
/// Where the extended header starts.
pub const HEADER_AT: usize = 8;

macro_rules! fields {
    ($($(#[$doc:meta])* $table:ident { $($field:ident = $id:expr),+ $(,)? })+) => {$(
        $(#[$doc])*
        pub mod $table { $(pub const $field: u16 = $id;)+ }
    )+};
}

fields! {
    program {
        VERSION = 0, EXECUTION_PLAN = 1, CONSTANT_BUFFER = 2, BACKEND_DELEGATE_DATA = 3, SEGMENTS = 4,
        CONSTANT_SEGMENT = 5, MUTABLE_DATA_SEGMENTS = 6, NAMED_DATA = 7,
    }
    execution_plan {
        NAME = 0, VALUES = 2, INPUTS = 3, OUTPUTS = 4, CHAINS = 5, OPERATORS = 6, DELEGATES = 7,
        NON_CONST_BUFFER_SIZES = 8, NON_CONST_BUFFER_DEVICE = 9,
    }
    buffer_device { DEVICE_TYPE = 1 }
    /// Also `Instruction`: tables with nothing but a union.
    union { TAG = 0, TABLE = 1 }
    /// `Int`, `Bool`, `Double`, `String` and the lists: tables with one field.
    boxed { ITEM = 0 }
    tensor {
        SCALAR_TYPE = 0, STORAGE_OFFSET = 1, SIZES = 2, DIM_ORDER = 3, DATA_BUFFER_IDX = 5, ALLOCATION_INFO = 6,
        SHAPE_DYNAMISM = 8, EXTRA_TENSOR_INFO = 9,
    }
    allocation { MEMORY_ID = 0, MEMORY_OFFSET_LOW = 1, MEMORY_OFFSET_HIGH = 2 }
    extra_tensor_info {
        MUTABLE_DATA_SEGMENTS_IDX = 0, FULLY_QUALIFIED_NAME = 1, LOCATION = 2, DEVICE_TYPE = 3,
    }
    operator { NAME = 0, OVERLOAD = 1 }
    chain { INPUTS = 0, OUTPUTS = 1, INSTRUCTIONS = 2 }
    /// `KernelCall` and `DelegateCall`.
    call { CALLEE = 0, ARGS = 1 }
    move_call { FROM = 0, TO = 1 }
    jump_false { CONDITION = 0, DESTINATION = 1 }
    free { VALUE = 0 }
    delegate { ID = 0, PROCESSED = 1, COMPILE_SPECS = 2 }
    data_reference { LOCATION = 0, INDEX = 1 }
    compile_spec { KEY = 0, VALUE = 1 }
    segment { OFFSET = 0, SIZE = 1 }
    subsegments { SEGMENT_INDEX = 0, OFFSETS = 1 }
    /// `TENSOR_LAYOUT` is there in external data only.
    named_data { KEY = 0, SEGMENT_INDEX = 1, TENSOR_LAYOUT = 2 }
    /// Of `flat_tensor.fbs`, as the two that follow.
    flat_tensor { SEGMENTS = 1, NAMED_DATA = 2 }
    tensor_layout { SCALAR_TYPE = 0, SIZES = 1, DIM_ORDER = 2 }
    data_segment { OFFSET = 0, SIZE = 1 }
}

/// Tags of the union `KernelTypes`.
pub mod value_kind {
    pub const NULL: u8 = 1;
    pub const INT: u8 = 2;
    pub const BOOL: u8 = 3;
    pub const DOUBLE: u8 = 4;
    pub const TENSOR: u8 = 5;
    pub const STRING: u8 = 6;
    pub const INT_LIST: u8 = 7;
    pub const DOUBLE_LIST: u8 = 8;
    pub const BOOL_LIST: u8 = 9;
    pub const TENSOR_LIST: u8 = 10;
    pub const OPTIONAL_TENSOR_LIST: u8 = 11;
}

/// Tags of the union `InstructionArguments`.
pub mod instruction_kind {
    pub const KERNEL: u8 = 1;
    pub const DELEGATE: u8 = 2;
    pub const MOVE: u8 = 3;
    pub const JUMP_FALSE: u8 = 4;
    pub const FREE: u8 = 5;
}

/// `DataLocation` and `TensorDataLocation`.
pub mod location {
    pub const INLINE: i8 = 0;
    pub const SEGMENT: i8 = 1;
    pub const TENSOR_SEGMENT: i8 = 0;
    pub const TENSOR_EXTERNAL: i8 = 1;
}
