//! Preparation of a run: the table, its first rows, and the capabilities of each target.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hotrow_measure::clock::Nanos;

use crate::capabilities::{Capabilities, probe};
use crate::copy_reader::{self, ProbedRedis};
use crate::database::{
    Change, ChangeKind, DatabaseError, Rows, Table, TableRole, TransactionEnd, TransactionOutcome,
    Writer,
};
use crate::family::{VALUES_PER_KEY, first_value};
use crate::follow_reader::{self, ProbedStream};
use crate::history::{History, Ns};
use crate::http::{Client, Target};
use crate::observation::Origin;
use crate::plan::Plan;
use crate::record_schema::RecordSchema;
use crate::rules::Rule;
use crate::run_error::RunError;

/// Time limit for a database operation before the run.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// Interval between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Rows per transaction.
const ROWS_AT_ONCE: usize = 50;

/// Returns whether the key has a row at first: all but every seventh have.
pub(crate) fn has_first_row(key: u32) -> bool {
    key % 7 != 3
}

/// A key whose row exists from the beginning.
pub(crate) const FIRST_KEY: u32 = 1;

/// The tables at the beginning of the run.
pub(crate) struct PreparedTables {
    /// Version of all first states.
    pub(crate) first_version: u64,
    /// First state of each key, from 1.
    pub(crate) keys: Vec<History>,
    /// First state of each value of the alias, from 1.
    pub(crate) values: Vec<History>,
}

/// Verifies that the tables have no foreign rows, and gives every key its first state: without
/// children, and with the first of its values.
pub(crate) fn prepare(plan: &Plan, writer: &mut dyn Writer) -> Result<PreparedTables, RunError> {
    if plan.create {
        retry(|| writer.create())?;
    }
    let rows = rows(plan, writer, &plan.tables.records, TableRole::Records)?;
    let first_version = first_version(&rows, SystemTime::now());
    if let Some(table) = &plan.tables.children {
        let children = self::rows(plan, writer, table, TableRole::Children)?;
        let delete = |key: &u32| Change {
            table: TableRole::Children,
            key: *key,
            version: first_version,
            reference: None,
            kind: ChangeKind::Delete,
        };
        write(writer, &children.rows.keys().map(delete).collect::<Vec<_>>())?;
    }
    let has_alias = plan.schema.alias.is_some();
    let change = |key: u32, reference| {
        let kind = if has_first_row(key) { ChangeKind::Upsert } else { ChangeKind::Delete };
        Change { table: TableRole::Records, key, version: first_version, reference, kind }
    };
    let without_value = |key| change(key, None);
    write(writer, &(1..=plan.keys).map(without_value).collect::<Vec<_>>())?;
    if has_alias {
        // Only now no other row has the value.
        let with_value = |key| change(key, Some(first_value(key)));
        write(writer, &(1..=plan.keys).map(with_value).collect::<Vec<_>>())?;
    }
    let now: Ns = Nanos::now().0;
    let keys = 1..=plan.keys;
    let of_key = |key| History::beginning_at(first_version, has_first_row(key), now);
    let values = keys.clone().filter(|_| has_alias).flat_map(|key| {
        (0..VALUES_PER_KEY).map(move |nth| {
            History::beginning_at(first_version, nth == 0 && has_first_row(key), now)
        })
    });
    Ok(PreparedTables { first_version, values: values.collect(), keys: keys.map(of_key).collect() })
}

/// Returns the rows of a table, none of which is foreign.
fn rows(
    plan: &Plan,
    writer: &mut dyn Writer,
    table: &Table,
    role: TableRole,
) -> Result<Rows, RunError> {
    let name = table.name.clone();
    let rows = retry(|| writer.rows(role)).map_err(|error| match error {
        RunError::Database(DatabaseError::Permanent(what)) if !plan.create => {
            RunError::NoTable { name: name.clone(), what }
        }
        other => other,
    })?;
    if rows.foreign > 0 && !plan.reuse_table {
        return Err(RunError::Foreign { name, rows: rows.foreign });
    }
    Ok(rows)
}

/// Makes changes, some at once.
fn write(writer: &mut dyn Writer, changes: &[Change]) -> Result<(), RunError> {
    let at_once = if writer.has_transactions() { ROWS_AT_ONCE } else { 1 };
    for changes in changes.chunks(at_once) {
        retry(|| match writer.transact(changes, TransactionEnd::Commit, &mut || {}) {
            TransactionOutcome::Committed => Ok(()),
            // A repetition is harmless.
            TransactionOutcome::RolledBack(fault) | TransactionOutcome::Unknown(fault) => {
                Err(fault)
            }
        })?;
    }
    Ok(())
}

/// Returns a version above all versions of earlier runs: microseconds since 1970, below the 2⁵³ up
/// to which every JSON reader is exact.
fn first_version(rows: &Rows, now: SystemTime) -> u64 {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let by_clock = u64::try_from(since_1970.as_micros()).unwrap_or(0);
    let by_rows = rows.rows.values().map(|row| row.version).max().map_or(1, |version| version + 1);
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
            Ok(mut capabilities) => {
                capabilities.strict &= !plan.skip.contains(&Rule::Strict);
                capabilities.snapshot &= !plan.skip.contains(&Rule::Snapshot);
                Ok(ProbedTarget { origin, target, capabilities })
            }
            Err(what) => Err(RunError::Target { url: target.url.clone(), what }),
        }
    };
    instances.chain(balancers).map(known).collect()
}

/// Probes at every instance whether changes can be followed.
pub(crate) fn streams(plan: &Plan, known: &[ProbedTarget]) -> Vec<ProbedStream> {
    let instances = known.iter().filter(|known| matches!(known.origin, Origin::Instance(_)));
    let probed = |known: &ProbedTarget| ProbedStream {
        origin: known.origin,
        target: known.target.clone(),
        has_positions: known.capabilities.min_position,
        not_followed: follow_reader::probe(&known.target, &plan.schema, plan.timeout),
    };
    instances.map(probed).collect()
}

/// Probes every address of the Redis protocol.
pub(crate) fn redis_targets(
    plan: &Plan,
    schema: &RecordSchema,
) -> Result<Vec<ProbedRedis>, RunError> {
    // A plan has at most as many as instances.
    let numbered = plan.redis.iter().enumerate().map(|(at, target)| (at as u16, target));
    let probed = numbered.map(|(at, target)| {
        let origin = Origin::Instance(at);
        let mut probed = copy_reader::probe(origin, target, schema, FIRST_KEY, plan.timeout)
            .map_err(|what| RunError::Target { url: target.url.clone(), what })?;
        probed.strict &= !plan.skip.contains(&Rule::Strict);
        Ok(probed)
    });
    probed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::StoredRow;

    #[test]
    fn versions_increase_over_runs_even_if_the_clock_goes_back() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(first_version(&Rows::default(), at(2)), 2_000_000);
        let row = |version| StoredRow { version, reference: None };
        let rows = Rows { rows: [(1, row(5)), (2, row(3_000_000))].into(), foreign: 0 };
        assert_eq!(first_version(&rows, at(2)), 3_000_001);
        assert!(first_version(&Rows::default(), at(4_000_000_000)) < 1 << 53);
        assert!(has_first_row(FIRST_KEY));
    }
}
