//! Change hub: one relay follows the database, and publishes its changes to any number of servers.
//! This crate has the decisions of both sides. It does no I/O, reads no clock and spawns nothing.
//!
//! Terms:
//! - *chain*: messages that follow each other by number, from one relay; each carries its
//!   [`Generation`](message::Generation) and a counter that grows by one. Any other successor is a
//!   loss. Nothing is derived from the sequences of the transport, which may be reused after
//!   acknowledged messages were lost.
//! - *beginning*: first message of a chain. It is written only if the stream still ends where the
//!   relay last saw its end, so chains replace each other and never interleave.
//! - *nonce*: random number with which a server asks how far the relay is. Its answer, a
//!   *watermark*, is a message of the chain. It answers the nonces that had arrived before the
//!   relay's look at the database began. No clocks are compared.
//! - *hidden change*: one that is in the chain, and that some reads do not see yet.
//!
//! Reading order: [`message`], [`codec`]; the relay: [`nonces`], [`hidden`], [`publisher`]; the
//! server: [`follower`]. The simulated world drives all of them through faults. docs/hub.md
//! describes the rules for operators, docs/adr/0014-the-hub-chains-its-messages.md their reasons.

pub mod codec;
pub mod follower;
pub mod hidden;
pub mod message;
pub mod nonces;
pub mod publisher;
pub mod rules;
pub mod tag;
