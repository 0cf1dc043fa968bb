//! How much a server carries. Decisions only: what to try next, and what that says. Loads are carried out elsewhere,
//! and time comes in as what they took, so that searches are tested against simulated servers.
//!
//! Reading order: [`search`] (open loop: the highest rate that keeps an objective), [`sizes`] (how long a step must be), [`certainty`] (how sure it is),
//! [`closed`] (closed loop: connections until the throughput no longer rises), [`usl`] (the law behind that curve).

pub mod certainty;
pub mod closed;
pub mod search;
pub mod sizes;
pub mod usl;
