//! What is on its way in one direction. Time comes in as an argument.

use std::collections::VecDeque;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

/// Bytes on their way in one direction of a connection: at 10 ms each way, 100 MB/s.
pub const HELD_MAX: usize = 1 << 20;
/// Pieces on their way in one direction: many small ones must not take more than many bytes do.
pub(super) const PIECES_MAX: usize = 4_096;

/// A queue of bytes that are due a fixed time after they were put in.
#[derive(Debug)]
pub(super) struct Line {
    delay: Duration,
    bytes: VecDeque<u8>,
    /// When how many bytes are due, in order.
    pieces: VecDeque<(Nanos, usize)>,
    /// Behind all bytes.
    end: Option<(Nanos, End)>,
}

/// How a direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All was sent.
    Closed,
    /// The connection broke.
    Reset,
}

/// What has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival<'a> {
    /// These bytes, of which as many as can be are to be [`Line::take`]n.
    Bytes(&'a [u8]),
    /// The end.
    End(End),
}

impl Line {
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay, bytes: VecDeque::new(), pieces: VecDeque::new(), end: None }
    }

    /// How many bytes may be put in.
    pub(super) fn room(&self) -> usize {
        let closed = self.end.is_some() || self.pieces.len() >= PIECES_MAX;
        if closed { 0 } else { HELD_MAX - self.bytes.len() }
    }

    pub(super) fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Puts bytes in, at most as many as there is [`Line::room`] for; none may follow an end.
    pub(super) fn put(&mut self, bytes: &[u8], now: Nanos) {
        let bytes = &bytes[..bytes.len().min(self.room())];
        if !bytes.is_empty() {
            self.bytes.extend(bytes);
            self.pieces.push_back((now.after(self.delay), bytes.len()));
        }
    }

    /// Nothing more will come. A reset overtakes what is only closed, no bytes.
    pub(super) fn end(&mut self, end: End, now: Nanos) {
        if self.end.is_none_or(|(_, is)| is == End::Closed && end == End::Reset) {
            self.end = Some((now.after(self.delay), end));
        }
    }

    /// When the next arrives.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.pieces.front().map(|(at, _)| *at).or(self.end.map(|(at, _)| at))
    }

    /// What has arrived and was not taken.
    pub(super) fn arrived(&self, now: Nanos) -> Option<Arrival<'_>> {
        if self.pieces.is_empty() {
            return self.end.filter(|(at, _)| *at <= now).map(|(_, end)| Arrival::End(end));
        }
        let due: usize = self.pieces.iter().take_while(|(at, _)| *at <= now).map(|(_, n)| n).sum();
        let (first, _) = self.bytes.as_slices();
        (due > 0).then(|| Arrival::Bytes(&first[..due.min(first.len())]))
    }

    /// Whether a reset has arrived, even if nobody takes the bytes before it.
    pub(super) fn is_reset(&self, now: Nanos) -> bool {
        self.end.is_some_and(|(at, end)| end == End::Reset && at <= now)
    }

    /// Takes the first `n` bytes out.
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

    /// Nobody is there to receive: what is on its way is lost.
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
        let mut line = Line::new(10 * MS);
        assert_eq!(line.next_due(), None);
        line.put(b"ab", at(0));
        line.put(b"cd", at(4));
        line.end(End::Closed, at(5));
        assert_eq!(line.next_due(), Some(at(10)));
        assert_eq!(line.arrived(at(9)), None);
        assert_eq!(line.arrived(at(10)), Some(Arrival::Bytes(b"ab")));
        line.take(1);
        assert_eq!(line.arrived(at(13)), Some(Arrival::Bytes(b"b")));
        assert_eq!(line.arrived(at(14)), Some(Arrival::Bytes(b"bcd")));
        line.take(2);
        assert_eq!((line.arrived(at(14)), line.held()), (Some(Arrival::Bytes(b"d")), 1));
        line.take(1);
        assert_eq!((line.arrived(at(14)), line.next_due()), (None, Some(at(15))));
        assert_eq!(line.arrived(at(15)), Some(Arrival::End(End::Closed)));
    }

    #[test]
    fn it_is_bounded_in_bytes_and_in_pieces() {
        let mut line = Line::new(MS);
        line.put(&vec![7; HELD_MAX + 1], at(0));
        assert_eq!((line.room(), line.held()), (0, HELD_MAX));
        line.take(5);
        assert_eq!(line.room(), 5);
        let mut line = Line::new(MS);
        for _ in 0..=PIECES_MAX {
            line.put(b"x", at(0));
        }
        assert_eq!((line.room(), line.held()), (0, PIECES_MAX));
    }

    #[test]
    fn nothing_follows_an_end_but_a_reset() {
        let mut line = Line::new(MS);
        line.put(b"a", at(0));
        line.end(End::Closed, at(0));
        line.put(b"b", at(0));
        line.end(End::Reset, at(2));
        line.end(End::Closed, at(9));
        assert_eq!(line.held(), 1);
        line.take(1);
        assert_eq!((line.arrived(at(2)), line.arrived(at(3))), (None, Some(Arrival::End(End::Reset))));
    }

    #[test]
    fn what_is_taken_around_the_ring_stays_in_order() {
        let mut line = Line::new(MS);
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
