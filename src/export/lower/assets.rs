//! What the methods of a program share: constants and named data, each stored once however many graphs bring it.

use crate::base::fnv::fnv1a64;
use crate::base::storage::{Blob, Place};
use crate::error::Result;
use crate::export::quantize::CodeStore;
use crate::pte::{ExecutionPlan, Program};
use crate::tensor::DType;
use std::collections::HashMap;
use std::sync::Arc;

/// A program that grows: lower one graph after the other into it, then [`Assets::into_program`].
pub struct Assets {
    store: Arc<CodeStore>,
    program: Program,
    constants: HashMap<Place, u32>,
    constants_by_content: HashMap<Content, Vec<u32>>,
    keys: HashMap<(Place, &'static str), String>,
    reals: HashMap<Place, Blob>,
}

/// What tells blobs apart without reading them side by side.
type Content = (u64, usize);

fn content(blob: &Blob) -> Content {
    let content = (fnv1a64(blob), blob.len());
    blob.release();
    content
}

impl Default for Assets {
    fn default() -> Self {
        Self::new(Arc::new(CodeStore::in_memory()))
    }
}

impl Assets {
    /// An empty program. What must be made anew, weights in another type than the checkpoint's, goes where `store` keeps
    /// its bytes.
    pub fn new(store: Arc<CodeStore>) -> Self {
        Self {
            store,
            program: Program::default(),
            constants: HashMap::new(),
            constants_by_content: HashMap::new(),
            keys: HashMap::new(),
            reals: HashMap::new(),
        }
    }

    /// The index of `blob` among the program's constants.
    pub fn constant(&mut self, blob: &Blob) -> u32 {
        if let Some(&index) = self.constants.get(&blob.lasting_place()) {
            return index;
        }
        let constants = &mut self.program.constants;
        if constants.is_empty() {
            constants.push(Blob::from_vec(Vec::new()));
        }
        let alike = self.constants_by_content.entry(content(blob)).or_default();
        let index = match alike.iter().find(|&&index| constants[index as usize] == *blob) {
            Some(&index) => index,
            None => {
                constants.push(blob.clone());
                let index = constants.len() as u32 - 1;
                alike.push(index);
                index
            }
        };
        self.constants.insert(blob.lasting_place(), index);
        index
    }

    /// The key of `blob` among the program's named data: `prefix` and a hash of its contents, so that equal blobs of
    /// several delegates are one.
    pub fn named(&mut self, prefix: &'static str, blob: &Blob) -> String {
        let place = (blob.lasting_place(), prefix);
        if let Some(key) = self.keys.get(&place) {
            return key.clone();
        }
        let (hash, len) = content(blob);
        let mut key = format!("{prefix}{hash:016x}{len:x}");
        while self.program.named_data.get(&key).is_some_and(|other| other != blob) {
            key.push('+');
        }
        self.program.named_data.insert(key.clone(), blob.clone());
        self.keys.insert(place, key.clone());
        key
    }

    /// `blob`, reals of `dtype`, as f32; `None` where it holds none. The same blob gives the same result.
    ///
    /// # Errors
    /// Those of the place where the result stays.
    pub fn as_f32(&mut self, blob: &Blob, dtype: DType) -> Result<Option<Blob>> {
        let widen: fn([u8; 2]) -> f32 = match dtype {
            DType::F32 => return Ok(Some(blob.clone())),
            DType::F16 => |bytes| half::f16::from_le_bytes(bytes).to_f32(),
            DType::BF16 => |bytes| half::bf16::from_le_bytes(bytes).to_f32(),
            _ => return Ok(None),
        };
        if let Some(known) = self.reals.get(&blob.lasting_place()) {
            return Ok(Some(known.clone()));
        }
        let wide =
            self.store.keep(blob.as_chunks::<2>().0.iter().flat_map(|&bytes| widen(bytes).to_le_bytes()).collect())?;
        blob.release();
        self.reals.insert(blob.lasting_place(), wide.clone());
        Ok(Some(wide))
    }

    /// The program of these methods: `plans` must have been lowered with these assets.
    pub fn into_program(mut self, plans: Vec<ExecutionPlan>) -> Program {
        if self.program.constants.is_empty() {
            self.program.constants.push(Blob::from_vec(Vec::new()));
        }
        self.program.plans = plans;
        self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(bytes: &[u8]) -> Blob {
        Blob::from_vec(bytes.to_vec())
    }

    #[test]
    fn equal_constants_are_stored_once() {
        let mut assets = Assets::default();
        let one = blob(b"weights");
        let first = assets.constant(&one);
        assert_eq!((first, assets.constant(&one), assets.constant(&blob(b"weights"))), (1, 1, 1));
        assert_eq!(assets.constant(&blob(b"others")), 2);
        let program = assets.into_program(Vec::new());
        assert_eq!(program.constants.len(), 3);
        assert!(program.constants[0].is_empty() && program.constants[1].same_place(&one));
    }

    #[test]
    fn keys_follow_contents_and_prefix() {
        let mut assets = Assets::default();
        let one = blob(b"weights");
        let key = assets.named("", &one);
        assert_eq!((assets.named("", &one), assets.named("", &blob(b"weights"))), (key.clone(), key.clone()));
        assert_ne!(assets.named("", &blob(b"others")), key);
        assert_eq!(assets.named("scale_", &one), format!("scale_{key}"));
        assert_eq!(assets.into_program(Vec::new()).named_data.len(), 3);
    }

    #[test]
    fn a_key_that_another_content_has_is_not_taken() {
        let mut assets = Assets::default();
        let key = assets.named("", &blob(b"weights"));
        assets.program.named_data.insert(key.clone(), blob(b"a collision"));
        assert_eq!(assets.named("", &blob(b"weights")), format!("{key}+"));
    }

    #[test]
    fn half_precision_widens_once() {
        let mut assets = Assets::default();
        let ones = blob(&half::bf16::ONE.to_le_bytes());
        let wide = assets.as_f32(&ones, DType::BF16).unwrap().unwrap();
        assert_eq!(wide[..], 1f32.to_le_bytes());
        assert!(assets.as_f32(&ones, DType::BF16).unwrap().unwrap().same_place(&wide));
        assert!(assets.as_f32(&wide, DType::F32).unwrap().unwrap().same_place(&wide));
        assert!(assets.as_f32(&wide, DType::I8).unwrap().is_none());
    }
}
