//! HTTP: listen, connection, route, handle, admit, respond, admin, drain.

pub mod config;
