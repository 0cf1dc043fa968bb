//! HTTP: listen, connection, route, handle, admit, respond, admin, drain.

pub mod config;
pub mod connection;
pub mod drain;
pub mod guard;
pub mod listen;
pub mod metrics;
pub mod worker;
