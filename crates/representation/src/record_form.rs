//! A record in the form in which it is sent: its body as it is, or one of its variants.

use hotrow_cache::{ContentCoding, Record};
use hotrow_http1::write::hexadecimal_digits;

/// A record and the coding of its body in an answer.
#[derive(Clone, Debug)]
pub struct RecordForm {
    record: Record,
    /// `None`: the body as it is. If the body is sent, the record has the variant.
    coding: Option<ContentCoding>,
}

impl From<Record> for RecordForm {
    #[inline]
    fn from(record: Record) -> Self {
        Self { record, coding: None }
    }
}

impl RecordForm {
    /// Returns the record in this coding, or as it is if it has no such variant.
    #[must_use]
    pub fn new(record: Record, coding: Option<ContentCoding>) -> Self {
        let coding = coding.filter(|coding| record.variant(*coding).is_some());
        Self { record, coding }
    }

    /// Returns the form that a 304 names. It has no body, so the record need not have the variant.
    #[must_use]
    pub fn named(self, coding: Option<ContentCoding>) -> Self {
        Self { coding, ..self }
    }

    /// Returns the record.
    #[inline]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the coding of the body; `None`: as it is.
    #[inline]
    pub fn coding(&self) -> Option<ContentCoding> {
        self.coding
    }

    /// Returns the bytes to send.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self.coding {
            None => self.record.body(),
            Some(coding) => self.record.variant(coding).unwrap_or_default(),
        }
    }
}

/// Returns what follows the hash in the entity tag of a form.
#[inline]
pub fn tag_suffix(coding: Option<ContentCoding>) -> &'static str {
    match coding {
        None => "",
        Some(ContentCoding::Gzip) => "-gzip",
        Some(ContentCoding::Zstd) => "-zstd",
    }
}

/// Length of an entity tag of a body without a coding: 16 digits in quotation marks.
const ETAG_BYTES: usize = 18;

/// Returns the entity tag of a body with this hash.
#[inline]
pub fn etag(hash: u64) -> [u8; ETAG_BYTES] {
    let mut tag = [b'"'; ETAG_BYTES];
    tag[1..ETAG_BYTES - 1].copy_from_slice(&hexadecimal_digits(hash));
    tag
}
