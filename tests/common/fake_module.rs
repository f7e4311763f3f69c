//! A deterministic stand-in for a program: a `Module` of any layout, type and AR pair whose logits depend on exactly
//! what each token attends to. A key or value element is a hash of its token and position; logits are a hash of the
//! elements that the masks uncover, as the method reads them. Any error in cache, mask, positions or tokens therefore
//! changes the next token, and [`FakeModel::next`] says from the token sequence alone which one is right.
#![allow(dead_code)] // Each test program uses its own part.

use llama_runner::runtime::{IoArena, IoSlice, MethodId, MethodInfo, Module, TensorInfo, Value};
use llama_runner::tensor::{DType, Dims, Encoding};
use llama_runner::tokenizer::{Specials, TokenId, Tokenizer};
use llama_runner::{Error, Result, Status};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How keys and values are cut into tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    PerLayer,
    PerHead,
}

/// The program to stand in for.
#[derive(Debug, Clone)]
pub struct FakeModel {
    pub context_len: usize,
    /// Method names with their AR; an AR of `context_len` reads no cache.
    pub methods: Vec<(&'static str, usize)>,
    pub layout: Layout,
    pub layers: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    pub tokens: DType,
    pub cache: DType,
    pub mask: DType,
    pub mask_rank: usize,
    pub logits: DType,
    /// Whether the program has memory of its own for inputs and outputs.
    pub planned: bool,
    /// Adds a second mask of this window, on which half of the hash depends.
    pub window: Option<usize>,
    /// Whether whole-context methods give keys and values.
    pub whole_gives_cache: bool,
    /// Tokens that come out at a position whatever is attended to.
    pub forced: BTreeMap<usize, TokenId>,
    pub constants: BTreeMap<&'static str, Vec<Value>>,
}

impl Default for FakeModel {
    fn default() -> Self {
        Self {
            context_len: 64,
            methods: vec![("prefill_forward", 16), ("kv_forward", 1)],
            layout: Layout::PerLayer,
            layers: 2,
            heads: 2,
            head_dim: 3,
            vocab: 97,
            tokens: DType::I32,
            cache: DType::U8,
            mask: DType::U16,
            mask_rank: 4,
            logits: DType::U16,
            planned: false,
            window: None,
            whole_gives_cache: true,
            forced: BTreeMap::new(),
            constants: BTreeMap::from([("get_n_layers", vec![Value::Int(2)])]),
        }
    }
}

pub fn mix(value: u64) -> u64 {
    let bits = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl FakeModel {
    /// Elements of one position: both halves, every layer, head and dimension.
    fn width(&self) -> usize {
        2 * self.layers * self.heads * self.head_dim
    }

    /// Element `at` of what `token` at `position` puts into the cache.
    fn element(&self, at: usize, token: i64, position: usize) -> u32 {
        let bits = mix(mix(mix(at as u64 + 1) ^ token as u64) ^ position as u64) as u32;
        match self.cache.size() {
            1 => bits & 0xff,
            2 => bits & 0xffff,
            _ => bits,
        }
    }

    /// What attending to a position adds to the state.
    fn contribution(&self, elements: impl Iterator<Item = u32>) -> u64 {
        let sum = elements.zip(1u64..).map(|(element, at)| mix(mix(at) ^ u64::from(element)));
        mix(sum.fold(0, u64::wrapping_add))
    }

    fn own_contribution(&self, token: i64, position: usize) -> u64 {
        self.contribution((0..self.width()).map(|at| self.element(at, token, position)))
    }

    /// Logit codes of a row.
    fn codes(&self, state: u64, position: usize) -> Vec<u32> {
        let mut codes: Vec<u32> = (0..self.vocab as u64)
            .map(|token| (mix(state ^ mix(token)) >> 40) as u32)
            .map(|code| match self.logits {
                DType::U8 => code & 0x7f,
                DType::U16 => code & 0x7fff,
                _ => code,
            })
            .collect();
        if let Some(&token) = self.forced.get(&position) {
            codes[token as usize] = 1 << (if self.logits == DType::U8 { 7 } else { 15 });
        }
        codes
    }

    fn state(full: u64, windowed: u64) -> u64 {
        mix(full).wrapping_add(windowed)
    }

    /// The likeliest token after `tokens`, from one pass over all of them.
    pub fn next(&self, tokens: &[TokenId]) -> TokenId {
        let sum = |first: usize| {
            let contributions = (first..tokens.len()).map(|at| self.own_contribution(tokens[at] as i64, at));
            contributions.fold(0u64, u64::wrapping_add)
        };
        let windowed = self.window.map_or(0, |window| sum(tokens.len().saturating_sub(window)));
        let codes = self.codes(Self::state(sum(0), windowed), tokens.len() - 1);
        (1..codes.len()).fold(0, |best, at| if codes[at] > codes[best] { at } else { best }) as TokenId
    }

    /// `n` greedy tokens after `context`.
    pub fn greedy(&self, context: &[TokenId], n: usize) -> Vec<TokenId> {
        let mut all = context.to_vec();
        for _ in 0..n {
            all.push(self.next(&all));
        }
        all.split_off(context.len())
    }

    /// The program, and a handle on it.
    pub fn module(&self) -> (Box<dyn Module>, Arc<Probe>) {
        let probe = Arc::new(Probe::default());
        let methods = self.methods.iter().map(|&(name, ar)| FakeMethod::new(self, name, ar)).collect();
        (Box::new(FakeModule { model: self.clone(), methods, probe: probe.clone() }), probe)
    }
}

/// Called before an execution.
pub type Hook = Box<dyn FnMut() + Send>;

/// What a test sees and does from outside while a runner owns the module.
#[derive(Default)]
pub struct Probe {
    /// Called before each execution.
    pub hook: Mutex<Option<Hook>>,
    /// Calls of `execute` so far.
    pub executions: AtomicUsize,
    /// The call that fails, counted from 1; 0 for none.
    pub fail_at: AtomicUsize,
    /// Whether logits are NaN, where they are floats.
    pub nan: AtomicBool,
}

impl Probe {
    pub fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }

    /// Makes the `nth` call from now fail, 0 being the next.
    pub fn fail_after(&self, nth: usize) {
        self.fail_at.store(self.executions() + nth + 1, Ordering::SeqCst);
    }
}

struct FakeMethod {
    info: MethodInfo,
    ar: usize,
    cache_len: usize,
    inputs: Vec<Option<IoSlice>>,
    outputs: Vec<Option<IoSlice>>,
    arena: Option<u64>,
}

fn info(dtype: DType, dims: Dims) -> Option<TensorInfo> {
    Some(TensorInfo { dtype, dims, dynamic: false, planned: false, encoding: None })
}

impl FakeMethod {
    fn new(model: &FakeModel, name: &str, ar: usize) -> Self {
        let cache_len = model.context_len - ar;
        let caches = |len: usize| -> Vec<Option<TensorInfo>> {
            let (heads, hd) = (model.heads, model.head_dim);
            let dims = match model.layout {
                Layout::PerLayer => [vec![1, heads, hd, len], vec![1, heads, len, hd]],
                Layout::PerHead => [vec![1, hd, len], vec![1, len, hd]],
            };
            let count = if model.layout == Layout::PerHead { model.layers * heads } else { model.layers };
            dims.into_iter().flat_map(|dims| vec![info(model.cache, dims); count]).collect()
        };
        let mask_dims = || [vec![1; model.mask_rank - 2], vec![ar, model.context_len]].concat();
        let mut inputs = vec![info(model.tokens, vec![1, ar]), info(model.mask, mask_dims())];
        if model.window.is_some() {
            inputs.push(info(model.mask, mask_dims()));
        }
        let mut outputs = vec![info(model.logits, vec![1, ar, model.vocab])];
        outputs[0].as_mut().unwrap().encoding = Some(Encoding { scale: 0.001, zero_point: 0 });
        if cache_len > 0 {
            inputs.push(info(DType::I32, vec![1, ar]));
            inputs.extend(caches(cache_len));
        }
        if cache_len > 0 || model.whole_gives_cache {
            outputs.extend(caches(ar));
        }
        for info in inputs.iter_mut().chain(&mut outputs).flatten() {
            info.planned = model.planned;
        }
        let unbound = |tensors: &[Option<TensorInfo>]| vec![None; tensors.len()];
        Self {
            ar,
            cache_len,
            inputs: unbound(&inputs),
            outputs: unbound(&outputs),
            info: MethodInfo { name: name.to_owned(), inputs, outputs },
            arena: None,
        }
    }

    fn check_slice(&mut self, info: &Option<TensorInfo>, arena: &IoArena, slice: IoSlice) -> Result<()> {
        let info = info.as_ref().ok_or_else(|| fault("binds what is no tensor"))?;
        if slice.len != info.byte_len()
            || slice.end() > arena.capacity()
            || !slice.offset.is_multiple_of(info.dtype.size())
        {
            return Err(fault(format!("{slice:?} does not fit {info:?}")));
        }
        if self.arena.replace(arena.id()).is_some_and(|id| id != arena.id()) {
            return Err(fault("two arenas"));
        }
        Ok(())
    }

    fn input(&self, index: usize) -> Result<IoSlice> {
        self.inputs[index].ok_or_else(|| fault(format!("input {index} is not bound")))
    }

    fn check_bindings(&self, arena: &IoArena) -> Result<()> {
        let all: Vec<IoSlice> = self.inputs.iter().chain(&self.outputs).flatten().copied().collect();
        if self.arena != Some(arena.id()) || all.len() != self.inputs.len() + self.outputs.len() {
            return Err(fault("something is not bound to this arena"));
        }
        for (at, output) in all.iter().enumerate().skip(self.inputs.len()) {
            let overlaps = |other: &IoSlice| output.offset < other.end() && other.offset < output.end();
            if all[..at].iter().any(overlaps) {
                return Err(fault(format!("output {} overlaps another binding", at - self.inputs.len())));
            }
        }
        Ok(())
    }
}

pub fn fault(message: impl Into<String>) -> Error {
    Error::new(Status::Internal, message)
}

struct FakeModule {
    model: FakeModel,
    methods: Vec<FakeMethod>,
    probe: Arc<Probe>,
}

fn read_element(bytes: &[u8], at: usize, size: usize) -> u32 {
    let mut element = [0; 4];
    element[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
    u32::from_le_bytes(element)
}

fn read_ints(arena: &IoArena, slice: IoSlice, dtype: DType) -> Vec<i64> {
    match dtype {
        DType::I64 => arena.typed::<i64>(slice).to_vec(),
        _ => arena.typed::<i32>(slice).iter().map(|&int| int.into()).collect(),
    }
}

/// Which cells of a mask say attend. A value that says neither is a fault.
fn read_mask(bytes: &[u8], dtype: DType) -> Result<Vec<bool>> {
    let [attend, masked] = match dtype {
        DType::U8 => [0xff, 0],
        DType::U16 => [0xffff, 0],
        DType::F16 => [0, 0xfbff],
        _ => [0, (-65_535f32).to_bits()],
    };
    let size = dtype.size();
    let cell = |at| match read_element(bytes, at, size) {
        value if value == attend => Ok(true),
        value if value == masked => Ok(false),
        value => Err(fault(format!("mask cell {at} is {value:#x}"))),
    };
    (0..bytes.len() / size).map(cell).collect()
}

impl FakeModule {
    /// For element `at` of a position: which cache tensor it is in, and where, in a tensor of `len` positions.
    fn locate(model: &FakeModel, at: usize, column: usize, len: usize) -> (usize, usize) {
        let FakeModel { layers, heads, head_dim, layout, .. } = *model;
        let (dim, head) = (at % head_dim, at / head_dim % heads);
        let (layer, is_value) = (at / (head_dim * heads) % layers, at / (head_dim * heads * layers) == 1);
        let (group, tensor, head) = match layout {
            Layout::PerLayer => (layers, layer, head),
            Layout::PerHead => (layers * heads, layer * heads + head, 0),
        };
        let tensor = if is_value { group + tensor } else { tensor };
        let place =
            if is_value { (head * len + column) * head_dim + dim } else { (head * head_dim + dim) * len + column };
        (tensor, place)
    }

    fn run(&self, method: &FakeMethod, arena: &mut IoArena) -> Result<()> {
        let model = &self.model;
        let FakeMethod { ar, cache_len, .. } = *method;
        let size = model.cache.size();
        let tokens = read_ints(arena, method.input(0)?, model.tokens);
        if let Some(token) = tokens.iter().find(|&&token| token < 0 || token >= model.vocab as i64) {
            return Err(fault(format!("token {token} is outside the vocabulary")));
        }
        let masks = 1 + usize::from(model.window.is_some());
        let positions: Vec<usize> = match cache_len {
            0 => (0..ar).collect(),
            _ => read_ints(arena, method.input(1 + masks)?, DType::I32).iter().map(|&p| p as usize).collect(),
        };
        let attended = (0..masks)
            .map(|mask| read_mask(arena.bytes(method.input(1 + mask)?), model.mask))
            .collect::<Result<Vec<_>>>()?;

        let mut contributions = Vec::with_capacity(model.context_len);
        for column in 0..cache_len {
            let elements: Vec<u32> = (0..model.width())
                .map(|at| {
                    let (tensor, place) = Self::locate(model, at, column, cache_len);
                    let slice = method.input(2 + masks + tensor).expect("bindings are checked");
                    read_element(arena.bytes(slice), place, size)
                })
                .collect();
            let used = (0..ar).any(|row| attended[0][row * model.context_len + column]);
            if !used && elements.iter().any(|&element| element != 0) {
                return Err(fault(format!("unused column {column} is not zero")));
            }
            contributions.push(model.contribution(elements.into_iter()));
        }
        contributions.extend((0..ar).map(|row| model.own_contribution(tokens[row], positions[row])));

        for row in 0..ar {
            let sum = |mask: &[bool]| {
                let cells = mask[row * model.context_len..][..model.context_len].iter();
                cells.zip(&contributions).filter(|(cell, _)| **cell).fold(0u64, |sum, (_, &c)| sum.wrapping_add(c))
            };
            let state = FakeModel::state(sum(&attended[0]), attended.get(1).map_or(0, |mask| sum(mask)));
            let codes = model.codes(state, positions[row]);
            let logits = method.outputs[0].expect("bindings are checked");
            let logits_size = model.logits.size();
            let bytes = &mut arena.bytes_mut(logits)[row * model.vocab * logits_size..];
            for (cell, code) in bytes.chunks_mut(logits_size).zip(codes) {
                match model.logits {
                    DType::F32 if self.probe.nan.load(Ordering::SeqCst) => {
                        cell.copy_from_slice(&f32::NAN.to_le_bytes());
                    }
                    DType::F32 => cell.copy_from_slice(&(code as f32).to_le_bytes()),
                    _ => cell.copy_from_slice(&code.to_le_bytes()[..logits_size]),
                }
            }
            for at in 0..if method.outputs.len() > 1 { model.width() } else { 0 } {
                let (tensor, place) = Self::locate(model, at, row, ar);
                let element = model.element(at, tokens[row], positions[row]).to_le_bytes();
                let slice = method.outputs[1 + tensor].expect("bindings are checked");
                arena.bytes_mut(slice)[place * size..(place + 1) * size].copy_from_slice(&element[..size]);
            }
        }
        Ok(())
    }
}

impl Module for FakeModule {
    fn method_names(&self) -> Vec<String> {
        let methods = self.model.methods.iter().map(|(name, _)| (*name).to_owned());
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
        let info = method.info.inputs[index].clone();
        method.check_slice(&info, arena, slice)?;
        method.inputs[index] = Some(slice);
        Ok(())
    }

    fn bind_output(&mut self, method: MethodId, index: usize, arena: &IoArena, slice: IoSlice) -> Result<()> {
        let method = &mut self.methods[method.0];
        let info = method.info.outputs[index].clone();
        method.check_slice(&info, arena, slice)?;
        method.outputs[index] = Some(slice);
        Ok(())
    }

    fn resize_input(&mut self, _: MethodId, _: usize, _: &[usize]) -> Result<()> {
        Err(fault("nothing is dynamic"))
    }

    fn execute(&mut self, method: MethodId, arena: &mut IoArena) -> Result<()> {
        if let Some(hook) = &mut *self.probe.hook.lock() {
            hook();
        }
        let call = self.probe.executions.fetch_add(1, Ordering::SeqCst) + 1;
        if call == self.probe.fail_at.load(Ordering::SeqCst) {
            return Err(Error::new(Status::BackendFailed, "the fake device is gone"));
        }
        let method = &self.methods[method.0];
        method.check_bindings(arena)?;
        self.run(method, arena)
    }

    fn output<'a>(&'a self, method: MethodId, index: usize, arena: &'a IoArena) -> Result<(Dims, &'a [u8])> {
        let method = &self.methods[method.0];
        let (Some(info), Some(slice)) = (&method.info.outputs[index], method.outputs[index]) else {
            return Err(fault("not bound"));
        };
        Ok((info.dims.clone(), arena.bytes(slice)))
    }
}

/// A tokenizer whose tokens are the bytes of the text, below the vocabulary.
#[derive(Debug, Clone, Default)]
pub struct FakeTokenizer {
    pub eos: Vec<TokenId>,
    pub pieces: BTreeMap<&'static str, TokenId>,
}

/// The beginning-of-sequence token of [`FakeTokenizer`].
pub const BOS: TokenId = 1;

impl Tokenizer for FakeTokenizer {
    fn format(&self) -> &'static str {
        "fake"
    }

    fn vocab_size(&self) -> usize {
        256
    }

    fn bos(&self) -> Option<TokenId> {
        Some(BOS)
    }

    fn eos(&self) -> &[TokenId] {
        &self.eos
    }

    fn id_of(&self, piece: &str) -> Option<TokenId> {
        self.pieces.get(piece).copied()
    }

    fn encode(&self, text: &str, specials: Specials) -> Result<Vec<TokenId>> {
        let bytes = text.bytes().map(|byte| TokenId::from(byte) % 90);
        Ok(std::iter::repeat_n(BOS, specials.bos).chain(bytes).collect())
    }

    fn decode(&self, previous: Option<TokenId>, token: TokenId) -> Result<Vec<u8>> {
        match token {
            200.. => Err(Error::new(Status::TokenizerFailed, format!("no token {token}"))),
            _ => Ok(format!("{}>{token} ", previous.map_or(-1, |token| token as i64)).into_bytes()),
        }
    }
}
