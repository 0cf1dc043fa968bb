//! Collection settings, the same for all engines.

/// Settings of one collection.
#[derive(Clone, Debug)]
pub struct CollectionConfig {
    /// Name in URLs and messages.
    pub name: String,
    /// Table in the database.
    pub table: String,
    /// Key columns, one to four.
    pub key: Vec<String>,
    /// Type per key column, for declared types that do not determine it (`uuid`, `bytes`). Empty:
    /// from the declaration.
    pub key_types: Vec<KeyTypeName>,
    /// Columns to serve, in this order; `None`: all, in the table's order.
    pub columns: Option<Vec<String>>,
    /// Columns not to serve.
    pub exclude: Vec<String>,
}

/// Extent of change detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Changes of records, from the database's change feed.
    Changes,
    /// No changes of records: only the schemas of the tables, and the identity of the database.
    Nothing,
}

/// Key type by its name in the configuration.
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
