//! Kernel state of the load generator's own connections.

use std::collections::HashSet;
use std::time::Duration;

use rustix::io;

use super::table::dump;
use crate::probe::inet_diag::{self, DiagConnection, DiagQuery, Family};
use crate::samples::Connections;

/// Most own connections examined.
pub(super) const CONNECTIONS_MAX: usize = 10_000;

/// Returns sums over the sockets in `own`; `None` without any, or without an answer of the kernel.
pub(super) fn of(own: &HashSet<u64>) -> Option<Connections> {
    let mut sum = ConnectionTotals::default();
    for family in [Family::V4, Family::V6] {
        // Connections received before an error remain valid.
        let mut add = |connection: DiagConnection| {
            if own.contains(&connection.inode) && sum.count < CONNECTIONS_MAX as u64 {
                sum.add(&connection);
            }
        };
        let _: io::Result<()> =
            dump(family, DiagQuery::Connections, |part| inet_diag::parse(part, &mut add));
    }
    sum.means()
}

#[derive(Default)]
struct ConnectionTotals {
    count: u64,
    rtt: Duration,
    rtt_min: Duration,
    rtt_min_count: u64,
    retransmitted: u64,
    busy: Duration,
    receiver_limited: Duration,
    send_buffer_limited: Duration,
}

impl ConnectionTotals {
    fn add(&mut self, connection: &DiagConnection) {
        self.count += 1;
        self.rtt = self.rtt.saturating_add(connection.rtt);
        if let Some(shortest) = connection.rtt_min {
            self.rtt_min = self.rtt_min.saturating_add(shortest);
            self.rtt_min_count += 1;
        }
        self.retransmitted = self.retransmitted.saturating_add(connection.retransmitted);
        let sending = connection.sending.unwrap_or_default();
        self.busy = self.busy.saturating_add(sending.busy);
        self.receiver_limited = self.receiver_limited.saturating_add(sending.receiver_limited);
        self.send_buffer_limited =
            self.send_buffer_limited.saturating_add(sending.send_buffer_limited);
    }

    fn means(&self) -> Option<Connections> {
        let mean = |sum: Duration, count: u64| {
            if count > 0 { sum.div_f64(count as f64) } else { Duration::ZERO }
        };
        let of_busy = |part: Duration| match self.busy.is_zero() {
            true => 0.0,
            false => (part.as_secs_f64() / self.busy.as_secs_f64()).min(1.0),
        };
        (self.count > 0).then(|| Connections {
            count: self.count,
            rtt: mean(self.rtt, self.count),
            rtt_min: mean(self.rtt_min, self.rtt_min_count),
            retransmitted: self.retransmitted,
            receiver_limited: of_busy(self.receiver_limited),
            send_buffer_limited: of_busy(self.send_buffer_limited),
        })
    }
}
