//! The built-in model: it runs where no model is named, and is what its recipe makes.

mod common;

use llama_runner::builtin::{self, ProgramOptions, default_model};
use llama_runner::runner::{GenerationConfig, Prompt, Runner, RunnerOptions};
use llama_runner::tokenizer;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

fn asset(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name)
}

fn llama_main(args: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_llama_main")).current_dir(folder.path()).args(args).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{stderr}");
    (stdout, stderr)
}

#[test]
fn a_story_comes_without_any_file() {
    let common = ["--prompt=Once upon a time", "--temperature=0", "--max_new_tokens=24"];
    let (stdout, stderr) = llama_main(&common);
    assert!(stdout.starts_with("Once upon a time, there was a cheerful girl named Uma."), "{stdout}");
    let line =
        "--model_path is not given and there is no llama2.pte: the model that is built in (assets/story.pte) runs";
    assert!(stderr.contains(line), "{stderr}");

    let [model, tokenizer] = ["story.pte", "tokenizer.json"].map(|name| asset(name).display().to_string());
    let named = [format!("--model_path={model}"), format!("--tokenizer_path={tokenizer}")];
    let named: Vec<&str> = named.iter().map(String::as_str).chain(common).collect();
    let (of_file, stderr) = llama_main(&named);
    let story = |stdout: &str| stdout.split_once("PyTorchObserver").unwrap().0.to_owned();
    assert_eq!(story(&of_file), story(&stdout));
    assert!(!stderr.contains("built in"), "{stderr}");
}

/// Its logits have more rows than its tokenizer has tokens; a hot turn draws such ones too.
#[test]
fn tokens_without_a_text_do_not_end_a_turn() {
    let program = builtin::open_default_program(&ProgramOptions::default()).unwrap();
    let tokenizer = tokenizer::from_bytes(default_model::TOKENIZER, Path::new(default_model::NAME)).unwrap();
    let vocab = tokenizer.vocab_size() as u64;
    let mut runner = Runner::load(program, tokenizer, RunnerOptions::default()).unwrap();
    let config =
        GenerationConfig { temperature: 5.0, max_new_tokens: Some(200), ignore_eos: true, ..Default::default() };
    let mut textless = 0;
    let turn = runner.generate(Prompt::Text("Once"), &config, &mut |event| {
        if event.token >= vocab {
            assert!(event.piece.is_empty());
            textless += 1;
        }
        ControlFlow::Continue(())
    });
    assert_eq!(turn.unwrap().tokens.len(), 200);
    assert!(textless > 0);
}

/// The flags in `assets/README.md`, as a shell splits them.
fn recipe() -> Vec<String> {
    let text = fs::read_to_string(asset("README.md")).unwrap();
    let (_, rest) = text.split_once("llr export ").expect("the command");
    let (command, _) = rest.split_once("```").expect("its end");
    let mut words = Vec::new();
    for (index, part) in command.replace("\\\n", " ").split('"').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn the_recipe_makes_the_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("story.pte");
    let mut words = recipe();
    let output = words.iter().position(|word| word == "assets/story.pte").expect("the output");
    words[output] = path.display().to_string();
    let mut llr = Command::new(env!("CARGO_BIN_EXE_llr"));
    let run = llr.current_dir(env!("CARGO_MANIFEST_DIR")).arg("export").args(&words).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let [made, kept] = [path, asset("story.pte")].map(|path| fs::read(path).unwrap());
    assert!(made == kept, "{} bytes were made, {} are in assets", made.len(), kept.len());
    let tokenizer = fs::read(common::model("story/tokenizer.json")).unwrap();
    assert_eq!(tokenizer, fs::read(asset("tokenizer.json")).unwrap());
}
