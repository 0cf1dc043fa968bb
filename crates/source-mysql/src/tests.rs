//! Tests against a real server, and their shared helpers.

mod feed;
mod grants;
mod harness;

mod naming;
mod reads;
mod recorder;
mod refusals;
pub(crate) use hotrow_testkit::mysql as server;
mod servers;
mod types;
