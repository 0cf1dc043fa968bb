//! Answers with one record from memory, written without an allocation: the fixed part of the head
//! stands ready for each collection, and the record adds its own values.

mod fields;

use std::cell::RefCell;

use hotrow_cache::{ContentCoding, Presence};
use hotrow_http1::write;
use hotrow_http2::hpack::encoder;
use hotrow_representation::record_form::{RecordForm, tag_suffix};
use hotrow_representation::surrogate_key::{Sharing, SurrogateKeys};
use hotrow_types::key::CollectionId;
use hotrow_types::version::Position;
use http::HeaderValue;

use crate::body::Body;
use crate::collections::{Collection, Collections};
use crate::rate_fields::Fields as RateLimitFields;
use crate::respond::{ACCEPT_ENCODING, MISSING, NO_STORE, Provenance, age_seconds};
use crate::written::Written;

/// An answer with a record, or with the fact that there is none.
#[derive(Debug)]
pub struct RecordAnswer {
    /// The record, in the form that the client gets.
    pub form: RecordForm,
    /// Where it comes from.
    pub provenance: Provenance,
    /// What is sent instead of the form's bytes as they lie, where that differs.
    pub instead: Option<Box<OtherBody>>,
    /// Whether the client has it already: 304.
    pub is_known: bool,
    /// What caches in front may do with it.
    pub sharing: Sharing,
    /// Header fields of the rate limits, if they are configured.
    pub rate_limit: Option<Box<RateLimitFields>>,
}

impl RecordAnswer {
    /// Returns the status.
    pub(crate) fn status(&self) -> u16 {
        match (self.form.record().presence(), self.is_known) {
            (Presence::Missing, _) => 404,
            (Presence::Found, true) => 304,
            (Presence::Found, false) => 200,
        }
    }

    /// Returns the hash that its entity tag contains.
    #[inline]
    fn hash(&self) -> u64 {
        self.instead.as_ref().map_or_else(|| self.form.record().body_hash(), |own| own.hash)
    }

    /// Returns the bytes of its record, or of the view of it.
    #[inline]
    pub fn body_bytes(&self) -> u64 {
        self.instead.as_ref().map_or(self.form.bytes().len(), |own| own.body.len()) as u64
    }

    /// Returns what follows from the head with this status.
    fn into_written(self, status: u16) -> Written<Body> {
        let body = match status {
            304 => Body::Empty,
            404 => Body::Bytes(bytes::Bytes::from_static(MISSING)),
            _ => self.instead.map_or_else(|| Body::Record(self.form), |own| own.body),
        };
        Written { status, closes: false, has_length: false, body }
    }
}

/// Body of an answer that is not the record as it lies: a view of it, or a large record, which
/// holds a reservation.
#[derive(Debug)]
pub struct OtherBody {
    /// Its body.
    pub body: Body,
    /// Hash of its bytes without a coding.
    pub hash: u64,
}

/// 404 for a record that does not exist or that the sender does not see.
#[derive(Debug)]
pub struct AbsentAnswer {
    /// Its collection.
    pub collection: CollectionId,
    /// Position at which the record was absent.
    pub position: Option<Position>,
    /// Header fields of the rate limits, if they are configured.
    pub rate_limit: Option<Box<RateLimitFields>>,
}

/// Returns what follows from the head of an answer without a record.
fn absent_written() -> Written<Body> {
    let body = Body::Bytes(bytes::Bytes::from_static(MISSING));
    Written { status: 404, closes: false, has_length: false, body }
}

/// Writer of the heads of one worker's answers.
#[derive(Debug)]
pub struct RecordHeads {
    /// By collection.
    fixed: Box<[CollectionHeads]>,
    /// Most entries were read while the feed stood still, so neighbours share their position.
    position: RefCell<(Option<Position>, Vec<u8>)>,
    /// The same, as a field of HTTP/2.
    position_field: RefCell<(Option<Position>, Vec<u8>)>,
}

/// Leading parts of the heads of a collection.
#[derive(Debug)]
struct CollectionHeads {
    /// Those that `cache_control` says.
    configured: FixedParts,
    purged: Option<PurgedHeads>,
}

/// What a collection with surrogate keys has besides.
#[derive(Debug)]
struct PurgedHeads {
    keys: SurrogateKeys,
    /// Of answers that no cache may keep.
    forbidden: FixedParts,
}

impl CollectionHeads {
    fn new(collection: &Collection) -> Self {
        let varies = collection.compression.is_some();
        let purged = |keys: &SurrogateKeys| PurgedHeads {
            keys: keys.clone(),
            forbidden: FixedParts::new(&NO_STORE, varies),
        };
        Self {
            configured: FixedParts::new(&collection.cache_control, varies),
            purged: collection.surrogate_keys.as_ref().map(purged),
        }
    }

    /// Returns the part of answers with this status. `is_kept`: caches may keep them.
    fn part(&self, is_kept: bool, status: u16) -> &FixedPart {
        let parts = match &self.purged {
            Some(purged) if !is_kept => &purged.forbidden,
            _ => &self.configured,
        };
        match status {
            304 => &parts.not_modified,
            404 => &parts.missing,
            _ => &parts.found,
        }
    }

    /// Appends the value of the field of surrogate keys, if the answer has it. `None`: it has not.
    fn write_keys(&self, answer: &RecordAnswer, out: &mut Vec<u8>) -> Option<&SurrogateKeys> {
        let keys = match answer.sharing {
            Sharing::UntilPurged => &self.purged.as_ref()?.keys,
            Sharing::AsConfigured | Sharing::Forbidden => return None,
        };
        keys.write_value(answer.form.record().key_bytes(), out)?;
        Some(keys)
    }

    /// Writes the leading part of a head in HTTP/1.1.
    fn write(&self, answer: &RecordAnswer, status: u16, out: &mut Vec<u8>) {
        if answer.sharing != Sharing::UntilPurged {
            let is_kept = answer.sharing == Sharing::AsConfigured;
            return out.extend_from_slice(&self.part(is_kept, status).text);
        }
        let begin = out.len();
        out.extend_from_slice(&self.part(true, status).text);
        if let Some(purged) = &self.purged {
            out.extend_from_slice(purged.keys.field().as_bytes());
            out.extend_from_slice(b": ");
        }
        if self.write_keys(answer, out).is_some() {
            return out.extend_from_slice(b"\r\n");
        }
        out.truncate(begin);
        out.extend_from_slice(&self.part(false, status).text);
    }
}

/// Leading parts of heads, the same for all records of a collection.
#[derive(Debug)]
struct FixedParts {
    found: FixedPart,
    not_modified: FixedPart,
    missing: FixedPart,
}

#[derive(Debug)]
struct FixedPart {
    /// Lines of HTTP/1.1.
    text: Box<[u8]>,
    /// Fields of HTTP/2.
    fields: Box<[u8]>,
}

impl FixedParts {
    fn new(cache_control: &HeaderValue, varies: bool) -> Self {
        let part = |status, reason, content_type: Option<&str>| {
            let mut text = Vec::new();
            write::status_line(&mut text, status, reason);
            if let Some(content_type) = content_type {
                write::field(&mut text, "content-type", content_type.as_bytes());
            }
            write::field(&mut text, "cache-control", cache_control.as_bytes());
            if varies {
                write::field(&mut text, "vary", ACCEPT_ENCODING.as_bytes());
            }
            let mut fields = Vec::new();
            encoder::head(&mut fields, status, &text);
            FixedPart { text: text.into_boxed_slice(), fields: fields.into_boxed_slice() }
        };
        Self {
            found: part(200, "OK", Some("application/json")),
            not_modified: part(304, "Not Modified", None),
            missing: part(404, "Not Found", Some("application/problem+json")),
        }
    }
}

/// Writes the end of the entity tag, and the coding if there is a body.
#[cold]
fn write_coding(coding: ContentCoding, status: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(tag_suffix(Some(coding)).as_bytes());
    out.extend_from_slice(b"\"\r\n");
    if status == 200 {
        write::field(out, "content-encoding", coding.label().as_bytes());
    }
}

impl RecordHeads {
    /// Prepares the parts of heads that depend on the collection alone.
    pub fn new(collections: &Collections) -> Self {
        Self {
            fixed: collections.all().iter().map(CollectionHeads::new).collect(),
            position: RefCell::default(),
            position_field: RefCell::default(),
        }
    }

    /// Writes the head of an answer. Returns what follows from it.
    pub fn write(&self, answer: RecordAnswer, out: &mut Vec<u8>) -> Written<Body> {
        let status = answer.status();
        let record = answer.form.record();
        self.fixed[usize::from(record.collection().0)].write(&answer, status, out);
        if status != 404 {
            out.extend_from_slice(b"etag: \"");
            write::hexadecimal(out, answer.hash());
            if let Some(coding) = answer.form.coding() {
                write_coding(coding, status, out);
            } else {
                out.extend_from_slice(b"\"\r\n");
            }
        }
        out.extend_from_slice(b"age: ");
        write::decimal(out, age_seconds(answer.provenance.age));
        out.extend_from_slice(b"\r\n");
        write::field(out, "hotrow-cache", answer.provenance.outcome.label().as_bytes());
        if let Some(position) = record.position() {
            self.write_position(position, out);
        }
        if let Some(fields) = &answer.rate_limit {
            fields.write(out);
        }
        answer.into_written(status)
    }

    /// Writes the head of an answer without a record. It shows nothing of the entry behind it.
    pub fn write_absent(&self, answer: AbsentAnswer, out: &mut Vec<u8>) -> Written<Body> {
        let AbsentAnswer { collection, position, rate_limit } = answer;
        let fixed = &self.fixed[usize::from(collection.0)];
        out.extend_from_slice(&fixed.part(false, 404).text);
        if let Some(position) = position {
            self.write_position(position, out);
        }
        if let Some(fields) = rate_limit {
            fields.write(out);
        }
        absent_written()
    }

    fn write_position(&self, position: Position, out: &mut Vec<u8>) {
        let mut last = self.position.borrow_mut();
        let (written, line) = &mut *last;
        if *written != Some(position) {
            line.clear();
            line.extend_from_slice(b"hotrow-position: ");
            write::hexadecimal(line, position.incarnation);
            line.push(b'-');
            write::decimal(line, position.at);
            line.extend_from_slice(b"\r\n");
            *written = Some(position);
        }
        out.extend_from_slice(line);
    }
}
