//! Preparation of a run: the table, its first rows, and the capabilities of each target.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hotrow_measure::clock::Nanos;

use crate::capabilities::{Capabilities, probe};
use crate::copy_reader::{self, ProbedRedis};
use crate::database::{
    Change, ChangeKind, DatabaseError, Rows, TransactionEnd, TransactionOutcome, Writer,
};
use crate::history::{History, Ns};
use crate::http::{Client, Target};
use crate::observation::Origin;
use crate::plan::Plan;
use crate::read_request::RecordSchema;
use crate::run::RunError;

/// Time limit for a database operation before the run.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// Interval between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Rows per transaction.
const ROWS_AT_ONCE: usize = 50;

/// Returns whether the key has a row at first: all but every seventh have.
fn has_first_row(key: u32) -> bool {
    key % 7 != 3
}

/// A key whose row exists from the beginning.
pub(crate) const FIRST_KEY: u32 = 1;

/// The table at the beginning of the run.
pub(crate) struct PreparedTable {
    /// Version of all first states.
    pub(crate) first_version: u64,
    /// First state of each key, from 1.
    pub(crate) histories: Vec<History>,
}

/// Verifies that the table has no foreign rows, and gives every key its first state.
pub(crate) fn prepare(plan: &Plan, writer: &mut dyn Writer) -> Result<PreparedTable, RunError> {
    if plan.create {
        retry(|| writer.create())?;
    }
    let rows = retry(|| writer.rows()).map_err(|error| match error {
        RunError::Database(DatabaseError::Permanent(what)) if !plan.create => {
            RunError::NoTable { name: plan.table.name.clone(), what }
        }
        other => other,
    })?;
    if rows.foreign > 0 && !plan.reuse_table {
        return Err(RunError::Foreign { name: plan.table.name.clone(), rows: rows.foreign });
    }
    let first_version = first_version(&rows, SystemTime::now());
    let at_once = if writer.has_transactions() { ROWS_AT_ONCE } else { 1 };
    let keys: Vec<u32> = (1..=plan.keys).collect();
    for keys in keys.chunks(at_once) {
        let change = |key: &u32| {
            let kind = if has_first_row(*key) { ChangeKind::Upsert } else { ChangeKind::Delete };
            Change { key: *key, version: first_version, kind }
        };
        let changes: Vec<Change> = keys.iter().map(change).collect();
        retry(|| match writer.transact(&changes, TransactionEnd::Commit, &mut || {}) {
            TransactionOutcome::Committed => Ok(()),
            // A repetition is harmless.
            TransactionOutcome::RolledBack(fault) | TransactionOutcome::Unknown(fault) => {
                Err(fault)
            }
        })?;
    }
    let now: Ns = Nanos::now().0;
    let histories = keys
        .iter()
        .map(|key| History::beginning_at(first_version, has_first_row(*key), now))
        .collect();
    Ok(PreparedTable { first_version, histories })
}

/// Returns a version above all versions of earlier runs: microseconds since 1970, below the 2⁵³ up
/// to which every JSON reader is exact.
fn first_version(rows: &Rows, now: SystemTime) -> u64 {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let by_clock = u64::try_from(since_1970.as_micros()).unwrap_or(0);
    let by_rows = rows.versions.values().max().map_or(1, |version| version + 1);
    by_clock.max(by_rows)
}

/// Retries until success or a permanent error.
pub(crate) fn retry<T>(mut act: impl FnMut() -> Result<T, DatabaseError>) -> Result<T, RunError> {
    let end = Instant::now() + WAIT_MAX;
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(DatabaseError::Transient(_)) if Instant::now() < end => {
                std::thread::sleep(TRY_EVERY)
            }
            Err(fault) => return Err(RunError::Database(fault)),
        }
    }
}

/// A target with its capabilities.
#[derive(Clone, Debug)]
pub(crate) struct ProbedTarget {
    pub(crate) origin: Origin,
    pub(crate) target: Arc<Target>,
    pub(crate) capabilities: Capabilities,
}

/// Probes the capabilities of every target.
pub(crate) fn targets(plan: &Plan, schema: &RecordSchema) -> Result<Vec<ProbedTarget>, RunError> {
    // A plan has at most `plan::TARGETS_MAX` of each.
    let instances =
        plan.instances.iter().enumerate().map(|(at, target)| (Origin::Instance(at as u16), target));
    let balancers =
        plan.balancers.iter().enumerate().map(|(at, target)| (Origin::Balancer(at as u16), target));
    let known = |(origin, target): (Origin, &Target)| {
        let target = Arc::new(target.clone());
        let mut client = Client::new(target.clone(), plan.timeout);
        match probe(&mut client, schema, FIRST_KEY) {
            Ok(capabilities) => Ok(ProbedTarget { origin, target, capabilities }),
            Err(what) => Err(RunError::Target { url: target.url.clone(), what }),
        }
    };
    instances.chain(balancers).map(known).collect()
}

/// Probes every address of the Redis protocol.
pub(crate) fn redis_targets(
    plan: &Plan,
    schema: &RecordSchema,
) -> Result<Vec<ProbedRedis>, RunError> {
    // A plan has at most as many as instances.
    let numbered = plan.redis.iter().enumerate().map(|(at, target)| (at as u16, target));
    let probed = numbered.map(|(at, target)| {
        copy_reader::probe(Origin::Instance(at), target, schema, FIRST_KEY, plan.timeout)
            .map_err(|what| RunError::Target { url: target.url.clone(), what })
    });
    probed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_increase_over_runs_even_if_the_clock_goes_back() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(first_version(&Rows::default(), at(2)), 2_000_000);
        let rows = Rows { versions: [(1, 5), (2, 3_000_000)].into(), foreign: 0 };
        assert_eq!(first_version(&rows, at(2)), 3_000_001);
        assert!(first_version(&Rows::default(), at(4_000_000_000)) < 1 << 53);
        assert!(has_first_row(FIRST_KEY));
    }
}
