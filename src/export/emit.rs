//! Assembles a program: lowered methods, and the constant methods that tell a runner what the model is. Names, order and
//! types are upstream's, which differ between its two kinds of program.

use super::lower::Assets;
use super::{KvLayout, MethodSpec, ModelConfig};
use crate::graph::{Graph, Quantization, Value};
use crate::pte::{EValue, ExecutionPlan, Program};
use crate::tensor::DType;

/// The program of `methods`, all lowered with `assets`; its metadata comes last, as in upstream's files.
pub fn assemble(assets: Assets, methods: Vec<ExecutionPlan>, metadata: Vec<ExecutionPlan>) -> Program {
    assets.into_program(methods.into_iter().chain(metadata).collect())
}

/// What `llama_main` asks of a program with the dynamic method `spec`; empty for a static one.
pub fn dynamic_metadata(config: &ModelConfig, spec: &MethodSpec) -> Vec<ExecutionPlan> {
    let &MethodSpec::Dynamic { max_seq_len, max_context_len, fused_attention, .. } = spec else { return Vec::new() };
    let mut all = vec![
        one("get_max_seq_len", int(max_seq_len)),
        one("get_max_context_len", int(max_context_len)),
        one("get_n_layers", int(config.layers)),
        one("get_vocab_size", int(config.vocab)),
        one("use_kv_cache", EValue::Bool(true)),
        one("use_sdpa_with_kv_cache", EValue::Bool(fused_attention)),
        one("enable_dynamic_shape", EValue::Bool(true)),
    ];
    all.extend(config.bos_id.map(|id| one("get_bos_id", EValue::Int(id as i64))));
    if !config.eos_ids.is_empty() {
        let ids = config.eos_ids.iter().map(|&id| EValue::Int(id as i64)).collect();
        all.push(ExecutionPlan::constant("get_eos_ids", ids));
    }
    all
}

/// What `qnn_llama_runner` asks of a program with these static methods, of which the first counts where they differ: it
/// is the one that decodes. Encodings are those of the graphs' own outputs.
pub fn static_metadata(config: &ModelConfig, methods: &[(&MethodSpec, &Graph)]) -> Vec<ExecutionPlan> {
    let Some(&(&MethodSpec::Static { ar, context, layout, .. }, graph)) = methods.first() else { return Vec::new() };
    let mut all = vec![one("get_ar_len", int(ar))];
    all.extend(config.bos_id.map(|id| one("get_bos_id", EValue::Int(id as i64))));
    all.extend(config.eos_ids.first().map(|&id| one("get_eos_id", EValue::Int(id as i64))));
    all.extend([
        one("get_dim", int(config.dim)),
        one("get_head_dim", int(config.head_dim)),
        one("get_max_batch_size", int(1)),
        one("get_max_seq_len", int(context)),
        one("get_max_context_len", int(context)),
        one("get_n_bos", int(1)),
        one("get_n_eos", int(1)),
        one("get_n_kv_heads", int(config.kv_heads)),
        one("get_n_layers", int(config.layers)),
        one("get_vocab_size", int(config.vocab)),
        one("get_use_kv_cache", EValue::Bool(ar < context)),
    ]);
    let outputs: Vec<&Value> = graph.outputs.iter().map(|&id| graph.value(id)).collect();
    let Some((logits, caches)) = outputs.split_first() else { return all };
    if let Some(cache) = caches.first() {
        all.push(one("get_kv_io_bit_width", int(8 * cache.dtype.size())));
    }
    if let Some(Quantization::PerTensor { encoding, .. }) = logits.quantization {
        all.push(one("get_logits_scale", EValue::Double(encoding.scale.into())));
        all.push(one("get_logits_zero_point", EValue::Int(encoding.zero_point.into())));
    }
    if layout == KvLayout::PerLayer {
        all.extend(cache_encodings(caches));
    }
    all
}

/// Of each layer's value, then of its key: upstream numbers them as its graphs make them. None for reals.
fn cache_encodings(caches: &[&Value]) -> Vec<ExecutionPlan> {
    let (keys, values) = caches.split_at(caches.len() / 2);
    let pairs = values.iter().zip(keys).flat_map(|(value, key)| [value, key]);
    let attributes = pairs.enumerate().filter_map(|(index, value)| {
        let Some(Quantization::PerTensor { encoding, .. }) = value.quantization else { return None };
        let (largest, name) = match value.dtype {
            DType::U8 => (255, "torch.uint8"),
            // PyTorch's observers have no 16-bit type.
            DType::U16 => (65_535, "torch.int32"),
            _ => return None,
        };
        let attributes = vec![
            EValue::Double(encoding.scale.into()),
            EValue::Int(encoding.zero_point.into()),
            EValue::Int(0),
            EValue::Int(largest),
            EValue::String(name.to_owned()),
        ];
        Some(ExecutionPlan::constant(format!("get_kv_output_{index}_quant_attr"), attributes))
    });
    attributes.collect()
}

fn one(name: &str, value: EValue) -> ExecutionPlan {
    ExecutionPlan::constant(name, vec![value])
}

fn int(number: usize) -> EValue {
    EValue::Int(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing::tiny_config;
    use crate::tensor::Encoding;

    fn text(plans: &[ExecutionPlan]) -> Vec<String> {
        plans.iter().map(|plan| format!("{} {:?}", plan.name, plan.values)).collect()
    }

    #[test]
    fn a_dynamic_program_says_what_upstreams_say() {
        let config = ModelConfig { eos_ids: vec![2, 7], ..tiny_config() };
        let spec = MethodSpec::Dynamic {
            name: "forward".into(),
            max_seq_len: 12,
            max_context_len: 16,
            full_logits: false,
            fused_attention: true,
        };
        let want = [
            "get_max_seq_len [Int(12)]",
            "get_max_context_len [Int(16)]",
            "get_n_layers [Int(2)]",
            "get_vocab_size [Int(20)]",
            "use_kv_cache [Bool(true)]",
            "use_sdpa_with_kv_cache [Bool(true)]",
            "enable_dynamic_shape [Bool(true)]",
            "get_bos_id [Int(1)]",
            "get_eos_ids [Int(2), Int(7)]",
        ];
        assert_eq!(text(&dynamic_metadata(&config, &spec)), want);
        let silent = ModelConfig { bos_id: None, eos_ids: Vec::new(), ..config };
        assert_eq!(text(&dynamic_metadata(&silent, &spec)), want[..7]);
    }

    fn kv_forward(layout: KvLayout) -> MethodSpec {
        MethodSpec::Static { name: "kv_forward".into(), ar: 1, context: 16, layout, tokens: DType::I32 }
    }

    /// Logits, then two keys and two values, each with a scale of its own.
    fn outputs(dtype: DType, quantized: bool) -> Graph {
        let mut graph = Graph::new("kv_forward");
        for index in 0..5 {
            let id = graph.add_input(format!("out {index}"), dtype, vec![1.into()]);
            if quantized {
                let encoding = Encoding { scale: 0.5 * (index + 1) as f32, zero_point: 128 };
                graph.value_mut(id).quantization = Some(Quantization::PerTensor { bits: 8, encoding });
            }
            graph.outputs.push(id);
        }
        graph
    }

    #[test]
    fn a_static_program_says_what_upstreams_say() {
        let (config, spec) = (tiny_config(), kv_forward(KvLayout::PerLayer));
        let have = text(&static_metadata(&config, &[(&spec, &outputs(DType::U8, true))]));
        let common = [
            "get_ar_len [Int(1)]",
            "get_bos_id [Int(1)]",
            "get_eos_id [Int(2)]",
            "get_dim [Int(16)]",
            "get_head_dim [Int(4)]",
            "get_max_batch_size [Int(1)]",
            "get_max_seq_len [Int(16)]",
            "get_max_context_len [Int(16)]",
            "get_n_bos [Int(1)]",
            "get_n_eos [Int(1)]",
            "get_n_kv_heads [Int(2)]",
            "get_n_layers [Int(2)]",
            "get_vocab_size [Int(20)]",
            "get_use_kv_cache [Bool(true)]",
        ];
        let encodings = [
            "get_kv_io_bit_width [Int(8)]",
            "get_logits_scale [Double(0.5)]",
            "get_logits_zero_point [Int(128)]",
            r#"get_kv_output_0_quant_attr [Double(2.0), Int(128), Int(0), Int(255), String("torch.uint8")]"#,
            r#"get_kv_output_1_quant_attr [Double(1.0), Int(128), Int(0), Int(255), String("torch.uint8")]"#,
            r#"get_kv_output_2_quant_attr [Double(2.5), Int(128), Int(0), Int(255), String("torch.uint8")]"#,
            r#"get_kv_output_3_quant_attr [Double(1.5), Int(128), Int(0), Int(255), String("torch.uint8")]"#,
        ];
        assert_eq!(have, [&common[..], &encodings].concat());
        let real = text(&static_metadata(&config, &[(&spec, &outputs(DType::F32, false))]));
        assert_eq!(real, [&common[..], &["get_kv_io_bit_width [Int(32)]"]].concat());
        let per_head = static_metadata(&config, &[(&kv_forward(KvLayout::PerHead), &outputs(DType::U8, true))]);
        assert_eq!(text(&per_head), [&common[..], &encodings[..3]].concat());
    }

    #[test]
    fn each_kind_of_method_has_its_own_metadata() {
        let spec = kv_forward(KvLayout::PerLayer);
        assert!(dynamic_metadata(&tiny_config(), &spec).is_empty());
        assert!(static_metadata(&tiny_config(), &[]).is_empty());
    }
}
