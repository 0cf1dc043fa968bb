//! Counts of what happened in a run. A simulation that never reaches the interesting states proves
//! nothing, so the tests require each count to be large enough.

macro_rules! counts {
    ($($name:ident: $doc:literal,)*) => {
        /// Counts of the events of one or more runs.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(#[doc = $doc] pub $name: u64,)*
        }

        impl Counts {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                let recovery_us_max = self.recovery_us_max.max(other.recovery_us_max);
                $(self.$name += other.$name;)*
                self.recovery_us_max = recovery_us_max;
            }

            /// Returns every count with its name.
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counts!(
    steps: "Events.",
    reads: "Keys that clients requested.",
    fresh: "Answers from memory within the bound.",
    stale: "Answers from memory past the bound, by policy.",
    expired: "Answers from memory past their TTL.",
    stale_if_error: "Answers in place of a failed read.",
    read_answers: "Answers of a read.",
    negative: "Answers that a record does not exist.",
    coalesced: "Requests that joined a read.",
    followed: "Changed records that clients were informed of.",
    revalidations: "Requests with `no-cache`.",
    not_admitted: "Requests of scanning clients.",
    min_position: "Requests with a minimal position.",
    min_position_answers: "Those of them that were answered.",
    min_position_retries: "Those of them that read again because of a hidden change.",
    min_position_refusals: "Those of them refused: of another database, or not reached.",
    strict: "Strict requests.",
    strict_answers: "Those of them that were answered.",
    strict_looks: "Looks that strict requests and snapshots waited for.",
    strict_hits: "Strict answers from memory.",
    end_looks: "Looks at the log's end that requests caused.",
    snapshots: "Requests of snapshots.",
    snapshot_keys: "Keys in snapshots that were answered.",
    snapshots_in_memory: "Snapshots that memory had at once.",
    snapshots_awaited: "Snapshots that the feed was awaited for.",
    snapshots_reread: "Snapshots with records that were read again.",
    snapshot_transactions: "Snapshots by a read transaction.",
    snapshot_repeats: "Read transactions that lacked a change and were repeated.",
    batches: "Requests of several keys.",
    soon_after_a_change: "Answers within `max_staleness` after a change of their key.",
    refused_behind: "Requests refused because the feed is behind.",
    refused_other: "Requests refused for another reason.",
    timeouts: "Requests whose deadline passed.",
    failures: "Requests whose read failed.",
    clients_left: "Requests whose client left.",
    leads: "Requests that were asked to lead.",
    loaders_cancelled: "Loaders that were cancelled.",
    queries: "Queries.",
    queries_failed: "Queries that failed.",
    queries_cut_short: "Queries that ended before all keys were read.",
    standby_answers: "Queries that a standby answered.",
    standby_refusals: "Queries that went to the primary because no standby could answer.",
    standby_waits: "Waits for the feed to deliver what a standby's answer may show.",
    hidden_after_standby: "Answers read again after a newer one of a standby.",
    standby_faults: "Faults of standbys.",
    transactions: "Transactions begun.",
    rollbacks: "Those of them rolled back.",
    commits: "Commits.",
    hidden_commits: "Commits in the log before they were visible.",
    bulk_changes: "Changes of a whole collection in the log.",
    schema_changes: "Changes of a table's shape.",
    delivered: "Changes delivered by the feed.",
    delivered_hidden: "Those of them delivered before they were visible (Race B).",
    duplicates: "Those of them delivered again after an interruption.",
    losses: "Losses of the feed.",
    starts: "Starts of the feed.",
    resumptions: "Interruptions after which the feed continued at its position.",
    gaps: "Gaps of one collection.",
    failovers: "Replaced databases.",
    outages: "Outages of the database.",
    freezes: "Stops of an instance.",
    purges: "Purges.",
    prefetches: "Reads again of hot records that changed.",
    fills_discarded: "Answers not stored: their lease was dead, or a change hidden.",
    fill_retries: "Reads repeated because a newer answer had been given.",
    evictions: "Evictions.",
    breaker_openings: "Times that the circuit breaker opened.",
    rate_limited: "Requests refused by a rate limit.",
    recovery_us_max: "Longest recovery after the last fault of all runs, in us.",
);
