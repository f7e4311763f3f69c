//! A real checkpoint: the graphs give the tokens that ExecuTorch recorded for it.

use super::super::super::testing::{compiled, dynamic, fixed};
use super::super::super::{KvLayout, LayerWeight, ModelConfig, Rope, RopeScaling, Weight, WeightRole, WeightSource};
use super::super::build;
use crate::base::storage::{Blob, Storage};
use crate::error::Result;
use crate::graph::RotaryStyle;
use crate::graph::interpret::Tensor;
use crate::tensor::DType;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn shared(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path)
}

/// llama2.c's file: seven sizes, then all weights in f32, those of one kind for all layers together.
struct Stories {
    config: ModelConfig,
    file: Arc<Storage>,
}

impl Stories {
    fn open() -> Self {
        let file = Storage::map(&shared("models/stories260K.bin")).unwrap();
        let size = |index: usize| i32::from_le_bytes(file[4 * index..][..4].try_into().unwrap()) as usize;
        let config = ModelConfig {
            architecture: "stories".into(),
            dim: size(0),
            hidden: size(1),
            layers: size(2),
            heads: size(3),
            kv_heads: size(4),
            head_dim: size(0) / size(3),
            vocab: size(5),
            norm_epsilon: 1e-5,
            rope: Rope { theta: 10_000.0, style: RotaryStyle::Interleaved, scaling: RopeScaling::None },
            max_positions: Some(size(6)),
            bos_id: Some(1),
            eos_ids: vec![2],
        };
        Self { config, file }
    }
}

impl WeightSource for Stories {
    fn weight(&self, role: WeightRole) -> Result<Option<Weight>> {
        use LayerWeight::*;
        let ModelConfig { dim, hidden, layers, vocab, .. } = self.config;
        let keys = self.config.kv_heads * self.config.head_dim;
        let kinds = [
            (AttentionNorm, vec![dim]),
            (Query, vec![dim, dim]),
            (Key, vec![keys, dim]),
            (Value, vec![keys, dim]),
            (Output, vec![dim, dim]),
            (FeedForwardNorm, vec![dim]),
            (Gate, vec![hidden, dim]),
            (Down, vec![dim, hidden]),
            (Up, vec![hidden, dim]),
        ];
        let mut start = vocab * dim;
        let mut found = (role == WeightRole::TokenEmbedding).then(|| (0, vec![vocab, dim]));
        for (kind, shape) in kinds {
            let count: usize = shape.iter().product();
            if let WeightRole::Layer(layer, weight) = role
                && weight == kind
            {
                found = Some((start + layer * count, shape));
            }
            start += layers * count;
        }
        if role == WeightRole::FinalNorm {
            found = Some((start, vec![dim]));
        }
        Ok(found.map(|(start, shape)| {
            let bytes = 28 + 4 * start..28 + 4 * (start + shape.iter().product::<usize>());
            let data = Blob::new(&self.file, bytes).unwrap();
            Weight { name: format!("{role:?}"), dtype: DType::F32, shape, data }
        }))
    }
}

/// A run of ExecuTorch's own, on the same weights.
struct Recorded {
    /// Prompt first.
    ids: Vec<i64>,
    prompt: usize,
    /// After the prompt, with six digits.
    logits: Vec<f32>,
}

impl Recorded {
    fn read() -> Self {
        let text = std::fs::read_to_string(shared("goldens/executorch/portable_s260k_fp32_kv.json")).unwrap();
        let run: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids = |key: &str| run[key].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect::<Vec<_>>();
        let row = run["prefill_last_row_logits"]["rows"][0].as_array().unwrap();
        let logits = row.iter().map(|x| x.as_f64().unwrap() as f32).collect();
        Self { ids: ids("ids_step1"), prompt: ids("prompt").len(), logits }
    }
}

fn greedy(logits: &Tensor) -> i64 {
    let row = logits.reals().unwrap();
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as i64
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn a_dynamic_method_gives_the_recorded_tokens() {
    let stories = Stories::open();
    let Recorded { ids: need, prompt, logits: first } = Recorded::read();
    for fused in [true, false] {
        let mut spec = dynamic(128, fused);
        if let super::MethodSpec::Dynamic { full_logits, .. } = &mut spec {
            *full_logits = false;
        }
        let graph = build(&stories.config, &stories, &spec).unwrap();
        let mut run = compiled(&graph);
        let mut ids = need[..prompt].to_vec();
        let mut start = 0;
        while ids.len() < need.len() {
            let tokens = Tensor::integers(DType::I64, &[1, ids.len() - start], &ids[start..]);
            let logits = run(&[tokens, Tensor::integers(DType::I64, &[1], [start as i64])]);
            if start == 0 {
                let off = logits[0].reals().unwrap().iter().zip(&first).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(off < 1e-4, "logits differ by {off}");
            }
            start = ids.len();
            ids.push(greedy(&logits[0]));
        }
        assert_eq!(ids, need, "fused attention: {fused}");
    }
}

#[test]
#[cfg_attr(not(have_shared), ignore = "needs ../shared: real models and recorded runs")]
fn static_methods_foretell_the_recorded_tokens() {
    let stories = Stories::open();
    let Recorded { ids: need, prompt, .. } = Recorded::read();
    for (ar, layout) in [(32, KvLayout::PerLayer), (128, KvLayout::PerHead)] {
        let graph = build(&stories.config, &stories, &fixed(ar, 128, layout)).unwrap();
        let rows = super::super::super::testing::static_logits(&graph, compiled(&graph), &need[..96]);
        let next: Vec<i64> = rows.into_iter().map(|row| greedy(&Tensor::f32(&[row.len()], row))).collect();
        assert_eq!(next[prompt - 1..], need[prompt..97], "AR-{ar} {layout:?}");
    }
}
