//! HPACK: fields of heads as bytes (RFC 7541).
//!
//! Reading order: [`decoder`] and the tables that it looks up, [`static_table`] and
//! [`dynamic_table`]; [`integer`] and [`huffman`] are their parts. [`encoder`] writes answers
//! without a table of its own: what is sent does not depend on what was sent before.

pub mod decoder;
mod dynamic_table;
pub mod encoder;
mod huffman;
mod integer;
mod static_table;

/// A head cannot be decoded. The tables of both sides differ from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionError;
