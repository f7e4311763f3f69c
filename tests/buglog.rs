//! Public reports and measured faults of the C++ runners that no other test names, tried as a user would meet them.

#[path = "common/cli.rs"]
mod cli;
mod common;
#[path = "common/fake_module.rs"]
mod fake_module;

use cli::{Run, qnn_llama_runner};
use common::model;
use fake_module::{FakeModel, FakeTokenizer};
use llama_runner::runner::{GenerationConfig, Prompt, Runner, RunnerOptions};
use llama_runner::{Status, tokenizer};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn run(program: &Path, more: &[&str]) -> Run {
    let paths = [
        format!("--model_path={}", program.display()),
        format!("--tokenizer_path={}", model("tok512.et.bin").display()),
    ];
    qnn_llama_runner(paths.into_iter().chain(more.iter().map(|&arg| arg.to_owned())))
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o5_the_log_names_each_library_with_its_path_and_build() {
    let run = run(&model("qnn/ec8f0994ff.pte"), &["--log_level=info", "--prompt=a", "--max_decode_steps=0"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let dir = std::path::absolute(common::qnn_lib_dir().unwrap()).unwrap();
    for (file, words) in [("libQnnHtp.so", "library build v2."), ("libQnnSystem.so", "system interface 1.")] {
        let path = dir.join(file).display().to_string();
        let named = run.stderr.lines().any(|line| line.contains(&path) && line.contains(words));
        assert!(named, "{path} and {words} in {}", run.stderr);
    }
    // QNN writes a line of its own, and it is not among ours.
    assert!(!run.stdout.contains("LIBNATIVE") && run.stdout.lines().count() == 1, "{}", run.stdout);
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn o24_each_way_to_fail_says_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let good = model("qnn/ec8f0994ff.pte");
    let damaged = dir.path().join("damaged.pte");
    let text = dir.path().join("text.pte");
    let mut bytes = std::fs::read(&good).unwrap();
    bytes[4..8].copy_from_slice(b"ET99");
    std::fs::write(&damaged, &bytes).unwrap();
    std::fs::write(&text, "no program").unwrap();
    let missing = dir.path().join("missing.pte");
    let runs = [
        run(&missing, &[]),
        run(dir.path(), &[]),
        run(&text, &[]),
        run(&damaged, &[]),
        run(&good, &["--tokenizer_path=missing.bin"]),
        run(&good, &["--eval_mode=9"]),
        run(&good, &["--decoder_model_version=llama9"]),
        run(&good, &["--qnn_lib_dir=/no/such/directory"]),
    ];
    assert!(runs.iter().all(Run::failed_cleanly));
    let messages: BTreeSet<&str> = runs.iter().flat_map(Run::errors).collect();
    assert_eq!(messages.len(), runs.len(), "{messages:?}");
}

/// Upstream reads a row that is not there in mode 1, and crashes in mode 0.
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn a_program_that_decodes_64_rows_a_step_says_the_same_in_every_mode() {
    let prompt = ["--prompt=Once upon a time", "--max_decode_steps=4"];
    let tokens = |file: &str, mode: &[&str]| {
        let run = run(&model(file), &[&prompt, mode].concat());
        assert_eq!(run.code, Some(0), "{mode:?}: {}", run.stderr);
        run.tokens()
    };
    let plain = tokens("qnn/qnn_s260k_hybrid_ar32.pte", &[]);
    assert_eq!(plain[0].len(), 5);
    // The last one uses fewer rows than the step has, which upstream crashes on.
    let sizes = ["--eval_mode=2", "--ngram=3", "--window=2", "--gcap=2"];
    for mode in [&["--eval_mode=0"][..], &["--eval_mode=1"], &sizes] {
        assert_eq!(tokens("qnn/qnn_s260k_lookahead_ar32.pte", mode), plain, "{mode:?}");
    }
}

/// A decode step of 64 rows leaves a cache of 64 positions in a context of 128.
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn)), ignore = "needs LLR_QNN_LIB_DIR: libQnnHtp.so")]
#[test]
fn o16_an_answer_cut_by_the_cache_is_told_with_the_length_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let ids = dir.path().join("ids.bin");
    std::fs::write(&ids, [403u64; 63].map(u64::to_le_bytes).concat()).unwrap();
    let tokens = format!("--tokenized_prompt={}", ids.display());
    let run = run(&model("qnn/qnn_s260k_lookahead_ar32.pte"), &["--eval_mode=1", &tokens]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let words = "the answer stopped at 65 tokens without an end token: the model's context is full";
    assert!(run.stderr.contains(words), "{}", run.stderr);
}

/// An SDK that is older than the model's cannot read it.
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[cfg_attr(all(have_shared, not(have_qnn_sdks)), ignore = "needs LLR_QNN_SDK_DIRS: libQnnHtp.so of several SDKs")]
#[test]
fn o9_an_sdk_older_than_the_model_is_named_with_both_builds() {
    let refused: Vec<Run> = common::qnn_sdk_dirs()
        .iter()
        .map(|dir| {
            let dir = format!("--qnn_lib_dir={}", dir.display());
            run(&model("qnn/qnn_s260k_hybrid_ar32.pte"), &[&dir, "--prompt=a", "--max_decode_steps=0"])
        })
        .filter(|run| run.code != Some(0))
        .collect();
    for run in &refused {
        assert!(run.failed_cleanly(), "{}", run.stderr);
        assert_eq!(run.code, Some(48), "{}", run.stderr);
        let error = run.errors()[0];
        for words in ["5000 (0x1388)", "model build v2.49.40", "library build v2.4", "older than the model"] {
            assert!(error.contains(words), "{words:?} in {error}");
        }
    }
    assert!(refused.len() < common::qnn_sdk_dirs().len(), "one of them must know the model");
}

#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
#[test]
fn o14_a_megabyte_of_text_is_refused_soon_whatever_the_tokenizer() {
    let texts = ["a".repeat(1 << 20), " ".repeat(1 << 20), "\u{1f600}".repeat(1 << 18), "ab \n".repeat(1 << 18)];
    for name in ["tok512.bin", "tok512.et.bin", "tok512.model", "story/tokenizer.json"] {
        let tokenizer = tokenizer::load(&model(name)).unwrap();
        let fake = FakeModel { vocab: tokenizer.vocab_size(), ..FakeModel::default() };
        let mut runner = Runner::load(fake.module().0, tokenizer, RunnerOptions::default()).unwrap();
        for text in &texts {
            let began = Instant::now();
            let config = GenerationConfig::default();
            let made = runner.generate(Prompt::Text(text), &config, &mut |_| ControlFlow::Continue(()));
            let status = made.err().map(|error| error.status());
            // SentencePiece makes one space of many.
            let fits = text.trim().is_empty() && status.is_none();
            assert!(fits || status == Some(Status::ContextExceeded), "{name}: {status:?}");
            assert!(fits || runner.position() == 0);
            runner.reset();
            assert!(began.elapsed() < Duration::from_secs(10), "{name}: {:?} for {:?}…", began.elapsed(), &text[..4]);
        }
    }
}

#[test]
fn runners_of_different_vocabularies_do_not_disturb_each_other() {
    let models = [97, 190].map(|vocab| FakeModel { vocab, ..FakeModel::default() });
    let load = |model: &FakeModel| {
        Runner::load(model.module().0, Arc::new(FakeTokenizer::default()), RunnerOptions::default()).unwrap()
    };
    let mut runners = models.each_ref().map(load);
    let mut contexts = [vec![1, 5, 9], vec![1, 5, 9]];
    for _ in 0..4 {
        for ((runner, model), context) in runners.iter_mut().zip(&models).zip(&mut contexts) {
            let fresh = context[runner.position()..].to_vec();
            let config = GenerationConfig { max_new_tokens: Some(2), ignore_eos: true, ..GenerationConfig::default() };
            let made = runner.generate(Prompt::Tokens(&fresh), &config, &mut |_| ControlFlow::Continue(())).unwrap();
            assert_eq!(made.tokens, model.greedy(context, 2));
            context.extend(made.tokens);
        }
    }
    assert_ne!(contexts[0], contexts[1]);
}
