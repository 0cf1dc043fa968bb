//! The parts of the `hotrow` binary, as a library so that its tests can reach them.
//!
//! Reading order: `main.rs` (every mode in one match), [`cli`], [`config`], [`serve`], [`demo`], [`load`],
//! [`capacity`], [`diagnosis`], `screen` (the live display of both), [`lab`], [`verify`], [`doctor`], [`signals`], [`open_files`], [`logging`].

pub mod capacity;
pub mod cli;
pub mod config;
pub mod demo;
pub mod diagnosis;
pub mod doctor;
#[cfg(test)]
mod documented;
pub mod lab;
pub mod load;
pub mod logging;
pub mod open_files;
mod screen;
pub mod serve;
pub mod signals;
pub mod verify;
