//! SQLite: the embedded default.

pub mod config;
