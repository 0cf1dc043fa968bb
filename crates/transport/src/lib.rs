//! The way from a tool to the service that it measures or checks: one set of types for all tools.
//!
//! Reading order: [`target`] (URLs and addresses), [`tls`] (trust, client certificate, protocol),
//! [`credential`] (tokens and headers from files), [`stream`] (a blocking connection), [`explain`]
//! (failures in words).
//!
//! It shares no code with the server: the tools judge it.

pub mod credential;
pub mod explain;
pub mod fetch;
pub mod stream;
pub mod target;
pub mod tls;
