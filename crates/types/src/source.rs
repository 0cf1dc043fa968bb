//! Sources: the databases that one process serves, each with its own feed.

/// The number of a source within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

impl SourceId {
    /// The first source; the only one of most processes.
    pub const FIRST: Self = Self(0);

    /// Returns its place in lists of all sources.
    #[must_use]
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{CollectionId, KeyPart, KeySchema, KeyType};

    #[test]
    fn sources_are_numbered_in_the_order_of_their_lists() {
        assert_eq!((SourceId::FIRST.index(), SourceId(3).index()), (0, 3));
    }

    /// A source knows the collections of one process under other numbers.
    #[test]
    fn a_key_keeps_its_columns_in_another_collection() {
        for types in [vec![KeyType::Integer], vec![KeyType::Bytes]] {
            let schema = |id| KeySchema::new(CollectionId(id), types.clone());
            let part = |long: &'static [u8]| match types[0] {
                KeyType::Integer => KeyPart::Integer(7),
                _ => KeyPart::Bytes(long),
            };
            let key = |id| schema(id).key(&[part(&[9; 100])]).unwrap();
            assert_eq!(key(2).in_collection(CollectionId(258)), key(258));
            assert_eq!(key(258).in_collection(CollectionId(2)).collection(), CollectionId(2));
        }
    }
}
