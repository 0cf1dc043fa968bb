//! Measurements that search and test: what `load --confirm`, `capacity` and the lab share.
//!
//! Reading order: [`capacity`] (search for a server's capacity, decisions only), [`observe`]
//! (observation of the machine under load), [`confirm`] (trials that confirm or refute a
//! bottleneck) and [`bottleneck_text`] (its words).

pub mod bottleneck_text;
pub mod capacity;
pub mod confirm;
pub mod observe;
