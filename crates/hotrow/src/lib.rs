//! Library part of the `hotrow` binary, so that tests can reach its modules.
//!
//! Reading order: `main.rs` (every command in one match), [`cli`], [`config`], [`check`], [`init`],
//! [`serve`], `relay`, [`reload`], [`service_manager`], [`handover`], [`demo`], [`load`],
//! [`capacity`], [`diagnosis`], `tui` (the live display of both), [`lab`], [`verify`], [`doctor`],
//! [`health`], [`top`], [`advise`], [`signals`], [`open_files`], [`logging`], [`log_writer`].

pub mod advise;
pub mod capacity;
mod catalog_checks;
pub mod check;
pub mod cli;
pub mod config;
pub mod demo;
pub mod diagnosis;
#[cfg(test)]
mod doc_sync;
pub mod doctor;
#[cfg(feature = "failpoints")]
pub mod failpoints;
mod granted_columns;
pub mod handover;
pub mod health;
pub mod init;
pub mod key;
pub mod lab;
pub mod load;
pub mod log_writer;
pub mod logging;
mod machine;
pub mod open_files;
#[cfg(feature = "hub")]
pub mod relay;
pub mod reload;
pub mod serve;
pub mod service_manager;
pub mod top;
mod transport_args;
mod tui;
pub mod uninstall_triggers;
pub mod verify;
