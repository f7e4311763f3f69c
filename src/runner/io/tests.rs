//! Real files' shapes, every ambiguity, every defect.

use super::*;
use crate::tensor::Dims;

fn tensor(dtype: DType, dims: &[usize]) -> Option<TensorInfo> {
    let dims: Dims = dims.to_vec();
    Some(TensorInfo { dtype, dims, dynamic: false, planned: false, encoding: None })
}

/// A method of 5 layers of 4 heads of 8, as in the stories260K exports.
struct Shapes {
    ar: usize,
    context_len: usize,
    per_head: bool,
    head_dim: usize,
    cache: DType,
    mask: Vec<usize>,
}

impl Shapes {
    fn new(ar: usize) -> Self {
        Self { ar, context_len: 128, per_head: false, head_dim: 8, cache: DType::U8, mask: vec![1, 1, ar, 128] }
    }

    fn caches(&self, len: usize) -> Vec<Option<TensorInfo>> {
        let hd = self.head_dim;
        let (count, key, value) = match self.per_head {
            true => (20, vec![1, hd, len], vec![1, len, hd]),
            false => (5, vec![1, 4, hd, len], vec![1, 4, len, hd]),
        };
        [key, value].iter().flat_map(|dims| vec![tensor(self.cache, dims); count]).collect()
    }

    fn info(&self) -> MethodInfo {
        let ints = [1, self.ar];
        let mut inputs = vec![tensor(DType::I32, &ints), tensor(DType::U16, &self.mask), tensor(DType::I32, &ints)];
        inputs.extend(self.caches(self.context_len - self.ar));
        let mut outputs = vec![tensor(DType::U16, &[1, self.ar, 512])];
        outputs.extend(self.caches(self.ar));
        MethodInfo { name: "kv_forward".to_owned(), inputs, outputs }
    }
}

fn resolve(info: &MethodInfo) -> Result<MethodIo, IoError> {
    MethodIo::resolve(MethodId(0), info)
}

fn message(info: &MethodInfo) -> String {
    resolve(info).unwrap_err().to_string()
}

#[test]
fn both_generations_of_the_exports_resolve() {
    for ar in [1, 32] {
        let io = resolve(&Shapes::new(ar).info()).unwrap();
        assert_eq!((io.ar, io.context_len, io.vocab, io.caches.len()), (ar, 128, 512, 10));
        let key = CacheShape { rows: 32, inner: 1, element_size: 1 };
        assert_eq!(io.caches[0], CacheSlot { shape: key, input: Some(3), output: 1 });
        let value = CacheShape { rows: 4, inner: 8, element_size: 1 };
        assert_eq!(io.caches[9], CacheSlot { shape: value, input: Some(12), output: 10 });

        let old = Shapes { per_head: true, mask: vec![1, ar, 128], ..Shapes::new(ar) };
        let info = old.info();
        assert_eq!((info.inputs.len(), info.outputs.len()), (43, 41));
        let io = resolve(&info).unwrap();
        assert_eq!((io.caches.len(), io.caches[19].input, io.caches[20].input), (40, Some(22), Some(23)));
        assert_eq!(io.caches[0].shape, CacheShape { rows: 8, inner: 1, element_size: 1 });
        assert_eq!(io.caches[39].shape, CacheShape { rows: 1, inner: 8, element_size: 1 });
    }
}

#[test]
fn keys_and_values_in_any_order_are_found_by_shape() {
    let mut info = Shapes::new(32).info();
    info.inputs.swap(3, 8);
    info.inputs.swap(0, 12);
    info.outputs.swap(0, 10);
    let io = resolve(&info).unwrap();
    assert_eq!((io.tokens.index, io.positions.unwrap().index, io.logits.index), (2, 12, 10));
    assert_eq!((io.caches[4].input, io.caches[5].input), (Some(8), Some(0)));
}

#[test]
fn ambiguous_shapes_follow_upstreams_order() {
    // Keys look like values, and for one head like the mask or the logits too.
    for (ar, head_dim, per_head) in [(64, 64, true), (64, 64, false), (64, 128, true), (8, 8, true), (120, 8, true)] {
        let mask = vec![1, ar, 128];
        let io = resolve(&Shapes { per_head, head_dim, mask, ..Shapes::new(ar) }.info()).unwrap();
        assert_eq!((io.mask.index, io.logits.index), (1, 0));
        let inputs: Vec<_> = io.caches.iter().map(|cache| cache.input.unwrap()).collect();
        assert_eq!(inputs, (3..3 + io.caches.len()).collect::<Vec<_>>(), "{ar} {head_dim}");
        let outputs: Vec<_> = io.caches.iter().map(|cache| cache.output).collect();
        assert_eq!(outputs, (1..1 + io.caches.len()).collect::<Vec<_>>(), "{ar} {head_dim}");
    }
}

#[test]
fn a_second_mask_is_the_windows() {
    let mut info = Shapes::new(32).info();
    info.inputs.insert(2, tensor(DType::U16, &[1, 1, 32, 128]));
    let io = resolve(&info).unwrap();
    assert_eq!((io.mask.index, io.window_mask.unwrap().index, io.positions.unwrap().index), (1, 2, 3));
}

#[test]
fn a_whole_context_method_has_no_cache_inputs() {
    let mut info = Shapes { mask: vec![1, 128, 128], ..Shapes::new(128) }.info();
    info.inputs.truncate(2);
    let io = resolve(&info).unwrap();
    assert_eq!((io.cache_len(), io.positions, io.caches[0].input), (None, None, None));
    info.outputs.truncate(1);
    assert_eq!(resolve(&info).unwrap().caches.len(), 0);
}

#[test]
fn what_is_no_tensor_is_refused() {
    let mut info = Shapes::new(1).info();
    info.outputs[2] = None;
    assert_eq!(message(&info), "method kv_forward: output 2 is no tensor");
}

#[test]
fn planned_memory_makes_no_difference() {
    let unplanned = Shapes::new(1).info();
    let mut info = unplanned.clone();
    info.inputs.iter_mut().chain(&mut info.outputs).flatten().for_each(|info| info.planned = true);
    assert_eq!(format!("{:?}", resolve(&info)), format!("{:?}", resolve(&unplanned)));
}

#[test]
fn missing_tokens_positions_masks_logits_and_caches_are_named() {
    let edited = |edit: &dyn Fn(&mut MethodInfo)| {
        let mut info = Shapes::new(32).info();
        edit(&mut info);
        message(&info)
    };
    assert_eq!(edited(&|info| info.inputs.clear()), "method kv_forward has no tokens, i32 or i64 [1, AR]");
    assert_eq!(
        edited(&|info| info.inputs[0] = tensor(DType::I32, &[32])),
        "method kv_forward: input 0 is i32[32], not i32 or i64 [1, AR]"
    );
    assert_eq!(edited(&|info| drop(info.inputs.remove(2))), "method kv_forward has no positions, i32 or i64 [1, 32]");
    assert_eq!(
        edited(&|info| info.inputs[2] = tensor(DType::I32, &[1, 31])),
        "method kv_forward: input 2 is i32[1, 31], not i32 or i64 positions [1, 32]"
    );
    assert!(edited(&|info| info.inputs[1] = tensor(DType::I16, &[1, 1, 32, 128])).contains("no attention mask, u16"));
    assert!(edited(&|info| info.outputs[0] = tensor(DType::I32, &[1, 32, 512])).contains("no logits, u16"));
    assert!(edited(&|info| info.inputs.truncate(3)).contains("no keys and values, [1, heads, head_dim, 96]"));
    assert!(
        edited(&|info| info.outputs = [info.outputs[..5].to_vec(), info.outputs[6..10].to_vec()].concat())
            .contains("no matching key and value outputs, 10 of them")
    );
}

#[test]
fn a_wrong_cache_tensor_is_named_with_its_shape() {
    let mut info = Shapes::new(32).info();
    info.inputs[5] = tensor(DType::U8, &[1, 4, 8, 95]);
    let wanted = "method kv_forward: input 5 is u8[1, 4, 8, 95], not a key [1, heads, head_dim, 96] or value \
                  [1, heads, 96, head_dim]";
    assert_eq!(message(&info), wanted);

    let mut info = Shapes::new(32).info();
    info.outputs[3] = tensor(DType::U8, &[1, 4, 7, 32]);
    assert!(message(&info).contains("output 8 is u8[1, 4, 32, 8], not the value of key 3: 4 heads of 7 u8"));

    let mut info = Shapes::new(32).info();
    (info.outputs[3], info.outputs[8]) = (tensor(DType::U16, &[1, 4, 8, 32]), tensor(DType::U16, &[1, 4, 32, 8]));
    assert!(message(&info).contains("output 3 is u16[1, 4, 8, 32], not the counterpart of input 5"));
}

#[test]
fn unequal_numbers_of_keys_and_values_are_refused() {
    let mut info = Shapes::new(32).info();
    info.inputs[12] = info.inputs[3].clone();
    assert_eq!(message(&info), "method kv_forward has 6 key and 4 value inputs");
}

#[test]
fn an_odd_input_that_is_no_mask_is_refused() {
    let mut info = Shapes::new(32).info();
    info.inputs.push(tensor(DType::F32, &[7]));
    assert!(message(&info).contains("not a second mask u16[1, 1, 32, 128]"), "{}", message(&info));
}

#[test]
fn methods_that_disagree_are_refused() {
    let first = resolve(&Shapes::new(32).info()).unwrap();
    assert_eq!(first.check_agreement(&resolve(&Shapes::new(1).info()).unwrap()), Ok(()));
    let wide = Shapes { cache: DType::U16, ..Shapes::new(1) };
    let error = first.check_agreement(&resolve(&wide.info()).unwrap()).unwrap_err();
    assert!(error.to_string().contains("differ in key or value 0"), "{error}");
    let long = Shapes { context_len: 256, mask: vec![1, 1, 1, 256], ..Shapes::new(1) };
    let error = first.check_agreement(&resolve(&long.info()).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "methods kv_forward and kv_forward differ in context length: 128 and 256");
}
