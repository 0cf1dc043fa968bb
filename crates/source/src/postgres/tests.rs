//! Tests against a real server, each private to its test, and what they share.

pub(crate) mod certs;
mod feed;
mod recorder;
#[path = "../../../hotrow/tests/common_pg/server.rs"]
pub(crate) mod server;
mod wire;
