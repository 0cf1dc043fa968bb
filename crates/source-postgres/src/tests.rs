//! Tests against real servers, each private to its test, and their helpers.

mod bench;
pub(crate) mod certs;
mod feed;
mod harness;
mod key_types;
mod reads;
mod recorder;
mod refusals;
pub(crate) use hotrow_testkit::postgres as server;
mod servers;
mod troubles;
mod types;
mod wire;
