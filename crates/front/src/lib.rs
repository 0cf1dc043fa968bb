//! Connections: a worker accepts them, reads requests and commands, passes them to a service
//! ([`connection::serve`], [`connection::commands`]) and writes its answers. It knows nothing of
//! what a service does.
//!
//! Reading order: [`worker`], `acceptor`, [`connection`].

mod acceptor;
pub mod connection;
pub mod worker;
