//! The dynamic table of a decoder (RFC 7541 section 2.3.2): the newest fields that the client has
//! named, bounded in bytes.

use std::collections::VecDeque;

use crate::TABLE_BYTES_MAX;

/// What an entry counts for beside its bytes (RFC 7541 section 4.1).
const ENTRY_BYTES: usize = 32;

/// Place of an entry in the bytes of the table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    name_bytes: usize,
    value_bytes: usize,
}

impl Entry {
    fn size(self) -> usize {
        self.name_bytes + self.value_bytes + ENTRY_BYTES
    }

    fn end(self) -> usize {
        self.start + self.name_bytes + self.value_bytes
    }
}

/// The table. Without entries it has no memory.
#[derive(Clone, Debug)]
pub(super) struct DynamicTable {
    /// Bytes of the entries, from the oldest to the newest, behind those of evicted ones.
    bytes: Vec<u8>,
    /// From the oldest to the newest.
    entries: VecDeque<Entry>,
    size: usize,
    size_max: usize,
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, size_max: TABLE_BYTES_MAX }
    }
}

impl DynamicTable {
    /// Returns name and value of the entry that was added last but `age`.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(age + 1)?)?;
        Some(self.bytes[entry.start..entry.end()].split_at(entry.name_bytes))
    }

    /// Sets the largest size, which is at most [`TABLE_BYTES_MAX`].
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(0);
    }

    /// Adds a field. One that is larger than the table empties it.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let added = Entry { start: 0, name_bytes: name.len(), value_bytes: value.len() };
        self.evict(added.size());
        if added.size() > self.size_max {
            return;
        }
        if self.bytes.len() + added.end() > 2 * TABLE_BYTES_MAX {
            self.compact();
        }
        self.entries.push_back(Entry { start: self.bytes.len(), ..added });
        self.size += added.size();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
    }

    /// Adds a field with the name of the entry that was added last but `age`.
    pub(super) fn add_named(&mut self, age: usize, value: &[u8]) {
        let Some((name, _)) = self.get(age) else { return };
        // Its entry may be evicted for the new one.
        let name = name.to_vec();
        self.add(&name, value);
    }

    /// Evicts the oldest entries until there is room for `wanted`.
    fn evict(&mut self, wanted: usize) {
        while self.size + wanted > self.size_max
            && let Some(evicted) = self.entries.pop_front()
        {
            self.size -= evicted.size();
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Moves the bytes of the entries to the front. Between two moves as many bytes are added as
    /// one of them moves at most.
    fn compact(&mut self) {
        let from = self.entries.front().map_or(self.bytes.len(), |oldest| oldest.start);
        self.bytes.drain(..from);
        self.entries.iter_mut().for_each(|entry| entry.start -= from);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_entries_make_room() {
        let mut table = DynamicTable::default();
        table.resize(100);
        table.add(b"a", b"1");
        table.add(b"b", b"2");
        assert_eq!(table.get(0), Some((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(1), Some((&b"a"[..], &b"1"[..])));
        table.add_named(1, b"3");
        assert_eq!(table.get(0), Some((&b"a"[..], &b"3"[..])));
        assert_eq!(table.get(1), Some((&b"b"[..], &b"2"[..])));
        assert_eq!(table.get(2), None);
        table.resize(40);
        assert_eq!((table.get(0), table.get(1)), (Some((&b"a"[..], &b"3"[..])), None));
        table.add(b"longer", b"than the table");
        assert_eq!((table.get(0), table.size), (None, 0));
    }

    proptest! {
        #[test]
        fn a_table_equals_a_plain_queue(
            sizes in prop::collection::vec((0_usize..200, 0_usize..2_000), 1..60),
            size_max in 0_usize..=TABLE_BYTES_MAX,
        ) {
            let mut table = DynamicTable::default();
            table.resize(size_max);
            let mut plain: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
            let size = |plain: &VecDeque<(Vec<u8>, Vec<u8>)>| {
                plain.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
            };
            for (i, (name_bytes, value_bytes)) in sizes.into_iter().enumerate() {
                let (name, value) = (vec![i as u8; name_bytes], vec![i as u8 + 100; value_bytes]);
                table.add(&name, &value);
                plain.push_front((name, value));
                while size(&plain) > size_max {
                    plain.pop_back();
                }
                for (age, (name, value)) in plain.iter().enumerate() {
                    prop_assert_eq!(table.get(age), Some((&name[..], &value[..])));
                }
                prop_assert_eq!(table.get(plain.len()), None);
                prop_assert!(table.bytes.len() <= 2 * TABLE_BYTES_MAX);
            }
        }
    }
}
