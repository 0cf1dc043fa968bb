//! HTTP: listen, connection, route, handle, admit, respond, admin, drain.

pub mod admin;
mod batch;
mod body;
pub mod config;
pub mod handle;
pub mod lookups;
mod position;
mod problem;
mod read;
mod receive;
mod respond;
mod route;
pub mod shared;
pub mod sink;
mod throttle;
mod trouble;
