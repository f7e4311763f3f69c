//! The C functions on real models.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/cdsprpc.rs"]
mod cdsprpc;
mod faults;
mod host;
mod objects;
mod state;
mod qnn_shim;
mod steps;
mod turns;
