//! Before a run: the table, its first rows, and what each target grants.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hotrow_measure::clock::Nanos;

use crate::ask::Shape;
use crate::database::{Act, Change, End, Ended, Fault, Rows, Writer};
use crate::granted::{Granted, find_out};
use crate::history::{History, Ns};
use crate::http::{Client, Target};
use crate::observation::Origin;
use crate::plan::Plan;
use crate::run::RunError;

/// How long the database may be unable to do what is asked before the run.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Rows of one transaction.
const ROWS_AT_ONCE: usize = 50;

/// Whether the key has a row at first: all but every seventh have.
fn has_first_row(key: u32) -> bool {
    key % 7 != 3
}

/// A row that stands when the run begins and before anything else is written.
pub(crate) const FIRST_KEY: u32 = 1;

/// The table as the run finds it.
pub(crate) struct Prepared {
    /// The version of all first states.
    pub(crate) first_version: u64,
    /// The first state of each key, from 1.
    pub(crate) histories: Vec<History>,
}

/// Makes sure that the table is ours, and gives every key its first state.
pub(crate) fn prepare(plan: &Plan, writer: &mut dyn Writer) -> Result<Prepared, RunError> {
    if plan.create {
        insist(|| writer.create())?;
    }
    let rows = insist(|| writer.rows()).map_err(|error| match error {
        RunError::Database(Fault::Lasting(what)) if !plan.create => {
            RunError::NoTable { name: plan.table.name.clone(), what }
        }
        other => other,
    })?;
    if rows.foreign > 0 && !plan.adopt {
        return Err(RunError::Foreign { name: plan.table.name.clone(), rows: rows.foreign });
    }
    let first_version = first_version(&rows, SystemTime::now());
    let at_once = if writer.has_transactions() { ROWS_AT_ONCE } else { 1 };
    let keys: Vec<u32> = (1..=plan.keys).collect();
    for keys in keys.chunks(at_once) {
        let change = |key: &u32| {
            let act = if has_first_row(*key) { Act::Upsert } else { Act::Delete };
            Change { key: *key, version: first_version, act }
        };
        let changes: Vec<Change> = keys.iter().map(change).collect();
        insist(|| match writer.transact(&changes, End::Commit, &mut || {}) {
            Ended::Committed => Ok(()),
            // The same again does no harm.
            Ended::Undone(fault) | Ended::Unknown(fault) => Err(fault),
        })?;
    }
    let now: Ns = Nanos::now().0;
    let histories = keys.iter().map(|key| History::beginning_at(first_version, has_first_row(*key), now)).collect();
    Ok(Prepared { first_version, histories })
}

/// Past all versions of earlier runs, whatever became of their rows: microseconds since 1970, below the 2⁵³ up to which
/// every JSON reader is exact.
fn first_version(rows: &Rows, now: SystemTime) -> u64 {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let by_clock = u64::try_from(since_1970.as_micros()).unwrap_or(0);
    let by_rows = rows.versions.values().max().map_or(1, |version| version + 1);
    by_clock.max(by_rows)
}

/// Tries until it works or will not.
pub(crate) fn insist<T>(mut act: impl FnMut() -> Result<T, Fault>) -> Result<T, RunError> {
    let end = Instant::now() + PATIENCE;
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(Fault::Passing(_)) if Instant::now() < end => std::thread::sleep(TRY_EVERY),
            Err(fault) => return Err(RunError::Database(fault)),
        }
    }
}

/// A target with what it grants.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) origin: Origin,
    pub(crate) target: Arc<Target>,
    pub(crate) granted: Granted,
}

/// Asks every target what it grants.
pub(crate) fn targets(plan: &Plan, shape: &Shape) -> Result<Vec<Known>, RunError> {
    // A plan has at most `plan::TARGETS_MAX` of each.
    let instances = plan.instances.iter().enumerate().map(|(at, target)| (Origin::Instance(at as u16), target));
    let balancers = plan.balancers.iter().enumerate().map(|(at, target)| (Origin::Balancer(at as u16), target));
    let known = |(origin, target): (Origin, &Target)| {
        let target = Arc::new(target.clone());
        let mut client = Client::new(target.clone(), plan.timeout);
        match find_out(&mut client, shape, FIRST_KEY) {
            Ok(granted) => Ok(Known { origin, target, granted }),
            Err(what) => Err(RunError::Target { url: target.url.clone(), what }),
        }
    };
    instances.chain(balancers).map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rise_from_run_to_run_even_if_the_clock_went_back() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        assert_eq!(first_version(&Rows::default(), at(2)), 2_000_000);
        let rows = Rows { versions: [(1, 5), (2, 3_000_000)].into(), foreign: 0 };
        assert_eq!(first_version(&rows, at(2)), 3_000_001);
        assert!(first_version(&Rows::default(), at(4_000_000_000)) < 1 << 53);
        assert!(has_first_row(FIRST_KEY));
    }
}
