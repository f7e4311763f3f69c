//! What sets one model family apart from another: a row each, under upstream's `--decoder_model_version` names.

use super::error::RunnerError;

/// How the layers of a family attend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    /// Every layer sees the whole past.
    Static,
    /// Some layers see a sliding window: their method has a second mask.
    Hybrid,
}

/// A model family.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Upstream's name.
    pub name: &'static str,
    /// Tokens that end an answer, besides the tokenizer's own.
    pub end_tokens: &'static [&'static str],
    /// How its layers attend.
    pub cache_mode: CacheMode,
    template: Template,
}

/// What stands around the texts of a chat.
#[derive(Debug, Clone, Copy)]
struct Template {
    /// `None` where the family has no system text.
    system: Option<Around>,
    user: Around,
    /// What the answer continues.
    answer: &'static str,
    order: Order,
}

/// In which order the parts come. Some of upstream's orders make no sense to a reader, but only a prompt in that order
/// gives its tokens.
#[derive(Debug, Clone, Copy)]
enum Order {
    SystemUserAnswer,
    UserSystemAnswer,
    UserAnswerSystem,
}

#[derive(Debug, Clone, Copy)]
struct Around(&'static str, &'static str);

const RAW: Template = Template { system: None, user: Around("", ""), answer: "", order: Order::SystemUserAnswer };

const GEMMA_USER: Around = Around("<start_of_turn>user\n", "<end_of_turn>\n");
const GEMMA_ANSWER: &str = "<start_of_turn>model\n";
const GEMMA: Template = Template {
    system: Some(Around("", "<end_of_turn>\n")),
    user: GEMMA_USER,
    answer: GEMMA_ANSWER,
    order: Order::UserAnswerSystem,
};
const CHATML: Around = Around("<|im_start|>system\n", "<|im_end|>\n");
const CHATML_USER: Around = Around("<|im_start|>user\n", "<|im_end|>\n");

const fn family(name: &'static str, end_tokens: &'static [&'static str], template: Template) -> Family {
    Family { name, end_tokens, cache_mode: CacheMode::Static, template }
}

const fn windowed(name: &'static str, end_tokens: &'static [&'static str], template: Template) -> Family {
    Family { name, end_tokens, cache_mode: CacheMode::Hybrid, template }
}

/// Every family.
pub const FAMILIES: [Family; 14] = [
    family("llama2", &[], RAW),
    family(
        "llama3",
        &["<|eot_id|>"],
        Template {
            system: Some(Around("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>")),
            user: Around("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
            answer: "<|start_header_id|>assistant<|end_header_id|>\n\n",
            ..RAW
        },
    ),
    family("gemma", &["<end_of_turn>"], GEMMA),
    windowed("gemma2", &["<end_of_turn>"], Template { user: GEMMA_USER, answer: GEMMA_ANSWER, ..RAW }),
    windowed("gemma3", &["<end_of_turn>"], GEMMA),
    windowed(
        "gemma4",
        &["<turn|>"],
        Template {
            system: Some(Around("<|turn>system\n", "<turn|>\n")),
            user: Around("<|turn>user\n", "<turn|>\n"),
            answer: "<|turn>model\n",
            ..RAW
        },
    ),
    family(
        "granite",
        &[],
        Template {
            system: Some(Around("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n")),
            user: Around("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
            answer: "<|start_of_role|>assistant<|end_of_role|>",
            ..RAW
        },
    ),
    family(
        "phi_4_mini",
        &["<|end|>"],
        Template {
            system: Some(Around("<|system|>", "<|end|>")),
            user: Around("<|user|>", "<|end|>"),
            answer: "<|assistant|>",
            ..RAW
        },
    ),
    family("qwen2_5", &[], RAW),
    family(
        "qwen3",
        &["<|im_end|>"],
        Template {
            system: Some(CHATML),
            user: CHATML_USER,
            answer: "<|im_start|>assistant",
            order: Order::UserSystemAnswer,
        },
    ),
    family(
        "smollm2_135m",
        &["<|im_end|>"],
        Template { system: Some(CHATML), user: CHATML_USER, answer: "<|im_start|>assistant\n\n", ..RAW },
    ),
    family(
        "smollm3",
        &["<|im_end|>"],
        Template {
            system: Some(Around("<|im_start|>system\n", "\n\n")),
            user: CHATML_USER,
            answer: "<|im_start|>assistant\n",
            ..RAW
        },
    ),
    family("codegen", &["<|endoftext|>"], RAW),
    family(
        "glm",
        &["<|user|>"],
        Template {
            system: Some(Around("<|system|>\n", "")),
            user: Around("<|user|>\n", ""),
            answer: "<|assistant|>\n",
            order: Order::UserSystemAnswer,
        },
    ),
];

impl Family {
    /// The family of upstream's name.
    pub fn from_name(name: &str) -> Result<&'static Self, RunnerError> {
        FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| RunnerError::UnknownFamily {
            name: name.to_owned(),
            known: FAMILIES.map(|family| family.name).join(", "),
        })
    }

    /// The prompt in the family's chat form, as upstream's `get_formatted_prompt` writes it. An empty `system_prompt`
    /// is left out.
    pub fn format_prompt(&self, prompt: &str, system_prompt: &str) -> String {
        let Template { system, user, answer, order } = self.template;
        let wrap = |around: Around, text: &str| format!("{}{text}{}", around.0, around.1);
        let user = wrap(user, prompt);
        let system = match system {
            Some(around) if !system_prompt.is_empty() => wrap(around, system_prompt),
            _ => String::new(),
        };
        match order {
            Order::SystemUserAnswer => system + &user + answer,
            Order::UserSystemAnswer => user + &system + answer,
            Order::UserAnswerSystem => user + answer + &system,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Status};

    #[test]
    fn prompts_are_upstreams() {
        let cases = [
            ("llama2", "U", "U"),
            ("qwen2_5", "U", "U"),
            ("codegen", "U", "U"),
            (
                "llama3",
                "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU\
                 <|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            ),
            (
                "gemma",
                "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\n",
                "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\nS<end_of_turn>\n",
            ),
            (
                "gemma3",
                "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\n",
                "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\nS<end_of_turn>\n",
            ),
            (
                "gemma2",
                "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\n",
                "<start_of_turn>user\nU<end_of_turn>\n<start_of_turn>model\n",
            ),
            (
                "gemma4",
                "<|turn>user\nU<turn|>\n<|turn>model\n",
                "<|turn>system\nS<turn|>\n<|turn>user\nU<turn|>\n<|turn>model\n",
            ),
            (
                "granite",
                "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
                "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U\
                 <|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
            ),
            ("phi_4_mini", "<|user|>U<|end|><|assistant|>", "<|system|>S<|end|><|user|>U<|end|><|assistant|>"),
            (
                "qwen3",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant",
            ),
            (
                "smollm2_135m",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n\n",
                "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n\n",
            ),
            (
                "smollm3",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
                "<|im_start|>system\nS\n\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
            ),
            ("glm", "<|user|>\nU<|assistant|>\n", "<|user|>\nU<|system|>\nS<|assistant|>\n"),
        ];
        assert_eq!(cases.len(), FAMILIES.len());
        for (name, plain, with_system) in cases {
            let family = Family::from_name(name).unwrap();
            assert_eq!(family.format_prompt("U", ""), plain, "{name}");
            assert_eq!(family.format_prompt("U", "S"), with_system, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_every_known_one() {
        let error = Error::from(Family::from_name("llama9").unwrap_err());
        assert_eq!(error.status(), Status::InvalidArgument);
        for family in FAMILIES {
            assert!(error.to_string().contains(family.name), "{error}");
        }
    }
}
