//! Index from the requested keys of a query to their rows in the answer.

use std::collections::HashMap;

use hotrow_types::key::Key;

use crate::Row;

/// Position of each requested key in the answer; several positions for a repeated key.
pub struct RowIndex<'a> {
    first: HashMap<&'a Key, usize>,
    /// A later position with the first position of the same key.
    repeated: Vec<(usize, usize)>,
}

impl<'a> RowIndex<'a> {
    /// Indexes keys by their place in a query.
    pub fn new(keys: &'a [Key]) -> Self {
        let mut index = Self { first: HashMap::with_capacity(keys.len()), repeated: Vec::new() };
        for (i, key) in keys.iter().enumerate() {
            let first = *index.first.entry(key).or_insert(i);
            if first != i {
                index.repeated.push((i, first));
            }
        }
        index
    }

    /// Returns the first place of a key.
    pub fn of(&self, key: &Key) -> Option<usize> {
        self.first.get(key).copied()
    }

    /// Copies the row of each first position to the later positions of the same key.
    pub fn spread(&self, rows: &mut [Row]) {
        for (later, first) in &self.repeated {
            rows[*later] = rows[*first].clone();
        }
    }
}
