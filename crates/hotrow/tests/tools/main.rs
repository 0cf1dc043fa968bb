//! The command line, the demonstration and the packages.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod cli;
mod demo;
mod packaging;
