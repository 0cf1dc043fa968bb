//! Delivery of the change stream's events to the sink. Source: MongoDB manual, "Change Events".

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use hotrow_types::key::KeySchema;
use hotrow_types::version::{ChangeId, Position};

use super::alias::{FieldChange, NewValue};
use super::bson::{Document, Malformed, Value};
use super::error::Ended;
use super::inspect::Served;
use super::shared::Shared;
use super::stream::{Batch, Token};
use hotrow_source::{Change, FlushCause, LossCause, Sink};

const MALFORMED_BATCH: &str = "the change stream sent an answer that is no batch of events";

/// Converter of events to calls of the sink.
pub(crate) struct Delivery<'a> {
    served: &'a [Served],
    schemas: &'a [KeySchema],
    shared: &'a Shared,
    sink: &'a dyn Sink,
    incarnation: u64,
    /// Collections served from each collection of the database.
    served_from: HashMap<&'a str, Vec<usize>>,
    portion: Vec<Change>,
}

/// Content of a batch apart from changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BatchOutcome {
    /// No event: the stream has reached the log's end.
    Nothing,
    /// Events, the last of them of this time.
    Events(u64),
    /// The stream ended and resumes after this token, if any.
    Invalidated(Option<Token>),
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(
        served: &'a [Served],
        schemas: &'a [KeySchema],
        shared: &'a Shared,
        sink: &'a dyn Sink,
        incarnation: u64,
    ) -> Self {
        let mut served_from: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, served) in served.iter().enumerate() {
            served_from.entry(&served.name).or_default().push(i);
        }
        Self { served, schemas, shared, sink, incarnation, served_from, portion: Vec::new() }
    }

    /// Returns the name of a collection that the feed may read.
    pub(crate) fn any_collection(&self) -> Option<&'a str> {
        self.served.first().map(|served| served.name.as_str())
    }

    /// Takes a whole batch. The changes before an error are delivered when this returns.
    ///
    /// # Errors
    /// Fails if a part of the batch is no event. The affected records are unknown then, so the
    /// batch's token must not be taken.
    pub(crate) fn take(&mut self, batch: &Batch) -> Result<BatchOutcome, Ended> {
        let malformed = |_: Malformed| Ended::Malformed(MALFORMED_BATCH.into());
        let mut taken = BatchOutcome::Nothing;
        for event in batch.events().map_err(malformed)? {
            if taken == BatchOutcome::Nothing {
                // Before the first change, because another server refuses the floor without this
                // time.
                if let Some(time) = batch.cluster_time() {
                    self.shared.gossiped(time);
                }
            }
            let handled = event.map_err(malformed).and_then(|event| self.event(event));
            if handled.is_err() {
                self.deliver_portion();
            }
            taken = handled?;
        }
        self.deliver_portion();
        Ok(taken)
    }

    /// Handles one event. An unknown event may concern any record, so it is never skipped. It is
    /// not retried either, because a resumed stream would reach it again and again.
    fn event(&mut self, event: Document<'_>) -> Result<BatchOutcome, Ended> {
        let Some(at) = event.timestamp("clusterTime") else {
            return Err(Ended::Lost(
                LossCause::Unavailable,
                "the change stream sent an event without its time".into(),
            ));
        };
        let mark = ChangeId::Commit(Position { incarnation: self.incarnation, at: at.at() });
        // From here on every read sees this change, so that no read sent after its delivery returns
        // the earlier document (race B).
        self.shared.raise(at.at());
        let name = |field: &str| event.document(field).and_then(|ns| ns.text("coll"));
        match event.text("operationType") {
            Some("insert" | "update" | "replace" | "delete") => {
                let id = event.document("documentKey").and_then(|key| key.get("_id"));
                match (name("ns"), id) {
                    (Some(name), Some(id)) => self.changed(name, id, field_change(event), mark),
                    (name, _) => self.flush(name, mark),
                }
            }
            Some("invalidate") => {
                self.flush(None, mark);
                return Ok(BatchOutcome::Invalidated(invalidate_token(event)));
            }
            Some("dropDatabase") => self.flush(None, mark),
            // Dropped, renamed, or an event of a newer version: any record of the collection may
            // have changed.
            Some(_) if name("ns").is_some() => {
                for name in [name("ns"), name("to")].into_iter().flatten() {
                    self.flush(Some(name), mark);
                }
            }
            _ => self.flush(None, mark),
        }
        Ok(BatchOutcome::Events(at.at()))
    }

    fn changed(
        &mut self,
        name: &str,
        id: Value<'_>,
        fields: Option<FieldChange<'_>>,
        mark: ChangeId,
    ) {
        // An alias whose new value is unknown is flushed in the order of the log.
        let mut unknown = Vec::new();
        for i in self.served_from.get(name).into_iter().flatten() {
            let (Some(served), Some(schema)) = (self.served.get(*i), self.schemas.get(*i)) else {
                continue;
            };
            if let Some(alias) = &served.alias {
                match fields.map(|fields| alias.new_value(schema, fields)) {
                    Some(NewValue::Key(key)) => self.portion.push(Change { key, mark }),
                    Some(NewValue::Unknown) => unknown.push(schema.collection()),
                    Some(NewValue::None) | None => {}
                }
                continue;
            }
            match served.shape.key(schema, id) {
                Some(key) => self.portion.push(Change { key, mark }),
                // No URL names such a document.
                None => drop(self.shared.ignored.fetch_add(1, Ordering::Relaxed)),
            }
        }
        if !unknown.is_empty() {
            self.deliver_portion();
        }
        for alias in unknown {
            self.sink.flush(alias, FlushCause::Bulk, Some(mark));
        }
    }

    /// Flushes all collections served from this one of the database, or all if `name` is `None`.
    fn flush(&mut self, name: Option<&str>, mark: ChangeId) {
        // In the order of the log.
        self.deliver_portion();
        for (i, schema) in self.schemas.iter().enumerate() {
            let concerned = name.is_none_or(|name| {
                self.served_from.get(name).is_some_and(|served_from| served_from.contains(&i))
            });
            if concerned {
                self.sink.flush(schema.collection(), FlushCause::Bulk, Some(mark));
            }
        }
    }

    fn deliver_portion(&mut self) {
        if !self.portion.is_empty() {
            self.sink.changes(&self.portion);
            self.portion.clear();
        }
    }
}

/// Returns the fields that a document has after this event, as far as the event contains them.
/// `None`: it has none any more.
fn field_change(event: Document<'_>) -> Option<FieldChange<'_>> {
    match event.text("operationType") {
        Some("delete") => None,
        Some("update") => {
            let description = event.document("updateDescription");
            Some(FieldChange::Updated(description.and_then(|d| d.document("updatedFields"))))
        }
        _ => Some(FieldChange::Whole(event.document("fullDocument"))),
    }
}

/// Returns the token of an event, which is its `_id`.
fn invalidate_token(event: Document<'_>) -> Option<Token> {
    let id = event.document("_id")?;
    Token::new(id, &id.to_bytes()).map(Token::of_invalidate)
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::CollectionId;
    use mongodb::bson::{doc, serialize_to_vec};

    use super::super::alias::AliasFields;
    use super::super::json::Fields;
    use super::super::keys::KeyShape;
    use super::super::server::{DeploymentKind, Identity};
    use super::*;
    use hotrow_source::spec::KeyTypeName;
    use hotrow_source::testkit::{Event, Recorder};

    fn served(id: u16, name: &str, alias: Option<&[&str]>) -> Served {
        let alias = alias.map(|fields| AliasFields {
            name: format!("{name}/by/x"),
            fields: fields.iter().map(|name| ((*name).to_owned(), KeyTypeName::Text)).collect(),
            index: "x_1".into(),
        });
        Served {
            id: CollectionId(id),
            name: name.into(),
            shape: KeyShape::Plain(KeyTypeName::Integer),
            projection: None,
            fields: Fields::StoredOrder { without: Vec::new() },
            tenant: None,
            alias,
        }
    }

    /// Returns the calls of the sink for an event about the collections `a` (0) and `b` (1).
    fn delivered(event: &mongodb::bson::Document) -> (Vec<Event>, Result<BatchOutcome, Ended>) {
        delivered_to(&[served(0, "a", None), served(1, "b", None)], event)
    }

    fn delivered_to(
        served: &[Served],
        event: &mongodb::bson::Document,
    ) -> (Vec<Event>, Result<BatchOutcome, Ended>) {
        let schemas: Vec<KeySchema> = served.iter().map(Served::schema).collect();
        let identity = Identity { kind: DeploymentKind::ReplicaSet("rs0".into()), id: None };
        let shared = Shared::new(identity);
        let sink = Recorder::default();
        let mut delivery = Delivery::new(served, &schemas, &shared, &sink, 9);
        let bytes = serialize_to_vec(event).unwrap();
        let taken = delivery.event(Document::new(&bytes).unwrap());
        delivery.deliver_portion();
        (sink.since(0), taken)
    }

    #[test]
    fn an_alias_is_delivered_by_the_value_that_the_document_has() {
        let all = [
            served(0, "users", None),
            served(1, "users", Some(&["email"])),
            served(2, "users", Some(&["first", "last"])),
        ];
        let time = mongodb::bson::Timestamp { time: 1, increment: 2 };
        let mark = ChangeId::Commit(Position { incarnation: 9, at: 1 << 32 | 2 });
        let change = |c: usize, id: &str| {
            Event::Change(Change { key: all[c].schema().parse_url(id).unwrap(), mark })
        };
        let flush = |c| Event::Flush(CollectionId(c), FlushCause::Bulk, Some(mark));
        let updated = |fields: mongodb::bson::Document| {
            doc! {
                "operationType": "update",
                "updateDescription": { "updatedFields": fields, "removedFields": [] },
            }
        };
        let document = doc! { "email": "e", "first": "F", "last": "L" };
        let inserted = |name| doc! { "operationType": name, "fullDocument": document.clone() };
        for (event, aliases) in [
            (inserted("insert"), vec![change(1, "e"), change(2, "F,L")]),
            (inserted("replace"), vec![change(1, "e"), change(2, "F,L")]),
            (doc! { "operationType": "insert", "fullDocument": { "first": "F" } }, vec![]),
            (doc! { "operationType": "delete" }, vec![]),
            (updated(doc! { "email": "new" }), vec![change(1, "new")]),
            (updated(doc! { "last": "M", "email": "new" }), vec![change(1, "new"), flush(2)]),
            (updated(doc! { "last": "M", "first": "G" }), vec![change(2, "G,M")]),
            (updated(doc! { "email.x": 1, "note": 1 }), vec![]),
            (updated(doc! {}), vec![]),
            // Events that lack what they should have.
            (doc! { "operationType": "update" }, vec![flush(1), flush(2)]),
            (doc! { "operationType": "insert" }, vec![flush(1), flush(2)]),
            (doc! { "operationType": "replace", "fullDocument": null }, vec![flush(1), flush(2)]),
        ] {
            let mut event = event;
            event.extend(doc! {
                "clusterTime": time, "ns": { "db": "d", "coll": "users" },
                "documentKey": { "_id": 7 },
            });
            let expected: Vec<Event> = std::iter::once(change(0, "7")).chain(aliases).collect();
            let taken = Ok(BatchOutcome::Events(1 << 32 | 2));
            assert_eq!(delivered_to(&all, &event), (expected, taken), "{event}");
        }
    }

    #[test]
    fn unknown_events_flush_and_do_not_end_the_stream() {
        let time = mongodb::bson::Timestamp { time: 1, increment: 2 };
        let mark = ChangeId::Commit(Position { incarnation: 9, at: 1 << 32 | 2 });
        let flush = |c| Event::Flush(CollectionId(c), FlushCause::Bulk, Some(mark));
        let ns = |name: &str| doc! { "db": "d", "coll": name };
        for (event, flushed) in [
            (doc! { "operationType": "update", "documentKey": { "_id": 1 } }, vec![0, 1]),
            (doc! { "operationType": "update", "ns": ns("b") }, vec![1]),
            (doc! { "operationType": "somethingNew", "ns": ns("a") }, vec![0]),
            (doc! { "operationType": "somethingNew" }, vec![0, 1]),
            (doc! { "ns": ns("b") }, vec![0, 1]),
            (doc! { "operationType": "rename", "ns": ns("b"), "to": ns("a") }, vec![1, 0]),
            (doc! { "operationType": "drop", "ns": ns("other") }, vec![]),
        ] {
            let mut event = event;
            event.insert("clusterTime", time);
            let expected: Vec<Event> = flushed.into_iter().map(flush).collect();
            let taken = Ok(BatchOutcome::Events(1 << 32 | 2));
            assert_eq!(delivered(&event), (expected, taken), "{event}");
        }
        let (_, timeless) = delivered(
            &doc! { "operationType": "insert", "ns": ns("a"), "documentKey": { "_id": 1 } },
        );
        assert!(matches!(timeless, Err(Ended::Lost(..))), "{timeless:?}");
    }
}
