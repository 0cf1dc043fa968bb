//! What limited a load: who is looked at meanwhile, and how findings are shown. `load` and `capacity` share it.
//!
//! Reading order: `watched` (whose processes), `json` (findings for machines).

pub(crate) mod json;
pub mod watched;
