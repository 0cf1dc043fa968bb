//! Answers that have come and that this thread has not read yet: the share of the waiting that is its own.

use std::os::fd::OwnedFd;

use crate::connection::{Connection, Phase};
use crate::outcome::Unread;

/// Time between two looks.
const LOOK_NS: u64 = 100_000_000;
/// Most connections that one look asks the kernel about; the next look goes on behind them. At about 0.2 µs each, looking
/// costs less than a thousandth of the thread's time.
const LOOK_CONNECTIONS: usize = 64;

/// One thread's looks into its receive buffers.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// What lay there when the thread woke, without the answer that woke it.
    pub(super) before: Unread,
    /// What lay there when it had read all that it knew of.
    pub(super) after: Unread,
    /// Time in which it wanted to run: awake, or asleep for longer than it meant to be.
    pub(super) wanted_ns: u64,
    woke_ns: u64,
    due: bool,
    next_ns: u64,
    next_index: usize,
}

impl Looks {
    /// The thread slept from `asleep_ns` to `woke_ns`, and meant to wake at `until_ns` or when something happened.
    #[inline]
    pub(super) fn slept(&mut self, asleep_ns: u64, until_ns: u64, woke_ns: u64) {
        if self.woke_ns > 0 {
            self.wanted_ns += asleep_ns.saturating_sub(self.woke_ns);
        }
        self.wanted_ns += woke_ns.saturating_sub(until_ns.max(asleep_ns));
        self.woke_ns = woke_ns;
    }

    /// Looks if it is time to: the thread has woken and read nothing yet. Much lies there if it should have woken earlier, or
    /// if the target answers several at once; little proves that it is not late.
    #[inline]
    pub(super) fn before_reading(&mut self, connections: &[Connection], now_ns: u64) {
        self.due = now_ns >= self.next_ns;
        if self.due {
            self.next_ns = now_ns + LOOK_NS;
            let mut found = self.look(connections, |socket| rustix::io::ioctl_fionread(socket).ok());
            if found.lying > 0 {
                (found.lying, found.awaited) = (found.lying - 1, found.awaited - 1);
            }
            self.before.add(found);
        }
    }

    /// Looks again at the same: the thread has read all that it knew of, and sent nothing yet. What lies there came while it
    /// was at work, and is no answer to what it has just sent.
    #[inline]
    pub(super) fn after_reading(&mut self, connections: &[Connection]) {
        if std::mem::take(&mut self.due) {
            let found = self.look(connections, |socket| rustix::io::ioctl_fionread(socket).ok());
            self.after.add(found);
            self.next_index = (self.next_index + LOOK_CONNECTIONS) % connections.len().max(1);
        }
    }

    fn look(&self, connections: &[Connection], unread_bytes: impl Fn(&OwnedFd) -> Option<u64>) -> Unread {
        let mut found = Unread::default();
        let (later, earlier) = connections.split_at(self.next_index.min(connections.len()));
        let in_turn = earlier.iter().chain(later).take(LOOK_CONNECTIONS);
        for connection in in_turn.filter(|c| c.phase == Phase::Open && !c.sent.is_empty()) {
            if let Some(bytes) = connection.stream.as_ref().and_then(|stream| unread_bytes(stream.socket())) {
                found.awaited += 1;
                found.lying += u64::from(bytes > 0);
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
    use crate::connection::Sent;
    use crate::plan::Slot;
    use crate::stream::Stream;

    fn awaiting(socket: UnixStream) -> Connection {
        let sent = Sent { slot: Slot { intended_ns: 0, measured: true }, sent_ns: 0, has_body: true };
        let stream = Some(Stream::Plain(socket.into()));
        Connection { stream, phase: Phase::Open, sent: [sent].into(), ..Connection::default() }
    }

    #[test]
    fn what_lies_unread_is_found_and_idle_connections_are_not_asked() {
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let (mut far, near): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let mut connections: Vec<Connection> = near.into_iter().map(awaiting).collect();
        connections[3].sent.clear();
        far[1].write_all(b"HTTP/1.1 200").unwrap();
        far[3].write_all(b"nobody asked").unwrap();
        let mut looks = Looks::default();
        let mut both = |now_ns| {
            looks.before_reading(&connections, now_ns);
            looks.after_reading(&connections);
            (looks.before, looks.after)
        };
        let seen = |awaited, lying| Unread { awaited, lying };
        assert_eq!(both(0), (seen(2, 0), seen(3, 1)), "one is what woke it");
        assert_eq!(both(LOOK_NS - 1), (seen(2, 0), seen(3, 1)), "not time yet");
        assert_eq!(both(LOOK_NS), (seen(4, 0), seen(6, 2)));
    }

    #[test]
    fn time_awake_and_overslept_is_time_it_wanted_to_run() {
        let mut looks = Looks::default();
        looks.slept(1000, 5000, 4000);
        assert_eq!(looks.wanted_ns, 0, "woken before its time; what was before the first sleep is not known");
        looks.slept(4300, 5000, 5100);
        assert_eq!(looks.wanted_ns, 300 + 100);
        looks.slept(5200, 5150, 5201);
        assert_eq!(looks.wanted_ns, 400 + 100 + 1);
    }

    #[test]
    fn looks_go_round_and_are_bounded() {
        let (_far, near): (Vec<_>, Vec<_>) = (0..100).map(|_| UnixStream::pair().unwrap()).unzip();
        let connections: Vec<Connection> = near.into_iter().map(awaiting).collect();
        let mut looks = Looks::default();
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        for round in 0..2 {
            let found = looks.look(&connections, |socket| {
                asked.borrow_mut().insert(std::os::fd::AsRawFd::as_raw_fd(socket));
                Some(0)
            });
            assert_eq!(found.awaited, LOOK_CONNECTIONS as u64);
            looks.before_reading(&connections, round * LOOK_NS);
            looks.after_reading(&connections);
        }
        assert_eq!(asked.borrow().len(), 100);
    }
}
