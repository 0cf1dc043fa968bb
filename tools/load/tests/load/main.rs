//! The generator against servers that behave in a scripted way.
#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

mod agreement;
mod coordinated_omission;
mod http2;
mod protocol;
#[path = "../scripted/mod.rs"]
mod scripted;
mod unanswered;
mod wall_clock;
mod ways;

use hotrow_load::request::{RequestMix, RequestSpec};
use hotrow_load::stats::Errors;

/// Counts of errors where there were none.
const NO_ERRORS: Errors = Errors {
    reset: 0,
    closed: 0,
    malformed: 0,
    unexpected_status: 0,
    goaway: 0,
    refused_stream: 0,
    stream_reset: 0,
};

/// Returns a POST with this body.
fn posted(body: &[u8]) -> RequestMix {
    let request = RequestSpec {
        method: "POST",
        path: "/",
        host: "h",
        headers: &[],
        body: Some(body),
        weight: 1,
        keepalive: true,
    };
    RequestMix::new(&[request], None).expect("a request")
}
