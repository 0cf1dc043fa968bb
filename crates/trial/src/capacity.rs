//! Searches for the capacity of a server. The modules decide which load to try next and what a
//! result means; callers carry the loads out and pass in the time they took, so tests run against
//! simulated servers.
//!
//! Reading order: [`search`] (open loop: the highest rate that meets an objective), [`sizes`]
//! (length of a step), [`certainty`] (statistical certainty of a step), [`closed`] (closed loop:
//! connections until the throughput stops rising), [`usl`] (the scalability law behind that curve).

pub mod certainty;
pub mod closed;
pub mod search;
pub mod sizes;
pub mod usl;
