//! Limit on refused credentials per client. It bounds the signatures that one client can make the
//! service check in vain.

use std::time::Duration;

use hotrow_admission::rate::keyed::Keyed;
use hotrow_admission::rate::limit::{Kind, Limit, Setting};
use hotrow_admission::rate::value::Rate;
use hotrow_admission::rate::{Decision, Policy};
use hotrow_answer::retry_after::whole_seconds;
use hotrow_measure::clock::Nanos;

use crate::admission::rate::seed;

/// Clients that are distinguished; 16 bytes each.
const CLIENTS_MAX: usize = 16_384;

/// The limit and the state of each client.
#[derive(Debug)]
pub(super) struct Failures {
    rate: Rate,
    limit: Limit,
    clients: Keyed,
}

impl Failures {
    /// A client may send as many at once as `rate` allows in its period.
    pub(crate) fn new(rate: Rate, now: Nanos) -> Self {
        let kind = Kind::TokenBucket;
        let setting = Setting { kind, rate, burst: rate.units(), warm_up: Duration::ZERO };
        Self { rate, limit: Limit::new(&setting, 0, now), clients: Keyed::new(CLIENTS_MAX, seed()) }
    }

    /// Returns the configured rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Returns the seconds that the client has to wait; `None`: it need not.
    pub(super) fn wait_s(&self, client: &[u8], now: Nanos) -> Option<u64> {
        let state = self.clients.state(self.clients.hash(client));
        match self.limit.judge(state, 1, now).0 {
            Decision::Refused { retry_after } => Some(whole_seconds(retry_after).max(1)),
            Decision::Admitted { .. } | Decision::Wait { .. } | Decision::TooLarge { .. } => None,
        }
    }

    /// Counts one refused credential.
    pub(crate) fn count(&self, client: &[u8], now: Nanos) {
        // Beyond the limit nothing more is owed.
        let _ = self.clients.decide(self.clients.hash(client), &self.limit, 1, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_waits_after_its_failures_and_others_do_not() {
        let now = Nanos(1_000_000_000);
        let failures = Failures::new("3/m".parse().unwrap(), now);
        for _ in 0..3 {
            assert_eq!(failures.wait_s(b"a", now), None);
            failures.count(b"a", now);
        }
        assert_eq!(failures.wait_s(b"a", now), Some(20));
        assert_eq!(failures.wait_s(b"b", now), None);
        (0..1_000).for_each(|_| failures.count(b"a", now));
        let later = now.after(Duration::from_secs(20));
        assert_eq!(failures.wait_s(b"a", later), None, "the wait does not grow");
    }
}
