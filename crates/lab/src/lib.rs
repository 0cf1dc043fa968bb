//! Experiments on whole set-ups: services, proxies in front of them, loads, and a report that a person wants to read.
//!
//! Reading order: [`results`] (what was measured; everything before writes it, everything after reads it), [`report`] (what a person reads).

pub mod report;
pub mod results;
