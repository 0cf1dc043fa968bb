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

/// Whether changes are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// By the database's change feed.
    Changes,
    /// Not at all: only the shape of the tables, and whether it still is the same database.
    Nothing,
}

/// A key type as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTypeName {
    /// 64-bit integer.
    Integer,
    /// Text.
    Text,
    /// UUID; in SQLite a 16-byte BLOB, in MongoDB binary data of subtype 4.
    Uuid,
    /// MongoDB's ObjectId.
    ObjectId,
    /// Any BLOB or bytea, in hexadecimal; in MongoDB binary data of subtype 0.
    Bytes,
}
