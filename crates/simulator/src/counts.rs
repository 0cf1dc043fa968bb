//! Counts of what happened in a run. A simulation that never reaches the interesting states proves
//! nothing, so the tests require each count to be large enough.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts of the events of one or more runs.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                let recovery_us_max = self.recovery_us_max.max(other.recovery_us_max);
                $(self.$name += other.$name;)*
                self.recovery_us_max = recovery_us_max;
            }

            /// Returns every count with its name.
            #[must_use]
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counts!(
    /// Events.
    steps,
    /// Keys that clients requested.
    reads,
    /// Answers from memory within the bound.
    fresh,
    /// Answers from memory past the bound, by policy.
    stale,
    /// Answers from memory past their TTL.
    expired,
    /// Answers in place of a failed read.
    stale_if_error,
    /// Answers of a read.
    read_answers,
    /// Answers that a record does not exist.
    negative,
    /// Requests that joined a read.
    coalesced,
    /// Changed records that clients were informed of.
    followed,
    /// Requests with `no-cache`.
    revalidations,
    /// Requests of scanning clients.
    not_admitted,
    /// Requests with a minimal position.
    min_position,
    /// Those of them that were answered.
    min_position_answers,
    /// Those of them that read again because of a hidden change.
    min_position_retries,
    /// Those of them refused for a position of another database, or one that is not reached.
    min_position_refusals,
    /// Requests of several keys.
    batches,
    /// Answers within `max_staleness` after a change of their key.
    soon_after_a_change,
    /// Requests refused because the feed is behind.
    refused_behind,
    /// Requests refused for another reason.
    refused_other,
    /// Requests whose deadline passed.
    timeouts,
    /// Requests whose read failed.
    failures,
    /// Requests whose client left.
    clients_left,
    /// Requests that were asked to lead.
    leads,
    /// Loaders that were cancelled.
    loaders_cancelled,
    /// Queries.
    queries,
    /// Queries that failed.
    queries_failed,
    /// Queries that ended before all keys were read.
    queries_cut_short,
    /// Queries that a standby answered.
    standby_answers,
    /// Queries that went to the primary because no standby could answer.
    standby_refusals,
    /// Waits for the feed to deliver what a standby's answer may show.
    standby_waits,
    /// Answers of the primary that were read again after a newer one of a standby.
    hidden_after_standby,
    /// Faults of standbys.
    standby_faults,
    /// Transactions begun.
    transactions,
    /// Those of them rolled back.
    rollbacks,
    /// Commits.
    commits,
    /// Commits in the log before they were visible.
    hidden_commits,
    /// Changes of a whole collection in the log.
    bulk_changes,
    /// Changes of a table's shape.
    schema_changes,
    /// Changes delivered by the feed.
    delivered,
    /// Those of them delivered before they were visible (Race B).
    delivered_hidden,
    /// Those of them delivered again after an interruption.
    duplicates,
    /// Losses of the feed.
    losses,
    /// Starts of the feed.
    starts,
    /// Interruptions after which the feed continued at its position.
    resumptions,
    /// Gaps of one collection.
    gaps,
    /// Replaced databases.
    failovers,
    /// Outages of the database.
    outages,
    /// Stops of an instance.
    freezes,
    /// Purges.
    purges,
    /// Reads again of hot records that changed.
    prefetches,
    /// Answers that were not stored because their lease was dead or a change was hidden.
    fills_discarded,
    /// Reads repeated because a newer answer had been given.
    fill_retries,
    /// Evictions.
    evictions,
    /// Times that the circuit breaker opened.
    breaker_openings,
    /// Requests refused by a rate limit.
    rate_limited,
    /// Longest recovery after the last fault, in microseconds; the largest of all runs.
    recovery_us_max,
);
