//! Graphs of one model, in every shape, give the same numbers.

mod shapes;
