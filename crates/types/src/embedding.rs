//! Embedded rows: which records a change of a child's row is a change of.
//!
//! A record, the *parent*, contains rows of another table, its *children*. A child refers to its
//! parent by a column with the parent's key. So a change of a child is a change of the parent it
//! had and of the one it has. A feed whose image of the old row lacks that column does not say
//! which parent it had: then the change is one of every parent.

use crate::key::Key;

/// Parent that an image of a child's row names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// The parent with this key, whether there is one or not.
    Key(Key),
    /// None: the column is NULL, or has a value that no key has.
    None,
    /// The image does not show it.
    Unknown,
}

/// Change of a child's row, with the parent before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// A new row.
    Insert(Parent),
    /// A changed row.
    Update {
        /// The parent it had.
        before: Parent,
        /// The parent it has.
        after: Parent,
    },
    /// A deleted row.
    Delete(Parent),
    /// The table was emptied.
    Truncate,
}

/// Parents whose records a change may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedParents {
    /// These, at most two.
    Keys(Vec<Key>),
    /// Any parent of the collection.
    All,
}

/// Returns the parents that a change of a child concerns. Neither the order nor the limit of the
/// children is considered: a child outside of the limit becomes one within it when another goes.
pub fn changed_parents(change: ChildChange) -> ChangedParents {
    let named = match change {
        ChildChange::Insert(only) | ChildChange::Delete(only) => [only, Parent::None],
        ChildChange::Update { before, after } => [before, after],
        ChildChange::Truncate => return ChangedParents::All,
    };
    let mut keys = Vec::with_capacity(named.len());
    for parent in named {
        match parent {
            Parent::Key(key) if keys.contains(&key) => {}
            Parent::Key(key) => keys.push(key),
            Parent::None => {}
            Parent::Unknown => return ChangedParents::All,
        }
    }
    ChangedParents::Keys(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{CollectionId, KeyPart, KeySchema, KeyType};

    fn parent(id: i64) -> Parent {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        Parent::Key(schema.key(&[KeyPart::Integer(id)]).expect("an integer"))
    }

    #[test]
    fn a_change_concerns_the_parent_before_and_the_one_after() {
        let keys = |change| match changed_parents(change) {
            ChangedParents::Keys(keys) => Some(keys.into_iter().map(Parent::Key).collect()),
            ChangedParents::All => None,
        };
        let update = |before, after| ChildChange::Update { before, after };
        assert_eq!(keys(ChildChange::Insert(parent(1))), Some(vec![parent(1)]));
        assert_eq!(keys(ChildChange::Delete(parent(1))), Some(vec![parent(1)]));
        assert_eq!(keys(update(parent(1), parent(2))), Some(vec![parent(1), parent(2)]));
        assert_eq!(keys(update(parent(1), parent(1))), Some(vec![parent(1)]));
        assert_eq!(keys(update(Parent::None, parent(2))), Some(vec![parent(2)]));
        assert_eq!(keys(ChildChange::Insert(Parent::None)), Some(Vec::new()));
        for unknown in [
            update(Parent::Unknown, parent(1)),
            update(parent(1), Parent::Unknown),
            ChildChange::Insert(Parent::Unknown),
            ChildChange::Delete(Parent::Unknown),
            ChildChange::Truncate,
        ] {
            assert_eq!(keys(unknown.clone()), None, "{unknown:?}");
        }
    }
}
