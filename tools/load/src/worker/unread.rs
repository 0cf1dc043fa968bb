//! Responses that have arrived and that this thread has not read yet: its own share of the service
//! time.

use std::os::fd::OwnedFd;

use crate::connection::{Connection, ConnectionPhase};
use crate::outcome::Unread;

/// Time between two samples.
const SAMPLE_INTERVAL_NS: u64 = 100_000_000;
/// Most connections queried per sample; the next sample continues behind them. At about 0.2 µs
/// each, sampling costs less than a thousandth of the thread's time.
const SAMPLED_CONNECTIONS_MAX: usize = 64;

/// Samples of one thread's receive buffers.
#[derive(Debug, Default)]
pub(super) struct UnreadSampler {
    /// Unread responses on waking, without the one that woke the thread.
    pub(super) before: Unread,
    /// Unread responses after all known events were processed.
    pub(super) after: Unread,
    /// Time runnable: awake, or asleep for longer than intended.
    pub(super) wanted_ns: u64,
    woke_ns: u64,
    due: bool,
    next_ns: u64,
    next_index: usize,
}

impl UnreadSampler {
    /// Records a sleep from `asleep_ns` to `woke_ns`, intended until `until_ns` or an event.
    #[inline]
    pub(super) fn slept(&mut self, asleep_ns: u64, until_ns: u64, woke_ns: u64) {
        if self.woke_ns > 0 {
            self.wanted_ns += asleep_ns.saturating_sub(self.woke_ns);
        }
        self.wanted_ns += woke_ns.saturating_sub(until_ns.max(asleep_ns));
        self.woke_ns = woke_ns;
    }

    /// Takes a sample if one is due, on waking and before any read. A high count means that the
    /// thread should have woken earlier, or that the target answers several requests at once; a low
    /// count shows that the thread is not late.
    #[inline]
    pub(super) fn before_reading(&mut self, connections: &[Connection], now_ns: u64) {
        self.due = now_ns >= self.next_ns;
        if self.due {
            self.next_ns = now_ns + SAMPLE_INTERVAL_NS;
            let mut found =
                self.look(connections, |socket| rustix::io::ioctl_fionread(socket).ok());
            if found.unread > 0 {
                (found.unread, found.awaited) = (found.unread - 1, found.awaited - 1);
            }
            self.before.add(found);
        }
    }

    /// Samples the same connections after all known events were processed and before any send.
    /// Unread bytes arrived while the thread was busy; they are no response to its latest sends.
    #[inline]
    pub(super) fn after_reading(&mut self, connections: &[Connection]) {
        if std::mem::take(&mut self.due) {
            let found = self.look(connections, |socket| rustix::io::ioctl_fionread(socket).ok());
            self.after.add(found);
            self.next_index =
                (self.next_index + SAMPLED_CONNECTIONS_MAX) % connections.len().max(1);
        }
    }

    fn look(
        &self,
        connections: &[Connection],
        unread_bytes: impl Fn(&OwnedFd) -> Option<u64>,
    ) -> Unread {
        let mut found = Unread::default();
        let (later, earlier) = connections.split_at(self.next_index.min(connections.len()));
        let in_turn = earlier.iter().chain(later).take(SAMPLED_CONNECTIONS_MAX);
        for connection in in_turn.filter(|c| c.phase == ConnectionPhase::Open && c.is_awaiting()) {
            if let Some(bytes) =
                connection.stream.as_ref().and_then(|stream| unread_bytes(stream.socket()))
            {
                found.awaited += 1;
                found.unread += u64::from(bytes > 0);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::plan::Slot;
    use crate::sent_request::SentRequest;
    use crate::stream::Stream;

    fn awaiting(socket: UnixStream) -> Connection {
        let sent = SentRequest {
            slot: Slot { intended_ns: 0, measured: true },
            sent_ns: 0,
            first_byte_ns: 0,
            idempotent: true,
            has_body: true,
        };
        let stream = Some(Stream::Plain(socket.into()));
        Connection {
            stream,
            phase: ConnectionPhase::Open,
            sent: [sent].into(),
            ..Connection::default()
        }
    }

    #[test]
    fn unread_bytes_are_found_and_idle_connections_are_skipped() {
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let (mut far, near): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut connections: Vec<Connection> = near.into_iter().map(awaiting).collect();
        connections[3].sent.clear();
        far[1].write_all(b"HTTP/1.1 200").unwrap();
        far[3].write_all(b"unrequested").unwrap();
        let mut unread_sampler = UnreadSampler::default();
        let mut both = |now_ns| {
            unread_sampler.before_reading(&connections, now_ns);
            unread_sampler.after_reading(&connections);
            (unread_sampler.before, unread_sampler.after)
        };
        let seen = |awaited, unread| Unread { awaited, unread };
        assert_eq!(both(0), (seen(2, 0), seen(3, 1)), "one is what woke it");
        assert_eq!(both(SAMPLE_INTERVAL_NS - 1), (seen(2, 0), seen(3, 1)), "not time yet");
        assert_eq!(both(SAMPLE_INTERVAL_NS), (seen(4, 0), seen(6, 2)));
    }

    #[test]
    fn time_awake_and_overslept_is_time_it_wanted_to_run() {
        let mut unread_sampler = UnreadSampler::default();
        unread_sampler.slept(1000, 5000, 4000);
        assert_eq!(
            unread_sampler.wanted_ns, 0,
            "woken before its time; what was before the first sleep is not known"
        );
        unread_sampler.slept(4300, 5000, 5100);
        assert_eq!(unread_sampler.wanted_ns, 300 + 100);
        unread_sampler.slept(5200, 5150, 5201);
        assert_eq!(unread_sampler.wanted_ns, 400 + 100 + 1);
    }

    #[test]
    fn looks_go_round_and_are_bounded() {
        let (_far, near): (Vec<_>, Vec<_>) = (0..100).map(|_| UnixStream::pair().unwrap()).unzip();
        let connections: Vec<Connection> = near.into_iter().map(awaiting).collect();
        let mut unread_sampler = UnreadSampler::default();
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        for round in 0..2 {
            let found = unread_sampler.look(&connections, |socket| {
                asked.borrow_mut().insert(std::os::fd::AsRawFd::as_raw_fd(socket));
                Some(0)
            });
            assert_eq!(found.awaited, SAMPLED_CONNECTIONS_MAX as u64);
            unread_sampler.before_reading(&connections, round * SAMPLE_INTERVAL_NS);
            unread_sampler.after_reading(&connections);
        }
        assert_eq!(asked.borrow().len(), 100);
    }
}
