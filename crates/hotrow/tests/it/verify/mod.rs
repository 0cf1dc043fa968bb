//! `hotrow verify` with the real binary: it passes without a defect under faults, and finds the
//! violation when a safeguard is disabled.
//!
//! Reading order: [`checker`] (running it), [`command`] (usage and refusals), [`stage`] (a database
//! and its service), [`faults`] and [`traps`] (common to all engines), [`sqlite`] (its own faults
//! and traps), [`network`] (those of the other engines: [`postgres`], [`mariadb`], [`mongo`]),
//! [`parts`] and [`parts_faults`] (aliases and embedded rows), [`clock`] (an adjustable clock),
//! [`balancer`] (two instances behind one address), [`ignored`] (what a service ignores),
//! [`writers`] (the checker's database access),
//! `near_cache`, `hub` and [`standbys`] (many instances), [`transports`] (TLS, HTTP/2, Unix
//! sockets, credentials).
mod balancer;
mod checker;
mod clock;
mod command;
mod faults;
#[cfg(feature = "hub")]
mod hub;
mod ignored;
mod mariadb;
mod mongo;
mod near_cache;
mod network;
mod parts;
mod parts_faults;
mod postgres;
mod sqlite;
mod stage;
mod standbys;
mod transports;
mod traps;
mod writers;
