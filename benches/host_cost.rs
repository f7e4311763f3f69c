//! What the host spends on a token around `graphExecute`: real programs on a device that takes no time.
//!
//! `LLR_QNN_LIB_DIR=$(scripts/fetch-qnn 2.5.0) cargo bench --bench host_cost`
//!
//! The programs are those of `../shared/models/qnn`; their contents come from the real libQnnSystem.so, only the backend
//! is a fake whose `graphExecute` returns at once. Each line is a median over turns of a whole context, in µs a token:
//! the whole iteration of the decode loop; inside `Module::execute` (executor and delegate, process-wide lock
//! included); the rest, which is the runner's own; and of the rest the greedy choice and the cache update, each
//! measured by itself in the same run.

#[path = "../tests/common/mod.rs"]
mod common;

use llama_runner::builtin;
use llama_runner::error::Result;
use llama_runner::pte::Program;
use llama_runner::qnn::fake::Fake;
use llama_runner::qnn::{LibraryOptions, QnnBackend, QnnOptions};
use llama_runner::runner::buffer_alloc::{BufferAlloc, Memory};
use llama_runner::runner::kv_manager::{CacheLimits, CacheShape, KvManager};
use llama_runner::runner::{EvalMode, GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions, TokenEvent};
use llama_runner::runtime::{BackendRegistry, IoArena, IoSlice, MethodId, MethodInfo, Module, NativeModule, Value};
use llama_runner::tensor::Dims;
use llama_runner::tokenizer;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A module that counts the time spent in `execute`.
struct Timed {
    inner: NativeModule,
    nanoseconds: Arc<AtomicU64>,
}

impl Module for Timed {
    fn method_names(&self) -> Vec<String> {
        self.inner.method_names()
    }
    fn load_method(&mut self, name: &str) -> Result<MethodId> {
        self.inner.load_method(name)
    }
    fn method_info(&self, method: MethodId) -> &MethodInfo {
        self.inner.method_info(method)
    }
    fn constant(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        self.inner.constant(name)
    }
    fn bind_input(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.inner.bind_input(method, index, arena, slice)
    }
    fn bind_output(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        self.inner.bind_output(method, index, arena, slice)
    }
    fn resize_input(&mut self, method: MethodId, index: usize, dims: &[usize]) -> Result<()> {
        self.inner.resize_input(method, index, dims)
    }
    fn execute(&mut self, method: MethodId, arena: &mut IoArena) -> Result<()> {
        let began = Instant::now();
        let done = self.inner.execute(method, arena);
        self.nanoseconds.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }
    fn output<'a>(&'a self, method: MethodId, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        self.inner.output(method, index, arena)
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// µs a call of `body`, the median of many batches.
fn measure(mut body: impl FnMut()) -> f64 {
    const BATCH: u32 = 100;
    let batch = |_| {
        let began = Instant::now();
        (0..BATCH).for_each(|_| body());
        began.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
    };
    median((0..300).map(batch).collect())
}

/// The cache update alone: five layers of stories260K (four heads of eight), one token.
fn cache_update(updater: KvUpdater, per_head: bool) -> f64 {
    let heads = if per_head { 1 } else { 4 };
    let tensors = 20 / heads;
    let key = CacheShape { rows: heads * 8, inner: 1, element_size: 1 };
    let value = CacheShape { rows: heads, inner: 8, element_size: 1 };
    let shapes: Vec<_> = [vec![key; tensors], vec![value; tensors]].concat();
    let mut buffers = BufferAlloc::default();
    let limits = CacheLimits { cache_len: 127, ar: 1 };
    let mut cache = KvManager::plan(&mut buffers, updater, &shapes, limits).expect("sizes fit");
    let mut arena = buffers.allocate(Memory::ClientMem).expect("memory");
    cache.reset(&mut arena);
    let mut room = 0;
    measure(|| {
        if room == 0 {
            cache.rewind(&mut arena, 1);
            room = 126;
        }
        cache.append(&mut arena, 1);
        room -= 1;
    })
}

fn main() {
    let models = common::shared().join("models");
    if common::qnn_lib_dir().is_none() || !models.is_dir() {
        println!("host_cost: needs LLR_QNN_LIB_DIR and ../shared/models");
        return;
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load of this machine: {}", load.trim());
    println!("µs a token                          whole  execute  the rest  of which: cache update");
    let real = QnnBackend::new(QnnOptions { library: LibraryOptions::default(), ..QnnOptions::default() });
    let system = *real.library().expect("QNN loads").system().expect("libQnnSystem.so");
    for (file, updater) in [
        ("ec8f0994ff.pte", KvUpdater::SmartMask),
        ("00e3f99401.respec.pte", KvUpdater::SmartMask),
        ("00e3f99401.respec.pte", KvUpdater::ShiftPointer),
    ] {
        let fake = Fake::new();
        let backend = QnnBackend::with_library(fake.library_with_system(system), QnnOptions::default());
        let mut backends = BackendRegistry::default();
        backends.register(Arc::new(backend));
        let program = Program::open(&models.join("qnn").join(file)).expect("the program opens");
        let inner = NativeModule::new(program, builtin::kernels(), backends).expect("the module loads");
        let nanoseconds = Arc::new(AtomicU64::new(0));
        let module = Timed { inner, nanoseconds: Arc::clone(&nanoseconds) };
        let options =
            RunnerOptions { eval_mode: Some(EvalMode::Hybrid), kv_updater: updater, ..RunnerOptions::default() };
        let tokenizer = tokenizer::load(&models.join("tok512.et.bin")).expect("the tokenizer loads");
        let mut runner = Runner::load(Box::new(module), tokenizer, options).expect("the runner loads");
        fake.set_null_device(true);
        let config = GenerationConfig { ignore_eos: true, ..GenerationConfig::default() };
        let (mut whole, mut execute) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            runner.reset();
            nanoseconds.store(0, Ordering::Relaxed);
            let mut decoding = None;
            let mut inside_prefill = 0;
            let mut tokens = 0.0;
            let mut on_token = |_: &TokenEvent<'_>| {
                if decoding.is_none() {
                    inside_prefill = nanoseconds.load(Ordering::Relaxed);
                    decoding = Some(Instant::now());
                } else {
                    tokens += 1.0;
                }
                ControlFlow::Continue(())
            };
            runner.generate(Prompt::Tokens(&[1, 403, 407, 261, 378]), &config, &mut on_token).expect("a turn");
            let elapsed = decoding.expect("a first token").elapsed().as_secs_f64();
            whole.push(elapsed * 1e6 / tokens);
            execute.push((nanoseconds.load(Ordering::Relaxed) - inside_prefill) as f64 / 1e3 / tokens);
        }
        let (whole, execute) = (median(whole), median(execute));
        let update = cache_update(updater, file.starts_with("00e3"));
        let name = format!("{file} {updater:?}");
        println!("{name:<34} {whole:>6.2} {execute:>8.2} {:>9.2} {update:>23.2}", whole - execute);
    }
}
