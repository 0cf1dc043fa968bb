//! How traces name a database, by the semantic conventions of OpenTelemetry.

use crate::spec::CollectionConfig;

/// Names of a database and of what is read in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseName {
    /// Product: a value of `db.system.name`.
    pub system: &'static str,
    /// Database on the server, or name of the file; `None`: unknown.
    pub namespace: Option<String>,
    /// Operation of a read, in the product's own words.
    pub operation: &'static str,
    /// Table of each collection, in the order of their `CollectionId`s.
    pub tables: Vec<String>,
}

impl DatabaseName {
    /// Creates the name of a database with tables of these collections.
    #[must_use]
    pub fn new(
        (system, operation): (&'static str, &'static str),
        namespace: Option<String>,
        collections: &[CollectionConfig],
    ) -> Self {
        let tables = collections.iter().map(|collection| collection.table.clone()).collect();
        Self { system, namespace, operation, tables }
    }

    /// Returns the name of a database that is none of the known products.
    #[must_use]
    pub fn unknown() -> Self {
        Self { system: "other_sql", namespace: None, operation: "SELECT", tables: Vec::new() }
    }
}
