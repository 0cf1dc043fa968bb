//! Replays of access traces against cache policies: the read server's own, LRU, LFU, S3-FIFO, and
//! the clairvoyant bound.
//!
//! Reading order: [`trace`] (requests in order), [`policy`] (the policies), [`opt`] (the bound).

pub mod opt;
pub mod policy;
pub mod trace;
