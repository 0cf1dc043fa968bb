//! The commands that measure: `load`, `capacity`, `doctor`.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking, in helpers too")]

mod capacity;
mod doctor;
mod load;
