//! Tests against a real server, and what they share.

pub(crate) mod certs;
