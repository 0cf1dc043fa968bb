//! The change stream: its command, its batches, its resume tokens.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream as _;
use mongodb::bson::{Document as BsonDocument, deserialize_from_slice, doc};
use mongodb::error::Error;
use mongodb::options::CursorType;
use mongodb::raw_batch_cursor::{RawBatch, RawBatchCursor};
use mongodb::{ClusterTime, Database};

use super::bson::{self, Document, Malformed, Timestamp};
use super::error::Ended;
use super::server::DeploymentKind;
use hotrow_source::spec::CollectionConfig;

const BATCH_MAX: u32 = 1000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Start {
    /// At the first operation at or after this cluster time.
    Time(u64),
    /// After the event or time of this token.
    Token(Token),
}

/// Resume token. The stream resumes by the document as it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    document: BsonDocument,
    /// Cluster time in a token of MongoDB's own form; `None` in others.
    pub(crate) at: Option<u64>,
    /// True if the stream ended with this token.
    is_of_invalidate: bool,
}

impl Token {
    pub(crate) fn new(document: Document<'_>, bytes: &[u8]) -> Option<Self> {
        let at = time_in(document);
        Some(Self { document: deserialize_from_slice(bytes).ok()?, at, is_of_invalidate: false })
    }

    /// Marks the token as that of the event that ended a stream.
    pub(crate) fn of_invalidate(self) -> Self {
        Self { is_of_invalidate: true, ..self }
    }
}

/// Returns the cluster time in a token of MongoDB.
///
/// Its `_data` is a KeyString in hexadecimal, which begins with a timestamp: the type 0x82,
/// seconds and increment in network order. Source: MongoDB,
/// src/mongo/db/pipeline/resume_token.h and src/mongo/db/storage/key_string.cpp.
fn time_in(token: Document<'_>) -> Option<u64> {
    let at = token.text("_data")?.as_bytes().strip_prefix(b"82")?.get(..16)?;
    u64::from_str_radix(std::str::from_utf8(at).ok()?, 16).ok()
}

/// What proves how far a stream has delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The times in its tokens.
    Tokens,
    /// The times of its events, and empty answers to requests that were sent after a majority had
    /// the probed operation. Its tokens are opaque (docs/adr/0029).
    Answers,
}

impl Proof {
    /// Returns the proof that a stream allows by its first answer. `start` is a time at or after
    /// which it begins: a token with an earlier one has another form that looks like MongoDB's.
    ///
    /// # Errors
    /// Fails if the stream cannot be followed.
    pub(crate) fn of(
        first: Option<&Token>,
        start: u64,
        kind: &DeploymentKind,
    ) -> Result<Self, &'static str> {
        match first.ok_or(NO_TOKEN)?.at.filter(|at| *at >= start) {
            Some(_) => Ok(Self::Tokens),
            None if *kind == DeploymentKind::Sharded => Err(NO_TIME),
            None => Ok(Self::Answers),
        }
    }
}

/// Description of an answer at which no stream could resume.
pub(crate) const NO_TOKEN: &str =
    "the change stream sent an answer without a resume token (`postBatchResumeToken`)";
/// An empty answer of a mongos says nothing about a shard that is behind.
const NO_TIME: &str = "the resume tokens of this sharded cluster are not of MongoDB's form, which \
    begins with `82` and the time";

/// Content of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Watched<'a> {
    /// Collections of the database.
    names: BTreeSet<&'a str>,
    /// True if the server sends the events of all collections.
    sends_all: bool,
    /// Fields of aliases.
    fields: BTreeSet<&'a str>,
}

impl<'a> Watched<'a> {
    pub(crate) fn of(collections: &'a [CollectionConfig]) -> Self {
        let aliases = collections.iter().filter(|own| own.is_alias);
        Self {
            names: collections.iter().map(|own| own.table.as_str()).collect(),
            sends_all: false,
            fields: aliases.flat_map(|own| &own.key).map(String::as_str).collect(),
        }
    }

    /// Makes the server send all events. Only then does an empty answer mean that there was none:
    /// of a filtered stream it may also mean that the events were filtered out.
    pub(crate) fn unfiltered(self) -> Self {
        Self { sends_all: true, ..self }
    }
}

pub(crate) struct ChangeStream {
    cursor: RawBatchCursor,
}

pub(crate) struct Batch {
    reply: RawBatch,
}

impl ChangeStream {
    /// Opens the stream, and returns it with the server's first answer. An empty answer arrives
    /// after `wait_max`.
    pub(crate) async fn open(
        database: &Database,
        watched: &Watched<'_>,
        from: &Start,
        wait_max: Duration,
    ) -> Result<(Self, Batch), Ended> {
        let failed = |e: Error| Ended::stream("opening the change stream", &e);
        let command = command(watched, from);
        let cursor = database.run_cursor_command(command).cursor_type(CursorType::TailableAwait);
        let cursor = cursor.batch_size(BATCH_MAX).max_time(wait_max).batch();
        let mut stream = Self { cursor: cursor.await.map_err(failed)? };
        let closed = || Ended::interrupted("the server closed the change stream");
        let first = stream.next().await.ok_or_else(closed)?.map_err(failed)?;
        Ok((stream, first))
    }

    /// Returns the next answer, or `None` when the server has closed the stream. Dropping this
    /// future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Result<Batch, Error>> {
        let cursor = &mut self.cursor;
        poll_fn(|cx| Pin::new(&mut *cursor).poll_next(cx))
            .await
            .map(|reply| reply.map(|reply| Batch { reply }))
    }
}

/// Returns the events of an answer. Each event is checked at all levels, because the key is nested
/// in it.
fn events(
    reply: &[u8],
) -> Result<impl Iterator<Item = Result<Document<'_>, Malformed>>, Malformed> {
    let batch = bson::Batch::of(Document::new(reply)?)?;
    Ok(batch.map(|event| event.and_then(|event| event.check().map(|()| event))))
}

fn command(watched: &Watched<'_>, from: &Start) -> BsonDocument {
    let from = match from {
        Start::Time(at) => {
            doc! { "startAtOperationTime": mongodb::bson::Timestamp::from(Timestamp::from_at(*at)) }
        }
        Start::Token(token) if token.is_of_invalidate => {
            doc! { "startAfter": token.document.clone() }
        }
        Start::Token(token) => doc! { "resumeAfter": token.document.clone() },
    };
    let names: Vec<&str> = watched.names.iter().copied().collect();
    let served_only = doc! { "$or": [
        { "ns.coll": { "$in": names.clone() } },
        { "to.coll": { "$in": names } },
        { "operationType": { "$in": ["dropDatabase", "invalidate"] } },
    ] };
    // Without the documents themselves: only keys are sent, and the fields of aliases.
    let mut needed =
        doc! { "operationType": 1, "clusterTime": 1, "ns": 1, "to": 1, "documentKey": 1 };
    for field in &watched.fields {
        needed.insert(format!("fullDocument.{field}"), 1);
        needed.insert(format!("updateDescription.updatedFields.{field}"), 1);
    }
    let mut pipeline = vec![doc! { "$changeStream": from }];
    pipeline.extend((!watched.sends_all).then(|| doc! { "$match": served_only }));
    pipeline.push(doc! { "$project": needed });
    doc! {
        "aggregate": 1,
        "pipeline": pipeline,
        "cursor": { "batchSize": 0 },
        "readConcern": { "level": "majority" },
    }
}

impl Batch {
    /// Returns the events in order. The batch's token must not be taken after an error, because
    /// the stream would resume after events that were never parsed.
    ///
    /// # Errors
    /// Fails if this is no answer of a cursor. An item is an error if it is no well-formed event.
    pub(crate) fn events(
        &self,
    ) -> Result<impl Iterator<Item = Result<Document<'_>, Malformed>>, Malformed> {
        events(self.reply.as_raw_document().as_bytes())
    }

    /// Returns the token at which the stream resumes after this answer, with or without events.
    pub(crate) fn token(&self) -> Option<Token> {
        let raw = self.reply.as_raw_document().get_document("cursor").ok()?;
        let raw = raw.get_document("postBatchResumeToken").ok()?;
        Token::new(Document::new(raw.as_bytes()).ok()?, raw.as_bytes())
    }

    /// Returns the newest operation that a majority of the answering set has, as the number in a
    /// position. Source: MongoDB manual, "Responses", `operationTime` with read concern "majority".
    pub(crate) fn operation_time(&self) -> Option<u64> {
        let reply = Document::new(self.reply.as_raw_document().as_bytes()).ok()?;
        reply.timestamp("operationTime").map(Timestamp::at)
    }

    pub(crate) fn cluster_time(&self) -> Option<ClusterTime> {
        let raw = self.reply.as_raw_document().get_document("$clusterTime").ok()?;
        deserialize_from_slice(raw.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{bson, serialize_to_vec};

    use super::*;

    fn token(data: &str) -> Option<Token> {
        let bytes = serialize_to_vec(&doc! { "_data": data }).unwrap();
        Token::new(Document::new(&bytes).unwrap(), &bytes)
    }

    #[test]
    fn a_token_contains_its_time() {
        // A high-water mark, and the token of an event, of MongoDB 6.
        let mark = token("8263D3E1A2000000012B0229296E04").unwrap();
        assert_eq!(mark.at, Some(0x63d3_e1a2 << 32 | 1));
        let event = "82635C0E7A000000072B022C0100296E5A100496C525567BB74BD28BFD504F987082C04664\
                     5F69640064635C0E7A4D4F3A0DCE1C8BB60004";
        assert_eq!(token(event).unwrap().at, Some(0x635c_0e7a << 32 | 7));
        for opaque in [
            "",
            "82",
            "8163D3E1A200000001",
            "82zzD3E1A200000001",
            "8263D3E1A2000000",
            "82é3D3E1A200000001",
        ] {
            assert_eq!(token(opaque).unwrap().at, None, "{opaque}");
        }
    }

    #[test]
    fn a_stream_is_followed_by_its_times_only_where_its_tokens_have_them() {
        let set = DeploymentKind::ReplicaSet("rs0".into());
        let start = 0x63d3_e1a2 << 32 | 1;
        let proof = |token: Option<&Token>, kind| Proof::of(token, start, kind);
        let of_time = token("8263D3E1A2000000012B0229296E04");
        let earlier = token("8263D3E1A2000000002B0229296E04");
        let opaque = token("5F00000010730001000000");
        for kind in [&set, &DeploymentKind::Sharded] {
            assert_eq!(proof(of_time.as_ref(), kind), Ok(Proof::Tokens));
            assert_eq!(proof(None, kind), Err(NO_TOKEN));
        }
        for token in [opaque, earlier] {
            assert_eq!(proof(token.as_ref(), &set), Ok(Proof::Answers));
            assert_eq!(proof(token.as_ref(), &DeploymentKind::Sharded), Err(NO_TIME));
        }
    }

    #[test]
    fn a_malformed_event_is_an_error_and_does_not_end_the_batch_silently() {
        let event = |id: &str| doc! { "operationType": "insert", "documentKey": { "_id": id } };
        let answer = |batch: mongodb::bson::Bson| {
            serialize_to_vec(&doc! { "cursor": { "nextBatch": batch }, "ok": 1.0 }).unwrap()
        };
        let parsed =
            |reply: &[u8]| events(reply).map(|all| all.map(|e| e.is_ok()).collect::<Vec<_>>());
        let whole = answer(bson!([event("one"), event("two"), event("three")]));
        assert_eq!(parsed(&whole), Ok(vec![true; 3]));
        assert_eq!(parsed(&answer(bson!([]))), Ok(vec![]));
        assert_eq!(parsed(&answer(bson!([event("one"), 7]))), Ok(vec![true, false]));
        // The length of a text in the key of the second event.
        let text = whole.windows(4).position(|w| w == b"two\0").unwrap();
        let mut malformed = whole.clone();
        malformed[text - 4] = 200;
        assert_eq!(parsed(&malformed), Ok(vec![true, false, true]));
        for no_answer in [doc! { "ok": 1.0 }, doc! { "cursor": { "id": 1_i64 } }] {
            assert_eq!(parsed(&serialize_to_vec(&no_answer).unwrap()), Err(Malformed));
        }
        assert_eq!(parsed(&whole[1..]), Err(Malformed));
    }

    fn watched(fields: &[&'static str]) -> Watched<'static> {
        let fields = fields.iter().copied().collect();
        Watched { names: BTreeSet::from(["a", "b"]), sends_all: false, fields }
    }

    #[test]
    fn documents_are_sent_as_the_fields_of_aliases_only() {
        let sent = |fields: &[&'static str]| {
            let command = command(&watched(fields), &Start::Time(1));
            let stages = command.get_array("pipeline").unwrap().clone();
            stages[2].as_document().unwrap().get_document("$project").unwrap().clone()
        };
        let keys =
            doc! { "operationType": 1, "clusterTime": 1, "ns": 1, "to": 1, "documentKey": 1 };
        assert_eq!(sent(&[]), keys);
        let mut with_fields = keys;
        with_fields.extend(doc! {
            "fullDocument.email": 1, "updateDescription.updatedFields.email": 1,
            "fullDocument.name": 1, "updateDescription.updatedFields.name": 1,
        });
        assert_eq!(sent(&["name", "email"]), with_fields);
    }

    #[test]
    fn a_stream_starts_at_its_time_or_token() {
        let first = |from: &Start| {
            let command = command(&watched(&[]), from);
            let stages = command.get_array("pipeline").unwrap().clone();
            stages[0].as_document().unwrap().get_document("$changeStream").unwrap().clone()
        };
        let time = mongodb::bson::Timestamp { time: 1, increment: 2 };
        assert_eq!(first(&Start::Time(1 << 32 | 2)), doc! { "startAtOperationTime": time });
        let token = token("8263D3E1A2000000012B0229296E04").unwrap();
        let document = doc! { "_data": "8263D3E1A2000000012B0229296E04" };
        assert_eq!(first(&Start::Token(token.clone())), doc! { "resumeAfter": document.clone() });
        // Only `startAfter` resumes a stream after a dropped database.
        assert_eq!(first(&Start::Token(token.of_invalidate())), doc! { "startAfter": document });
    }
}
