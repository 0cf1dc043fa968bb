//! Change events as MongoDB documents them, and their resume tokens.
//! Source: MongoDB's manual, "Change Events"; the tokens' form as servers 4.2 to 6.0 write it: hexadecimal, a type byte
//! 0x82, eight bytes of cluster time, the rest the server's own.

use std::fmt::Write as _;

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc, raw::cstr};

use super::failure::Failure;
use super::store::{Entry, What, timestamp};

/// A point in a stream: cluster time and place within it. What is at it and before it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) index: u32,
}

impl Place {
    /// After everything of this time.
    pub(super) fn end_of(at: u64) -> Self {
        Self { at, index: u32::MAX }
    }
}

/// What a token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) place: Place,
    pub(super) of: Of,
}

/// What a token is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// No event: a time, before whatever happens at it.
    Watermark,
    Event,
    Invalidate,
}

const TIMESTAMP: &str = "82";
const VERSION: &str = "2B02";
const WATERMARK_END: &str = "2B0229296E04";
const EVENT: &str = "2C0100";

impl Token {
    pub(super) fn watermark(at: u64) -> Self {
        Self { place: Place::end_of(at.saturating_sub(1)), of: Of::Watermark }
    }

    pub(super) fn document(&self, uuid: &[u8; 16]) -> Document {
        let at = if self.of == Of::Watermark { self.place.at + 1 } else { self.place.at };
        let mut text = format!("{TIMESTAMP}{at:016X}");
        if self.of == Of::Watermark {
            text.push_str(WATERMARK_END);
            return doc! { "_data": text };
        }
        text.push_str(VERSION);
        text.push_str(EVENT);
        // A KeyString's number: zero, or its length and twice the number.
        _ = match self.place.index {
            0 => write!(text, "29"),
            n => write!(text, "2E{:08X}", n << 1),
        };
        text.push_str(if self.of == Of::Invalidate { "6F" } else { "6E" });
        text.push_str("5A1004");
        uuid.iter().for_each(|byte| _ = write!(text, "{byte:02X}"));
        text.push_str("04");
        doc! { "_data": text }
    }

    pub(super) fn parse(document: &Document) -> Result<Self, Failure> {
        Self::read(document).ok_or_else(|| Failure::new(260, "InvalidResumeToken", "invalid resume token"))
    }

    fn read(document: &Document) -> Option<Self> {
        let rest = document.get_str("_data").ok()?.strip_prefix(TIMESTAMP)?;
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
        let of = if rest.starts_with("6F") { Of::Invalidate } else { Of::Event };
        Some(Self { place: Place { at, index }, of })
    }
}

/// Which documents an update's event carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Inserted and replaced ones.
    Default,
    /// Also what an updated one is when it is looked up.
    Lookup,
}

/// The event of a line of the oplog. `looked_up`: the document as it is now.
pub(super) fn event(entry: &Entry, looked_up: Option<&RawDocumentBuf>) -> Result<RawDocumentBuf, Failure> {
    let place = Place { at: entry.at, index: entry.index };
    let token = Token { place, of: Of::Event }.document(&entry.uuid);
    let ns = if entry.ns.1.is_empty() {
        doc! { "db": &entry.ns.0 }
    } else {
        doc! { "db": &entry.ns.0, "coll": &entry.ns.1 }
    };
    let kind = match entry.what {
        What::Insert => "insert",
        What::Update(_) => "update",
        What::Replace => "replace",
        What::Delete => "delete",
        What::Drop => "drop",
        What::Rename(_) => "rename",
        What::DropDatabase => "dropDatabase",
    };
    let mut event = head(&token, kind, entry.at)?;
    match &entry.what {
        What::Insert | What::Replace => {
            if let Some(full) = &entry.full {
                event.append(cstr!("fullDocument"), full.as_ref());
            }
        }
        What::Update(_) => {
            if let Some(full) = looked_up {
                event.append(cstr!("fullDocument"), full);
            }
        }
        _ => {}
    }
    event.append(cstr!("ns"), &raw(&ns)?);
    if let What::Rename((db, coll)) = &entry.what {
        event.append(cstr!("to"), &raw(&doc! { "db": db, "coll": coll })?);
    }
    if let Some(id) = &entry.id {
        event.append(cstr!("documentKey"), &raw(&doc! { "_id": id.clone() })?);
    }
    if let What::Update(description) = &entry.what {
        event.append(cstr!("updateDescription"), &raw(description)?);
    }
    Ok(event)
}

/// The last event of a stream whose collection or database went.
pub(super) fn invalidate(entry: &Entry) -> Result<RawDocumentBuf, Failure> {
    let place = Place { at: entry.at, index: entry.index };
    head(&Token { place, of: Of::Invalidate }.document(&entry.uuid), "invalidate", entry.at)
}

fn head(token: &Document, kind: &str, at: u64) -> Result<RawDocumentBuf, Failure> {
    let wall = Bson::DateTime(DateTime::from_millis(((at >> 32) * 1000) as i64));
    raw(&doc! { "_id": token, "operationType": kind, "clusterTime": timestamp(at), "wallTime": wall })
}

fn raw(fields: &Document) -> Result<RawDocumentBuf, Failure> {
    RawDocumentBuf::try_from(fields).map_err(|e| Failure::bad_value(&e.to_string()))
}
