//! The admin API of an instance: purges while the run lasts, and what it counts of losses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ask::Shape;
use crate::board::Board;
use crate::http::{Answer, Client, Lost, Request, Target};
use crate::ledger::Ledger;
use crate::observation::{Origin, Purge};
use crate::random::Random;

/// Between two purges.
const PURGE_EVERY: Duration = Duration::from_millis(50);
/// Of so many purges, one is of the whole collection.
const PURGE_ALL_ONE_IN: u64 = 40;
/// Longest time for an answer of the admin API.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(5);
/// What an instance counts of the feed's troubles (docs/metrics.md).
const LOSSES: &str = "hotrow_feed_losses_total";

/// An instance's admin API.
#[derive(Debug)]
pub(crate) struct Admin {
    origin: Origin,
    client: Client,
    token: Option<String>,
}

impl Admin {
    pub(crate) fn new(origin: Origin, target: &Target, token: Option<String>) -> Self {
        Self { origin, client: Client::new(Arc::new(target.clone()), ADMIN_TIMEOUT), token }
    }

    fn ask(&mut self, method: &'static str, path: String) -> Result<Answer, Lost> {
        let token = self.token.as_ref().map(|token| ("Authorization", format!("Bearer {token}")));
        let request = Request { method, path, headers: token.into_iter().collect(), body: None };
        self.client.ask(&request, |_| {})
    }

    /// The losses that the instance has counted.
    ///
    /// # Errors
    /// Why they cannot be told.
    pub(crate) fn losses(&mut self) -> Result<u64, String> {
        // They are asked for at the beginning and at the end of a run.
        self.client.connect_anew();
        let answer = self.ask("GET", "/metrics".to_owned()).map_err(|lost| format!("no answer ({})", lost.name()))?;
        if answer.status() != 200 {
            return Err(format!("/metrics answers {}", answer.status()));
        }
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok(sum(&text, LOSSES))
    }
}

/// The sum of a counter over its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let labelled = rest.starts_with(['{', ' ']);
        labelled.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    };
    metrics.lines().filter_map(value).sum::<f64>() as u64
}

/// Purges now and then until the board says stop.
pub(crate) struct Purger {
    pub(crate) admins: Vec<Admin>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) board: Arc<Board>,
    pub(crate) shape: Shape,
    pub(crate) random: Random,
    pub(crate) purges: Arc<AtomicU64>,
}

impl Purger {
    pub(crate) fn run(mut self) {
        let board = self.board.clone();
        let mut due = Instant::now();
        while !board.writers_stopped() {
            due += PURGE_EVERY;
            Board::sleep_until(due, || board.writers_stopped());
            let all = self.random.below(PURGE_ALL_ONE_IN) == 0;
            let key = (!all).then(|| self.board.recent(&mut self.random)).flatten();
            let mut path = format!("/purge/{}", self.shape.collection);
            if let Some(key) = key {
                path.push_str(&format!("/{}", self.shape.key_type.text(key)));
            }
            let at = self.random.below(self.admins.len() as u64) as usize;
            let Some(admin) = self.admins.get_mut(at) else { return };
            let sent_ns = hotrow_measure::clock::Nanos::now().0;
            // Without an answer it may have happened or not: nothing follows.
            let Ok(answer) = admin.ask("POST", path) else { continue };
            if (200..300).contains(&answer.status()) {
                let received_ns = answer.received_ns;
                self.ledger.purge(key, Purge { origin: admin.origin, sent_ns, received_ns });
                self.purges.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_summed_over_its_labels() {
        let text = "# TYPE a counter\na{x=\"1 2\"} 3\na{x=\"y\"} 4\na_more 9\nab 8\n";
        assert_eq!(sum(text, "a"), 7);
        assert_eq!(sum("a 5\n", "a"), 5);
        assert_eq!(sum("", "a"), 0);
    }
}
