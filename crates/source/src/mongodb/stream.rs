//! The change stream: its command, its batches, its resume tokens.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream as _;
use mongodb::bson::{Document as BsonDocument, deserialize_from_slice, doc};
use mongodb::error::Error;
use mongodb::options::CursorType;
use mongodb::raw_batch_cursor::{RawBatch, RawBatchCursor};
use mongodb::{ClusterTime, Database};

use super::bson::{Document, Timestamp, Value};

/// Most events of one batch.
const BATCH_MAX: u32 = 1000;

/// Where a stream begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Start {
    /// With the first operation at or after this cluster time.
    Time(u64),
    /// After what this token stands for.
    Token(Token),
}

/// A resume token, and when it is of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    document: BsonDocument,
    /// Cluster time in it.
    pub(crate) at: u64,
    /// The stream ended with it.
    is_of_invalidate: bool,
}

impl Token {
    /// The token in this document.
    ///
    /// Its `_data` is a KeyString in hexadecimal, which begins with a timestamp: the type 0x82, seconds and increment in
    /// network order. Source: MongoDB, src/mongo/db/pipeline/resume_token.h and src/mongo/db/storage/key_string.cpp.
    pub(crate) fn new(document: Document<'_>, bytes: &[u8]) -> Option<Self> {
        let data = document.text("_data")?.as_bytes();
        let at = data.strip_prefix(b"82")?.get(..16)?;
        let at = u64::from_str_radix(std::str::from_utf8(at).ok()?, 16).ok()?;
        Some(Self { document: deserialize_from_slice(bytes).ok()?, at, is_of_invalidate: false })
    }

    /// The same as that of the event that ended a stream.
    pub(crate) fn of_invalidate(self) -> Self {
        Self { is_of_invalidate: true, ..self }
    }
}

/// A change stream as it is open on a server.
pub(crate) struct ChangeStream {
    cursor: RawBatchCursor,
}

/// One answer of the server.
pub(crate) struct Batch {
    reply: RawBatch,
}

impl ChangeStream {
    /// Opens it for these collections of the database. An empty answer comes after `wait_max`.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) async fn open(
        database: &Database,
        names: &[&str],
        from: &Start,
        wait_max: Duration,
    ) -> Result<Self, Error> {
        let command = command(names, from);
        let cursor = database.run_cursor_command(command).cursor_type(CursorType::TailableAwait);
        let cursor = cursor.batch_size(BATCH_MAX).max_time(wait_max).batch().await?;
        Ok(Self { cursor })
    }

    /// The next answer; none when the server has closed the stream. Nothing is lost when this future is dropped.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) async fn next(&mut self) -> Option<Result<Batch, Error>> {
        let cursor = &mut self.cursor;
        poll_fn(|cx| Pin::new(&mut *cursor).poll_next(cx)).await.map(|reply| reply.map(|reply| Batch { reply }))
    }
}

fn command(names: &[&str], from: &Start) -> BsonDocument {
    let from = match from {
        Start::Time(at) => {
            doc! { "startAtOperationTime": mongodb::bson::Timestamp::from(Timestamp::from_at(*at)) }
        }
        Start::Token(token) if token.is_of_invalidate => doc! { "startAfter": token.document.clone() },
        Start::Token(token) => doc! { "resumeAfter": token.document.clone() },
    };
    let of_ours = doc! { "$or": [
        { "ns.coll": { "$in": names } },
        { "to.coll": { "$in": names } },
        { "operationType": { "$in": ["dropDatabase", "invalidate"] } },
    ] };
    // Without the documents themselves: only keys travel.
    let needed = doc! { "operationType": 1, "clusterTime": 1, "ns": 1, "to": 1, "documentKey": 1 };
    doc! {
        "aggregate": 1,
        "pipeline": [{ "$changeStream": from }, { "$match": of_ours }, { "$project": needed }],
        "cursor": { "batchSize": 0 },
        "readConcern": { "level": "majority" },
    }
}

impl Batch {
    fn reply(&self) -> Option<Document<'_>> {
        Document::new(self.reply.as_raw_document().as_bytes()).ok()
    }

    fn cursor(&self) -> Option<Document<'_>> {
        self.reply()?.document("cursor")
    }

    /// The events, in order; none when it is no answer of a cursor.
    pub(crate) fn events(&self) -> Option<impl Iterator<Item = Document<'_>>> {
        let cursor = self.cursor()?;
        let Value::Array(batch) = cursor.get("nextBatch").or_else(|| cursor.get("firstBatch"))? else { return None };
        Some(batch.elements().map_while(|element| match element {
            Ok((_, Value::Document(event))) => Some(event),
            _ => None,
        }))
    }

    /// What everything up to here, events or not, is resumed after.
    pub(crate) fn token(&self) -> Option<Token> {
        let raw = self.reply.as_raw_document().get_document("cursor").ok()?;
        let raw = raw.get_document("postBatchResumeToken").ok()?;
        Token::new(Document::new(raw.as_bytes()).ok()?, raw.as_bytes())
    }

    /// The signed time that came with it.
    pub(crate) fn cluster_time(&self) -> Option<ClusterTime> {
        let raw = self.reply.as_raw_document().get_document("$clusterTime").ok()?;
        deserialize_from_slice(raw.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::serialize_to_vec;

    use super::*;

    fn token(data: &str) -> Option<Token> {
        let bytes = serialize_to_vec(&doc! { "_data": data }).unwrap();
        Token::new(Document::new(&bytes).unwrap(), &bytes)
    }

    #[test]
    fn a_token_tells_its_time() {
        // A high-water mark, and the token of an event, of MongoDB 6.
        let mark = token("8263D3E1A2000000012B0229296E04").unwrap();
        assert_eq!(mark.at, 0x63d3_e1a2 << 32 | 1);
        let event = "82635C0E7A000000072B022C0100296E5A100496C525567BB74BD28BFD504F987082C046645F69640064635C0E7A4D4F3A0DCE1C8BB60004";
        assert_eq!(token(event).unwrap().at, 0x635c_0e7a << 32 | 7);
        for bad in ["", "82", "8163D3E1A200000001", "82zzD3E1A200000001", "8263D3E1A2000000", "82é3D3E1A200000001"] {
            assert_eq!(token(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_stream_starts_where_it_is_told() {
        let first = |from: &Start| {
            let command = command(&["a", "b"], from);
            let stages = command.get_array("pipeline").unwrap().clone();
            stages[0].as_document().unwrap().get_document("$changeStream").unwrap().clone()
        };
        let time = mongodb::bson::Timestamp { time: 1, increment: 2 };
        assert_eq!(first(&Start::Time(1 << 32 | 2)), doc! { "startAtOperationTime": time });
        let token = token("8263D3E1A2000000012B0229296E04").unwrap();
        let document = doc! { "_data": "8263D3E1A2000000012B0229296E04" };
        assert_eq!(first(&Start::Token(token.clone())), doc! { "resumeAfter": document.clone() });
        // Only so can a stream go on behind a dropped database.
        assert_eq!(first(&Start::Token(token.of_invalidate())), doc! { "startAfter": document });
    }
}
