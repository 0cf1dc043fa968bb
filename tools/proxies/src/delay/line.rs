//! Delay line: bytes in transit in one direction. Time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Bytes in transit in one direction of a connection: 100 MB/s at 10 ms one-way delay.
pub const BUFFERED_BYTES_MAX: usize = 1 << 20;
/// Pieces in transit in one direction; bounds the memory that many small pieces take.
pub(super) const PIECES_MAX: usize = 4_096;

/// Queue of bytes, each due a fixed time after it was put in.
#[derive(Debug)]
pub(super) struct DelayLine {
    delay: Duration,
    bytes: VecDeque<u8>,
    /// Due time and length of each piece, in order.
    pieces: VecDeque<(Nanos, usize)>,
    /// End of the stream, after all bytes.
    end: Option<(Nanos, StreamEnd)>,
}

/// Kind of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// All bytes were sent.
    Closed,
    /// The connection was reset.
    Reset,
}

/// Arrived bytes or end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<'a> {
    /// Bytes to [`DelayLine::take`], in part or whole.
    Bytes(&'a [u8]),
    /// End of the stream.
    End(StreamEnd),
}

impl DelayLine {
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay, bytes: VecDeque::new(), pieces: VecDeque::new(), end: None }
    }

    /// Returns how many bytes may be put in.
    pub(super) fn room(&self) -> usize {
        let closed = self.end.is_some() || self.pieces.len() >= PIECES_MAX;
        if closed { 0 } else { BUFFERED_BYTES_MAX - self.bytes.len() }
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds bytes, at most [`DelayLine::room`]; none may follow an end.
    pub(super) fn put(&mut self, bytes: &[u8], now: Nanos) {
        let bytes = &bytes[..bytes.len().min(self.room())];
        if !bytes.is_empty() {
            self.bytes.extend(bytes);
            self.pieces.push_back((now.after(self.delay), bytes.len()));
        }
    }

    /// Marks the end. A reset replaces an ordinary end but never bytes.
    pub(super) fn end(&mut self, end: StreamEnd, now: Nanos) {
        if self.end.is_none_or(|(_, is)| is == StreamEnd::Closed && end == StreamEnd::Reset) {
            self.end = Some((now.after(self.delay), end));
        }
    }

    /// Returns the time of the next arrival.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.pieces.front().map(|(at, _)| *at).or(self.end.map(|(at, _)| at))
    }

    /// Returns what has arrived and was not taken.
    pub(super) fn arrived(&self, now: Nanos) -> Option<Arrival<'_>> {
        if self.pieces.is_empty() {
            return self.end.filter(|(at, _)| *at <= now).map(|(_, end)| Arrival::End(end));
        }
        let due: usize = self.pieces.iter().take_while(|(at, _)| *at <= now).map(|(_, n)| n).sum();
        let (first, _) = self.bytes.as_slices();
        (due > 0).then(|| Arrival::Bytes(&first[..due.min(first.len())]))
    }

    /// Returns whether a reset has arrived, even behind bytes that are not taken.
    pub(super) fn is_reset(&self, now: Nanos) -> bool {
        self.end.is_some_and(|(at, end)| end == StreamEnd::Reset && at <= now)
    }

    /// Removes the first `n` bytes.
    pub(super) fn take(&mut self, n: usize) {
        let mut left = n.min(self.bytes.len());
        self.bytes.drain(..left);
        while let Some((_, piece)) = self.pieces.front_mut() {
            if *piece > left {
                *piece -= left;
                return;
            }
            left -= *piece;
            self.pieces.pop_front();
        }
    }

    /// Drops all bytes in transit, when there is no receiver.
    pub(super) fn discard(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Nanos {
        Nanos(1).after(MS * ms)
    }

    #[test]
    fn bytes_arrive_after_the_delay_and_in_order() {
        let mut line = DelayLine::new(10 * MS);
        assert_eq!(line.next_due(), None);
        line.put(b"ab", at(0));
        line.put(b"cd", at(4));
        line.end(StreamEnd::Closed, at(5));
        assert_eq!(line.next_due(), Some(at(10)));
        assert_eq!(line.arrived(at(9)), None);
        assert_eq!(line.arrived(at(10)), Some(Arrival::Bytes(b"ab")));
        line.take(1);
        assert_eq!(line.arrived(at(13)), Some(Arrival::Bytes(b"b")));
        assert_eq!(line.arrived(at(14)), Some(Arrival::Bytes(b"bcd")));
        line.take(2);
        assert_eq!((line.arrived(at(14)), line.buffered_bytes()), (Some(Arrival::Bytes(b"d")), 1));
        line.take(1);
        assert_eq!((line.arrived(at(14)), line.next_due()), (None, Some(at(15))));
        assert_eq!(line.arrived(at(15)), Some(Arrival::End(StreamEnd::Closed)));
    }

    #[test]
    fn bytes_and_pieces_are_bounded() {
        let mut line = DelayLine::new(MS);
        line.put(&vec![7; BUFFERED_BYTES_MAX + 1], at(0));
        assert_eq!((line.room(), line.buffered_bytes()), (0, BUFFERED_BYTES_MAX));
        line.take(5);
        assert_eq!(line.room(), 5);
        let mut line = DelayLine::new(MS);
        for _ in 0..=PIECES_MAX {
            line.put(b"x", at(0));
        }
        assert_eq!((line.room(), line.buffered_bytes()), (0, PIECES_MAX));
    }

    #[test]
    fn only_a_reset_follows_an_end() {
        let mut line = DelayLine::new(MS);
        line.put(b"a", at(0));
        line.end(StreamEnd::Closed, at(0));
        line.put(b"b", at(0));
        line.end(StreamEnd::Reset, at(2));
        line.end(StreamEnd::Closed, at(9));
        assert_eq!(line.buffered_bytes(), 1);
        line.take(1);
        assert_eq!(
            (line.arrived(at(2)), line.arrived(at(3))),
            (None, Some(Arrival::End(StreamEnd::Reset)))
        );
    }

    #[test]
    fn bytes_that_wrap_around_the_ring_stay_in_order() {
        let mut line = DelayLine::new(MS);
        let (mut sent, mut received) = (0u8, Vec::new());
        for ms in 0..10_000 {
            let bytes: Vec<u8> = (0..7)
                .map(|_| {
                    sent = sent.wrapping_add(1);
                    sent
                })
                .collect();
            line.put(&bytes, at(ms));
            if let Some(Arrival::Bytes(bytes)) = line.arrived(at(ms)) {
                let n = bytes.len().min(5 + ms as usize % 4);
                received.extend_from_slice(&bytes[..n]);
                line.take(n);
            }
        }
        assert!(received.len() > 50_000, "{}", received.len());
        assert!(received.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
    }
}
