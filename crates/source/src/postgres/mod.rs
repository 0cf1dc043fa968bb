//! PostgreSQL.

pub mod config;
