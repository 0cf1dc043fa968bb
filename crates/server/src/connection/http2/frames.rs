//! What a client sends, seen as frames (RFC 9113 section 4.1): whether a head is incomplete, and
//! how many frames do nothing for a request. Decisions only; the time is passed in.
//!
//! `h2` bounds what a connection may hold, and resets. It answers pings, settings and empty frames
//! as fast as they come, so those are counted here.

use hotrow_measure::clock::Nanos;

/// Length of the preface.
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
/// Control frames that a connection may send at once, and per second.
pub(super) const CONTROL_FRAMES_BURST: u32 = 1_000;
const CONTROL_FRAMES_PER_S: u64 = 100;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// State of a client's frames. Of no use after a flood.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// Bytes of the preface or a payload that are still to come.
    skip: usize,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    is_head_open: bool,
    control_left: u32,
    refilled: Nanos,
}

/// Outcome of a piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Fine,
    /// More control frames than allowed.
    Flood,
}

impl Frames {
    /// Begins before the preface, at `now`.
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            skip: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            is_head_open: false,
            control_left: CONTROL_FRAMES_BURST,
            refilled: now,
        }
    }

    /// Returns whether the head of a request has begun and not ended.
    pub(super) fn is_head_open(&self) -> bool {
        self.is_head_open
    }

    /// Follows the frames in `bytes`, which arrived at `now`. What is malformed is refused by
    /// others.
    pub(super) fn follow(&mut self, mut bytes: &[u8], now: Nanos) -> Seen {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let copied = bytes.len().min(HEADER_BYTES - self.header_bytes);
            if self.skip > 0 || copied == 0 {
                break;
            }
            self.header[self.header_bytes..self.header_bytes + copied]
                .copy_from_slice(&bytes[..copied]);
            self.header_bytes += copied;
            bytes = &bytes[copied..];
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                if self.frame(now) == Seen::Flood {
                    return Seen::Flood;
                }
            }
        }
        Seen::Fine
    }

    fn frame(&mut self, now: Nanos) -> Seen {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS | CONTINUATION => {
                self.is_head_open = flags & END_HEADERS == 0;
                Seen::Fine
            }
            DATA if self.skip == 0 && flags & END_STREAM == 0 => self.control(now),
            PRIORITY | SETTINGS | PING => self.control(now),
            // An unknown type is ignored, but not for ever.
            CONTINUATION.. => self.control(now),
            _ => Seen::Fine,
        }
    }

    fn control(&mut self, now: Nanos) -> Seen {
        const INTERVAL_NS: u64 = 1_000_000_000 / CONTROL_FRAMES_PER_S;
        if self.control_left == 0 {
            let due = now.0.saturating_sub(self.refilled.0) / INTERVAL_NS;
            self.control_left = u32::try_from(due).unwrap_or(u32::MAX).min(CONTROL_FRAMES_BURST);
            self.refilled = now;
        }
        match self.control_left.checked_sub(1) {
            Some(left) => {
                self.control_left = left;
                Seen::Fine
            }
            None => Seen::Flood,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos(1_000_000_000);
    const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const RST_STREAM: u8 = 3;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Follows the bytes in pieces of every size up to 12, and returns the common outcome.
    fn follow(bytes: &[u8]) -> (Seen, bool) {
        let mut outcomes: Vec<_> = (1..=12)
            .map(|size| {
                let mut frames = Frames::new(START);
                let pieces = PREFACE.chunks(size).chain(bytes.chunks(size));
                let seen = pieces.map(|piece| frames.follow(piece, START)).max_by_key(|s| *s as u8);
                (seen.unwrap(), frames.is_head_open())
            })
            .collect();
        outcomes.dedup();
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes[0]
    }

    #[test]
    fn a_head_is_open_until_its_last_frame() {
        let begun = frame(HEADERS, END_STREAM, b"block");
        let more = frame(CONTINUATION, 0, b"block");
        let end = frame(CONTINUATION, END_HEADERS, b"");
        assert_eq!(follow(&begun), (Seen::Fine, true));
        assert_eq!(follow(&[&begun[..], &more].concat()), (Seen::Fine, true));
        assert_eq!(follow(&[&begun[..], &more, &end].concat()), (Seen::Fine, false));
        assert_eq!(follow(&frame(HEADERS, END_HEADERS, b"block")), (Seen::Fine, false));
        // Payload that looks like a frame.
        assert_eq!(follow(&frame(DATA, 0, &begun)), (Seen::Fine, false));
    }

    #[test]
    fn control_frames_are_counted_and_others_are_not() {
        let most = CONTROL_FRAMES_BURST as usize;
        for kind in [DATA, PRIORITY, SETTINGS, PING, 10, 255] {
            let one = frame(kind, 0, if kind == DATA { b"" } else { b"12345678" });
            assert_eq!(follow(&one.repeat(most)).0, Seen::Fine, "{kind}");
            assert_eq!(follow(&one.repeat(most + 1)).0, Seen::Flood, "{kind}");
        }
        for (kind, flags, payload) in [
            (DATA, 0, &b"x"[..]),
            (DATA, END_STREAM, b""),
            (HEADERS, END_HEADERS, b"block"),
            (RST_STREAM, 0, b"1234"),
            (WINDOW_UPDATE, 0, b"1234"),
        ] {
            let many = frame(kind, flags, payload).repeat(3 * most);
            assert_eq!(follow(&many).0, Seen::Fine, "{kind}");
        }
    }

    #[test]
    fn the_allowance_grows_with_time_up_to_its_bound() {
        let ping = frame(PING, 0, b"12345678");
        let mut frames = Frames::new(START);
        assert_eq!(frames.follow(PREFACE, START), Seen::Fine);
        let most = CONTROL_FRAMES_BURST as usize;
        assert_eq!(frames.follow(&ping.repeat(most), START), Seen::Fine);
        let later = Nanos(START.0 + 500_000_000);
        assert_eq!(frames.follow(&ping.repeat(50), later), Seen::Fine);
        assert_eq!(frames.clone().follow(&ping, later), Seen::Flood);
        let much_later = Nanos(START.0 + 3_600_000_000_000);
        assert_eq!(frames.follow(&ping.repeat(most), much_later), Seen::Fine);
        assert_eq!(frames.follow(&ping, much_later), Seen::Flood);
    }
}
