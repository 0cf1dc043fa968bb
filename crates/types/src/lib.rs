//! Keys, positions and versions: how a record is named, the place of a change in the log of its
//! database, and which changes a read has seen.
//!
//! Pure values without I/O. `cache` decides by them, each engine makes them, `server` writes them
//! into URLs and tokens.

pub mod columns;
pub mod embedding;
pub mod gtid;
pub mod key;
pub mod landmark;
pub mod names;
pub mod source;
pub mod tenant;
pub mod version;
pub mod writer_token;
