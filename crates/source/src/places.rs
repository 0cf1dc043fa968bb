//! Which of the keys asked for a row of an answer belongs to.

use std::collections::HashMap;

use hotrow_cache::key::Key;

use crate::Row;

/// Where to find each key asked for; several places when it was asked for more than once.
pub(crate) struct Places<'a> {
    first: HashMap<&'a Key, usize>,
    /// A later place and the first one of the same key.
    again: Vec<(usize, usize)>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(keys: &'a [Key]) -> Self {
        let mut places = Self { first: HashMap::with_capacity(keys.len()), again: Vec::new() };
        for (i, key) in keys.iter().enumerate() {
            let first = *places.first.entry(key).or_insert(i);
            if first != i {
                places.again.push((i, first));
            }
        }
        places
    }

    pub(crate) fn of(&self, key: &Key) -> Option<usize> {
        self.first.get(key).copied()
    }

    /// Gives the later places what the first have.
    pub(crate) fn spread(&self, rows: &mut [Row]) {
        for (later, first) in &self.again {
            rows[*later] = rows[*first].clone();
        }
    }
}
