//! Against real servers, each private to its test.

#[path = "../../../hotrow/tests/common_pg/server.rs"]
mod server;

mod wire;
