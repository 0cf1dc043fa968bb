//! Database servers with the faults that a test can cause: one interface for the suites that run
//! over several engines.
//!
//! Reading order: this (the interface), then its implementations: [`postgres`], [`maria`],
//! [`mongo`] with [`secantus`].

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Duration;

use hotrow_testkit::harness::Config;

pub(crate) mod maria;
pub(crate) mod mongo;
pub(crate) mod postgres;
mod secantus;

/// A private database server. Delays, holds and refusals last until [`Self::clear_faults`].
pub(crate) trait Backend: Sized + Send + Sync + 'static {
    /// True if the feed continues where it was after an interruption; false if every end of its
    /// connections is a loss.
    const FEED_RESUMES: bool;
    /// True if a late stream answers only once per delay.
    const LATE_FEED_ANSWERS_RARELY: bool = false;

    /// Starts a server without tables.
    fn start() -> Self;

    /// Returns the configuration of a service, without collections. Its reads and its feed can be
    /// disturbed separately.
    fn config(&self) -> Config;

    /// Delays the service's reads.
    fn delay_reads(&self, delay: Duration);

    /// Holds the answers to all reads; the server executes the reads.
    fn hold_reads(&self);

    /// Holds the answer to the next read, or to all reads where one cannot be selected.
    fn hold_next_read(&self) {
        self.hold_reads();
    }

    /// Returns true if the answer to a read is held.
    fn holds_a_read(&self) -> bool;

    /// Delays the feed's stream.
    fn delay_feed(&self, delay: Duration);

    /// Holds the feed's stream, which stays open.
    fn hold_feed(&self);

    /// Ends the feed's connections and refuses new ones.
    fn refuse_feed(&self);

    /// Cuts all connections of the service at once; new ones are accepted.
    fn cut(&self);

    /// Ends delays, holds and refusals.
    fn clear_faults(&self);

    /// Removes changes that no feed has read. Nothing to do where a new feed begins at the log's
    /// end.
    fn prune_log(&self) {}

    /// Keeps commits that begin from now on invisible once they are in the log.
    fn hide_commits(&self);

    /// Makes all commits visible.
    fn show_commits(&self);

    /// Runs `test` while the commit that `commit` makes waits to be visible; it is visible when
    /// this returns, or panics.
    fn while_hidden(&self, commit: impl FnOnce() + Send, test: impl FnOnce()) {
        self.hide_commits();
        thread::scope(|scope| {
            let commit = scope.spawn(commit);
            let result = catch_unwind(AssertUnwindSafe(test));
            let was_hidden = !commit.is_finished();
            // First, because the end of this scope waits for the commit.
            self.show_commits();
            result.unwrap_or_else(|panic| resume_unwind(panic));
            assert!(was_hidden);
        });
    }

    /// Kills the server; of a set its primary, and another member takes over if there is one.
    fn kill(&mut self);

    /// Starts what was stopped.
    fn restart(&mut self);

    /// Stops the server's processes, with their connections open.
    fn pause(&self);

    /// Continues a paused server.
    fn resume(&self);
}
