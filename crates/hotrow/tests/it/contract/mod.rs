//! Consistency contract (docs/consistency.md) checked from outside: the real binary over sockets, a
//! database that this process writes, and a checker that judges every answer and knows only the
//! contract.
//!
//! Reading order: [`writer`], [`reader`], [`ask`] and [`pushed`] (the load), [`engine`] (the
//! databases), [`run`] (all parts together), [`check`] (the checker of `hotrow verify` over a
//! finished run), then the tests: [`mix`], [`held`], [`faults`].
//!
//! Over a network: [`networked`] (its engines, with [`sql`]), [`disturbances`] and [`mixed`] (all
//! of them under a mixed load), [`scenario`] (a single key), [`safeguards`] (each one enabled and
//! disabled), [`hidden`] and [`visibility`] (changes delivered before they are visible), then the
//! engines that these tests run over: [`postgres`], [`mysql`] and [`mongodb`]. Through the change
//! hub: `hub`, and `hub_rules` (each of its rules enabled and disabled).

mod ask;
mod board;
mod check;
mod disturbances;
mod engine;
mod faults;
mod held;
mod hidden;
#[cfg(feature = "hub")]
mod hub;
#[cfg(feature = "hub")]
mod hub_rules;
pub(crate) mod mix;
mod mixed;
mod mongodb;
mod mysql;
pub(crate) mod networked;
mod postgres;
mod pushed;
mod reader;
mod rows;
mod run;
mod safeguards;
mod scenario;
mod sql;
mod sqlite;
mod visibility;
mod writer;
