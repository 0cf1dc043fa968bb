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
