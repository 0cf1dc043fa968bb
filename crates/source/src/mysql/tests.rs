//! Tests against a real server, and what they share.

mod feed;
mod harness;

mod naming;
mod reads;
mod recorder;
mod refusals;
#[path = "../../../hotrow/tests/common_mysql/server.rs"]
pub(crate) mod server;
mod servers;
mod types;
