//! Pauses between reads that do not see a change yet that the log has.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const FIRST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);

/// Repeats a read until its deadline. Each pause is twice as long as the one before: from 1 ms up
/// to 50 ms.
pub(crate) struct Retry {
    pause: Duration,
    until: Instant,
}

impl Retry {
    pub(crate) fn until(until: Instant) -> Self {
        Self { pause: FIRST, until }
    }

    /// Pauses. `false`: the deadline would pass, so the read is not repeated.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() + self.pause >= self.until {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST);
        true
    }
}
