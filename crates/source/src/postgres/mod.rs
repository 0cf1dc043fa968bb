//! PostgreSQL.

pub mod config;
pub mod pgoutput;
mod wire;
