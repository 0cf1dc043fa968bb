//! Plain values that the rest of Hotrow measures with. Nothing here speaks a protocol or knows a database.
//!
//! Reading order: [`clock`] (the one clock of the process), [`histogram`] (latencies), [`sketch`] (distinct counts).

pub mod clock;
