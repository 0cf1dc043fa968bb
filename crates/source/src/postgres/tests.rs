//! Tests against a real server, each private to its test, and what they share.

mod bench;
pub(crate) mod certs;
mod feed;
mod harness;
mod reads;
mod recorder;
mod refusals;
#[path = "../../../hotrow/tests/common_pg/server.rs"]
pub(crate) mod server;
mod servers;
mod troubles;
mod types;
mod wire;
