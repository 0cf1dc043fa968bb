//! One read: one query, its answer, and what it saw.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_core::Stream as _;
use hotrow_cache::key::{CollectionId, Key, KeySchema};
use hotrow_cache::version::{Position, Version};
use mongodb::bson::{Bson, Document as BsonDocument, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::raw_batch_cursor::SessionRawBatchCursorStream;
use tokio::time::{Instant, timeout_at};

use super::MongoSource;
use super::bson::{Document, Timestamp, Value};
use super::error::{Fault, fault};
use super::inspect::Served;
use super::json::{self, JsonError};
use super::server::{Identity, Kind};
use crate::{ReadError, ReadSet, Row};

/// Attempts of one read: the first, and one for a connection that died or a primary that went.
const ATTEMPTS_MAX: usize = 2;

impl MongoSource {
    pub(super) async fn read_keys(&self, collection: CollectionId, keys: &[Key]) -> Result<ReadSet, ReadError> {
        let deadline = Instant::now() + self.read_timeout;
        let permit = timeout_at(deadline, self.permits.acquire()).await.map_err(|_| self.late())?;
        let _permit = permit.map_err(|_| ReadError::Unavailable { detail: "the source is closed".into() })?;
        let answer = self.try_read(collection, keys, deadline).await;
        match &answer {
            Ok(_) => self.shared.answered(),
            Err(e @ (ReadError::Unavailable { .. } | ReadError::Timeout { .. })) => self.shared.failed(&e.to_string()),
            Err(ReadError::Broken { .. }) => {}
        }
        answer
    }

    fn late(&self) -> ReadError {
        ReadError::Timeout { detail: format!("nothing came within {} ms", self.read_timeout.as_millis()) }
    }

    async fn try_read(&self, collection: CollectionId, keys: &[Key], deadline: Instant) -> Result<ReadSet, ReadError> {
        let served = self.served.get(usize::from(collection.0));
        let served = served.ok_or_else(|| ReadError::Broken { detail: "there is no such collection".into() })?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let deployment =
                self.shared.deployment().map_err(|why| ReadError::Unavailable { detail: why.to_string() })?;
            self.hooks.before_read(collection, keys);
            // Dropping the query ends its connection, and with it the query.
            let answer = timeout_at(deadline, self.query(&deployment, served, keys, deadline)).await;
            self.hooks.after_read(collection, keys);
            match answer.map_err(|_| self.late())? {
                Ok(set) => return Ok(set),
                Err(e) => match fault(&e, self.read_timeout) {
                    Fault::Again(_) if attempt < ATTEMPTS_MAX => {}
                    Fault::Again(e) | Fault::Final(e) => return Err(e),
                },
            }
        }
    }

    async fn query(
        &self,
        deployment: &Identity,
        served: &Served,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<ReadSet, Error> {
        let mut session = self.database.client().start_session().await?;
        // First the floor, then the time that makes a server believe it: it is never older.
        let floor = self.shared.floor();
        if let Some(gossip) = self.shared.gossip() {
            session.advance_cluster_time(&gossip);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let command = command(served, keys, &deployment.kind, floor, left);
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let command = RawDocumentBuf::try_from(&command)?;
        let mut cursor = self.database.run_raw_cursor_command(command).session(&mut session).batch().await?;
        let mut answer = Answer::new(self, served, keys);
        let mut batches = cursor.stream(&mut session);
        while let Some(batch) = next(&mut batches).await {
            answer.take(batch?.as_raw_document().as_bytes());
        }
        Ok(answer.finish(deployment, floor))
    }
}

async fn next(
    batches: &mut SessionRawBatchCursorStream<'_, '_>,
) -> Option<Result<mongodb::raw_batch_cursor::RawBatch, Error>> {
    poll_fn(|cx| Pin::new(&mut *batches).poll_next(cx)).await
}

/// What is sent for these keys.
fn command(served: &Served, keys: &[Key], kind: &Kind, floor: u64, left: Duration) -> BsonDocument {
    let mut command = doc! { "find": &served.name };
    match keys {
        [key] => {
            command.insert("filter", doc! { "_id": served.shape.id(key) });
            // Only where shards do not know of each other can there be two.
            command.insert("limit", if *kind == Kind::Sharded { 2 } else { 1 });
            command.insert("singleBatch", true);
        }
        keys => {
            let ids: Vec<Bson> = keys.iter().map(|key| served.shape.id(key)).collect();
            // One more than there can be, so that the end is seen with the first batch.
            let batch = i32::try_from(keys.len()).unwrap_or(i32::MAX).saturating_add(1);
            command.insert("filter", doc! { "_id": { "$in": ids } });
            command.insert("batchSize", batch);
        }
    }
    if let Some(projection) = &served.projection {
        command.insert("projection", projection.clone());
    }
    // 0 would mean no limit.
    command.insert("maxTimeMS", i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1));
    if *kind != Kind::Standalone {
        let mut concern = doc! { "level": "majority" };
        if floor > 0 {
            concern.insert("afterClusterTime", mongodb::bson::Timestamp::from(Timestamp::from_at(floor)));
        }
        command.insert("readConcern", concern);
    }
    command
}

/// Collects the documents of an answer.
struct Answer<'a> {
    source: &'a MongoSource,
    served: &'a Served,
    schema: KeySchema,
    keys: &'a [Key],
    /// The first place of each key.
    places: HashMap<&'a Key, usize>,
    rows: Vec<Row>,
    seen_at: Option<Timestamp>,
}

impl<'a> Answer<'a> {
    fn new(source: &'a MongoSource, served: &'a Served, keys: &'a [Key]) -> Self {
        let mut places = HashMap::with_capacity(keys.len());
        for (place, key) in keys.iter().enumerate() {
            places.entry(key).or_insert(place);
        }
        Self {
            source,
            served,
            schema: served.schema(),
            keys,
            places,
            rows: vec![Row::Missing; keys.len()],
            seen_at: None,
        }
    }

    /// One batch, with everything around it.
    fn take(&mut self, reply: &[u8]) {
        let Ok(reply) = Document::new(reply) else { return };
        self.seen_at = self.seen_at.max(reply.timestamp("operationTime"));
        let cursor = reply.document("cursor");
        let batch = cursor.and_then(|c| c.get("firstBatch").or_else(|| c.get("nextBatch")));
        let Some(Value::Array(batch)) = batch else { return };
        for (_, value) in batch.elements().map_while(Result::ok) {
            if let Value::Document(document) = value {
                self.document(document);
            }
        }
    }

    fn document(&mut self, document: Document<'_>) {
        let key = document.get("_id").and_then(|id| self.served.shape.key(&self.schema, id));
        // Found by a collation that takes other texts for equal, it is another document.
        let Some(place) = key.and_then(|key| self.places.get(&key).copied()) else { return };
        self.rows[place] = match self.rows[place] {
            Row::Missing => match self.json(document) {
                Ok(json) => Row::Found(json),
                Err(e) => Row::Unreadable(e.to_string()),
            },
            _ => Row::Unreadable("two shards have a document with this `_id`".into()),
        };
    }

    fn json(&self, document: Document<'_>) -> Result<Vec<u8>, JsonError> {
        let mut out = Vec::new();
        json::write_document(&mut out, self.source.form, &self.served.fields, document)?;
        Ok(out)
    }

    fn finish(mut self, deployment: &Identity, floor: u64) -> ReadSet {
        for (place, key) in self.keys.iter().enumerate() {
            match self.places.get(key) {
                Some(first) if *first != place => self.rows[place] = self.rows[*first].clone(),
                _ => {}
            }
        }
        let (version, position) = match self.seen_at.filter(|_| self.source.is_watched) {
            None => (Version::Unknown, None),
            Some(seen_at) => {
                let incarnation = deployment.incarnation();
                // A server never answers below what it was asked for.
                let at = seen_at.at().max(floor);
                self.source.shared.saw(deployment, at);
                let [from, to] = [floor, at].map(|at| Position { incarnation, at });
                (Version::Span { from, to }, Some(to))
            }
        };
        ReadSet { version, position, rows: self.rows }
    }
}

#[cfg(test)]
mod tests {
    use hotrow_cache::key::CollectionId;

    use super::super::keys::KeyShape;
    use super::*;
    use crate::spec::KeyTypeName;

    fn served() -> Served {
        Served {
            id: CollectionId(0),
            name: "things".into(),
            shape: KeyShape::Plain(KeyTypeName::Integer),
            projection: Some(doc! { "a": 0 }),
            fields: json::Fields::AsTheyCome { with_id: true },
        }
    }

    #[test]
    fn a_read_asks_for_what_was_delivered_and_one_key_for_one_document() {
        let served = served();
        let key = |id: &str| served.schema().parse_url(id).unwrap();
        let set = Kind::ReplicaSet("rs0".into());
        let floor = 7 << 32 | 3;
        let one = command(&served, &[key("1")], &set, floor, Duration::from_millis(1500));
        let time = mongodb::bson::Timestamp { time: 7, increment: 3 };
        assert_eq!(
            one,
            doc! {
                "find": "things", "filter": { "_id": 1_i64 }, "limit": 1, "singleBatch": true, "projection": { "a": 0 },
                "maxTimeMS": 1500, "readConcern": { "level": "majority", "afterClusterTime": time },
            }
        );
        let sharded = command(&served, &[key("1")], &Kind::Sharded, 0, Duration::ZERO);
        assert_eq!((sharded.get("limit"), sharded.get("maxTimeMS")), (Some(&Bson::Int32(2)), Some(&Bson::Int32(1))));
        assert_eq!(sharded.get_document("readConcern").unwrap(), &doc! { "level": "majority" });
        let many = command(&served, &[key("1"), key("2")], &Kind::Standalone, floor, Duration::from_secs(1));
        assert_eq!(many.get_document("filter").unwrap(), &doc! { "_id": { "$in": [1_i64, 2_i64] } });
        let given = ["batchSize", "readConcern", "limit"].map(|name| many.get(name));
        assert_eq!(given, [Some(&Bson::Int32(3)), None, None]);
    }
}
