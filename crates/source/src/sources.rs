//! The sources of one process: which one each collection is read from, and under which numbers.
//!
//! An engine numbers its collections from 0, in the order of its own configuration. Where one
//! process has several sources, a collection has another number there, in the order of all
//! collections. The translation is here, at the edge of an engine: once for each key of a query,
//! and once for each change. A process with one source needs none, and has none.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeySchema};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Version};

use crate::database_name::DatabaseName;
use crate::field_schema::FieldSchema;
use crate::looks::Looks;
use crate::standby::{StandbyRead, StandbyRefusal, StandbyView};
use crate::{
    BoxFuture, Change, FlushCause, KeysOfCollection, LossCause, ReadSet, RowBudget, Sink, Source,
    SourceError,
};

/// All sources of a process, in the order of their numbers.
#[derive(Clone)]
pub struct Sources {
    list: Arc<[Arc<dyn Source>]>,
    /// By source; `None`: its own numbers are those of the process.
    numberings: Arc<[Option<Arc<Numbering>>]>,
    /// By collection.
    source_of: Arc<[SourceId]>,
    /// By collection.
    schemas: Arc<[KeySchema]>,
}

/// Numbers of the collections of one source.
#[derive(Debug)]
struct Numbering {
    /// In the process, by the number in the source.
    outer: Box<[CollectionId]>,
    /// In the source, by the number in the process.
    inner: Box<[Option<CollectionId>]>,
}

impl Numbering {
    fn new(outer: Vec<CollectionId>) -> Arc<Self> {
        let count = outer.iter().map(|CollectionId(id)| usize::from(*id) + 1).max();
        let mut inner = vec![None; count.unwrap_or(0)];
        for (own, CollectionId(id)) in (0..).map(CollectionId).zip(&outer) {
            inner[usize::from(*id)] = Some(own);
        }
        Arc::new(Self { outer: outer.into(), inner: inner.into() })
    }

    fn outer(&self, CollectionId(own): CollectionId) -> Option<CollectionId> {
        self.outer.get(usize::from(own)).copied()
    }

    fn inner(&self, CollectionId(id): CollectionId) -> Option<CollectionId> {
        self.inner.get(usize::from(id)).copied().flatten()
    }
}

impl Sources {
    /// Returns the only source of a process.
    #[must_use]
    pub fn only(source: Arc<dyn Source>) -> Self {
        let schemas: Arc<[KeySchema]> = source.schemas().into();
        let source_of = schemas.iter().map(|_| SourceId::FIRST).collect();
        Self { list: Arc::new([source]), numberings: Arc::new([None]), source_of, schemas }
    }

    /// Returns sources with the numbers that the collections of each have in the process. Each
    /// collection is in one of them.
    #[must_use]
    pub fn new(mut sources: Vec<(Arc<dyn Source>, Vec<CollectionId>)>) -> Self {
        if let [_] = &sources[..]
            && let Some((source, _)) = sources.pop()
        {
            return Self::only(source);
        }
        let (mut list, mut numberings, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (source, collections)) in (0..).map(SourceId).zip(sources) {
            let numbering = Numbering::new(collections);
            let renumbered = Renumbered::new(source, Arc::clone(&numbering));
            all.extend(renumbered.schemas.iter().map(|schema| (schema.clone(), number)));
            list.push(Arc::new(renumbered) as Arc<dyn Source>);
            numberings.push(Some(numbering));
        }
        all.sort_by_key(|(schema, _)| schema.collection());
        let (schemas, source_of): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        Self {
            list: list.into(),
            numberings: numberings.into(),
            source_of: source_of.into(),
            schemas: schemas.into(),
        }
    }

    /// Returns all, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Source>> {
        self.list.iter()
    }

    /// Returns the source that a collection is read from.
    pub fn of(&self, CollectionId(id): CollectionId) -> &dyn Source {
        &*self.list[self.source_of[usize::from(id)].index()]
    }

    /// Returns the key schema of each collection, in the order of their numbers.
    pub fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    /// Returns the fields of a collection's records ([`Source::fields`]).
    pub fn fields(&self, id: CollectionId) -> Option<Arc<[FieldSchema]>> {
        self.of(id).fields(id)
    }

    /// Returns a sink for the feed of a source: it reports to `sink` under the numbers of the
    /// process.
    pub fn sink(&self, source: SourceId, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        match &self.numberings[source.index()] {
            None => sink,
            Some(numbering) => {
                Arc::new(RenumberedSink { inner: sink, numbering: Arc::clone(numbering) })
            }
        }
    }
}

/// A source under the numbers of the process.
struct Renumbered {
    inner: Arc<dyn Source>,
    numbering: Arc<Numbering>,
    schemas: Vec<KeySchema>,
}

impl Renumbered {
    fn new(inner: Arc<dyn Source>, numbering: Arc<Numbering>) -> Self {
        let renumbered = |schema: &KeySchema| {
            let collection = numbering.outer(schema.collection())?;
            Some(KeySchema::new(collection, schema.types().to_vec()))
        };
        let schemas = inner.schemas().iter().filter_map(renumbered).collect();
        Self { inner, numbering, schemas }
    }

    /// Translates the collection and the keys of a query.
    fn own(&self, id: CollectionId, keys: &[Key]) -> Option<(CollectionId, Vec<Key>)> {
        let own = self.numbering.inner(id)?;
        Some((own, keys.iter().map(|key| key.in_collection(own)).collect()))
    }
}

impl Source for Renumbered {
    fn read_within(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        match self.own(collection, &keys) {
            Some((collection, keys)) => self.inner.read_within(collection, keys, rows),
            None => Box::pin(async {
                Err(SourceError::broken("the collection is read from another source"))
            }),
        }
    }

    fn read_snapshot(
        &self,
        parts: Vec<KeysOfCollection>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        let own = parts.iter().map(|(collection, keys)| self.own(*collection, keys));
        match own.collect() {
            Some(parts) => self.inner.read_snapshot(parts, rows),
            None => Box::pin(async {
                Err(SourceError::broken("the collections are read from several sources"))
            }),
        }
    }

    fn snapshot_refusal(&self) -> Option<&'static str> {
        self.inner.snapshot_refusal()
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn read_standby(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
        floor: Position,
    ) -> BoxFuture<'_, Result<StandbyRead, StandbyRefusal>> {
        match self.own(collection, &keys) {
            Some((collection, keys)) => self.inner.read_standby(collection, keys, rows, floor),
            None => Box::pin(async { Err(StandbyRefusal::Unreachable) }),
        }
    }

    fn standbys(&self) -> Vec<StandbyView> {
        self.inner.standbys()
    }

    fn fields(&self, collection: CollectionId) -> Option<Arc<[FieldSchema]>> {
        self.inner.fields(self.numbering.inner(collection)?)
    }

    fn queries_total(&self) -> u64 {
        self.inner.queries_total()
    }

    fn health(&self) -> Result<(), String> {
        self.inner.health()
    }

    fn has_aliases(&self, collection: CollectionId) -> bool {
        self.numbering.inner(collection).is_some_and(|own| self.inner.has_aliases(own))
    }

    fn watch(&self) -> &'static str {
        self.inner.watch()
    }

    /// The tables are in the places of the process's collections; those of other sources have no
    /// name.
    fn database(&self) -> DatabaseName {
        let name = self.inner.database();
        let table = |own: &Option<CollectionId>| {
            let table = own.and_then(|CollectionId(own)| name.tables.get(usize::from(own)));
            table.cloned().unwrap_or_default()
        };
        DatabaseName { tables: self.numbering.inner.iter().map(table).collect(), ..name }
    }

    fn unseen_changes(&self) -> &'static str {
        self.inner.unseen_changes()
    }
}

/// The end of a feed, under the numbers of the process.
struct RenumberedSink {
    inner: Arc<dyn Sink>,
    numbering: Arc<Numbering>,
}

impl RenumberedSink {
    /// A feed reports only collections of its own source.
    fn outer(&self, own: CollectionId, report: impl FnOnce(CollectionId)) {
        if let Some(id) = self.numbering.outer(own) {
            report(id);
        }
    }
}

impl Sink for RenumberedSink {
    fn changes(&self, changes: &[Change]) {
        let renumbered = |Change { key, mark }: &Change| {
            let id = self.numbering.outer(key.collection())?;
            Some(Change { key: key.in_collection(id), mark: *mark })
        };
        self.inner.changes(&changes.iter().filter_map(renumbered).collect::<Vec<_>>());
    }

    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>) {
        self.outer(collection, |id| self.inner.flush(id, cause, mark));
    }

    fn open_gap(&self, collection: CollectionId, detail: &str) {
        self.outer(collection, |id| self.inner.open_gap(id, detail));
    }

    fn close_gap(&self, collection: CollectionId) {
        self.outer(collection, |id| self.inner.close_gap(id));
    }

    fn loss(&self, cause: LossCause, detail: &str) {
        self.inner.loss(cause, detail);
    }

    fn started(&self, position: Option<Position>) {
        self.inner.started(position);
    }

    fn wants_visibility(&self) -> bool {
        self.inner.wants_visibility()
    }

    fn looks(&self) -> Option<&Looks> {
        self.inner.looks()
    }

    fn looked(&self, sent_at: Nanos, end: Position) {
        self.inner.looked(sent_at, end);
    }

    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>) {
        self.inner.advance(probe_sent_at, position, visible);
    }
}

#[cfg(test)]
mod tests;
