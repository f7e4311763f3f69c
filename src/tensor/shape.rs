//! Shapes: up to sixteen dimensions, in logical order.

use crate::error::{Error, Result, Status};

/// Most dimensions a tensor may have.
pub const MAX_RANK: usize = 16;

/// Most elements a tensor may have: products are capped here so that byte sizes never overflow.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// Sizes of a tensor's dimensions, outermost first.
pub type Dims = Vec<usize>;

/// Product of `dims`, refused above [`MAX_ELEMENTS`].
pub fn element_count(dims: &[usize]) -> Result<usize> {
    dims.iter()
        .try_fold(1usize, |count, &dim| count.checked_mul(dim))
        .filter(|&n| n <= MAX_ELEMENTS)
        .ok_or_else(|| Error::new(Status::InvalidProgram, format!("a tensor of shape {dims:?} is too large")))
}
