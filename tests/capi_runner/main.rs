//! The C functions on real models.

#[path = "../common/cdsprpc.rs"]
mod cdsprpc;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod host;
mod lines;
mod objects;
mod qnn_shim;
mod state;
mod steps;
mod turns;
