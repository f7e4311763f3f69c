//! Which passes an export runs, and when: the list follows from backend, mode and quantization, the order from what
//! each pass declares.

use super::ModelConfig;
use super::lower::qnn::{self, FitBlockScales};
use super::options::{Backend, Choice, Mode, Observer, Options, Ptq, WeightScales};
use super::quantize::passes::{Setup, for_setup};
use super::quantize::{EmbeddingFormat, LinearRule, QuantizeError, RangeMethod, Recipe, ScaleMethod, WeightFormat};
use crate::passes::{self, ConstantFold, DeadCode, Pass, PassError, PassManager, Simplify};

/// The share of elements at each end that the percentile observer leaves out.
const PERCENTILE: f64 = 1e-4;

/// How the model is to be quantized.
///
/// # Errors
/// A recipe that does not exist.
pub(super) fn recipe(options: &Options, config: &ModelConfig) -> Result<Recipe, QuantizeError> {
    let mut recipe = match options.ptq {
        Ptq::Weights8 => Recipe { name: "int8", linear: Some(WeightFormat::per_channel(8)), ..Recipe::none() },
        of => Recipe::named(of.name(), config)?,
    };
    if let Some(bits) = options.kv_bits {
        recipe.kv_bits = bits.count();
    }
    if let (Some(block), Some(linear)) = (options.weight_group(), &mut recipe.linear) {
        linear.block = Some(block);
        let rows = WeightFormat::per_channel(8);
        let odd = indivisible(config, block).into_iter().flatten();
        recipe.rules.extend(odd.map(|part| LinearRule::everywhere(part, rows)));
    }
    if let Some(of) = options.embedding {
        let block = if of.group == 0 { config.dim } else { of.group };
        recipe.embedding = EmbeddingFormat::Blockwise { bits: of.bits, block };
    }
    recipe.range = match options.observer {
        Observer::MinMax => RangeMethod::MinMax,
        Observer::Percentile => RangeMethod::Percentile(PERCENTILE),
        Observer::Mse => RangeMethod::Mse,
    };
    recipe.scales = match options.weight_scales {
        Some(WeightScales::AbsMax) => ScaleMethod::AbsMax,
        _ => ScaleMethod::Search,
    };
    Ok(recipe)
}

/// The parts of a layer whose rows no whole number of groups makes: their weights get 8 bits and a scale a row, where
/// upstream leaves them in float.
pub(super) fn indivisible(config: &ModelConfig, group: usize) -> [Option<&'static str>; 2] {
    let ModelConfig { hidden, heads, head_dim, .. } = *config;
    [(heads * head_dim, "attention.output"), (hidden, "feed_forward.down")]
        .map(|(width, part)| (!width.is_multiple_of(group)).then_some(part))
}

/// The passes in float, which the graph for calibration goes through as well.
///
/// # Errors
/// [`PassError`] for a pass that another one cannot do without.
pub(super) fn float(options: &Options) -> Result<PassManager, PassError> {
    let manager = PassManager::new(decompositions(options))?;
    let disabled: Vec<&str> = options.passes.disable.iter().map(String::as_str).collect();
    let disabled: Vec<&str> = disabled.into_iter().filter(|name| manager.check(name).is_ok()).collect();
    manager.without(&disabled)
}

/// All passes of the graphs that are exported.
///
/// # Errors
/// [`PassError`] for a pass that does not exist, or that another one cannot do without.
pub(super) fn all(options: &Options, setup: &Setup) -> Result<PassManager, PassError> {
    let mut list = decompositions(options);
    list.extend(for_setup(setup));
    let has_blocks = setup.recipe.linear.is_some_and(|linear| linear.block.is_some());
    if options.backend == Backend::Qnn && has_blocks {
        list.push(Box::new(FitBlockScales));
    }
    list.push(Box::new(DeadCode));
    chosen(options, list)
}

/// Those of `list` and of the optional passes that the options leave.
fn chosen(options: &Options, mut list: Vec<Box<dyn Pass>>) -> Result<PassManager, PassError> {
    let choices = &options.passes;
    let mut left_out: Vec<&str> = choices.disable.iter().map(String::as_str).collect();
    let optional: [Box<dyn Pass>; 2] = [Box::new(ConstantFold), Box::new(Simplify::FUSED)];
    for pass in optional {
        if list.iter().any(|usual| usual.name() == pass.name()) {
            continue;
        }
        if !choices.enable.iter().any(|name| name == pass.name()) {
            left_out.push(pass.name());
        }
        list.push(pass);
    }
    let manager = PassManager::new(list)?;
    let named = choices.enable.iter().chain(&choices.dump_after).chain(&choices.stop_after);
    named.map(String::as_str).try_for_each(|name| manager.check(name))?;
    manager.without(&left_out)
}

/// What must be learned from the calibration text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    /// Ranges of activations.
    pub ranges: bool,
    /// Second moments of the operands of linear layers.
    pub moments: bool,
}

impl Need {
    pub const NOTHING: Self = Self { ranges: false, moments: false };

    /// `has_text` says whether there is a text without asking for one.
    pub fn of(options: &Options, recipe: &Recipe, has_text: bool) -> Self {
        let feedback = match options.weight_scales {
            Some(asked) => asked == WeightScales::Feedback,
            None => has_text,
        };
        Self {
            ranges: options.backend == Backend::Qnn || recipe.kv_bits < 32,
            moments: recipe.linear.is_some() && feedback,
        }
    }
}

/// The portable operators and XNNPACK know plain operations only, but for attention over a cache as one operator.
fn decompositions(options: &Options) -> Vec<Box<dyn Pass>> {
    if options.backend == Backend::Qnn {
        return qnn::decompositions();
    }
    let mut list: Vec<Box<dyn Pass>> = passes::export_decompositions();
    if options.mode == Mode::Dynamic && options.custom_sdpa {
        list.retain(|pass| pass.name() != "decompose-attention");
    }
    list.push(Box::new(Simplify::FUSED));
    list
}
