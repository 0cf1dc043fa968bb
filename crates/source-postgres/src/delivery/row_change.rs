//! Keys of a collection that the change of one row concerns.

use hotrow_types::embedding::{ChangedParents, ChildChange, Parent, changed_parents};
use hotrow_types::key::{Key, KeySchema};

use super::super::pgoutput::{Old, Tuple};
use super::keys::{self, Read};

/// What the rows of a table are to a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its records.
    Record,
    /// Records of an alias: the values of old rows are not needed, and often not in the log.
    Alias,
    /// Children inside its records.
    Child {
        /// The table's own OID; `None` if it is partitioned: then the stream describes another
        /// replica identity than that of the partition with the row.
        oid: Option<u32>,
    },
}

/// A collection to which the rows of a described table belong.
#[derive(Clone)]
pub(super) struct RowTarget {
    pub(super) collection: usize,
    /// Positions of the key columns; `None` if the table lacks one of them.
    pub(super) places: Option<Vec<usize>>,
    pub(super) role: Role,
    /// The table has the OID that the survey of the catalogue saw.
    pub(super) is_known: bool,
    /// An update without an old row did not change these columns.
    pub(super) is_identity: bool,
}

/// Change of one row, with its images in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowChange<'a> {
    Insert {
        new: Tuple<'a>,
    },
    Update {
        /// Not sent if the columns of the replica identity did not change.
        old: Option<Old<'a>>,
        new: Tuple<'a>,
    },
    Delete {
        old: Old<'a>,
    },
}

impl RowChange<'_> {
    /// Returns the keys; `None` if any record of the collection may have changed.
    pub(super) fn keys(self, schema: &KeySchema, target: &RowTarget) -> Option<Vec<Key>> {
        let places = target.places.as_deref()?;
        if let Role::Child { .. } = target.role {
            return match changed_parents(self.of_child(schema, places, target.is_identity)) {
                ChangedParents::Keys(keys) => Some(keys),
                ChangedParents::All => None,
            };
        }
        let (old, new) = match self {
            Self::Insert { new } => (None, Some(new)),
            Self::Update { old, new } => (old, Some(new)),
            Self::Delete { old } => (Some(old), None),
        };
        let of_old = old.filter(|_| target.role != Role::Alias);
        let before = of_old.map(|old| keys::of_old(schema, places, old));
        let now = new.map(|new| keys::of_new(schema, places, new, old));
        let mut found = Vec::new();
        for read in [before, now].into_iter().flatten() {
            match read {
                Read::Key(key) => found.push(key),
                // No URL can name such a row.
                Read::NoKey => {}
                Read::Unknown => return None,
            }
        }
        Some(found)
    }

    /// Returns the change as that of a child, whose parent's key is at `places`.
    fn of_child(self, schema: &KeySchema, places: &[usize], is_identity: bool) -> ChildChange {
        let of_old = |old| parent(keys::of_old(schema, places, old));
        match self {
            Self::Insert { new } => {
                ChildChange::Insert(parent(keys::of_new(schema, places, new, None)))
            }
            Self::Update { old, new } => {
                let after = parent(keys::of_new(schema, places, new, old));
                let before = match old {
                    Some(old) => of_old(old),
                    None if is_identity => after.clone(),
                    None => Parent::Unknown,
                };
                ChildChange::Update { before, after }
            }
            Self::Delete { old } => ChildChange::Delete(of_old(old)),
        }
    }
}

fn parent(read: Read) -> Parent {
    match read {
        Read::Key(key) => Parent::Key(key),
        Read::NoKey => Parent::None,
        Read::Unknown => Parent::Unknown,
    }
}
