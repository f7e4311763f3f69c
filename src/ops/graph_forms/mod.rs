//! The graph form of each operator: what a call adds to the graph of its method, one family a file.
//!
//! A form says exactly what the eager operator does, or refuses: then the method runs instruction by instruction.

mod attention;
mod call;
mod contents;
mod create;
mod delegate;
mod elementwise;
mod index;
mod integers;
mod layout;
mod linear;
mod method;
mod quantized;
mod reduce;
mod sizes;

pub(super) use method::{Traced, trace};

use crate::graph::Int;
use call::Call;

/// Why a method has no graph.
#[derive(Debug, PartialEq)]
pub(super) enum Unfit {
    /// Two sizes would have to be equal.
    Unequal(Int, Int),
    /// Anything else.
    Why(String),
}

impl Unfit {
    fn why<T>(why: impl Into<String>) -> Fit<T> {
        Err(Self::Why(why.into()))
    }
}

/// What a form gives.
type Fit<T = ()> = Result<T, Unfit>;

/// Adds a call to the graph of its method.
type Form = fn(&mut Call<'_, '_>) -> Fit;

/// The form of an operator by its full name.
fn find(name: &str) -> Option<Form> {
    let families = [
        attention::FORMS,
        create::FORMS,
        elementwise::FORMS,
        index::FORMS,
        integers::FORMS,
        layout::FORMS,
        linear::FORMS,
        quantized::FORMS,
        reduce::FORMS,
    ];
    families.into_iter().flatten().find(|(known, _)| *known == name).map(|(_, form)| *form)
}
