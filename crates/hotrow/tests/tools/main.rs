//! The command line, and the commands that measure: `load`, `capacity`, `doctor`.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod capacity;
mod cli;
mod demo;
mod doctor;
mod load;
mod packaging;
