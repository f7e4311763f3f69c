//! Checkpoints of one tiny model in every format, written by hand so that any part can be wrong.

use crate::export::checkpoint::naming::{self, Naming};
use crate::export::{ModelConfig, Rope, RopeScaling, WeightRole};
use crate::graph::RotaryStyle;
use std::path::Path;

/// One layer of width 8, two query heads of 4, one key head, 12 hidden, 16 tokens.
pub fn tiny() -> ModelConfig {
    ModelConfig {
        architecture: "llama".into(),
        dim: 8,
        layers: 1,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        hidden: 12,
        vocab: 16,
        norm_epsilon: 1e-5,
        rope: Rope { theta: 10_000.0, style: RotaryStyle::Half, scaling: RopeScaling::None },
        max_positions: Some(32),
        bos_id: Some(1),
        eos_ids: vec![2],
    }
}

/// `config.json` of [`tiny`], with `fields` in the place of, or beside, its own.
pub fn config_json(fields: &str) -> String {
    let mut config = serde_json::json!({
        "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 12, "vocab_size": 16, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2,
    });
    let fields: serde_json::Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    config.to_string()
}

/// Names and shapes of the weights that every model has, and the output head.
pub fn weights(naming: Naming) -> Vec<(String, Vec<usize>)> {
    use crate::export::LayerWeight::*;
    let layer = [AttentionNorm, Query, Key, Value, Output, FeedForwardNorm, Gate, Up, Down];
    let layer = layer.map(|weight| WeightRole::Layer(0, weight));
    let outer = [WeightRole::TokenEmbedding, WeightRole::FinalNorm, WeightRole::OutputHead];
    let named = |role| (naming.name(role), naming::shape(role, &tiny()));
    outer.into_iter().chain(layer).map(named).collect()
}

/// Element `index` of tensor `tensor`; exact in every format.
pub fn element(tensor: usize, index: usize) -> f32 {
    ((index * 7 + tensor * 13) % 251) as f32 / 64.0 - 125.0 / 64.0
}

/// Elements of tensor number `tensor` as f32 bytes.
pub fn elements(tensor: usize, count: usize) -> Vec<u8> {
    (0..count).flat_map(|index| element(tensor, index).to_le_bytes()).collect()
}

/// A safetensors file of f32 tensors, whose header is `pad` spaces longer than it need be.
pub fn safetensors(tensors: &[(String, Vec<usize>)], pad: usize) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (number, (name, shape)) in tensors.iter().enumerate() {
        let start = data.len();
        data.extend(elements(number, shape.iter().product()));
        let place = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), place);
    }
    let mut header = serde_json::Value::from(header).to_string();
    header.extend(std::iter::repeat_n(' ', 8 - header.len() % 8 + pad));
    with_header(&header, &data)
}

/// A safetensors file of any header.
pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A folder with `config.json` and `model.safetensors`.
pub fn folder(config: &str, tensors: &[(String, Vec<usize>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "config.json", config);
    put(folder.path(), "model.safetensors", safetensors(tensors, 0));
    folder
}

/// Writes a file.
pub fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(folder.join(name), bytes).unwrap();
}

/// A zip of members as they are.
pub fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let place = (file.len() as u32).to_le_bytes();
        let (size, length) = ((data.len() as u32).to_le_bytes(), (name.len() as u16).to_le_bytes());
        let common = [&[0u8; 12][..], &size, &size, &length, &[0; 2]].concat();
        file.extend([&b"PK\x03\x04\x0a\0"[..], &common, name.as_bytes(), data].concat());
        directory.extend([&b"PK\x01\x02\x0a\0\x0a\0"[..], &common, &[0; 10], &place, name.as_bytes()].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let (size, start) = ((directory.len() as u32).to_le_bytes(), (file.len() as u32).to_le_bytes());
    [&file[..], &directory, b"PK\x05\x06\0\0\0\0", &count, &count, &size, &start, &[0; 2]].concat()
}

/// The same in the 64-bit form that PyTorch writes: every number of the small form is all ones.
pub fn large_zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let numbers = [data.len(), data.len(), file.len()].map(|number| (number as u64).to_le_bytes()).concat();
        let length = (name.len() as u16).to_le_bytes();
        let common = [&[0u8; 12][..], &[0xff; 8], &length].concat();
        // Another extra field comes first, as PyTorch's padding does.
        let local = [&b"FB\x02\0ZZ\x01\0\x10\0"[..], &numbers[..16]].concat();
        let central = [&b"FB\x02\0ZZ\x01\0\x18\0"[..], &numbers].concat();
        let size = |extra: &[u8]| (extra.len() as u16).to_le_bytes();
        file.extend([&b"PK\x03\x04\x2d\0"[..], &common, &size(&local), name.as_bytes(), &local, data].concat());
        let head = [&b"PK\x01\x02\x2d\0\x2d\0"[..], &common, &size(&central), &[0; 10], &[0xff; 4]].concat();
        directory.extend([&head[..], name.as_bytes(), &central].concat());
    }
    let [count, size, start, end] = [members.len(), directory.len(), file.len(), file.len() + directory.len()]
        .map(|number| (number as u64).to_le_bytes());
    let record = [&b"PK\x06\x06"[..], &44u64.to_le_bytes(), &[0; 12], &count, &count, &size, &start].concat();
    let locator = [&b"PK\x06\x07\0\0\0\0"[..], &end, &[1, 0, 0, 0]].concat();
    [&file[..], &directory, &record, &locator, b"PK\x05\x06\0\0\0\0", &[0xff; 12], &[0; 2]].concat()
}

/// A view of storage `key` in a pickle.
#[derive(Debug, Clone)]
pub struct View {
    pub name: String,
    pub kind: &'static str,
    pub key: u8,
    pub elements: i32,
    pub offset: i32,
    pub size: Vec<i32>,
    pub stride: Vec<i32>,
}

impl View {
    /// All of a dense f32 storage.
    pub fn dense(key: u8, name: &str, size: &[usize]) -> Self {
        let stride = (1..=size.len()).map(|axis| size[axis..].iter().product::<usize>() as i32).collect();
        let (elements, size) = (size.iter().product::<usize>() as i32, size.iter().map(|&n| n as i32).collect());
        Self { name: name.into(), kind: "FloatStorage", key, elements, offset: 0, size, stride }
    }
}

/// The pickle of a dictionary of tensors.
pub fn pickle(views: &[View]) -> Vec<u8> {
    let text = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let integer = |value: &i32| [&b"J"[..], &value.to_le_bytes()].concat();
    let tuple = |values: &[i32]| [&b"("[..], &values.iter().flat_map(integer).collect::<Vec<u8>>(), b"t"].concat();
    let mut pickle = b"\x80\x02}(".to_vec();
    for view in views {
        pickle.extend(text(&view.name));
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        pickle.extend([text("storage"), format!("ctorch\n{}\n", view.kind).into_bytes()].concat());
        pickle.extend([text(&view.key.to_string()), text("cpu"), integer(&view.elements), b"tQ".to_vec()].concat());
        pickle.extend([integer(&view.offset), tuple(&view.size), tuple(&view.stride)].concat());
        pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u.");
    pickle
}

/// A `.pt` file of dense f32 tensors with Meta's names.
pub fn torch() -> (Vec<View>, Vec<Vec<u8>>) {
    let views = weights(Naming::Meta).into_iter().enumerate();
    let views: Vec<_> = views.map(|(key, (name, shape))| View::dense(key as u8, &name, &shape)).collect();
    let data = views.iter().enumerate().map(|(key, view)| elements(key, view.elements as usize)).collect();
    (views, data)
}

/// The zip around a pickle and its storages.
pub fn torch_zip(pickle: &[u8], storages: &[Vec<u8>]) -> Vec<u8> {
    in_zip(zip, pickle, storages)
}

/// Makes a zip of members.
pub type Zip = fn(&[(&str, &[u8])]) -> Vec<u8>;

/// The zip of either form around a pickle and its storages.
pub fn in_zip(zip: Zip, pickle: &[u8], storages: &[Vec<u8>]) -> Vec<u8> {
    let names: Vec<_> = (0..storages.len()).map(|key| format!("m/data/{key}")).collect();
    let storages = names.iter().zip(storages).map(|(name, data)| (&name[..], &data[..]));
    zip(&[("m/data.pkl", pickle), ("m/byteorder", b"little")].into_iter().chain(storages).collect::<Vec<_>>())
}

/// `params.json` of [`tiny`].
pub const PARAMS: &str =
    r#"{"dim": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "vocab_size": -1, "norm_eps": 1e-5}"#;

/// A GGUF file in parts.
#[derive(Debug, Clone, Default)]
pub struct Gguf {
    /// Key, type, bytes of the value.
    pub values: Vec<(String, u32, Vec<u8>)>,
    pub tensors: Vec<GgufTensor>,
}

/// A tensor of a GGUF file.
#[derive(Debug, Clone)]
pub struct GgufTensor {
    pub name: String,
    /// Innermost first.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub offset: u64,
    pub data: Vec<u8>,
}

impl Gguf {
    /// The tiny model in f32.
    pub fn tiny() -> Self {
        let mut gguf = Self::default();
        gguf.text("general.architecture", "llama");
        for (key, value) in [
            ("embedding_length", 8),
            ("block_count", 1),
            ("feed_forward_length", 12),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("context_length", 32),
        ] {
            gguf.u32(&format!("llama.{key}"), value);
        }
        let epsilon = 1e-5f32.to_le_bytes().to_vec();
        gguf.values.push(("llama.attention.layer_norm_rms_epsilon".into(), 6, epsilon));
        for (number, (name, shape)) in weights(Naming::Gguf).into_iter().enumerate() {
            let data = elements(number, shape.iter().product());
            gguf.tensor(&name, &shape, 0, data);
        }
        gguf
    }

    /// Adds a text, in the place of another of that name.
    pub fn text(&mut self, key: &str, value: &str) {
        self.set(key, 8, [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat());
    }

    /// Adds a number.
    pub fn u32(&mut self, key: &str, value: u32) {
        self.set(key, 4, value.to_le_bytes().to_vec());
    }

    /// Adds a list of texts.
    pub fn texts(&mut self, key: &str, values: &[&str]) {
        let text = |text: &&str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let head = [&8u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.set(key, 9, [head, values.iter().flat_map(text).collect()].concat());
    }

    /// Adds a list of 4-byte numbers of a type.
    pub fn list(&mut self, key: &str, kind: u32, values: &[[u8; 4]]) {
        let head = [&kind.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.set(key, 9, [head, values.concat()].concat());
    }

    /// Adds any value.
    pub fn set(&mut self, key: &str, kind: u32, bytes: Vec<u8>) {
        self.values.retain(|(own, ..)| own != key);
        self.values.push((key.into(), kind, bytes));
    }

    /// Adds a tensor behind the others; `shape` outermost first.
    pub fn tensor(&mut self, name: &str, shape: &[usize], kind: u32, data: Vec<u8>) {
        let end = self.tensors.last().map_or(0, |tensor| tensor.offset + tensor.data.len() as u64);
        let dims = shape.iter().rev().map(|&size| size as u64).collect();
        self.tensors.push(GgufTensor { name: name.into(), dims, kind, offset: end.next_multiple_of(32), data });
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let name = |name: &str| [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
        let counts = [self.tensors.len() as u64, self.values.len() as u64].map(u64::to_le_bytes).concat();
        let mut file = [&b"GGUF\x03\0\0\0"[..], &counts].concat();
        for (key, kind, value) in &self.values {
            file.extend([&name(key), &kind.to_le_bytes()[..], value].concat());
        }
        for GgufTensor { name: own, dims, kind, offset, .. } in &self.tensors {
            let sizes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
            let head = [name(own), (dims.len() as u32).to_le_bytes().to_vec(), sizes].concat();
            file.extend([&head[..], &kind.to_le_bytes(), &offset.to_le_bytes()].concat());
        }
        let start = file.len().next_multiple_of(32);
        for GgufTensor { offset, data, .. } in &self.tensors {
            // Offsets that lie get no bytes.
            if *offset < 1 << 20 {
                let at = start + *offset as usize;
                file.resize(file.len().max(at + data.len()), 0);
                file[at..at + data.len()].copy_from_slice(data);
            }
        }
        file
    }
}
