//! Tables of collections by their names in the change log.

use std::collections::HashMap;

use hotrow_types::key::KeySchema;

use crate::error::OpenError;
use crate::inspect::Table;

/// Map from the names in the log to collections.
#[derive(Debug)]
pub(super) struct Watched {
    by_name: HashMap<String, Vec<usize>>,
}

impl Watched {
    pub(super) fn new(tables: &[Result<Table, OpenError>], schemas: &[KeySchema]) -> Self {
        debug_assert_eq!(tables.len(), schemas.len());
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, table) in tables.iter().enumerate() {
            for watched in table.iter().flat_map(Table::watched) {
                let collections = by_name.entry(watched.watch_name()).or_default();
                // A table may be embedded twice by the same column.
                if collections.last() != Some(&i) {
                    collections.push(i);
                }
            }
        }
        Self { by_name }
    }

    pub(super) fn named(&self, name: &str) -> &[usize] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }
}
