//! Damaged programs, and sound programs whose context binaries or compile specs are damaged, on a QNN library that is a
//! fake: opened, every method and constant loaded, a runner made of them, a few tokens generated.

use crate::damage::{Rng, damage};
use crate::subjects::{Subject, Subjects};
use crate::worker::{assert_clean, run_program};
use llama_runner::builtin::{self, ProgramOptions};
use llama_runner::engine::Resources;
use llama_runner::ops::GraphCompiler;
use llama_runner::pte::Program;
use llama_runner::qnn::fake::{Call, Fake};
use llama_runner::qnn::{
    BinaryInfo, COMPILE_SPEC_KEY, CompileOptions, QnnBackend, QnnOptions, QnnType, Quantization, TensorInfo, sys,
};
use llama_runner::runner::{EvalMode, GenerationConfig, KvUpdater, LookaheadConfig, Prompt, Runner, RunnerOptions};
use llama_runner::runtime::{Execution, Module, NativeModule};
use llama_runner::tokenizer::{Specials, TokenId, Tokenizer};
use llama_runner::{Error, Result};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// How often a damaged program also goes through `llr inspect`.
const INSPECT_EVERY: u64 = 24;

/// Damaged `.pte` files.
pub fn files() -> Box<dyn FnMut(u64) -> bool> {
    let (subjects, dir) = (Subjects::load(), scratch());
    Box::new(move |seed| {
        let mut rng = Rng::new(seed);
        let subject = subjects.of(seed);
        let mut bytes = subject.bytes.to_vec();
        let part = subject.part(&mut rng);
        damage(&mut rng, &mut bytes, part);
        let path = dir.path().join("damaged.pte");
        std::fs::write(&path, &bytes).expect("a temporary file");
        if seed.is_multiple_of(INSPECT_EVERY) {
            inspect(&path, seed.is_multiple_of(2 * INSPECT_EVERY));
        }
        let is_qnn = !subject.contents.is_empty();
        on_fake(&mut rng, &subject.contents, |rng, fake| run(rng, &path, fake, is_qnn))
    })
}

/// Sound programs whose context binaries hold something else than the program needs.
pub fn contents() -> Box<dyn FnMut(u64) -> bool> {
    let (subjects, dir) = (Subjects::load(), scratch());
    Box::new(move |seed| {
        let mut rng = Rng::new(seed ^ 0xc0de);
        let subject = subjects.of_qnn(seed);
        let mut contents = subject.contents.clone();
        for (_, info) in &mut contents {
            for _ in 0..rng.below(3) {
                spoil(&mut rng, info);
            }
        }
        let path = dir.path().join("sound.pte");
        std::fs::write(&path, &subject.bytes[..]).expect("a temporary file");
        on_fake(&mut rng, &contents, |rng, fake| {
            if rng.one_in(4) {
                fake.set_info_version(rng.pick(&[0, 1, 2, 4, u32::MAX]));
            }
            run(rng, &path, fake, true)
        })
    })
}

/// Sound programs whose compile specs are damaged. Half of them meet a library that fails, whose error speaks of them.
pub fn compile_specs() -> Box<dyn FnMut(u64) -> bool> {
    let (subjects, dir) = (Subjects::load(), scratch());
    Box::new(move |seed| {
        let mut rng = Rng::new(seed ^ 0x5bec);
        let subject = subjects.of_qnn(seed);
        let mut program = subject.program.clone();
        let delegates = program.plans.iter_mut().flat_map(|plan| &mut plan.delegates);
        for spec in delegates.flat_map(|delegate| &mut delegate.compile_specs) {
            let whole = 0..spec.value.len();
            damage(&mut rng, &mut spec.value, whole);
            assert!(CompileOptions::parse(&spec.value).target().len() < 200);
            if rng.one_in(16) {
                spec.key = rng.pick(&["", "qnn_compile_spec ", "other", COMPILE_SPEC_KEY]).to_owned();
            }
        }
        let path = dir.path().join("respec.pte");
        std::fs::write(&path, program.to_bytes().expect("still a program")).expect("a temporary file");
        on_fake(&mut rng, &subject.contents, |rng, fake| {
            if rng.one_in(2) {
                fake.fail(
                    rng.pick(&[Call::ContextCreateFromBinary, Call::DeviceCreate]),
                    rng.pick(&[1002, 5000, 5005, 14001]),
                );
            }
            run(rng, &path, fake, true)
        })
    })
}

pub fn scratch() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Lends `work` a fake library with `contents`, and checks afterwards that everything made with it is gone.
pub fn on_fake(
    rng: &mut Rng,
    contents: &[(usize, BinaryInfo)],
    work: impl FnOnce(&mut Rng, &Fake) -> Result<()>,
) -> bool {
    let fake = Fake::new();
    let contents = contents.to_vec();
    fake.set_model(move |binary| {
        let same_size = contents.iter().find(|(size, _)| *size == binary.len());
        same_size.or(contents.first()).map(|(_, info)| info.clone())
    });
    // Every byte of every output is written, with something else each time.
    let mut bits = rng.next();
    fake.set_executor(move |_, _, outputs| {
        for output in outputs {
            bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let pattern = bits.to_le_bytes();
            output.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, new)| *byte = *new);
        }
    });
    let made = work(rng, &fake);
    assert_eq!((fake.live(), fake.misuse()), (vec![], vec![]), "QNN objects are left");
    made.inspect_err(|error| assert!(!error.chain().is_empty() && !error.chain().contains('\n'))).is_ok()
}

fn run(rng: &mut Rng, path: &Path, fake: &Fake, is_qnn: bool) -> Result<()> {
    // QNN's programs have nothing to compile.
    let executions = [Execution::Auto, Execution::Instructions, Execution::Compiled];
    let mut module = open_with(path, fake, rng.pick(&executions[..if is_qnn { 2 } else { 3 }]))?;
    // Programs of `llama_main` keep their keys and values to themselves, and have no modes.
    let options = if is_qnn { options(rng) } else { RunnerOptions::default() };
    let mut first_error = None;
    for name in module.method_names() {
        let constant = module.constant(&name).map(drop);
        let loaded = module.load_method(&name).map(drop);
        // Either is enough: constants may not be loadable and methods are not constant.
        if let (Err(_), Err(error)) = (constant, loaded) {
            first_error.get_or_insert(error);
        }
    }
    let mut runner = Runner::load(Box::new(module), Arc::new(Letters), options)?;
    converse(&mut runner)?;
    first_error.map_or(Ok(()), Err)
}

/// Opens the program at `path` as [`builtin::open_program`] does, with the fake in QNN's place.
pub fn open(path: &Path, fake: &Fake) -> Result<NativeModule> {
    open_with(path, fake, Execution::Auto)
}

fn open_with(path: &Path, fake: &Fake, execution: Execution) -> Result<NativeModule> {
    let resources = Resources::new(NonZeroUsize::new(1));
    let mut backends = builtin::backends(&ProgramOptions::default(), &resources);
    backends.register(Arc::new(QnnBackend::with_library(fake.library(), QnnOptions::default())));
    let module = NativeModule::new(Program::open(path)?, builtin::kernels(), backends)?;
    Ok(module.with_compiler(Arc::new(GraphCompiler::new(resources)), execution))
}

fn options(rng: &mut Rng) -> RunnerOptions {
    RunnerOptions {
        eval_mode: match rng.below(12) {
            0 => Some(EvalMode::Lookahead),
            1..4 => Some(EvalMode::Kv),
            4..7 => Some(EvalMode::Hybrid),
            _ => None,
        },
        kv_updater: rng.pick(&[KvUpdater::SmartMask, KvUpdater::ShiftPointer]),
        lookahead: Some(LookaheadConfig { ngram: 2, window: 1, gcap: 1 }),
        ..RunnerOptions::default()
    }
}

/// Two turns, then one from the start.
pub fn converse(runner: &mut Runner) -> Result<()> {
    let config = GenerationConfig { max_new_tokens: Some(3), ignore_eos: true, ..GenerationConfig::default() };
    let turn = |runner: &mut Runner, prompt: Prompt<'_>| {
        let generation = runner.generate(prompt, &config, &mut |_| ControlFlow::Continue(()))?;
        assert!((1..=3).contains(&generation.tokens.len()));
        Ok::<_, Error>(())
    };
    turn(runner, Prompt::Tokens(&[1, 0, 2, 3, 0]))?;
    turn(runner, Prompt::Tokens(&[3]))?;
    runner.reset();
    turn(runner, Prompt::Text("a"))
}

fn inspect(path: &Path, json: bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llr"));
    command.env_remove("LLR_QNN_LIB_DIR").arg("inspect").arg(path).args(json.then_some("--json"));
    assert_clean("llr", &run_program(&mut command));
}

/// One thing about a context binary is not what it was.
fn spoil(rng: &mut Rng, info: &mut BinaryInfo) {
    let graph = rng.below(info.graphs.len().max(1));
    let Some(graph) = info.graphs.get_mut(graph) else { return };
    match rng.below(10) {
        0 => info.backend_id = rng.pick(&[0, 4, 6, u32::MAX]),
        1 => graph.name = rng.pick(&["", "kv_forward", "forward", "kv_forward_kv_forward", "\u{fffd}"]).to_owned(),
        2 => {
            let copy = graph.clone();
            info.graphs.push(copy);
        }
        3 => info.graphs.clear(),
        kind => {
            let tensors = if rng.one_in(2) { &mut graph.inputs } else { &mut graph.outputs };
            if tensors.is_empty() {
                return;
            }
            let at = rng.below(tensors.len());
            match kind {
                4 => drop(tensors.remove(at)),
                5 => {
                    let copy = tensors[at].clone();
                    tensors.insert(at, copy);
                }
                6 => {
                    let other = rng.below(tensors.len());
                    tensors.swap(at, other);
                }
                _ => spoil_tensor(rng, &mut tensors[at]),
            }
        }
    }
}

fn spoil_tensor(rng: &mut Rng, tensor: &mut TensorInfo) {
    match rng.below(6) {
        0 => {
            tensor.data_type = QnnType(rng.pick(&[
                0,
                sys::QNN_DATATYPE_FLOAT_32,
                sys::QNN_DATATYPE_SFIXED_POINT_4,
                sys::QNN_DATATYPE_UFIXED_POINT_16,
                sys::QNN_DATATYPE_INT_8,
                sys::QNN_DATATYPE_BOOL_8,
            ]))
        }
        1 => {
            tensor.dims =
                rng.pick(&[&[][..], &[0], &[1], &[usize::from(u16::MAX); 4], &[0xffff_ffff, 2], &[1; 20]]).to_vec()
        }
        2 => {
            if let Some(dim) = tensor.dims.last_mut() {
                *dim = rng.pick(&[*dim + 1, dim.saturating_sub(1), 2 * *dim]);
            }
        }
        3 => {
            tensor.name = rng
                .pick(&["", "input_", "input_99999999999999999999_x", "input_0_x", "output_0", "input_-1"])
                .to_owned()
        }
        4 => tensor.version = rng.pick(&[0, 1, 3, u32::MAX]),
        _ => tensor.quantization = Quantization::Other(rng.pick(&[0, 1, 2, u32::MAX])),
    }
}

/// A tokenizer that knows every token.
struct Letters;

impl Tokenizer for Letters {
    fn format(&self) -> &'static str {
        "letters"
    }

    fn vocab_size(&self) -> usize {
        usize::MAX
    }

    fn bos(&self) -> Option<TokenId> {
        Some(1)
    }

    fn eos(&self) -> &[TokenId] {
        &[2]
    }

    fn id_of(&self, _piece: &str) -> Option<TokenId> {
        None
    }

    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>> {
        Ok(std::iter::repeat_n(1, specials.bos).chain(text.bytes().map(|byte| TokenId::from(byte % 8))).collect())
    }

    fn decode(&self, _previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        Ok(token.to_string().into_bytes())
    }
}

/// A runner of a sound program, for inputs that are something else.
pub fn sound_runner(subject: &Subject, dir: &Path, fake: &Fake, tokenizer: Arc<dyn Tokenizer>) -> Result<Runner> {
    let path = dir.join("sound.pte");
    std::fs::write(&path, &subject.bytes[..]).expect("a temporary file");
    Runner::load(Box::new(open(&path, fake)?), tokenizer, RunnerOptions::default())
}
