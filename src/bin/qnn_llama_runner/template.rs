//! Chat templates of the model families, as upstream's program writes them, oddities included: the tokens of a run are
//! compared with upstream's, so its order and line ends are kept even where the model's authors have others.

use llama_runner::{Error, Result, Status};

/// A stretch of a formatted prompt.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Always there.
    Literal(&'static str),
    /// The user's text.
    User,
    /// The system text between two literals; nothing when it is empty.
    System(&'static str, &'static str),
}

use Part::{Literal, System, User};

/// Upstream's `--decoder_model_version` names with their templates.
#[rustfmt::skip]
const TEMPLATES: &[(&str, &[Part])] = &[
    ("llama2", &[User]),
    ("llama3", &[
        System("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        Literal("<|start_header_id|>user<|end_header_id|>\n\n"), User,
        Literal("<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
    ]),
    // The system text comes after the opening of the model's turn.
    ("gemma", GEMMA),
    ("gemma2", &[
        Literal("<start_of_turn>user\n"), User, Literal("<end_of_turn>\n<start_of_turn>model\n"),
    ]),
    ("gemma3", GEMMA),
    ("gemma4", &[
        System("<|turn>system\n", "<turn|>\n"),
        Literal("<|turn>user\n"), User, Literal("<turn|>\n<|turn>model\n"),
    ]),
    ("granite", &[
        System("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
        Literal("<|start_of_role|>user<|end_of_role|>"), User,
        Literal("<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"),
    ]),
    ("phi_4_mini", &[
        System("<|system|>", "<|end|>"),
        Literal("<|user|>"), User, Literal("<|end|><|assistant|>"),
    ]),
    ("qwen2_5", &[User]),
    // The system turn comes after the user's, and no line end after the last word.
    ("qwen3", &[
        Literal("<|im_start|>user\n"), User, Literal("<|im_end|>\n"),
        System("<|im_start|>system\n", "<|im_end|>\n"),
        Literal("<|im_start|>assistant"),
    ]),
    ("smollm2_135m", &[
        System("<|im_start|>system\n", "<|im_end|>\n"),
        Literal("<|im_start|>user\n"), User, Literal("<|im_end|>\n<|im_start|>assistant\n\n"),
    ]),
    // The system turn is not closed.
    ("smollm3", &[
        System("<|im_start|>system\n", "\n\n"),
        Literal("<|im_start|>user\n"), User, Literal("<|im_end|>\n<|im_start|>assistant\n"),
    ]),
    ("codegen", &[User]),
    ("glm", &[
        Literal("<|user|>\n"), User, System("<|system|>\n", ""), Literal("<|assistant|>\n"),
    ]),
];

const GEMMA: &[Part] = &[
    Literal("<start_of_turn>user\n"),
    User,
    Literal("<end_of_turn>\n<start_of_turn>model\n"),
    System("", "<end_of_turn>\n"),
];

/// Writes prompts in one family's template.
#[derive(Debug, Clone, Copy)]
pub struct Template(&'static [Part]);

impl Template {
    /// The template of `family`; an unknown name is refused with the known ones.
    pub fn of(family: &str) -> Result<Self> {
        let found = TEMPLATES.iter().find(|(name, _)| *name == family);
        found.map(|&(_, parts)| Self(parts)).ok_or_else(|| {
            let names: Vec<&str> = TEMPLATES.iter().map(|&(name, _)| name).collect();
            let message = format!("--decoder_model_version {family:?} is none of {}", names.join(", "));
            Error::new(Status::InvalidArgument, message)
        })
    }

    /// The prompt of one turn. An empty text stays empty, so that the runner can refuse it.
    pub fn render(self, texts: Texts<'_>) -> String {
        if texts.user.is_empty() {
            return String::new();
        }
        let mut prompt = String::new();
        for &part in self.0 {
            match part {
                Literal(text) => prompt.push_str(text),
                User => prompt.push_str(texts.user),
                System(..) if texts.system.is_empty() => {}
                System(before, after) => prompt.extend([before, texts.system, after]),
            }
        }
        prompt
    }
}

/// What goes into a template.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    /// What the user asks.
    pub user: &'a str,
    /// What kind of assistant the model should be; possibly empty.
    pub system: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_as_upstream_writes_it() {
        for (family, plain, with_system) in [
            ("llama2", "U", "U"),
            (
                "llama3",
                "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
                "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU\
                 <|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
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
            ("phi_4_mini", "<|user|>U<|end|><|assistant|>", "<|system|>S<|end|><|user|>U<|end|><|assistant|>"),
            (
                "qwen3",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant",
            ),
            (
                "smollm3",
                "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
                "<|im_start|>system\nS\n\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n",
            ),
            ("glm", "<|user|>\nU<|assistant|>\n", "<|user|>\nU<|system|>\nS<|assistant|>\n"),
        ] {
            let template = Template::of(family).unwrap();
            assert_eq!(template.render(Texts { user: "U", system: "" }), plain, "{family}");
            assert_eq!(template.render(Texts { user: "U", system: "S" }), with_system, "{family}");
        }
    }

    #[test]
    fn an_unknown_family_is_refused_with_the_known_ones() {
        let error = Template::of("llama4").unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.chain().contains("\"llama4\" is none of llama2, llama3, gemma, gemma2, gemma3, gemma4, granite"));
    }

    #[test]
    fn an_empty_text_stays_empty() {
        let template = Template::of("llama3").unwrap();
        assert_eq!(template.render(Texts { user: "", system: "S" }), "");
    }
}
