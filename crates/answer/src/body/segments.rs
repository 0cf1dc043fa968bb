//! Bytes in segments: text made for an answer, and records of the cache. Nothing is concatenated.
//!
//! Independent of HTTP.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use hotrow_representation::record_form::RecordForm;

/// Storage of a segment's bytes.
#[derive(Debug)]
enum Data {
    Text(Bytes),
    Record(RecordForm),
}

/// A range of these bytes.
#[derive(Debug)]
struct Segment {
    data: Data,
    from: usize,
    to: usize,
}

impl Segment {
    fn len(&self) -> usize {
        self.to - self.from
    }

    fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Text(text) => &text[self.from..self.to],
            Data::Record(form) => &form.bytes()[self.from..self.to],
        }
    }
}

/// Consecutive segments. A record is released when its last byte is taken.
#[derive(Debug, Default)]
pub struct Segments {
    queue: VecDeque<Segment>,
    bytes: usize,
}

impl Segments {
    /// Returns the total number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends bytes made for this answer.
    pub fn push_text(&mut self, text: Bytes) {
        let to = text.len();
        self.push(Segment { data: Data::Text(text), from: 0, to });
    }

    /// Appends a record's bytes without a copy.
    pub fn push_record(&mut self, record: impl Into<RecordForm>) {
        let form = record.into();
        let to = form.bytes().len();
        self.push(Segment { data: Data::Record(form), from: 0, to });
    }

    /// Appends other segments.
    pub fn append(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.queue.append(&mut other.queue);
    }

    fn push(&mut self, segment: Segment) {
        if segment.len() > 0 {
            self.bytes += segment.len();
            self.queue.push_back(segment);
        }
    }

    /// Takes segments from the front until they have `bytes_min` bytes or none is left.
    pub fn take_front(&mut self, bytes_min: usize) -> Self {
        let mut front = Self::default();
        while front.bytes < bytes_min
            && let Some(segment) = self.queue.pop_front()
        {
            front.push(segment);
        }
        self.bytes -= front.bytes;
        front
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.queue.front().map_or(&[], Segment::bytes)
    }

    fn advance(&mut self, mut count: usize) {
        // `count` is at most `remaining()`: the contract of `Buf`.
        self.bytes -= count;
        while count > 0
            && let Some(front) = self.queue.front_mut()
        {
            let taken = count.min(front.len());
            front.from += taken;
            count -= taken;
            if front.len() == 0 {
                self.queue.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segments(texts: &[Vec<u8>]) -> (Segments, Vec<u8>) {
        let mut segments = Segments::default();
        texts.iter().for_each(|text| segments.push_text(Bytes::from(text.clone())));
        (segments, texts.concat())
    }

    fn all(mut segments: Segments) -> Vec<u8> {
        segments.copy_to_bytes(segments.remaining()).to_vec()
    }

    proptest! {
        /// Pieces do not change the bytes, and are no larger than needed.
        #[test]
        fn segments_equal_the_whole(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            minimums in prop::collection::vec(1_usize..50, 0..30),
        ) {
            let (mut rest, whole) = segments(&texts);
            let mut out = Vec::new();
            for bytes_min in minimums {
                let piece = rest.take_front(bytes_min);
                prop_assert!(piece.len() >= bytes_min || rest.is_empty());
                let last = piece.queue.back().map_or(0, Segment::len);
                prop_assert!(piece.len() - last < bytes_min);
                out.extend(all(piece));
            }
            out.extend(all(rest));
            prop_assert_eq!(out, whole);
        }

        #[test]
        fn a_buffer_advances_over_segments(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12),
            steps in prop::collection::vec(1_usize..70, 1..30),
        ) {
            let (mut rest, whole) = segments(&texts);
            let mut at = 0;
            for step in steps {
                let step = step.min(rest.remaining());
                rest.advance(step);
                at += step;
                prop_assert_eq!(rest.remaining(), whole.len() - at);
                prop_assert!(whole[at..].starts_with(rest.chunk()));
                prop_assert!(rest.is_empty() || !rest.chunk().is_empty());
            }
        }
    }
}
