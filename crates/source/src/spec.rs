//! A collection as the configuration names it, the same for every engine.

/// One collection as the configuration names it.
#[derive(Clone, Debug)]
pub struct CollectionSpec {
    /// Name in URLs and messages.
    pub name: String,
    /// Table in the database.
    pub table: String,
    /// Key columns, one to four.
    pub key: Vec<String>,
    /// Type per key column where the declared type does not tell (`uuid`, `bytes`); empty: from the declaration.
    pub key_types: Vec<KeyTypeName>,
    /// Columns to serve, in this order; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Columns not to serve.
    pub exclude: Vec<String>,
}

/// A key type as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTypeName {
    /// 64-bit integer.
    Integer,
    /// Text.
    Text,
    /// UUID; in SQLite a 16-byte BLOB.
    Uuid,
    /// Any BLOB or bytea, in hexadecimal.
    Bytes,
}
