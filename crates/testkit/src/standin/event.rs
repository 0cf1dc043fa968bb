//! Change events in MongoDB's documented form, and their resume tokens.
//!
//! Source: MongoDB's manual, "Change Events". Tokens have the form of servers 4.2 to 6.0:
//! hexadecimal, a type byte 0x82, eight bytes of cluster time, the rest server-specific.

use std::fmt::Write as _;

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc, raw::cstr};

use super::failure::Failure;
use super::store::{Entry, Operation, timestamp};

/// Position in a stream: cluster time, and index within it. Entries at or before it are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamPosition {
    pub at: u64,
    pub index: u32,
}

impl StreamPosition {
    /// Returns the position after all entries of this time.
    pub fn end_of(at: u64) -> Self {
        Self { at, index: u32::MAX }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub position: StreamPosition,
    pub kind: TokenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// No event: a time, before all entries at that time.
    Watermark,
    Event,
    Invalidate,
}

/// Form of resume tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenForm {
    /// That of MongoDB.
    Mongodb,
    /// That of another vendor: clients can read nothing in it.
    Opaque,
}

/// Field of an opaque token: MongoDB's text, backwards.
const OPAQUE: &str = "place";

impl TokenForm {
    fn applied_to(self, text: String) -> Document {
        match self {
            Self::Mongodb => doc! { "_data": text },
            Self::Opaque => doc! { OPAQUE: text.chars().rev().collect::<String>() },
        }
    }
}

const TIMESTAMP: &str = "82";
const VERSION: &str = "2B02";
const WATERMARK_END: &str = "2B0229296E04";
const EVENT: &str = "2C0100";

impl Token {
    pub fn watermark(at: u64) -> Self {
        Self { position: StreamPosition::end_of(at.saturating_sub(1)), kind: TokenKind::Watermark }
    }

    pub fn document(&self, uuid: &[u8; 16], form: TokenForm) -> Document {
        let at =
            if self.kind == TokenKind::Watermark { self.position.at + 1 } else { self.position.at };
        let mut text = format!("{TIMESTAMP}{at:016X}");
        if self.kind == TokenKind::Watermark {
            text.push_str(WATERMARK_END);
            return form.applied_to(text);
        }
        text.push_str(VERSION);
        text.push_str(EVENT);
        // A KeyString's number: zero, or its length and twice the number.
        _ = match self.position.index {
            0 => write!(text, "29"),
            n => write!(text, "2E{:08X}", n << 1),
        };
        text.push_str(if self.kind == TokenKind::Invalidate { "6F" } else { "6E" });
        text.push_str("5A1004");
        uuid.iter().for_each(|byte| _ = write!(text, "{byte:02X}"));
        text.push_str("04");
        form.applied_to(text)
    }

    pub fn parse(document: &Document) -> Result<Self, Failure> {
        Self::read(document)
            .ok_or_else(|| Failure::new(260, "InvalidResumeToken", "invalid resume token"))
    }

    fn read(document: &Document) -> Option<Self> {
        let text = match document.get_str(OPAQUE) {
            Ok(backwards) => backwards.chars().rev().collect(),
            Err(_) => document.get_str("_data").ok()?.to_owned(),
        };
        let rest = text.strip_prefix(TIMESTAMP)?;
        let (time, rest) = rest.split_at_checked(16)?;
        let at = u64::from_str_radix(time, 16).ok()?;
        if rest == WATERMARK_END {
            return Some(Self::watermark(at));
        }
        let rest = rest.strip_prefix(VERSION)?.strip_prefix(EVENT)?;
        let (index, rest) = match rest.strip_prefix("29") {
            Some(rest) => (0, rest),
            None => {
                let (digits, rest) = rest.strip_prefix("2E")?.split_at_checked(8)?;
                (u32::from_str_radix(digits, 16).ok()? >> 1, rest)
            }
        };
        let kind = if rest.starts_with("6F") { TokenKind::Invalidate } else { TokenKind::Event };
        Some(Self { position: StreamPosition { at, index }, kind })
    }
}

/// Documents included in the event of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullDocument {
    /// Only inserted and replaced documents.
    Default,
    /// Also the current document of an update.
    Lookup,
}

/// Creates the event of an oplog entry. `looked_up` is the current document.
pub fn event(
    entry: &Entry,
    looked_up: Option<&RawDocumentBuf>,
    form: TokenForm,
) -> Result<RawDocumentBuf, Failure> {
    let position = StreamPosition { at: entry.at, index: entry.index };
    let token = Token { position, kind: TokenKind::Event }.document(&entry.uuid, form);
    let ns = if entry.ns.1.is_empty() {
        doc! { "db": &entry.ns.0 }
    } else {
        doc! { "db": &entry.ns.0, "coll": &entry.ns.1 }
    };
    let kind = match entry.operation {
        Operation::Insert => "insert",
        Operation::Update(_) => "update",
        Operation::Replace => "replace",
        Operation::Delete => "delete",
        Operation::Drop => "drop",
        Operation::Rename(_) => "rename",
        Operation::DropDatabase => "dropDatabase",
    };
    let mut event = head(&token, kind, entry.at)?;
    match &entry.operation {
        Operation::Insert | Operation::Replace => {
            if let Some(full) = &entry.full {
                event.append(cstr!("fullDocument"), full.as_ref());
            }
        }
        Operation::Update(_) => {
            if let Some(full) = looked_up {
                event.append(cstr!("fullDocument"), full);
            }
        }
        _ => {}
    }
    event.append(cstr!("ns"), &raw(&ns)?);
    if let Operation::Rename((db, coll)) = &entry.operation {
        event.append(cstr!("to"), &raw(&doc! { "db": db, "coll": coll })?);
    }
    if let Some(id) = &entry.id {
        event.append(cstr!("documentKey"), &raw(&doc! { "_id": id.clone() })?);
    }
    if let Operation::Update(description) = &entry.operation {
        event.append(cstr!("updateDescription"), &raw(description)?);
    }
    Ok(event)
}

/// Creates the last event of a stream whose collection or database was dropped.
pub fn invalidate(entry: &Entry, form: TokenForm) -> Result<RawDocumentBuf, Failure> {
    let position = StreamPosition { at: entry.at, index: entry.index };
    let token = Token { position, kind: TokenKind::Invalidate }.document(&entry.uuid, form);
    head(&token, "invalidate", entry.at)
}

fn head(token: &Document, kind: &str, at: u64) -> Result<RawDocumentBuf, Failure> {
    let wall = Bson::DateTime(DateTime::from_millis(((at >> 32) * 1000) as i64));
    raw(&doc! {
        "_id": token, "operationType": kind, "clusterTime": timestamp(at), "wallTime": wall,
    })
}

fn raw(fields: &Document) -> Result<RawDocumentBuf, Failure> {
    RawDocumentBuf::try_from(fields).map_err(|e| Failure::bad_value(&e.to_string()))
}
