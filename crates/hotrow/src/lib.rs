//! Library part of the `hotrow` binary, so that tests can reach its modules.
//!
//! Reading order: `main.rs` (every command in one match), [`cli`], [`config`], [`check`], [`init`],
//! [`serve`], `relay`, [`reload`], [`service_manager`], [`handover`], [`demo`], [`health`],
//! [`advise`], [`describe`], [`tool`], [`open_files`], [`logging`], [`log_writer`].

mod accept_queue;
pub mod advise;
mod catalog_checks;
pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod describe;
pub mod exchange;
#[cfg(feature = "failpoints")]
pub mod failpoints;
mod fit;
mod granted_columns;
pub mod handover;
pub mod health;
pub mod init;
pub mod key;
pub mod log_writer;
pub mod logging;
pub mod open_files;
#[cfg(feature = "hub")]
pub mod relay;
pub mod reload;
pub mod serve;
pub mod serve_url;
pub mod service_manager;
pub mod tool;
pub mod uninstall_triggers;
