//! Request bytes that a socket did not accept at once.

use std::sync::Arc;

/// A remainder of at least this length is kept as a reference to the prepared request instead of a
/// copy, so that a large body is in memory once for all connections.
const SHARED_BYTES_MIN: usize = 16 * 1024;
/// Written bytes at the front of the copies are dropped when there are at least this many and half
/// of all. Each byte is thus moved once on average, however small the accepted portions are.
const WRITTEN_BYTES_MIN: usize = 64 * 1024;

/// The unwritten bytes of a connection: first the shared remainder, then the copies.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    shared: Option<(Arc<[u8]>, usize)>,
    copies: Vec<u8>,
    /// Written bytes of the copies.
    written: usize,
}

impl Outbox {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.is_none() && self.written == self.copies.len()
    }

    /// Adds `bytes` starting at `from`. `whole` is the same bytes, where they may be kept by
    /// reference.
    pub(crate) fn push(&mut self, bytes: &[u8], whole: Option<&Arc<[u8]>>, from: usize) {
        match whole {
            Some(whole) if self.is_empty() && whole.len() - from >= SHARED_BYTES_MIN => {
                self.shared = Some((whole.clone(), from));
            }
            _ => self.copies.extend_from_slice(&bytes[from..]),
        }
    }

    /// Returns the next bytes to write; empty when there are none.
    pub(crate) fn front(&self) -> &[u8] {
        match &self.shared {
            Some((bytes, at)) => &bytes[*at..],
            None => &self.copies[self.written..],
        }
    }

    /// Marks the first `n` bytes of [`Outbox::front`] as written. Returns how many other bytes were
    /// moved.
    pub(crate) fn wrote(&mut self, n: usize) -> usize {
        if let Some((bytes, at)) = &mut self.shared {
            *at += n;
            if *at == bytes.len() {
                self.shared = None;
            }
            return 0;
        }
        self.written += n;
        let left = self.copies.len() - self.written;
        if left == 0 {
            self.written = 0;
            self.copies.clear();
            // The memory of a large request must be freed.
            self.copies.shrink_to(WRITTEN_BYTES_MIN);
            return 0;
        }
        if self.written < WRITTEN_BYTES_MIN || self.written < left {
            return 0;
        }
        self.copies.drain(..std::mem::take(&mut self.written));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes everything in portions of `n` bytes; returns the bytes and how many were moved.
    fn drain(outbox: &mut Outbox, n: usize) -> (Vec<u8>, usize) {
        let (mut all, mut moved) = (Vec::new(), 0);
        while !outbox.is_empty() {
            let portion = outbox.front().len().min(n);
            all.extend_from_slice(&outbox.front()[..portion]);
            moved += outbox.wrote(portion);
        }
        assert!(outbox.front().is_empty());
        (all, moved)
    }

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let large: Arc<[u8]> = (0..100_000_u32).map(|i| i as u8).collect();
        let small: Arc<[u8]> = b"small".to_vec().into();
        let mut outbox = Outbox::default();
        outbox.push(&large, Some(&large), 10);
        outbox.push(&small, Some(&small), 0);
        outbox.push(&large, Some(&large), 0);
        assert_eq!(outbox.copies.len(), 100_005, "the first is not copied, those behind it are");
        assert_eq!(drain(&mut outbox, 999).0, [&large[10..], &small, &large].concat());
        assert!(outbox.copies.capacity() <= WRITTEN_BYTES_MIN);
    }

    /// A body of 64 MiB in portions of 4 KiB: moving the remainder for each would move half a
    /// tebibyte.
    #[test]
    fn a_large_body_is_not_moved_again_and_again() {
        let body: Arc<[u8]> = vec![7; 64 << 20].into();
        let mut outbox = Outbox::default();
        outbox.push(&body, Some(&body), 1);
        assert_eq!(drain(&mut outbox, 4096).1, 0, "shared");
        outbox.push(&body, None, 1);
        let (all, moved) = drain(&mut outbox, 4096);
        assert_eq!(all.len(), body.len() - 1);
        assert!(moved <= body.len(), "{moved} bytes moved");
    }
}
