//! Parts of the binary form, written.

use crate::tag::Tag;

/// Bytes of a message under way. Lengths are bounded by the limits of `message`, so that they fit.
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::with_capacity(256) }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn short(&mut self, number: u16) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn wide(&mut self, number: u128) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn tag(&mut self, tag: Tag) {
        self.wide(tag.0);
    }

    /// Writes a number of elements.
    pub(super) fn count(&mut self, count: usize) {
        self.bytes.extend_from_slice(&(count as u32).to_be_bytes());
    }

    pub(super) fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.blob(text.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.count(values.len());
        for value in values {
            write(self, value);
        }
    }
}
