//! Element types, numbered as in ExecuTorch's `scalar_type.fbs`.

use std::fmt;

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i8)]
#[allow(missing_docs)]
pub enum DType {
    U8 = 0,
    I8 = 1,
    I16 = 2,
    I32 = 3,
    I64 = 4,
    F16 = 5,
    F32 = 6,
    F64 = 7,
    Bool = 11,
    QI8 = 12,
    QU8 = 13,
    QI32 = 14,
    BF16 = 15,
    U16 = 27,
    U32 = 28,
    U64 = 29,
    /// `Bits16`, which older QNN exports use for 16-bit quantized values.
    Bits16 = 22,
}

impl DType {
    /// The type with ExecuTorch's number `code`, if this library knows it.
    pub fn from_code(code: i8) -> Option<Self> {
        use DType::*;
        [U8, I8, I16, I32, I64, F16, F32, F64, Bool, QI8, QU8, QI32, BF16, U16, U32, U64, Bits16]
            .into_iter()
            .find(|&dtype| dtype as i8 == code)
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        use DType::*;
        match self {
            U8 | I8 | Bool | QI8 | QU8 => 1,
            I16 | F16 | BF16 | U16 | Bits16 => 2,
            I32 | F32 | QI32 | U32 => 4,
            I64 | F64 | U64 => 8,
        }
    }

    /// Short name used in messages and by `llr inspect`: `u16`, `f32`.
    pub const fn name(self) -> &'static str {
        use DType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            F32 => "f32",
            F64 => "f64",
            Bool => "bool",
            QI8 => "qi8",
            QU8 => "qu8",
            QI32 => "qi32",
            BF16 => "bf16",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            Bits16 => "bits16",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that can be the element of a tensor view.
pub trait Element: bytemuck::Pod {
    /// The tensor element types that this Rust type may view.
    const DTYPES: &'static [DType];
}

macro_rules! element {
    ($rust:ty: $($dtype:ident),+) => {
        impl Element for $rust {
            const DTYPES: &'static [DType] = &[$(DType::$dtype),+];
        }
    };
}

element!(u8: U8, QU8, Bool);
element!(i8: I8, QI8);
element!(u16: U16, Bits16, F16, BF16);
element!(i16: I16);
element!(u32: U32);
element!(i32: I32, QI32);
element!(u64: U64);
element!(i64: I64);
element!(f32: F32);
element!(f64: F64);
