//! Engines behind a network: their feed and their reads can be disturbed separately, and their
//! commits hidden.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::backend::Backend;
use crate::contract::disturbances::Disturbance;
use crate::contract::engine::Engine;
use crate::contract::rows::Sizes;
use crate::contract::run::{Plan, Trial};
use hotrow_testkit::harness::Config;

/// Makes the tests of the contract over a network, for one engine.
macro_rules! contract_tests {
    ($engine:ty) => {
        #[cfg(feature = "failpoints")]
        use $crate::contract::safeguards::disabled;
        use $crate::contract::{mixed, safeguards, visibility};

        tests! {
            $engine:
            mixed::histories_equal_the_database_after_crashes,
            mixed::contract_holds_under_every_disturbance,
            #[ignore = "long: 1 million reads, 100 thousand changes, each disturbance ten times"]
            mixed::contract_holds_in_a_long_run,
            safeguards::a_row_read_before_its_change_is_not_cached_however_late_it_arrives,
            safeguards::a_late_stream_does_not_count_as_fresh,
            safeguards::a_row_changed_while_there_was_no_feed_is_not_served,
            visibility::a_hidden_commit_is_in_the_log_and_invisible,
            visibility::a_row_read_before_its_change_is_visible_is_not_cached,
            visibility::a_key_without_a_hidden_change_stays_cached,
            #[cfg(feature = "failpoints")]
            disabled::without_leases_and_the_fence_the_old_row_stays,
            #[cfg(feature = "failpoints")]
            disabled::leases_or_the_fence_alone_keep_the_old_row_out,
            #[cfg(feature = "failpoints")]
            disabled::without_the_fence_a_row_read_before_its_change_was_visible_stays,
            #[cfg(feature = "failpoints")]
            disabled::with_the_time_of_receipt_a_late_stream_counts_as_fresh,
            #[cfg(feature = "failpoints")]
            disabled::without_an_epoch_a_change_in_a_gap_stays_unknown,
        }
    };
}
pub(crate) use contract_tests;

/// Methods of a [`Backend`] that disturb the server in this field.
macro_rules! disturbs_its_server {
    ($server:tt) => {
        fn delay_reads(&self, delay: std::time::Duration) {
            self.$server.delay_reads(delay);
        }

        fn hold_reads(&self) {
            self.$server.hold_reads();
        }

        fn holds_a_read(&self) -> bool {
            self.$server.holds_a_read()
        }

        fn delay_feed(&self, delay: std::time::Duration) {
            self.$server.delay_feed(delay);
        }

        fn hold_feed(&self) {
            self.$server.hold_feed();
        }

        fn refuse_feed(&self) {
            self.$server.refuse_feed();
        }

        fn cut(&self) {
            self.$server.cut();
        }

        fn hide_commits(&self) {
            self.$server.hide_commits();
        }

        fn show_commits(&self) {
            self.$server.show_commits();
        }

        fn kill(&mut self) {
            self.$server.kill();
        }

        fn pause(&self) {
            self.$server.pause();
        }

        fn resume(&self) {
            self.$server.resume();
        }
    };
}
pub(crate) use disturbs_its_server;

/// Methods of a [`Networked`] that are those of the engine in its first field.
macro_rules! sees_as_its_engine {
    ($session:ty) => {
        fn incarnation(&self) -> Option<u64> {
            self.0.incarnation()
        }

        fn log_end(&self) -> u64 {
            self.0.log_end()
        }

        fn hidden_session(&self) -> ($session, impl FnMut() -> bool) {
            self.0.hidden_session()
        }
    };
}
pub(crate) use sees_as_its_engine;

/// What an [`Engine`] shares with the engine in its first field: all but its tables.
macro_rules! writes_as_its_engine {
    ($engine:ty, $session:ty) => {
        type Database = Self;
        type Session = $session;

        const TOKENS_ARE_EXACT: bool = <$engine as Engine>::TOKENS_ARE_EXACT;
        const RESTARTS_END_TOKENS: bool = <$engine as Engine>::RESTARTS_END_TOKENS;

        fn session(database: &Self, plan: &Plan) -> $session {
            <$engine as Engine>::session(&database.0, plan)
        }

        fn rows(database: &Self) -> std::collections::BTreeMap<u32, u64> {
            <$engine as Engine>::rows(&database.0)
        }
    };
}
pub(crate) use writes_as_its_engine;

/// The [`Backend`] of a wrapper, which is that of the engine in its first field.
macro_rules! is_its_backend {
    ($wrapper:ty, $engine:ty) => {
        impl crate::backend::Backend for $wrapper {
            const FEED_RESUMES: bool = <$engine as crate::backend::Backend>::FEED_RESUMES;
            const LATE_FEED_ANSWERS_RARELY: bool =
                <$engine as crate::backend::Backend>::LATE_FEED_ANSWERS_RARELY;

            crate::contract::networked::disturbs_its_server!(0);

            fn start() -> Self {
                Self(<$engine as crate::backend::Backend>::start())
            }

            fn config(&self) -> hotrow_testkit::harness::Config {
                crate::backend::Backend::config(&self.0)
            }

            fn clear_faults(&self) {
                self.0.clear_faults();
            }

            fn restart(&mut self) {
                self.0.restart();
            }
        }
    };
}
pub(crate) use is_its_backend;

/// An engine behind a network.
pub(crate) trait Networked: Engine<Database = Self> + Backend {
    /// Name of the engine in saved results.
    const NAME: &'static str;
    /// True if [`Self::hidden_session`] hides the commits of that session alone; false if it hides
    /// those of all.
    const HIDES_ONE_SESSION: bool;
    /// True if changes are pushed to clients in the mixed run: near caches, followers, and a cache
    /// in front.
    const HAS_PUSHES: bool = false;
    /// True if a read waits for a change that is delivered but not visible.
    const READS_WAIT_FOR_CHANGES: bool = false;

    /// Returns the plan of a mixed run.
    fn mixed_plan() -> Plan {
        // More keys than the feed lists for one transaction.
        Plan { keys: 13_000, sizes: Sizes { from: 100, to: 700 }, reserved: 20, ..Plan::default() }
    }

    /// Returns the disturbances of a mixed run.
    fn disturbances() -> Vec<Disturbance<Self>>;

    /// Returns those of its short form: without what the short form of another run applies.
    fn own_disturbances() -> Vec<Disturbance<Self>> {
        Self::disturbances()
    }

    /// Changes the table as a whole after crash number `round`, if the engine has such a statement.
    fn after_crash(_run: &mut Trial<Self>, _round: u64) {}

    /// Checks a mixed run by more than its answers; adds figures to its summary.
    fn after_mixed_run(_run: &Trial<Self>, _summary: &mut serde_json::Value) {}

    /// Adapts the configuration of a scenario.
    fn scenario_config(config: Config) -> Config {
        config
    }

    /// Returns the id of the log in positions. `None`: there is one log, whose id only answers
    /// show.
    fn incarnation(&self) -> Option<u64> {
        None
    }

    /// Returns the log's end, in the form of a position.
    fn log_end(&self) -> u64;

    /// Hides commits until [`Backend::show_commits`]. Returns a session whose next commit is hidden
    /// and the condition that this commit is in the log.
    fn hidden_session(&self) -> (Self::Session, impl FnMut() -> bool);
}

impl<E: Networked> Trial<E> {
    /// Creates a run whose readers know the log's id, if the engine has one.
    pub(crate) fn networked(plan: Plan) -> Self {
        let mut run = Self::new(plan);
        run.note_log();
        run
    }

    /// Restarts the server; from then on readers send positions of its present log.
    pub(crate) fn restart(&mut self) {
        self.database.restart();
        self.note_log();
    }

    fn note_log(&mut self) {
        if let Some(log) = self.database.incarnation() {
            self.logs.insert(log);
            self.board.log.store(log, Ordering::Relaxed);
        }
    }

    /// Asserts that all positions name logs that the database has had.
    pub(crate) fn assert_known_logs(&self) {
        let seen: BTreeSet<u64> =
            self.observations.iter().filter_map(|o| o.position).map(|token| token.log).collect();
        assert!(!seen.is_empty(), "no answer has a position");
        let is_known =
            if self.logs.is_empty() { seen.len() == 1 } else { seen.is_subset(&self.logs) };
        assert!(is_known, "positions of the logs {seen:x?}, not only of {:x?}", self.logs);
    }
}
