//! A `forward(tokens, input_pos)` program small enough to be written here: the logits of a token are its row of a table,
//! so that each token names the next one. It speaks the bytes of a llama2.c tokenizer: a letter is followed by the next,
//! `x` by the bell, the bell by `z`, and `z` by the end token; the beginning token by `B`, the end token by `E`.
#![allow(dead_code)] // Each test program uses its own part.

use llama_runner::pte::{
    Blob, Chain, EValue, ExecutionPlan, FlatTensor, Instruction, NamedBlob, OperatorName, Program, ShapeDynamism,
    TensorData, TensorLayout, TensorValue,
};
use llama_runner::tensor::DType;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// `<unk>`, `<s>`, `</s>`, and a token for each byte.
const VOCAB: usize = 259;
const EOS: usize = 2;
const CONTEXT: usize = 32;

/// The token of a byte.
fn byte(byte: u8) -> usize {
    usize::from(byte) + 3
}

fn successor(token: usize) -> usize {
    match token {
        1 => byte(b'B'),
        EOS => byte(b'E'),
        _ if token == byte(b'x') => byte(7),
        _ if token == byte(7) => byte(b'z'),
        _ if token == byte(b'z') => EOS,
        _ => (token + 1) % VOCAB,
    }
}

fn table() -> Vec<u8> {
    let mut table = vec![0; VOCAB * VOCAB];
    for token in 0..VOCAB {
        table[token * VOCAB + successor(token)] = 100;
        // The second best, which a temperature may choose.
        table[token * VOCAB + byte(b'!')] = 99;
    }
    table
}

/// The tokenizer's file.
fn tokenizer() -> Vec<u8> {
    let pieces = ["<unk>".to_owned(), "<s>".into(), "</s>".into()];
    let pieces = pieces.into_iter().chain((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    let header = [VOCAB as i32, 1, EOS as i32, 6];
    let mut bytes: Vec<u8> = header.iter().flat_map(|number| number.to_le_bytes()).collect();
    for piece in pieces {
        bytes.extend(0f32.to_le_bytes());
        bytes.extend((piece.len() as i32).to_le_bytes());
        bytes.extend(piece.as_bytes());
    }
    bytes
}

fn program(weight: TensorData) -> Program {
    let mut program = Program::default();
    let weight = match weight {
        TensorData::External => weight,
        _ => TensorData::Constant { index: program.add_constant(table()) },
    };
    let scales = program.add_constant([1f32; VOCAB].iter().flat_map(|scale| scale.to_le_bytes()).collect());
    let most = CONTEXT - 1;
    let dynamic = |dtype, sizes: &[usize], data| {
        let value = TensorValue::new(dtype, sizes.to_vec(), data);
        EValue::Tensor(TensorValue { dynamism: ShapeDynamism::DynamicBound, ..value })
    };
    let named = TensorValue {
        fully_qualified_name: Some("embedding.weight".into()),
        ..TensorValue::new(DType::U8, vec![VOCAB, VOCAB], weight)
    };
    let values = vec![
        dynamic(DType::I64, &[1, most], TensorData::Unplanned),
        EValue::Tensor(TensorValue::new(DType::I64, vec![1], TensorData::Unplanned)),
        EValue::Tensor(named),
        EValue::Tensor(TensorValue::new(DType::F32, vec![VOCAB], TensorData::Constant { index: scales })),
        EValue::Null,
        EValue::Int(0),
        EValue::Int(255),
        EValue::Int(DType::F32 as i64),
        dynamic(DType::F32, &[1, most, VOCAB], TensorData::Planned { buffer: 1, offset: 0, initial: None }),
    ];
    let args = vec![2, 3, 4, 5, 6, 0, 7, 8];
    program.plans.push(ExecutionPlan {
        name: "forward".into(),
        values,
        inputs: vec![0, 1],
        outputs: vec![8],
        chains: vec![Chain { instructions: vec![Instruction::Kernel { operator: 0, args }] }],
        operators: vec![OperatorName::parse("quantized_decomposed::embedding_byte.dtype_out")],
        delegates: vec![],
        non_const_buffer_sizes: vec![0, (most * VOCAB * 4) as u64],
    });
    for (name, value) in [
        ("get_max_seq_len", EValue::Int(CONTEXT as i64)),
        ("get_max_context_len", EValue::Int(CONTEXT as i64)),
        ("use_kv_cache", EValue::Bool(true)),
        ("enable_dynamic_shape", EValue::Bool(true)),
        ("get_eos_ids", EValue::Int(EOS as i64)),
    ] {
        program.plans.push(ExecutionPlan::constant(name, vec![value]));
    }
    program
}

/// Types and sizes of inputs.
pub type Shapes = Vec<(DType, Vec<usize>)>;

/// The program's files, in a directory of their own.
pub struct Files {
    dir: TempDir,
}

impl Files {
    pub fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        program(TensorData::Unplanned).save(&files.path("bigram.pte")).expect("the program is written");
        program(TensorData::External).save(&files.path("external.pte")).expect("the program is written");
        let layout = TensorLayout { dtype: DType::U8, sizes: vec![VOCAB, VOCAB], dim_order: vec![0, 1] };
        let weight = NamedBlob { blob: Blob::from_vec(table()), layout: Some(layout) };
        let data = FlatTensor { entries: [("embedding.weight".to_owned(), weight)].into() };
        files.write("bigram.ptd", &data.to_bytes());
        files.write("bigram.bin", &tokenizer());
        files
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file is written");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file is read")
    }

    /// Writes a program of bare methods, each with its inputs.
    pub fn write_methods(&self, name: &str, methods: &[(&str, Shapes)]) {
        let mut program = Program::default();
        for (name, inputs) in methods {
            let tensor = |(dtype, sizes): &(DType, Vec<usize>)| {
                EValue::Tensor(TensorValue::new(*dtype, sizes.clone(), TensorData::Unplanned))
            };
            program.plans.push(ExecutionPlan {
                name: (*name).to_owned(),
                values: inputs.iter().map(tensor).collect(),
                inputs: (0..inputs.len() as u32).collect(),
                chains: vec![Chain::default()],
                non_const_buffer_sizes: vec![0],
                ..ExecutionPlan::default()
            });
        }
        program.save(&self.path(name)).expect("the program is written");
    }
}
