//! The same heads as fields of HTTP/2: what all records of a collection share is encoded once, and
//! the record adds its own values.

use hotrow_cache::ContentCoding;
use hotrow_http1::write;
use hotrow_http2::hpack::encoder::{self, name};
use hotrow_representation::record_form::{etag, tag_suffix};
use hotrow_representation::surrogate_key::Sharing;
use hotrow_types::version::Position;

use super::{AbsentAnswer, RecordAnswer, RecordHeads};
use crate::body::Body;
use crate::respond::age_seconds;
use crate::written::Written;

impl RecordHeads {
    /// Writes the fields of an answer. `text` is memory that is used again.
    pub fn write_fields(
        &self,
        answer: RecordAnswer,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        let status = answer.status();
        let record = answer.form.record();
        let fixed = &self.fixed[usize::from(record.collection().0)];
        text.clear();
        let keys = fixed.write_keys(&answer, text);
        let is_kept = keys.is_some() || answer.sharing == Sharing::AsConfigured;
        out.extend_from_slice(&fixed.part(is_kept, status).fields);
        if let Some(keys) = keys {
            encoder::named_field(out, keys.field().as_bytes(), text);
        }
        if status != 404 {
            write_tag(answer.hash(), answer.form.coding(), status, out);
        }
        let age = age_seconds(answer.provenance.age);
        encoder::field(out, name::AGE, itoa::Buffer::new().format(age).as_bytes());
        encoder::named_field(out, b"hotrow-cache", answer.provenance.outcome.label().as_bytes());
        if let Some(position) = record.position() {
            self.write_position_field(position, out);
        }
        if let Some(fields) = &answer.rate_limit {
            text.clear();
            fields.write(text);
            encoder::fields(out, text);
        }
        answer.into_written(status)
    }

    /// Writes the fields of an answer without a record. They show nothing of the entry behind it.
    pub fn write_absent_fields(
        &self,
        answer: AbsentAnswer,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Written<Body> {
        let AbsentAnswer { collection, position, rate_limit } = answer;
        out.extend_from_slice(&self.fixed[usize::from(collection.0)].part(false, 404).fields);
        if let Some(position) = position {
            self.write_position_field(position, out);
        }
        if let Some(fields) = rate_limit {
            text.clear();
            fields.write(text);
            encoder::fields(out, text);
        }
        super::absent_written()
    }

    fn write_position_field(&self, position: Position, out: &mut Vec<u8>) {
        let mut last = self.position_field.borrow_mut();
        let (written, field) = &mut *last;
        if *written != Some(position) {
            field.clear();
            let mut value = Vec::with_capacity(Position::TEXT_BYTES_MAX);
            write::hexadecimal(&mut value, position.incarnation);
            value.push(b'-');
            write::decimal(&mut value, position.at);
            encoder::named_field(field, b"hotrow-position", &value);
            *written = Some(position);
        }
        out.extend_from_slice(field);
    }
}

fn write_tag(hash: u64, coding: Option<ContentCoding>, status: u16, out: &mut Vec<u8>) {
    let tag = etag(hash);
    let Some(coding) = coding else { return encoder::field(out, name::ETAG, &tag) };
    let (closed, _) = tag.split_at(tag.len() - 1);
    let tag = [closed, tag_suffix(Some(coding)).as_bytes(), b"\""].concat();
    encoder::field(out, name::ETAG, &tag);
    if status == 200 {
        encoder::field(out, name::CONTENT_ENCODING, coding.label().as_bytes());
    }
}
