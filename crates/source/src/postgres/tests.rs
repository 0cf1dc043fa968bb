//! Tests against a real server, and what they share.

pub(crate) mod certs;
mod harness;
mod reads;
mod refusals;
#[path = "../../../hotrow/tests/common_pg/server.rs"]
pub(crate) mod server;
mod servers;
mod troubles;
mod types;
