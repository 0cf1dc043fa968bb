//! Changes of the databases: [`sink`] takes them from the feeds, the cache applies them, and
//! followers ([`follow`]), clients that keep copies ([`tracking`]) and caches in front ([`purge`])
//! are informed.

pub mod follow;
pub mod purge;
pub mod sink;
pub mod tracking;
