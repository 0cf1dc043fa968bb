//! Policies that only this benchmark compares; the others are in `hotrow_replay`.
//!
//! To add a policy, implement `hotrow_replay::policy::Policy` in a file of its own and name it in
//! `candidates()` of `main.rs`.

mod gdsf;
mod quick;

pub use gdsf::Gdsf;
pub use hotrow_replay::policy::{Hotrow, Lfu, Lru, Policy, S3Fifo, S3Settings, entry_bytes};
pub use quick::{Quick, QuickBytes, QuickSettings};
