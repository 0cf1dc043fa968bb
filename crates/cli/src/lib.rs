//! What the programs `hotrow` and `hotrow-lab` share.

pub mod exit;
pub mod open_files;
pub mod output;
pub mod signals;
pub mod units;
