//! The C functions on real models.

#[path = "../common/mod.rs"]
mod common;
mod host;
mod objects;
mod state;
mod steps;
mod turns;
