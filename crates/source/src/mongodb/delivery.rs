//! Events of the change stream, and what the sink is told of them.
//! Source: MongoDB manual, "Change Events".

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::{Mark, Position};

use super::bson::{Document, Value};
use super::error::Ended;
use super::inspect::Served;
use super::shared::Shared;
use super::stream::{Batch, Token};
use crate::{Change, FlushCause, LossCause, Sink};

/// Takes events in and tells the sink.
pub(crate) struct Delivery<'a> {
    served: &'a [Served],
    schemas: &'a [KeySchema],
    shared: &'a Shared,
    sink: &'a dyn Sink,
    incarnation: u64,
    /// Which collections show a collection of the database.
    shown: HashMap<&'a str, Vec<usize>>,
    portion: Vec<Change>,
}

/// What a batch brought beside changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Taken {
    /// Nothing at all: the stream has come to the log's end.
    Nothing,
    Events,
    /// The stream is over and goes on after this token, if any.
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
        let mut shown: HashMap<&str, Vec<usize>> = HashMap::new();
        for (i, served) in served.iter().enumerate() {
            shown.entry(&served.name).or_default().push(i);
        }
        Self { served, schemas, shared, sink, incarnation, shown, portion: Vec::new() }
    }

    /// Takes a whole batch in. What it holds is delivered when this returns, error or not.
    ///
    /// # Errors
    /// When an event is none: what it was about is not known.
    pub(crate) fn take(&mut self, batch: &Batch) -> Result<Taken, Ended> {
        let unreadable = || Ended::interrupted("the change stream sent something that is no batch of events");
        let mut taken = Taken::Nothing;
        for event in batch.events().ok_or_else(unreadable)? {
            if taken == Taken::Nothing {
                // Another server believes the floor only with it; so before the first change.
                if let Some(time) = batch.cluster_time() {
                    self.shared.gossiped(time);
                }
                taken = Taken::Events;
            }
            let token = self.event(event);
            if token.is_err() {
                self.hand_over();
            }
            if let Some(token) = token? {
                taken = Taken::Invalidated(Some(token));
            }
        }
        self.hand_over();
        Ok(taken)
    }

    /// One event. What is not understood may be about anything: it is never passed over, and never waited at, for a stream
    /// that is taken up before it would come to it again and again.
    fn event(&mut self, event: Document<'_>) -> Result<Option<Token>, Ended> {
        let Some(at) = event.timestamp("clusterTime") else {
            return Err(Ended::Lost(LossCause::Unavailable, "the change stream sent an event without its time".into()));
        };
        let mark = Mark::Commit(Position { incarnation: self.incarnation, at: at.at() });
        // From here on every read sees it, so that none that is sent after the change was handed over brings the old
        // document (Race B).
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
            // Dropped, renamed, or something newer than this: whatever is in there may be another now.
            Some(_) if name("ns").is_some() => {
                for name in [name("ns"), name("to")].into_iter().flatten() {
                    self.flush(Some(name), mark);
                }
            }
            _ => self.flush(None, mark),
        }
        Ok(None)
    }

    fn changed(&mut self, name: &str, id: Value<'_>, mark: Mark) {
        for i in self.shown.get(name).into_iter().flatten() {
            let (Some(served), Some(schema)) = (self.served.get(*i), self.schemas.get(*i)) else { continue };
            match served.shape.key(schema, id) {
                Some(key) => self.portion.push(Change { key, mark }),
                // No URL names such a document.
                None => drop(self.shared.ignored.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// All collections that show this one of the database, or all.
    fn flush(&mut self, name: Option<&str>, mark: Mark) {
        // In the order of the log.
        self.hand_over();
        for (i, schema) in self.schemas.iter().enumerate() {
            let concerned = name.is_none_or(|name| self.shown.get(name).is_some_and(|shown| shown.contains(&i)));
            if concerned {
                self.sink.flush(schema.collection(), FlushCause::Bulk, Some(mark));
            }
        }
    }

    fn hand_over(&mut self) {
        if !self.portion.is_empty() {
            self.sink.changes(&self.portion);
            self.portion.clear();
        }
    }
}

/// The token of an event is its `_id`.
fn invalidate_token(event: Document<'_>) -> Option<Token> {
    let id = event.document("_id")?;
    Token::new(id, &id.to_bytes()).map(Token::of_invalidate)
}

#[cfg(test)]
mod tests {
    use hotrow_cache::key::CollectionId;
    use mongodb::bson::{doc, serialize_to_vec};

    use super::super::json::Fields;
    use super::super::keys::KeyShape;
    use super::super::server::{Identity, Kind};
    use super::*;
    use crate::spec::KeyTypeName;
    use crate::testkit::{Event, Recorder};

    /// What the sink is told of an event about the collections `a` (0) and `b` (1).
    fn told(event: &mongodb::bson::Document) -> (Vec<Event>, Result<Option<Token>, Ended>) {
        let served = [(0, "a"), (1, "b")].map(|(id, name)| Served {
            id: CollectionId(id),
            name: name.into(),
            shape: KeyShape::Plain(KeyTypeName::Integer),
            projection: None,
            fields: Fields::AsTheyCome { with_id: true },
        });
        let schemas = served.each_ref().map(Served::schema);
        let identity = Identity { kind: Kind::ReplicaSet("rs0".into()), id: None };
        let (shared, sink) = (Shared::new(identity), Recorder::default());
        let mut delivery = Delivery::new(&served, &schemas, &shared, &sink, 9);
        let bytes = serialize_to_vec(event).unwrap();
        let token = delivery.event(Document::new(&bytes).unwrap());
        delivery.hand_over();
        (sink.since(0), token)
    }

    #[test]
    fn what_is_not_understood_flushes_and_is_not_waited_at() {
        let time = mongodb::bson::Timestamp { time: 1, increment: 2 };
        let mark = Mark::Commit(Position { incarnation: 9, at: 1 << 32 | 2 });
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
            let wanted: Vec<Event> = flushed.into_iter().map(flush).collect();
            assert_eq!(told(&event), (wanted, Ok(None)), "{event}");
        }
        let (_, timeless) = told(&doc! { "operationType": "insert", "ns": ns("a"), "documentKey": { "_id": 1 } });
        assert!(matches!(timeless, Err(Ended::Lost(..))), "{timeless:?}");
    }
}
