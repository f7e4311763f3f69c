//! Which parts of a model get which codes: upstream's recipes, and what its families do otherwise, as data.

use super::histogram::RangeMethod;
use super::scale::ScaleMethod;
use super::{CodeType, QuantizeError, WeightFormat};
use crate::export::ModelConfig;
use std::ops::RangeInclusive;

/// How the token embedding is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingFormat {
    /// As in the checkpoint.
    Float,
    /// One encoding for the whole table, looked up by the accelerator.
    PerTensor(CodeType),
    /// A blockwise table that an operator on the CPU looks up: `--embedding-quantize bits,block`.
    Blockwise {
        /// 2, 4 or 8.
        bits: u8,
        /// Codes that share a scale.
        block: usize,
    },
}

/// How activations are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// f32 everywhere.
    Float,
    /// f32, but the operand of each linear layer is rounded to 8 bits row by row as it comes (8da4w).
    DynamicRows,
    /// Codes with encodings found by calibration.
    Static {
        /// Of everything that nothing else is said of.
        codes: CodeType,
        /// Of the logits and the operand of the head.
        logits: CodeType,
    },
}

/// A linear layer that has a format of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearRule {
    /// Which layers; all where absent.
    pub layers: Option<RangeInclusive<usize>>,
    /// Its name within a layer (`feed_forward.down`), or `logits` for the head.
    pub part: &'static str,
    /// Its weights.
    pub format: WeightFormat,
}

impl LinearRule {
    /// For this part of every layer, or for the head.
    pub const fn everywhere(part: &'static str, format: WeightFormat) -> Self {
        Self { layers: None, part, format }
    }

    fn applies(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix("layers.") else { return name == self.part };
        let Some((layer, part)) = rest.split_once('.') else { return false };
        let here = |layers: &RangeInclusive<usize>| layer.parse().is_ok_and(|layer| layers.contains(&layer));
        part == self.part && self.layers.as_ref().is_none_or(here)
    }
}

/// How a model is quantized.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// As on the command line.
    pub name: &'static str,
    /// Activations.
    pub activations: Activations,
    /// Weights of linear layers; `None`: as in the checkpoint.
    pub linear: Option<WeightFormat>,
    /// Linear layers with other weights; the first that applies counts.
    pub rules: Vec<LinearRule>,
    /// The token embedding.
    pub embedding: EmbeddingFormat,
    /// Bits of keys and values at the border of a static method, and in its attention: 8, 16, or 32 for f32.
    pub kv_bits: u8,
    /// How ranges of activations are found.
    pub range: RangeMethod,
    /// How scales of weights are found.
    pub scales: ScaleMethod,
}

/// What upstream's recipe of a model adds to its `16a4w`.
struct Family {
    architecture: &'static str,
    dim: usize,
    layers: usize,
    block: usize,
    /// Layers whose down projection has 8 bits.
    down_8_bits: RangeInclusive<usize>,
    head_8_bits: bool,
    kv_bits: u8,
}

const NO_LAYER: RangeInclusive<usize> = RangeInclusive::new(1, 0);

impl Family {
    const fn new(architecture: &'static str, dim: usize, layers: usize, block: usize) -> Self {
        Self { architecture, dim, layers, block, down_8_bits: NO_LAYER, head_8_bits: true, kv_bits: 8 }
    }

    fn of(config: &ModelConfig) -> Option<&'static Self> {
        let same = |family: &&Self| {
            (family.architecture, family.dim, family.layers) == (&config.architecture[..], config.dim, config.layers)
        };
        FAMILIES.iter().find(same)
    }
}

/// From `static_llm_quant_recipe.py` of ExecuTorch 1.5: Llama 3.2 1B and 3B, Qwen 2.5 0.5B and 1.5B, Qwen 3 0.6B and 1.7B.
const FAMILIES: &[Family] = &[
    Family { down_8_bits: RangeInclusive::new(0, 3), ..Family::new("llama", 2048, 16, 32) },
    Family { down_8_bits: RangeInclusive::new(21, 27), ..Family::new("llama", 3072, 28, 32) },
    Family { head_8_bits: false, kv_bits: 16, ..Family::new("qwen2", 896, 24, 16) },
    Family { kv_bits: 16, ..Family::new("qwen2", 1536, 28, 16) },
    Family {
        down_8_bits: RangeInclusive::new(0, 27),
        head_8_bits: false,
        kv_bits: 16,
        ..Family::new("qwen3", 1024, 28, 32)
    },
    Family::new("qwen3", 2048, 28, 16),
];

/// Models below this width have few weights, and few in a row for errors of rounding to average out: more of them get 8
/// bits, the others more scales.
pub(super) const NARROW: usize = 512;

/// Codes that share a scale in a narrow model's weights of 4 bits.
const NARROW_BLOCK: usize = 32;

/// Codes of a block of 8da4w.
pub const DYNAMIC_BLOCK: usize = 32;

impl Recipe {
    /// The recipe called `name`, with what the model's family does otherwise.
    ///
    /// # Errors
    /// [`QuantizeError::Recipe`] for a name that does not exist.
    pub fn named(name: &str, config: &ModelConfig) -> Result<Self, QuantizeError> {
        match name {
            "16a4w" => Ok(Self::static_16a4w(config)),
            "16a8w" => {
                let recipe = Self::fixed("16a8w", CodeType::asymmetric(16), WeightFormat::per_channel(8));
                Ok(Self { kv_bits: 16, ..recipe })
            }
            "8a8w" => Ok(Self::fixed("8a8w", CodeType::asymmetric(8), WeightFormat::per_channel(8))),
            "8da4w" => {
                let head = LinearRule::everywhere("logits", WeightFormat::per_channel(8));
                Ok(Self {
                    name: "8da4w",
                    activations: Activations::DynamicRows,
                    linear: Some(WeightFormat::blockwise_4(DYNAMIC_BLOCK)),
                    rules: if config.dim < NARROW { vec![head] } else { Vec::new() },
                    ..Self::none()
                })
            }
            "none" => Ok(Self::none()),
            _ => Err(QuantizeError::Recipe(name.to_owned())),
        }
    }

    /// Nothing is quantized.
    pub fn none() -> Self {
        Self {
            name: "none",
            activations: Activations::Float,
            linear: None,
            rules: Vec::new(),
            embedding: EmbeddingFormat::Float,
            kv_bits: 32,
            range: RangeMethod::MinMax,
            scales: ScaleMethod::Search,
        }
    }

    fn fixed(name: &'static str, codes: CodeType, weights: WeightFormat) -> Self {
        Self {
            name,
            activations: Activations::Static { codes, logits: CodeType::asymmetric(16) },
            linear: Some(weights),
            embedding: EmbeddingFormat::PerTensor(codes),
            kv_bits: 8,
            ..Self::none()
        }
    }

    fn static_16a4w(config: &ModelConfig) -> Self {
        let eight = WeightFormat::per_channel(8);
        let blocks = |block| Some(WeightFormat { block: Some(block), ..WeightFormat::per_channel(4) });
        let mut recipe = Self::fixed("16a4w", CodeType::asymmetric(16), WeightFormat::per_channel(4));
        let family = Family::of(config);
        if family.is_none_or(|family| family.head_8_bits) {
            recipe.rules.push(LinearRule::everywhere("logits", eight));
        }
        if let Some(family) = family {
            recipe.linear = blocks(family.block);
            recipe.kv_bits = family.kv_bits;
            let layers = Some(family.down_8_bits.clone());
            recipe.rules.push(LinearRule { layers, part: "feed_forward.down", format: eight });
        } else if config.dim < NARROW {
            recipe.linear = blocks(NARROW_BLOCK);
            let parts = ["feed_forward.gate", "feed_forward.up", "feed_forward.down"];
            recipe.rules.extend(parts.map(|part| LinearRule::everywhere(part, eight)));
        }
        recipe
    }

    /// The weights of the linear layer called `name` of so many inputs. Where these are not whole blocks, 8 bits a
    /// channel: upstream leaves such layers in f32.
    pub fn format_of(&self, name: &str, columns: usize) -> Option<WeightFormat> {
        let rule = self.rules.iter().find(|rule| rule.applies(name));
        let format = rule.map(|rule| rule.format).or(self.linear)?;
        let whole = format.block.is_none_or(|block| block > 0 && columns.is_multiple_of(block));
        Some(if whole { format } else { WeightFormat::per_channel(8) })
    }

    /// Codes of keys and values; `None` where they are f32.
    ///
    /// # Errors
    /// [`QuantizeError::Bits`] for a width that does not exist.
    pub fn kv_codes(&self) -> Result<Option<CodeType>, QuantizeError> {
        match self.kv_bits {
            8 => Ok(Some(CodeType { bits: 8, symmetric: true })),
            16 => Ok(Some(CodeType::asymmetric(16))),
            32 => Ok(None),
            bits => Err(QuantizeError::Bits { what: "keys and values", bits, known: "8, 16 and 32" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::tiny_config;

    #[test]
    fn families_keep_their_sensitive_layers_in_8_bits() {
        let large = ModelConfig { dim: 2048, layers: 16, ..tiny_config() };
        let recipe = Recipe::named("16a4w", &large).unwrap();
        let bits = |name: &str| recipe.format_of(name, 64).map(|format| (format.bits, format.block));
        assert_eq!(bits("layers.3.feed_forward.down"), Some((8, None)));
        assert_eq!(bits("layers.4.feed_forward.down"), Some((4, Some(32))));
        assert_eq!(bits("layers.3.feed_forward.up"), Some((4, Some(32))));
        assert_eq!((bits("logits"), recipe.kv_bits), (Some((8, None)), 8));
        let qwen = ModelConfig { architecture: "qwen3".into(), dim: 1024, layers: 28, ..tiny_config() };
        let recipe = Recipe::named("16a4w", &qwen).unwrap();
        let bits = |name: &str| recipe.format_of(name, 64).map(|format| (format.bits, format.block));
        assert_eq!(bits("layers.27.feed_forward.down"), Some((8, None)));
        assert_eq!((bits("logits"), recipe.kv_bits), (Some((4, Some(32))), 16));
        let small = Recipe::named("16a4w", &tiny_config()).unwrap();
        let blocks = WeightFormat { block: Some(32), ..WeightFormat::per_channel(4) };
        assert_eq!(small.format_of("layers.0.attention.value", 64), Some(blocks));
        assert_eq!(small.format_of("logits", 16), Some(WeightFormat::per_channel(8)));
        assert_eq!(small.format_of("layers.1.feed_forward.down", 16), Some(WeightFormat::per_channel(8)));
        let small = Recipe::named("8da4w", &tiny_config()).unwrap();
        assert_eq!(small.format_of("logits", 64), Some(WeightFormat::per_channel(8)));
        assert_eq!(small.format_of("layers.1.feed_forward.down", 64), Some(WeightFormat::blockwise_4(32)));
    }

    #[test]
    fn widths_that_are_no_whole_blocks_get_8_bits_a_channel() {
        let wide = ModelConfig { dim: 576, ..tiny_config() };
        let recipe = Recipe::named("8da4w", &wide).unwrap();
        assert_eq!(recipe.format_of("logits", 64), Some(WeightFormat::blockwise_4(32)));
        assert_eq!(recipe.format_of("layers.0.feed_forward.down", 172), Some(WeightFormat::per_channel(8)));
        assert_eq!(Recipe::none().format_of("logits", 64), None);
    }

    #[test]
    fn unknown_recipes_and_widths_are_refused() {
        let error = Recipe::named("4a4w", &tiny_config()).unwrap_err();
        assert!(error.to_string().starts_with("there is no recipe \"4a4w\""), "{error}");
        let recipe = Recipe { kv_bits: 4, ..Recipe::none() };
        assert_eq!(recipe.kv_codes().unwrap_err().to_string(), "keys and values: codes of 4 bits; 8, 16 and 32 exist");
    }
}
