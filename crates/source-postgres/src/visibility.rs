//! Snapshots in the server's text form, and the fence at the start of a feed.

use hotrow_types::version::Snapshot;
use tokio_postgres::{Client, Error};

/// Most transactions read from a snapshot; PostgreSQL itself cannot run more (`max_connections` has
/// 18 bits).
const RUNNING_MAX: usize = 1 << 18;
/// Most blockers that a message names.
const NAMED_MAX: i64 = 5;

/// Parses `pg_current_snapshot()::text`, `xmin:xmax:xip,xip`.
pub(crate) fn parse_snapshot(text: &str) -> Option<Snapshot> {
    let mut parts = text.split(':');
    let xmin = parts.next()?.parse().ok()?;
    let xmax = parts.next()?.parse().ok()?;
    let list = parts.next()?;
    if parts.next().is_some() {
        return None;
    }
    let mut running: Vec<u64> = Vec::new();
    for xid in list.split(',').filter(|xid| !xid.is_empty()).take(RUNNING_MAX) {
        running.push(xid.parse().ok()?);
    }
    // The server sorts them; the binary search in a snapshot depends on the order.
    running.sort_unstable();
    Some(Snapshot { xmin, xmax, running })
}

/// Transactions that may have committed before a slot's first position without being visible yet,
/// for example because they wait for a synchronous standby. The slot never delivers them. Until all
/// of them are visible a read may return a state that no change would ever correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    waiting: Vec<u64>,
}

impl Fence {
    /// `first` was taken after the slot was created and lists every transaction that ran then. It
    /// contains all transactions that committed before the slot's first position
    /// and are invisible.
    pub(crate) fn new(first: &Snapshot) -> Self {
        Self { waiting: first.running.clone() }
    }

    /// Removes the transactions visible in a later snapshot; returns whether none is left.
    pub(crate) fn is_open(&mut self, later: &Snapshot) -> bool {
        self.waiting.retain(|xid| !later.contains(*xid));
        self.waiting.is_empty()
    }

    /// Returns the transactions that are still invisible.
    pub(crate) fn waiting(&self) -> &[u64] {
        &self.waiting
    }
}

/// Returns the sessions that hold write transactions open: all of them, or those of these numbers.
/// One text for each, oldest first. The views show these columns to every role; a session whose
/// query text is hidden hides its application name too.
///
/// # Errors
/// An error of the driver.
pub(crate) async fn blockers(client: &Client, xids: Option<&[u64]>) -> Result<Vec<String>, Error> {
    const SQL: &str = "SELECT pg_catalog.format('pid %s (%s, database %s, %s) in a transaction \
                       since %s', \
         l.pid, coalesce(nullif(a.application_name, ''), 'no application_name'), \
         coalesce(a.datname, '?'), \
         coalesce(a.state, 'state hidden') || coalesce(', waits for ' || a.wait_event, ''), \
         coalesce(a.xact_start::text, '?')) AS who, a.xact_start AS since \
         FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
         WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted \
         AND l.pid <> pg_catalog.pg_backend_pid() AND ($1::text[] IS NULL \
         OR l.transactionid::text = ANY ($1)) \
         UNION ALL SELECT pg_catalog.format('prepared transaction %L (database %s, owner %s) \
         since %s', \
         gid, database, owner, prepared), prepared FROM pg_catalog.pg_prepared_xacts \
         WHERE $1::text[] IS NULL OR transaction::text = ANY ($1) ORDER BY since NULLS LAST \
         LIMIT $2";
    // Locks carry the lower half of a transaction's number.
    let lower = |xid: &u64| (*xid as u32).to_string();
    let xids: Option<Vec<String>> = xids.map(|xids| xids.iter().map(lower).collect());
    client.query(SQL, &[&xids, &NAMED_MAX]).await?.iter().map(|row| row.try_get(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_parsed_as_printed() {
        let snapshot =
            |xmin, xmax, running: &[u64]| Some(Snapshot { xmin, xmax, running: running.to_vec() });
        assert_eq!(parse_snapshot("750:750:"), snapshot(750, 750, &[]));
        assert_eq!(parse_snapshot("4294967300:4294967310:4294967301,4294967305"), {
            snapshot(4_294_967_300, 4_294_967_310, &[4_294_967_301, 4_294_967_305])
        });
        for bad in ["", "1", "1:2", "1:2:3:4", "a:2:", "1:2:x", "-1:2:"] {
            assert_eq!(parse_snapshot(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_fence_opens_when_all_running_transactions_are_visible() {
        let mut fence = Fence::new(&parse_snapshot("10:15:10,12,14").unwrap());
        assert!(!fence.is_open(&parse_snapshot("10:20:10,16,17").unwrap()));
        assert_eq!(fence.waiting(), [10]);
        assert!(fence.is_open(&parse_snapshot("16:20:16").unwrap()));
        assert!(
            Fence::new(&parse_snapshot("10:10:").unwrap())
                .is_open(&parse_snapshot("10:10:").unwrap())
        );
    }
}
