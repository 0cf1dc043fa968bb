//! Commands of `hotrow-lab` that measure or check one service. `hotrow load` and its kin start
//! them.
//!
//! Reading order: [`cli`] (their arguments, in one match), [`load`], [`capacity`], [`diagnosis`]
//! and `tui` (evidence and the live display of both), [`doctor`], [`top`], [`verify`].

pub mod capacity;
pub mod cli;
pub mod diagnosis;
pub mod doctor;
pub mod load;
mod machine;
pub mod top;
mod tui;
pub mod verify;
