//! What a program can do as a language model, told from its methods' tensors and constants alone, without loading it.

use super::config::EvalMode;
use super::io::MethodIo;
use super::model::{MethodPlan, has_method};
use super::text;
use crate::runtime::{MethodId, MethodInfo};
use crate::tensor::DType;

/// The two kinds of programs that the runner runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ProgramKind {
    /// Neither.
    Unknown = 0,
    /// Mask, keys and values go through the runner: `kv_forward`, `prefill_forward`.
    Static = 1,
    /// It keeps keys and values to itself: `forward(tokens, input_pos)`.
    Forward = 2,
}

/// What is known of a program before it is loaded.
pub struct ProgramFacts<'a> {
    /// Methods that do something.
    pub methods: &'a [MethodInfo],
    /// The first integer that a constant method gives.
    pub constant: &'a dyn Fn(&str) -> Option<i64>,
    /// Types of the mutable buffers that the program names.
    pub states: &'a [DType],
    /// Whether delegates may store what the program calls float in another type.
    pub retyped: bool,
}

/// What follows from it; `None` where nothing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramSummary {
    /// Which kind it is.
    pub kind: ProgramKind,
    /// Most tokens in the context.
    pub context_len: Option<usize>,
    /// Tokens of the vocabulary.
    pub vocab_size: Option<usize>,
    /// Layers of the model.
    pub layers: Option<usize>,
    /// Bits of a key's or value's element.
    pub kv_bits: Option<usize>,
    /// Tokens of a prefill step, of a static program.
    pub prefill_tokens: Option<usize>,
    /// Modes that its methods allow; none for a program without modes.
    pub eval_modes: Vec<EvalMode>,
}

impl ProgramSummary {
    /// Looks at a program.
    pub fn of(facts: &ProgramFacts<'_>) -> Self {
        let count = |name: &str| (facts.constant)(name).and_then(|number| usize::try_from(number).ok());
        let stated_context = count("get_max_context_len").or(count("get_max_seq_len"));
        let mut summary = Self {
            kind: ProgramKind::Unknown,
            context_len: stated_context,
            vocab_size: count("get_vocab_size"),
            layers: count("get_n_layers"),
            kv_bits: count("get_kv_io_bit_width"),
            prefill_tokens: None,
            eval_modes: Vec::new(),
        };
        let names: Vec<String> = facts.methods.iter().map(|method| method.name.clone()).collect();
        let forward = facts.methods.iter().find(|method| text::is_text(method));
        if let (Some(method), false) = (forward, has_method(&names)) {
            summary.kind = ProgramKind::Forward;
            summary.vocab_size = text::vocab(method).or(summary.vocab_size);
            summary.kv_bits = summary.kv_bits.or(facts.states.first().map(|dtype| dtype.size() * 8));
            return summary;
        }
        let resolve = |method: &MethodInfo| MethodIo::resolve(MethodId(0), method).ok();
        let methods: Vec<MethodIo> = facts.methods.iter().filter_map(resolve).collect();
        let Some(io) = methods.iter().find(|io| io.cache_len().is_some()).or(methods.first()) else { return summary };
        summary.kind = ProgramKind::Static;
        summary.context_len = Some(io.context_len);
        summary.vocab_size = Some(io.vocab);
        summary.prefill_tokens = methods.iter().find(|io| io.name == "prefill_forward").map(|io| io.ar);
        summary.kv_bits =
            summary.kv_bits.or(io.caches.first().filter(|_| !facts.retyped).map(|cache| cache.shape.element_size * 8));
        let decodes_many = |plan: &MethodPlan| {
            methods.iter().any(|io| Some(io.name.as_str()) == plan.decode && io.ar > 1 && io.cache_len().is_some())
        };
        let possible = |mode: &EvalMode| match MethodPlan::choose(&names, Some(*mode)) {
            Ok(plan) => *mode != EvalMode::Lookahead || decodes_many(&plan),
            Err(_) => false,
        };
        summary.eval_modes =
            [EvalMode::Kv, EvalMode::Hybrid, EvalMode::Lookahead].into_iter().filter(possible).collect();
        summary
    }
}
