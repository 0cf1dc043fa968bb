//! Commands of `hotrow-lab` that measure or check one service. `hotrow load` and its kin start
//! them.
//!
//! Reading order: [`cli`] (their arguments, in one match), [`load`], [`capacity`], [`diagnosis`]
//! and `tui` (evidence and the live display of both), [`doctor`], [`top`], [`verify`].
//!
//! Reference `results`: # Results as JSON
//!
//! By schema: of [load](load.md), [capacity](capacity.md),
//! [doctor](diagnosis.md#hotrow-doctor-limits-of-a-machine), [verify](verify.md) and
//! [init](init.md).

pub mod capacity;
pub mod cli;
pub mod diagnosis;
pub mod doctor;
pub mod load;
mod machine;
pub mod top;
mod tui;
pub mod verify;
