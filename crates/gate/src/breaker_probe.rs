//! Probes of a half-open circuit breaker that no request sends.
//!
//! Probes are reads of requests, while there are any. An instance that is not ready gets none from
//! its balancer, and its breaker would stay half open. So a read that failed is kept, and repeated
//! when the breaker has been half open for a while. Readiness therefore waits for a breaker that
//! is closed: a database that accepts connections and answers no read is not taken for one that
//! works.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_admission::breaker::State;
use hotrow_measure::clock::Nanos;
use hotrow_source::SourceError;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_types::source::SourceId;
use tokio::time::sleep;

use crate::read::{Fetcher, SourceReads};

/// Interval of looking at the breaker's state.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which the breaker is left half open to the requests.
pub(crate) const REQUESTS_FIRST_FOR: Duration = Duration::from_millis(500);

/// Starts the thread that sends the probes of a source until everything must end. Each source has
/// its own: a database that does not answer delays no other's.
pub fn start(
    fetcher: Arc<Fetcher>,
    source: SourceId,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let name = thread_name("probe", &fetcher.sources, source);
    let body = move |shutdown: &Shutdown| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reads = &fetcher.sources[source.index()];
        runtime.block_on(async {
            let mut turns = Turns::default();
            let probing = async {
                loop {
                    sleep(LOOK_INTERVAL).await;
                    supervisor::turn();
                    let now = Nanos::now();
                    if turns.is_due(reads.breaker.state(now), now) {
                        probe(&fetcher, reads).await;
                    }
                }
            };
            tokio::select! {
                () = shutdown.ending() => {}
                () = probing => {}
            }
        });
        Ok(())
    };
    supervisor.spawn_until_end(&name, shutdown, body)
}

/// Returns the name of a thread of one source: that of its work, where there is one source.
pub fn thread_name(work: &str, sources: &[SourceReads], source: SourceId) -> String {
    match sources {
        [_] => work.to_owned(),
        _ => format!("{work}-{}", sources[source.index()].name),
    }
}

/// Decides when the turn of the own probes has come.
#[derive(Debug, Default)]
struct Turns {
    half_open_since: Option<Nanos>,
}

impl Turns {
    fn is_due(&mut self, state: State, now: Nanos) -> bool {
        if state != State::HalfOpen {
            self.half_open_since = None;
            return false;
        }
        let since = *self.half_open_since.get_or_insert(now);
        now.since(since) >= REQUESTS_FIRST_FOR
    }
}

/// Repeats the read that failed last, if the breaker admits a probe. Its rows are dropped.
async fn probe(fetcher: &Fetcher, reads: &SourceReads) {
    let Some(key) = reads.breaker.failed_key() else { return };
    let limiter_permit = reads.limiter.enter().await;
    let now = Nanos::now();
    // Requests may have closed it, or may have all its probes in flight.
    let Ok(breaker_permit) = reads.breaker.ask(now) else { return };
    let query = limiter_permit.send(key.collection(), 1, Duration::ZERO, now);
    let rows = fetcher.budgets.query(|| true);
    let read = reads.source.read_within(key.collection(), vec![key], rows.clone()).await;
    // The limiter learns from requests only.
    drop(query);
    let answered = match read {
        // The database has answered, with an error of its own. Counted as neutral, one dropped
        // table would keep the breaker half open.
        Ok(_) | Err(SourceError::Broken { .. } | SourceError::Data { .. }) => Ok(()),
        Err(failure) => Err(failure),
    };
    breaker_permit.record(&answered, Nanos::now());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(1_000_000_000 + ms * 1_000_000)
    }

    #[test]
    fn requests_have_the_first_turn_each_time_it_is_half_open() {
        let mut turns = Turns::default();
        assert!(!turns.is_due(State::Closed, at(0)));
        assert!(!turns.is_due(State::Open, at(1_000)));
        assert!(!turns.is_due(State::HalfOpen, at(2_000)));
        assert!(!turns.is_due(State::HalfOpen, at(2_499)));
        assert!(turns.is_due(State::HalfOpen, at(2_500)));
        assert!(turns.is_due(State::HalfOpen, at(2_600)), "until its state changes");
        assert!(!turns.is_due(State::Open, at(2_700)));
        assert!(!turns.is_due(State::HalfOpen, at(9_000)), "its time counts anew");
    }
}
