//! One read: its query, its answer and its version.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_core::Stream as _;
use hotrow_types::key::{CollectionId, Key, KeySchema};
use hotrow_types::version::{Position, Version};
use mongodb::bson::{Document as BsonDocument, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::raw_batch_cursor::SessionRawBatchCursorStream;
use tokio::time::{Instant, timeout_at};

use super::MongoSource;
use super::alias::AliasFields;
use super::bson::{Batch, Document, Malformed, Timestamp, Value};
use super::error::{Fault, fault};
use super::inspect::Served;
use super::json::{self, JsonError};
use super::server::DeploymentKind;
use super::shared::Published;
use hotrow_source::{KeysOfCollection, ReadSet, Room, Row, RowBudget, SourceError, mark_unread};

const VALUE_IN_ARRAY: &str = "a document has this value inside an array, which is no value of \
    the field by which it is looked up; store a single value there";

/// Attempts of one read: the first, and one after a lost connection or a changed primary.
const ATTEMPTS_MAX: usize = 2;

impl MongoSource {
    pub(super) async fn read_keys(
        &self,
        parts: &[KeysOfCollection],
        is_snapshot: bool,
        budget: &RowBudget,
    ) -> Result<ReadSet, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let permit =
            timeout_at(deadline, self.permits.acquire()).await.map_err(|_| self.timed_out())?;
        let _permit = permit
            .map_err(|_| SourceError::Unavailable { detail: "the source is closed".into() })?;
        let outage = &self.shared.outage;
        outage.may_log_in(self.read_timeout)?;
        let answer = match parts {
            [(collection, keys)] if !is_snapshot => {
                self.try_read(*collection, keys, budget, deadline).await
            }
            parts => self.try_snapshot(parts, budget, deadline).await,
        };
        match answer {
            Ok(set) => {
                outage.connected();
                Ok(set)
            }
            Err(Fault::Login(e)) => {
                outage.login_refused(&e.to_string());
                Err(e)
            }
            Err(Fault::Retry(e) | Fault::Final(e)) => {
                if matches!(e, SourceError::Unavailable { .. } | SourceError::Timeout { .. }) {
                    outage.failed(&e.to_string());
                }
                Err(e)
            }
        }
    }

    pub(super) fn timed_out(&self) -> SourceError {
        SourceError::Timeout {
            detail: format!("no answer within {} ms", self.read_timeout.as_millis()),
        }
    }

    async fn try_read(
        &self,
        collection: CollectionId,
        keys: &[Key],
        budget: &RowBudget,
        deadline: Instant,
    ) -> Result<ReadSet, Fault> {
        let served = self.served(collection)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let deployment = self.deployment()?;
            self.hooks.before_read(collection, keys);
            // Dropping the query closes its connection, which ends the query.
            budget.restart();
            let answer =
                timeout_at(deadline, self.query(&deployment, served, keys, budget, deadline, None))
                    .await;
            self.hooks.after_read(collection, keys);
            match answer.map_err(|_| self.timed_out())?.map_err(|e| self.failure(e)) {
                Err(Fault::Retry(_)) if attempt < ATTEMPTS_MAX => {}
                ended => return ended,
            }
        }
    }

    pub(super) fn deployment(&self) -> Result<Published, SourceError> {
        self.shared.deployment().map_err(|why| SourceError::unavailable(&*why))
    }

    pub(super) fn served(&self, collection: CollectionId) -> Result<&Served, SourceError> {
        let served = self.served.get(usize::from(collection.0));
        served.ok_or_else(|| SourceError::broken("there is no such collection"))
    }

    pub(super) fn failure(&self, e: QueryError) -> Fault {
        match e {
            QueryError::Malformed(e) => SourceError::unavailable(e.to_string()).into(),
            QueryError::NotUnique(why) => {
                let detail = format!("the alias has no unique index to rely on: {why}");
                SourceError::broken(detail).into()
            }
            QueryError::Driver(e) => fault(&e, self.read_timeout),
        }
    }

    /// Returns the index that a lookup by an alias relies on.
    fn index(&self, served: &Served) -> Result<Option<String>, QueryError> {
        match self.shared.index(served.id) {
            None => Ok(None),
            Some(index) => index.map(Some).map_err(QueryError::NotUnique),
        }
    }

    /// Sends one query. `at`: the cluster time of a snapshot; `None`: all that was delivered.
    pub(super) async fn query(
        &self,
        deployment: &Published,
        served: &Served,
        keys: &[Key],
        budget: &RowBudget,
        deadline: Instant,
        at: Option<u64>,
    ) -> Result<ReadSet, QueryError> {
        let mut session = self.database.client().start_session().await?;
        // The floor first, then the signed time without which a server refuses the floor: the time
        // is never older.
        let floor = self.shared.floor();
        if let Some(gossip) = self.shared.gossip() {
            session.advance_cluster_time(&gossip);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let index = self.index(served)?;
        let query = Query { served, keys, index: index.as_deref() };
        let mut command = command(&query, &deployment.identity.kind, floor, left);
        if let Some(at) = at {
            command.insert("readConcern", snapshot_concern(at));
        }
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let command = RawDocumentBuf::try_from(&command).map_err(Error::from)?;
        let mut cursor =
            self.database.run_raw_cursor_command(command).session(&mut session).batch().await?;
        let mut answer = Answer::new(self, served, keys);
        let mut batches = cursor.stream(&mut session);
        while let Some(batch) = next(&mut batches).await {
            let room = answer.take(batch?.as_raw_document().as_bytes(), budget)?;
            if room != Room::Taken {
                // Dropping the cursor ends the query at the server.
                mark_unread(&mut answer.rows, &Row::Missing, room);
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(batches);
        Ok(answer.finish(deployment, floor))
    }
}

/// Failure of one attempt to read.
pub(super) enum QueryError {
    Driver(Error),
    Malformed(Malformed),
    /// An alias has lost its unique index.
    NotUnique(String),
}

impl From<Error> for QueryError {
    fn from(e: Error) -> Self {
        Self::Driver(e)
    }
}

impl From<Malformed> for QueryError {
    fn from(e: Malformed) -> Self {
        Self::Malformed(e)
    }
}

async fn next(
    batches: &mut SessionRawBatchCursorStream<'_, '_>,
) -> Option<Result<mongodb::raw_batch_cursor::RawBatch, Error>> {
    poll_fn(|cx| Pin::new(&mut *batches).poll_next(cx)).await
}

/// One query.
struct Query<'a> {
    served: &'a Served,
    keys: &'a [Key],
    /// Index of an alias.
    index: Option<&'a str>,
}

fn command(query: &Query<'_>, kind: &DeploymentKind, floor: u64, left: Duration) -> BsonDocument {
    let Query { served, keys, index } = query;
    let mut command = doc! { "find": &served.name, "filter": served.filter(keys) };
    if keys.len() == 1 {
        // Only shards can hold two documents with one `_id`. An index may be dropped at any time.
        let may_be_two = *kind == DeploymentKind::Sharded || served.alias.is_some();
        command.insert("limit", if may_be_two { 2 } else { 1 });
        command.insert("singleBatch", true);
    } else {
        // One more than the maximum, so that the first batch includes the end.
        let batch = i32::try_from(keys.len()).unwrap_or(i32::MAX).saturating_add(1);
        command.insert("batchSize", batch);
    }
    if served.alias.is_some() {
        // By bytes, whatever the collection's own collation is.
        command.insert("collation", doc! { "locale": "simple" });
    }
    if let Some(index) = index {
        // Without this index the query fails, and reads no whole collection.
        command.insert("hint", *index);
    }
    if let Some(projection) = &served.projection {
        command.insert("projection", projection.clone());
    }
    // 0 would mean no limit.
    command.insert("maxTimeMS", i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1));
    if *kind != DeploymentKind::Standalone {
        let mut concern = doc! { "level": "majority" };
        if floor > 0 {
            concern.insert(
                "afterClusterTime",
                mongodb::bson::Timestamp::from(Timestamp::from_at(floor)),
            );
        }
        command.insert("readConcern", concern);
    }
    command
}

fn snapshot_concern(at: u64) -> BsonDocument {
    let at = mongodb::bson::Timestamp::from(Timestamp::from_at(at));
    doc! { "level": "snapshot", "atClusterTime": at }
}

/// Collector for the documents of an answer.
struct Answer<'a> {
    source: &'a MongoSource,
    served: &'a Served,
    schema: KeySchema,
    keys: &'a [Key],
    /// First index of each key.
    first_indexes: HashMap<&'a Key, usize>,
    rows: Vec<Row>,
    seen_at: Option<Timestamp>,
}

impl<'a> Answer<'a> {
    fn new(source: &'a MongoSource, served: &'a Served, keys: &'a [Key]) -> Self {
        let mut first_indexes = HashMap::with_capacity(keys.len());
        for (index, key) in keys.iter().enumerate() {
            first_indexes.entry(key).or_insert(index);
        }
        Self {
            source,
            served,
            schema: served.schema(),
            keys,
            first_indexes,
            rows: vec![Row::Missing; keys.len()],
            seen_at: None,
        }
    }

    /// Takes one reply with its batch, as far as its documents have room.
    ///
    /// # Errors
    /// Fails if the reply is malformed. The rows are of no use then, because a missing one may
    /// exist in the database.
    fn take(&mut self, reply: &[u8], budget: &RowBudget) -> Result<Room, Malformed> {
        let reply = Document::new(reply)?;
        self.seen_at = self.seen_at.max(reply.timestamp("operationTime"));
        for document in Batch::of(reply)? {
            let room = self.document(document?, budget)?;
            if room != Room::Taken {
                return Ok(room);
            }
        }
        Ok(Room::Taken)
    }

    fn document(&mut self, document: Document<'_>, budget: &RowBudget) -> Result<Room, Malformed> {
        if let Some(alias) = &self.served.alias {
            return self.document_of_alias(alias, document, budget);
        }
        let key = self.served.shape.key(&self.schema, id(document)?);
        // A document found through a collation that compares other texts as equal is another
        // document.
        let Some(index) = key.and_then(|key| self.first_indexes.get(&key).copied()) else {
            return Ok(Room::Taken);
        };
        let row = match self.rows[index] {
            Row::Missing => match self.json(document) {
                Ok(json) => Row::Found(json),
                Err(e) => Row::Unreadable(e.to_string()),
            },
            _ => Row::Unreadable("two shards have a document with this `_id`".into()),
        };
        Ok(self.put(index, row, budget))
    }

    /// Takes a document that was found by an alias.
    fn document_of_alias(
        &mut self,
        alias: &AliasFields,
        document: Document<'_>,
        budget: &RowBudget,
    ) -> Result<Room, Malformed> {
        let values = alias.values(document)?;
        for key in alias.keys_in_array(&self.schema, &values) {
            if let Some(index) = self.first_indexes.get(&key).copied() {
                // An error, because a database would find the document.
                self.rows[index] = Row::Unreadable(VALUE_IN_ARRAY.into());
            }
        }
        let key = alias.key(&self.schema, &values);
        // Another type of `_id` than that of the collection: no record has the value.
        let of = self.served.shape.key(&self.served.schema_of_id(), id(document)?);
        let index = key.and_then(|key| self.first_indexes.get(&key).copied());
        let (Some(index), Some(of)) = (index, of) else { return Ok(Room::Taken) };
        let row = match self.rows[index] {
            Row::Missing => match alias.row(self.source.form, &of, &values) {
                Ok(json) => Row::Found(json),
                Err(e) => Row::Unreadable(e.to_string()),
            },
            _ => Row::Unreadable("two documents have this value".into()),
        };
        Ok(self.put(index, row, budget))
    }

    fn put(&mut self, index: usize, row: Row, budget: &RowBudget) -> Room {
        let room = budget.take(row.bytes());
        if room == Room::Taken {
            self.rows[index] = row;
        }
        room
    }

    fn json(&self, document: Document<'_>) -> Result<Vec<u8>, JsonError> {
        let mut out = Vec::new();
        if let Some(field) = &self.served.tenant {
            json::write_tenant(&mut out, self.source.form, field, document)?;
        }
        json::write_document(&mut out, self.source.form, &self.served.fields, document)?;
        Ok(out)
    }

    fn finish(mut self, deployment: &Published, floor: u64) -> ReadSet {
        for (index, key) in self.keys.iter().enumerate() {
            match self.first_indexes.get(key) {
                Some(first) if *first != index => self.rows[index] = self.rows[*first].clone(),
                _ => {}
            }
        }
        let (version, position) = match self.seen_at.filter(|_| self.source.is_watched) {
            None => (Version::Unknown, None),
            Some(seen_at) => {
                let incarnation = deployment.identity.incarnation();
                // A server never answers with a state before the requested time.
                let at = seen_at.at().max(floor);
                self.source.shared.record_read(deployment, at);
                let [from, to] = [floor, at].map(|at| Position { incarnation, at });
                (Version::Span { from, to }, Some(to))
            }
        };
        ReadSet { version, position, rows: self.rows }
    }
}

/// Returns the `_id` of a document. Every projection includes it.
///
/// # Errors
/// Fails if the document is malformed up to the end of the `_id`, or has none.
fn id(document: Document<'_>) -> Result<Value<'_>, Malformed> {
    for element in document.elements() {
        match element? {
            (b"_id", Value::Document(id)) => return id.check().map(|()| Value::Document(id)),
            (b"_id", id) => return Ok(id),
            _ => {}
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::CollectionId;
    use mongodb::bson::Bson;

    use super::super::keys::KeyShape;
    use super::*;
    use hotrow_source::spec::KeyTypeName;
    use mongodb::bson::serialize_to_vec;

    fn served() -> Served {
        Served {
            id: CollectionId(0),
            name: "things".into(),
            shape: KeyShape::Plain(KeyTypeName::Integer),
            projection: Some(doc! { "a": 0 }),
            fields: json::Fields::StoredOrder { without: Vec::new() },
            tenant: None,
            alias: None,
        }
    }

    #[test]
    fn a_malformed_id_is_an_error() {
        let bytes = serialize_to_vec(&doc! { "a": 1, "_id": { "b": "text" }, "c": 2 }).unwrap();
        // Replaces the type of this element.
        let malformed = |element: &[u8]| {
            let mut bytes = bytes.clone();
            let at = bytes.windows(element.len()).position(|w| w == element).unwrap();
            bytes[at] = 0x66;
            id(Document::new(&bytes).unwrap()).err()
        };
        assert!(matches!(id(Document::new(&bytes).unwrap()), Ok(Value::Document(_))));
        for element in [&b"\x10a\0"[..], b"\x03_id\0", b"\x02b\0"] {
            assert_eq!(malformed(element), Some(Malformed), "{element:?}");
        }
        // Only this record is unreadable then, because its key is known.
        assert_eq!(malformed(b"\x10c\0"), None);
        let no_id = serialize_to_vec(&doc! { "a": 1 }).unwrap();
        assert_eq!(id(Document::new(&no_id).unwrap()), Err(Malformed));
    }

    #[test]
    fn a_read_requires_delivered_changes_and_one_key_requests_one_document() {
        let served = served();
        let key = |id: &str| served.schema().parse_url(id).unwrap();
        let set = DeploymentKind::ReplicaSet("rs0".into());
        let floor = 7 << 32 | 3;
        let query = |keys| Query { served: &served, keys, index: None };
        let keys = [key("1"), key("2")];
        let first = &keys[..1];
        let one = command(&query(first), &set, floor, Duration::from_millis(1500));
        let time = mongodb::bson::Timestamp { time: 7, increment: 3 };
        assert_eq!(
            one,
            doc! {
                "find": "things", "filter": { "_id": 1_i64 }, "limit": 1, "singleBatch": true,
                "projection": { "a": 0 },
                "maxTimeMS": 1500, "readConcern": { "level": "majority", "afterClusterTime": time },
            }
        );
        let sharded = command(&query(first), &DeploymentKind::Sharded, 0, Duration::ZERO);
        assert_eq!(
            (sharded.get("limit"), sharded.get("maxTimeMS")),
            (Some(&Bson::Int32(2)), Some(&Bson::Int32(1)))
        );
        assert_eq!(sharded.get_document("readConcern").unwrap(), &doc! { "level": "majority" });
        let many =
            command(&query(&keys), &DeploymentKind::Standalone, floor, Duration::from_secs(1));
        assert_eq!(
            many.get_document("filter").unwrap(),
            &doc! { "_id": { "$in": [1_i64, 2_i64] } }
        );
        let options = ["batchSize", "readConcern", "limit"].map(|name| many.get(name));
        assert_eq!(options, [Some(&Bson::Int32(3)), None, None]);
    }
}
