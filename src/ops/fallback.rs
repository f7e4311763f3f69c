//! `llama::fallback.out`: a copy, which sharded QNN programs put between their delegates.

use super::error::OpError;
use crate::error::Result;
use crate::runtime::{KernelArgs, KernelRegistry};

pub(super) fn register(registry: &mut KernelRegistry) {
    registry.register("llama::fallback.out", fallback);
}

/// (in, out): out becomes in, sizes included.
fn fallback(args: &mut KernelArgs<'_>) -> Result<()> {
    let (inputs, out) = args.split(1)?;
    let source = inputs.tensor(0)?;
    if source.dtype != out.dtype {
        return Err(OpError::TypesDiffer { what: "the input", have: source.dtype, want: out.dtype }.into());
    }
    if source.dim_order != out.dim_order {
        return Err(OpError::Order { what: "the output" }.into());
    }
    out.resize(&source.dims)?;
    out.bytes_mut()?.copy_from_slice(source.bytes()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::Call;
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn copies_and_takes_over_the_sizes() {
        let call = Call::new().constant(DType::U16, &[1, 3], &[1u16, 2, 3]).output(DType::U16, &[2, 3]);
        assert_eq!(call.run("llama::fallback", "out").unwrap(), (vec![1, 3], vec![1, 0, 2, 0, 3, 0]));
    }

    #[test]
    fn another_element_type_is_refused() {
        let call = Call::new().constant(DType::U16, &[1], &[1u16]).output(DType::I16, &[1]);
        let error = call.run("llama::fallback", "out").unwrap_err();
        assert!(matches!(error.find(), Some(OpError::TypesDiffer { .. })), "{}", error.chain());
    }

    #[test]
    fn larger_than_the_output_is_refused() {
        let call = Call::new().constant(DType::U8, &[2, 3], &[0u8; 6]).output(DType::U8, &[1, 3]);
        let error = call.run("llama::fallback", "out").unwrap_err().chain();
        assert!(error.ends_with("sizes [2, 3] do not fit the upper bounds [1, 3]"), "{error}");
    }
}
