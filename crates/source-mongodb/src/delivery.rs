//! Delivery of the change stream's events to the sink. Source: MongoDB manual, "Change Events".

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use hotrow_types::key::KeySchema;
use hotrow_types::version::{ChangeId, Position};

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
pub(crate) enum Taken {
    /// No event: the stream has reached the log's end.
    Nothing,
    Events,
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

    /// Takes a whole batch. The changes before an error are delivered when this returns.
    ///
    /// # Errors
    /// Fails if a part of the batch is no event. The affected records are unknown then, so the
    /// batch's token must not be taken.
    pub(crate) fn take(&mut self, batch: &Batch) -> Result<Taken, Ended> {
        let malformed = |_: Malformed| Ended::Malformed(MALFORMED_BATCH.into());
        let mut taken = Taken::Nothing;
        for event in batch.events().map_err(malformed)? {
            if taken == Taken::Nothing {
                // Before the first change, because another server refuses the floor without this
                // time.
                if let Some(time) = batch.cluster_time() {
                    self.shared.gossiped(time);
                }
                taken = Taken::Events;
            }
            let token = event.map_err(malformed).and_then(|event| self.event(event));
            if token.is_err() {
                self.deliver_portion();
            }
            if let Some(token) = token? {
                taken = Taken::Invalidated(Some(token));
            }
        }
        self.deliver_portion();
        Ok(taken)
    }

    /// Handles one event. An unknown event may concern any record, so it is never skipped. It is
    /// not retried either, because a resumed stream would reach it again and again.
    fn event(&mut self, event: Document<'_>) -> Result<Option<Token>, Ended> {
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
                    (Some(name), Some(id)) => self.changed(name, id, mark),
                    (name, _) => self.flush(name, mark),
                }
            }
            Some("invalidate") => {
                self.flush(None, mark);
                return Ok(invalidate_token(event));
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
        Ok(None)
    }

    fn changed(&mut self, name: &str, id: Value<'_>, mark: ChangeId) {
        for i in self.served_from.get(name).into_iter().flatten() {
            let (Some(served), Some(schema)) = (self.served.get(*i), self.schemas.get(*i)) else {
                continue;
            };
            match served.shape.key(schema, id) {
                Some(key) => self.portion.push(Change { key, mark }),
                // No URL names such a document.
                None => drop(self.shared.ignored.fetch_add(1, Ordering::Relaxed)),
            }
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

/// Returns the token of an event, which is its `_id`.
fn invalidate_token(event: Document<'_>) -> Option<Token> {
    let id = event.document("_id")?;
    Token::new(id, &id.to_bytes()).map(Token::of_invalidate)
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::CollectionId;
    use mongodb::bson::{doc, serialize_to_vec};

    use super::super::json::Fields;
    use super::super::keys::KeyShape;
    use super::super::server::{DeploymentKind, Identity};
    use super::*;
    use hotrow_source::spec::KeyTypeName;
    use hotrow_source::testkit::{Event, Recorder};

    /// Returns the calls of the sink for an event about the collections `a` (0) and `b` (1).
    fn delivered(event: &mongodb::bson::Document) -> (Vec<Event>, Result<Option<Token>, Ended>) {
        let served = [(0, "a"), (1, "b")].map(|(id, name)| Served {
            id: CollectionId(id),
            name: name.into(),
            shape: KeyShape::Plain(KeyTypeName::Integer),
            projection: None,
            fields: Fields::StoredOrder { without: Vec::new() },
            tenant: None,
        });
        let schemas = served.each_ref().map(Served::schema);
        let identity = Identity { kind: DeploymentKind::ReplicaSet("rs0".into()), id: None };
        let shared = Shared::new(identity);
        let sink = Recorder::default();
        let mut delivery = Delivery::new(&served, &schemas, &shared, &sink, 9);
        let bytes = serialize_to_vec(event).unwrap();
        let token = delivery.event(Document::new(&bytes).unwrap());
        delivery.deliver_portion();
        (sink.since(0), token)
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
            assert_eq!(delivered(&event), (expected, Ok(None)), "{event}");
        }
        let (_, timeless) = delivered(
            &doc! { "operationType": "insert", "ns": ns("a"), "documentKey": { "_id": 1 } },
        );
        assert!(matches!(timeless, Err(Ended::Lost(..))), "{timeless:?}");
    }
}
