//! What can be chosen by name, with the names that upstream's exporter and its runner use.

use crate::export::KvLayout;

/// A value that is chosen by its name.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// Every value, in the order of the help.
    const ALL: &'static [Self];

    /// Its name on the command line.
    fn name(self) -> &'static str;

    /// The value of that name.
    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|choice| choice.name() == name)
    }
}

/// Which methods the program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One static method that takes a token at a time.
    Kv,
    /// One static method that reads a whole context and gives its logits; no cache goes in (upstream PR 7691).
    Prefill,
    /// A static method for blocks of the prompt and one for single tokens.
    Hybrid,
    /// As hybrid, with a decode method of many rows that verifies guessed n-grams.
    Lookahead,
    /// `forward(tokens, input_pos)` with the cache inside, for `llama_main`.
    Dynamic,
}

impl Choice for Mode {
    const ALL: &'static [Self] = &[Self::Kv, Self::Prefill, Self::Hybrid, Self::Lookahead, Self::Dynamic];

    fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Prefill => "prefill",
            Self::Hybrid => "hybrid",
            Self::Lookahead => "lookahead",
            Self::Dynamic => "dynamic",
        }
    }
}

/// What the program runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Qualcomm's HTP: context binaries, composed by libQnnHtp.so.
    Qnn,
    /// XNNPACK delegates on the CPU.
    Xnnpack,
    /// ExecuTorch's portable operators only.
    Portable,
}

impl Choice for Backend {
    const ALL: &'static [Self] = &[Self::Qnn, Self::Xnnpack, Self::Portable];

    fn name(self) -> &'static str {
        match self {
            Self::Qnn => "qnn",
            Self::Xnnpack => "xnnpack",
            Self::Portable => "portable",
        }
    }
}

/// Post-training quantization of activations and linear weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ptq {
    /// 16-bit activations, 4-bit weights with a scale a row, or a block where a group size is given.
    A16W4,
    /// 16-bit activations, 8-bit weights.
    A16W8,
    /// 8-bit activations, 8-bit weights.
    A8W8,
    /// Each row of activations in 8 bits as it comes, 4-bit weights in blocks.
    Dynamic8W4,
    /// Float activations, 8-bit weights with a scale a row: upstream's `int8`.
    Weights8,
    /// Float.
    None,
}

impl Choice for Ptq {
    const ALL: &'static [Self] = &[Self::A16W4, Self::A16W8, Self::A8W8, Self::Dynamic8W4, Self::Weights8, Self::None];

    fn name(self) -> &'static str {
        match self {
            Self::A16W4 => "16a4w",
            Self::A16W8 => "16a8w",
            Self::A8W8 => "8a8w",
            Self::Dynamic8W4 => "8da4w",
            Self::Weights8 => "int8",
            Self::None => "none",
        }
    }
}

/// Width of the keys and values that a program exchanges with its runner, or keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvBits {
    /// Unsigned bytes.
    B8,
    /// Unsigned 16-bit codes.
    B16,
    /// Floats.
    B32,
}

impl KvBits {
    /// As a number.
    pub fn count(self) -> u8 {
        match self {
            Self::B8 => 8,
            Self::B16 => 16,
            Self::B32 => 32,
        }
    }
}

impl Choice for KvBits {
    const ALL: &'static [Self] = &[Self::B8, Self::B16, Self::B32];

    fn name(self) -> &'static str {
        match self {
            Self::B8 => "8",
            Self::B16 => "16",
            Self::B32 => "32",
        }
    }
}

/// How the range that codes of activations must cover is found from what calibration saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observer {
    /// Everything that was seen.
    MinMax,
    /// All but the outermost elements.
    Percentile,
    /// The least squared error of rounding.
    Mse,
}

impl Choice for Observer {
    const ALL: &'static [Self] = &[Self::MinMax, Self::Percentile, Self::Mse];

    fn name(self) -> &'static str {
        match self {
            Self::MinMax => "minmax",
            Self::Percentile => "percentile",
            Self::Mse => "mse",
        }
    }
}

/// How scales of weights are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightScales {
    /// The largest magnitude gets the largest code.
    AbsMax,
    /// The least squared error.
    Search,
    /// The least squared error of the layer's results on the calibration text, with error feedback (GPTQ).
    Feedback,
}

impl Choice for WeightScales {
    const ALL: &'static [Self] = &[Self::AbsMax, Self::Search, Self::Feedback];

    fn name(self) -> &'static str {
        match self {
            Self::AbsMax => "absmax",
            Self::Search => "search",
            Self::Feedback => "feedback",
        }
    }
}

impl Choice for KvLayout {
    const ALL: &'static [Self] = &[Self::PerLayer, Self::PerHead];

    fn name(self) -> &'static str {
        match self {
            Self::PerLayer => "per_layer",
            Self::PerHead => "per_head",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<T: Choice>() -> Vec<&'static str> {
        T::ALL.iter().map(|choice| choice.name()).collect()
    }

    #[test]
    fn names_are_upstreams_and_lead_back() {
        assert_eq!(names::<Mode>(), ["kv", "prefill", "hybrid", "lookahead", "dynamic"]);
        assert_eq!(names::<Backend>(), ["qnn", "xnnpack", "portable"]);
        assert_eq!(names::<Ptq>(), ["16a4w", "16a8w", "8a8w", "8da4w", "int8", "none"]);
        assert_eq!(names::<KvBits>(), ["8", "16", "32"]);
        assert_eq!(names::<KvLayout>(), ["per_layer", "per_head"]);
        assert_eq!(names::<Observer>(), ["minmax", "percentile", "mse"]);
        assert_eq!(names::<WeightScales>(), ["absmax", "search", "feedback"]);
        assert!(Ptq::ALL.iter().all(|&ptq| Ptq::from_name(ptq.name()) == Some(ptq)));
        assert_eq!(Mode::from_name("KV"), None);
    }
}
