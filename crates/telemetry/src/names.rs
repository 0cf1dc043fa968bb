//! Names and sources of the collections, by which texts for operators refer to them.

use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;

/// Name and source of each collection, by its number.
#[derive(Clone, Debug)]
pub struct CollectionNames(Box<[(String, SourceId)]>);

impl FromIterator<(String, SourceId)> for CollectionNames {
    fn from_iter<I: IntoIterator<Item = (String, SourceId)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl CollectionNames {
    /// Returns the name of a collection.
    pub fn name(&self, CollectionId(id): CollectionId) -> &str {
        &self.0[usize::from(id)].0
    }

    /// Returns the source of a collection.
    pub fn source(&self, CollectionId(id): CollectionId) -> SourceId {
        self.0[usize::from(id)].1
    }

    /// Returns all names, in the order of the numbers.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}
