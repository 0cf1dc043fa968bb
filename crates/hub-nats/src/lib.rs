//! Change hub over NATS JetStream.
//!
//! Reading order: [`config`], `connection`; the relay: [`relay`] (its terms), `lease`, `publish`
//! (one term), `relay_sink` (what the engine's feed reports); the server: [`feed`] (subscription
//! and nonces), `server_state` (what each message does). All decisions are those of `hotrow_hub`.
//!
//! On the wire: the stream NAME has the messages of `hotrow_hub::codec` on the subject
//! `NAME.changes`; servers send nonces on `NAME.nonces`, outside of any stream; the key-value store
//! `NAME-lease` has the lease of the relays.

pub mod config;
mod connection;
pub mod feed;
mod lease;
mod publish;
pub mod relay;
mod relay_counts;
mod relay_sink;
mod server_state;
