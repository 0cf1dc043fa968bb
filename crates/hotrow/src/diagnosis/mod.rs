//! Diagnosis of a load, shared by `load` and `capacity`: the watched processes, and tests and
//! reports of findings.
//!
//! Reading order: `watch_args` (the watched processes), `result` (findings as text), `trials`
//! (progress of tests), `json` (machine-readable).

pub(crate) mod json;
pub(crate) mod result;
pub(crate) mod trials;
pub mod watch_args;
