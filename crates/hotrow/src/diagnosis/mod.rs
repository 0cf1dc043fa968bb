//! What limited a load: who is looked at meanwhile, and how findings are tested and shown. `load` and `capacity` share it.
//!
//! Reading order: `watched` (whose processes), `diagnosed` (what was found, in words), `trials` (how tests go), `json` (for machines).

pub(crate) mod diagnosed;
pub(crate) mod json;
pub(crate) mod trials;
pub mod watched;
