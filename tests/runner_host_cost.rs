//! What the host spends on a token outside of `execute`, at the sizes of stories260K: a measurement, to be run with
//! `cargo test --release --test runner_host_cost -- --ignored --nocapture`.

use llama_runner::Result;
use llama_runner::runner::{EvalMode, GenerationConfig, KvUpdater, Prompt, Runner, RunnerOptions};
use llama_runner::runtime::{IoArena, IoSlice, MethodId, MethodInfo, Module, TensorInfo, Value};
use llama_runner::tensor::{DType, Dims};
use llama_runner::tokenizer::{Specials, TokenId, Tokenizer};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// A device that returns at once.
struct NullModule(MethodInfo);

fn tensor(dtype: DType, dims: &[usize]) -> Option<TensorInfo> {
    Some(TensorInfo { dtype, dims: dims.to_vec(), dynamic: false, planned: false, encoding: None })
}

impl NullModule {
    fn new(per_head: bool) -> Self {
        let caches = |len: usize| {
            let (count, key, value) = match per_head {
                true => (20, vec![1, 8, len], vec![1, len, 8]),
                false => (5, vec![1, 4, 8, len], vec![1, 4, len, 8]),
            };
            [key, value].into_iter().flat_map(move |dims| vec![tensor(DType::U8, &dims); count])
        };
        let ints = || tensor(DType::I32, &[1, 1]);
        let inputs = [ints(), tensor(DType::U16, &[1, 1, 128]), ints()].into_iter().chain(caches(127)).collect();
        let outputs = [tensor(DType::U16, &[1, 1, 512])].into_iter().chain(caches(1)).collect();
        Self(MethodInfo { name: "kv_forward".into(), inputs, outputs })
    }
}

impl Module for NullModule {
    fn method_names(&self) -> Vec<String> {
        vec![self.0.name.clone()]
    }
    fn load_method(&mut self, _: &str) -> Result<MethodId> {
        Ok(MethodId(0))
    }
    fn method_info(&self, _: MethodId) -> &MethodInfo {
        &self.0
    }
    fn constant(&mut self, _: &str) -> Result<Option<Vec<Value>>> {
        Ok(None)
    }
    fn bind_input(&mut self, _: MethodId, _: usize, _: &IoArena, _: IoSlice) -> Result<()> {
        Ok(())
    }
    fn bind_output(&mut self, _: MethodId, _: usize, _: &IoArena, _: IoSlice) -> Result<()> {
        Ok(())
    }
    fn resize_input(&mut self, _: MethodId, _: usize, _: &[usize]) -> Result<()> {
        Ok(())
    }
    fn execute(&mut self, _: MethodId, arena: &mut IoArena) -> Result<()> {
        std::hint::black_box(arena);
        Ok(())
    }
    fn output<'a>(&'a self, _: MethodId, _: usize, _: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        Ok((Vec::new(), &[]))
    }
}

struct OneWord;

impl Tokenizer for OneWord {
    fn format(&self) -> &'static str {
        "one word"
    }
    fn vocab_size(&self) -> usize {
        512
    }
    fn bos(&self) -> Option<TokenId> {
        None
    }
    fn eos(&self) -> &[TokenId] {
        &[2]
    }
    fn id_of(&self, _: &str) -> Option<TokenId> {
        None
    }
    fn encode(&self, _: &str, _: Specials) -> Result<Vec<TokenId>> {
        Ok(vec![1])
    }
    fn decode(&self, _: Option<TokenId>, _: TokenId) -> Result<Vec<u8>> {
        Ok(b" word".to_vec())
    }
}

#[test]
#[ignore = "a measurement; wants a release build and a quiet machine"]
fn host_cost_of_a_token() {
    for (per_head, kv_updater) in
        [(false, KvUpdater::SmartMask), (true, KvUpdater::SmartMask), (true, KvUpdater::ShiftPointer)]
    {
        let options = RunnerOptions { eval_mode: Some(EvalMode::Kv), kv_updater, ..Default::default() };
        let mut runner = Runner::load(Box::new(NullModule::new(per_head)), Arc::new(OneWord), options).unwrap();
        let mut turns: Vec<f64> = (0..500)
            .map(|_| {
                runner.reset();
                let config = GenerationConfig::default();
                let began = Instant::now();
                let turn = runner.generate(Prompt::Tokens(&[1]), &config, &mut |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(turn.tokens.len(), 127);
                began.elapsed().as_secs_f64() * 1e6 / 127.0
            })
            .collect();
        turns.sort_by(f64::total_cmp);
        println!("per head: {per_head}, {kv_updater:?}: {:.3} us a token", turns[turns.len() / 2]);
    }
}
