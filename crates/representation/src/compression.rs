//! Compressed answers of single records.
//!
//! A worker sends what the entry has: it never compresses. The second request that would take a
//! coding puts the record into a bounded queue; a background thread compresses it, and the entry
//! keeps the variant within the cache's capacity until it ends.

mod compressor;
mod encode;
mod negotiation;

use hotrow_cache::{Presence, Record};
use hotrow_config::Compression;
use hotrow_http1::fields::Fields;

use crate::record_form::RecordForm;

pub use self::compressor::{Compressor, start};

const ACCEPT_ENCODING: &str = "accept-encoding";

/// Returns the coding that a request with these values of `Accept-Encoding` gets, if the entry has
/// both.
pub fn chosen<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<hotrow_cache::ContentCoding> {
    use hotrow_cache::ContentCoding::{Gzip, Zstd};
    negotiation::Accepted::parse(fields).best(&[Zstd, Gzip], |_| true)
}

impl Compressor {
    /// Returns the form of a record that a request gets, and has a better one made if requests keep
    /// asking for it. Small records, and those of collections without compression, cost two
    /// comparisons.
    #[inline]
    pub fn form(
        &self,
        record: Record,
        compression: Option<&Compression>,
        headers: Fields<'_>,
    ) -> RecordForm {
        match compression {
            Some(compression)
                if record.body().len() as u64 >= compression.bytes_min
                    && headers.contains(ACCEPT_ENCODING) =>
            {
                self.negotiated(record, compression, headers)
            }
            _ => record.into(),
        }
    }

    #[cold]
    fn negotiated(
        &self,
        record: Record,
        compression: &Compression,
        headers: Fields<'_>,
    ) -> RecordForm {
        if record.presence() == Presence::Missing {
            return record.into();
        }
        let accepted = negotiation::Accepted::parse(headers.get_all(ACCEPT_ENCODING));
        let mut best = accepted.best(&compression.codings, |_| true);
        if let Some(coding) = best
            && record.variant(coding).is_none()
        {
            if record.ask_for_variant(coding) {
                self.offer(&record, coding);
            }
            best = accepted.best(&compression.codings, |coding| record.variant(coding).is_some());
        }
        RecordForm::new(record, best)
    }
}
