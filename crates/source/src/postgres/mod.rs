//! PostgreSQL.

pub mod config;
pub mod pgoutput;
mod wire;
#[cfg(test)]
mod tests;
