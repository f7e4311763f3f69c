//! A deterministic stand-in for a `forward(tokens, input_pos)` program: its logits are a hash of every token of the
//! context at its position, read from a cache of its own that `input_pos` writes to, or, without one, from the tokens of
//! the call. Any error in tokens, positions, sizes or order therefore changes the next token, and [`FakeText::next`] says
//! from the token sequence alone which one is right.
#![allow(dead_code)] // Each test program uses its own part.

use crate::fake_module::{Probe, fault, mix};
use llama_runner::runtime::{IoArena, IoSlice, MethodId, MethodInfo, Module, Profile, TensorInfo, Value};
use llama_runner::tensor::{DType, Dims};
use llama_runner::tokenizer::TokenId;
use llama_runner::{Error, Result, Status};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a method takes for positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pos {
    /// Nothing: it has no cache.
    None,
    /// `[1]`.
    Start,
    /// `[S]`.
    Each,
}

/// What a method gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// `[1, V]`.
    Last,
    /// `[1, 1, V]`.
    Last3,
    /// `[1, S, V]`.
    Every,
}

/// One method.
#[derive(Debug, Clone)]
pub struct FakeMethod {
    pub name: &'static str,
    /// Most tokens of a call, or their only number.
    pub most: usize,
    pub dynamic: bool,
    pub pos: Pos,
    pub rows: Rows,
}

impl Default for FakeMethod {
    /// As `export_llm` makes them.
    fn default() -> Self {
        Self { name: "forward", most: 63, dynamic: true, pos: Pos::Start, rows: Rows::Last }
    }
}

/// The program to stand in for.
#[derive(Debug, Clone)]
pub struct FakeText {
    pub methods: Vec<FakeMethod>,
    /// Positions of the cache.
    pub cache: usize,
    pub vocab: usize,
    pub tokens: DType,
    pub logits: DType,
    pub planned_inputs: bool,
    pub planned_outputs: bool,
    /// Tokens that a call should take at most.
    pub chunk: Option<usize>,
    /// Tokens that come out at a position whatever the context is.
    pub forced: BTreeMap<usize, TokenId>,
    /// Whether the cache can be saved and restored.
    pub shows_states: bool,
    pub constants: BTreeMap<&'static str, Vec<Value>>,
}

impl Default for FakeText {
    fn default() -> Self {
        Self {
            methods: vec![FakeMethod::default()],
            cache: 64,
            vocab: 97,
            tokens: DType::I64,
            logits: DType::F32,
            planned_inputs: false,
            planned_outputs: true,
            chunk: None,
            forced: BTreeMap::new(),
            shows_states: true,
            constants: BTreeMap::from([
                ("get_max_seq_len", vec![Value::Int(64)]),
                ("get_max_context_len", vec![Value::Int(64)]),
                ("use_kv_cache", vec![Value::Bool(true)]),
                ("enable_dynamic_shape", vec![Value::Bool(true)]),
            ]),
        }
    }
}

impl FakeText {
    /// The default without a cache.
    pub fn without_cache(rows: Rows, dynamic: bool) -> Self {
        let mut model = Self::default();
        model.methods[0] = FakeMethod { pos: Pos::None, rows, dynamic, ..FakeMethod::default() };
        model.constants.insert("use_kv_cache", vec![Value::Bool(false)]);
        model
    }

    /// Another statement of the program.
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.constants.insert(name, vec![value]);
        self
    }

    /// One statement fewer.
    pub fn without(mut self, name: &str) -> Self {
        self.constants.remove(name);
        self
    }

    /// Logits after the last of `tokens`.
    fn row(&self, tokens: &[i64]) -> Vec<f32> {
        let add = |sum: u64, (at, &token): (usize, &i64)| sum.wrapping_add(mix(mix(at as u64 + 1) ^ token as u64));
        let state = tokens.iter().enumerate().fold(0, add);
        // Eight bits, which every type of logits holds exactly.
        let mut row: Vec<f32> = (0..self.vocab as u64).map(|id| (mix(state ^ mix(id)) >> 56) as f32).collect();
        if let Some(&token) = self.forced.get(&(tokens.len() - 1)) {
            row[token as usize] = 300.0;
        }
        row
    }

    /// The likeliest token after `tokens`.
    pub fn next(&self, tokens: &[TokenId]) -> TokenId {
        let row = self.row(&tokens.iter().map(|&token| token as i64).collect::<Vec<_>>());
        (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best }) as TokenId
    }

    /// `n` greedy tokens after `context`.
    pub fn greedy(&self, context: &[TokenId], n: usize) -> Vec<TokenId> {
        let mut all = context.to_vec();
        for _ in 0..n {
            all.push(self.next(&all));
        }
        all.split_off(context.len())
    }

    /// The program, and handles on it: failures and hooks, and the calls so far as (method, tokens, first position).
    pub fn module(&self) -> (Box<dyn Module>, Arc<Probe>, Calls) {
        let (probe, calls) = (Arc::new(Probe::default()), Calls::default());
        let methods = self.methods.iter().map(|method| Loaded::new(self, method)).collect();
        let cache = vec![None; self.cache];
        let module = FakeTextModule { model: self.clone(), methods, cache, probe: probe.clone(), calls: calls.clone() };
        (Box::new(module), probe, calls)
    }
}

/// What was executed: method, tokens, first position.
pub type Calls = Arc<Mutex<Vec<(&'static str, usize, usize)>>>;

struct Loaded {
    method: FakeMethod,
    info: MethodInfo,
    inputs: Vec<Option<IoSlice>>,
    output: Option<IoSlice>,
    /// Current sizes of the inputs.
    dims: Vec<Dims>,
    /// What planned logits hold.
    memory: Vec<u64>,
    out_dims: Dims,
}

impl Loaded {
    fn new(model: &FakeText, method: &FakeMethod) -> Self {
        let info =
            |dtype, dims: Dims, dynamic, planned| Some(TensorInfo { dtype, dims, dynamic, planned, encoding: None });
        let FakeMethod { most, dynamic, .. } = *method;
        let mut inputs = vec![info(model.tokens, vec![1, most], dynamic, model.planned_inputs)];
        match method.pos {
            Pos::None => {}
            Pos::Start => inputs.push(info(DType::I64, vec![1], false, model.planned_inputs)),
            Pos::Each => inputs.push(info(DType::I64, vec![most], dynamic, model.planned_inputs)),
        }
        let out = match method.rows {
            Rows::Last => vec![1, model.vocab],
            Rows::Last3 => vec![1, 1, model.vocab],
            Rows::Every => vec![1, most, model.vocab],
        };
        let outputs = vec![info(model.logits, out.clone(), dynamic, model.planned_outputs)];
        Self {
            method: method.clone(),
            inputs: vec![None; inputs.len()],
            output: None,
            dims: inputs.iter().flatten().map(|info| info.dims.clone()).collect(),
            memory: vec![0; outputs[0].as_ref().unwrap().byte_len().div_ceil(8)],
            out_dims: out,
            info: MethodInfo { name: method.name.to_owned(), inputs, outputs },
        }
    }
}

fn check_slice(info: Option<&TensorInfo>, arena: &IoArena, slice: IoSlice) -> Result<()> {
    let info = info.ok_or_else(|| fault("no such input or output"))?;
    match slice.len == info.byte_len() && slice.end() <= arena.capacity() && slice.offset.is_multiple_of(8) {
        true => Ok(()),
        false => Err(fault(format!("{slice:?} does not fit {info:?}"))),
    }
}

fn ints(arena: &IoArena, slice: Option<IoSlice>, dtype: DType, count: usize) -> Result<Vec<i64>> {
    let slice = slice.ok_or_else(|| fault("an input is not bound"))?;
    let all: Vec<i64> = match dtype {
        DType::I64 => arena.typed::<i64>(slice).to_vec(),
        _ => arena.typed::<i32>(slice).iter().map(|&int| int.into()).collect(),
    };
    Ok(all[..count].to_vec())
}

struct FakeTextModule {
    model: FakeText,
    methods: Vec<Loaded>,
    /// The token at each position.
    cache: Vec<Option<i64>>,
    probe: Arc<Probe>,
    calls: Calls,
}

impl FakeTextModule {
    /// Rows of logits for a call of `tokens`.
    fn run(&mut self, method: &FakeMethod, tokens: &[i64], positions: &[i64]) -> Result<Vec<Vec<f32>>> {
        if let Some(token) = tokens.iter().find(|&&token| token < 0 || token >= self.model.vocab as i64) {
            return Err(fault(format!("token {token} is outside the vocabulary")));
        }
        let mut rows = Vec::new();
        for (at, &token) in tokens.iter().enumerate() {
            if method.pos == Pos::None {
                rows.push(self.model.row(&tokens[..=at]));
                continue;
            }
            let position = positions[at] as usize;
            let Some(cell) = self.cache.get_mut(position) else {
                return Err(fault(format!("position {position} is beyond the cache")));
            };
            *cell = Some(token);
            let seen = self.cache[..=position].iter().copied().collect::<Option<Vec<i64>>>();
            let seen = seen.ok_or_else(|| fault(format!("a position before {position} was never written")))?;
            rows.push(self.model.row(&seen));
        }
        if method.rows != Rows::Every {
            rows.drain(..rows.len() - 1);
        }
        Ok(rows)
    }
}

impl Module for FakeTextModule {
    fn method_names(&self) -> Vec<String> {
        let methods = self.model.methods.iter().map(|method| method.name.to_owned());
        methods.chain(self.model.constants.keys().map(|name| (*name).to_owned())).collect()
    }

    fn load_method(&mut self, name: &str) -> Result<MethodId> {
        let index = self.methods.iter().position(|method| method.info.name == name);
        index.map(MethodId).ok_or_else(|| Error::new(Status::NotFound, name))
    }

    fn method_info(&self, method: MethodId) -> &MethodInfo {
        &self.methods[method.0].info
    }

    fn constant(&mut self, name: &str) -> Result<Option<Vec<Value>>> {
        Ok(self.model.constants.get(name).cloned())
    }

    fn bind_input(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        let method = &mut self.methods[method.0];
        check_slice(method.info.inputs[index].as_ref(), arena, slice)?;
        method.inputs[index] = Some(slice);
        Ok(())
    }

    fn bind_output(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        let method = &mut self.methods[method.0];
        check_slice(method.info.outputs[index].as_ref(), arena, slice)?;
        method.output = Some(slice);
        Ok(())
    }

    fn resize_input(&mut self, method: MethodId, index: usize, dims: &[usize]) -> Result<()> {
        let method = &mut self.methods[method.0];
        let info = method.info.inputs[index].as_ref().expect("a tensor");
        let fits =
            dims.len() == info.dims.len() && dims.iter().zip(&info.dims).all(|(dim, bound)| (1..=*bound).contains(dim));
        if !info.dynamic || !fits {
            return Err(fault(format!("{dims:?} for {info:?}")));
        }
        method.dims[index] = dims.to_vec();
        Ok(())
    }

    fn visit_states(&mut self, visit: &mut dyn FnMut(&str, &mut [u8])) -> bool {
        if !self.model.shows_states {
            return false;
        }
        let mut bytes: Vec<u8> = self.cache.iter().flat_map(|token| token.unwrap_or(-1).to_le_bytes()).collect();
        visit("cache", &mut bytes);
        let tokens = bytes.chunks_exact(8).map(|token| i64::from_le_bytes(token.try_into().expect("eight bytes")));
        self.cache = tokens.map(|token| Some(token).filter(|&token| token >= 0)).collect();
        true
    }

    fn chunk(&self, _: MethodId) -> Option<usize> {
        self.model.chunk
    }

    fn execute(&mut self, id: MethodId, arena: &mut IoArena) -> Result<()> {
        if let Some(hook) = &mut *self.probe.hook.lock() {
            hook();
        }
        let call = self.probe.executions.fetch_add(1, Ordering::SeqCst) + 1;
        if call == self.probe.fail_at.load(Ordering::SeqCst) {
            return Err(fault("the fake device is gone"));
        }
        let loaded = &self.methods[id.0];
        let method = loaded.method.clone();
        let n = loaded.dims[0][1];
        let tokens = ints(arena, loaded.inputs[0], self.model.tokens, n)?;
        let positions = match method.pos {
            Pos::None => vec![0],
            Pos::Start => {
                let start = ints(arena, loaded.inputs[1], DType::I64, 1)?[0];
                (start..start + n as i64).collect()
            }
            Pos::Each if loaded.dims[1] != [n] => return Err(fault("as many positions as tokens are needed")),
            Pos::Each => ints(arena, loaded.inputs[1], DType::I64, n)?,
        };
        self.calls.lock().push((method.name, n, positions[0] as usize));
        let rows = self.run(&method, &tokens, &positions)?;

        let vocab = self.model.vocab;
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(|&logit| encode(logit, self.model.logits)).collect();
        let loaded = &mut self.methods[id.0];
        loaded.out_dims = match method.rows {
            Rows::Last => vec![1, vocab],
            _ => vec![1, rows.len(), vocab],
        };
        match loaded.output {
            None if !self.model.planned_outputs => Err(fault("the output is not bound")),
            None => {
                bytemuck::cast_slice_mut(&mut loaded.memory)[..bytes.len()].copy_from_slice(&bytes);
                Ok(())
            }
            Some(slice) => {
                arena.bytes_mut(slice)[..bytes.len()].copy_from_slice(&bytes);
                Ok(())
            }
        }
    }

    fn output<'a>(&'a self, method: MethodId, _: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        let method = &self.methods[method.0];
        let len = method.out_dims.iter().product::<usize>() * self.model.logits.size();
        let bytes = match method.output {
            None => &bytemuck::cast_slice(&method.memory)[..len],
            Some(slice) => &arena.bytes(slice)[..len],
        };
        Ok((method.out_dims.clone(), bytes))
    }

    fn take_profile(&mut self) -> Option<Profile> {
        Some(Profile { dropped: self.probe.executions() as u64, ..Profile::default() })
    }
}

fn encode(logit: f32, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => half::f16::from_f32(logit).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(logit).to_le_bytes().to_vec(),
        DType::U16 => (logit as u16).to_le_bytes().to_vec(),
        _ => logit.to_le_bytes().to_vec(),
    }
}
