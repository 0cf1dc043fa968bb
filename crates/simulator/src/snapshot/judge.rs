//! Rules of a snapshot: every record is that of its point of the log.

use hotrow_types::version::Position;

use super::{SnapshotRequest, Taken};
use crate::database::RowVersion;
use crate::oracle::{Broken, rule};
use crate::world::World;

impl World {
    pub(super) fn give_snapshot(&mut self, request: &SnapshotRequest, point: Position) {
        if let Err((rule, detail)) = self.judge_snapshot(request, point) {
            return self.violated(rule, &detail);
        }
        self.counts.snapshot_keys += request.rows.len() as u64;
        for ((arrival, row), taken) in
            request.arrivals.iter().zip(&request.rows).zip(&request.taken)
        {
            let version = taken.map_or(0, |taken| taken.version);
            if arrival.strict_floor.is_some() {
                self.raise_strict_floor(*row, version);
            }
            self.record((version as u64) << 16 ^ *row as u64);
        }
    }

    /// Judges a snapshot: every record is that of its point of the log.
    fn judge_snapshot(&self, request: &SnapshotRequest, point: Position) -> Result<(), Broken> {
        if point.incarnation != self.database.incarnation {
            // Of a database that was replaced.
            return Ok(());
        }
        let describe = || format!("{point:?}: {:?} of {:?}", request.taken, request.rows);
        if request.floor.is_some_and(|floor| !point.reaches(&floor)) {
            return Err((rule::SNAPSHOT_EARLY, describe()));
        }
        for ((arrival, row), taken) in
            request.arrivals.iter().zip(&request.rows).zip(&request.taken)
        {
            let Some(Taken { version, .. }) = *taken else { continue };
            let is_before = |own: &RowVersion| match own.place {
                Some((incarnation, number)) => {
                    incarnation != point.incarnation || number <= point.at
                }
                None => own.after <= point.at,
            };
            let expected = self.database.newest(*row, is_before);
            // What no feed shows has no point.
            let between = version.min(expected) + 1..=version.max(expected);
            if between.into_iter().any(|other| self.database.version(*row, other).is_shown) {
                let detail = format!("row {row}: {version} instead of {expected}, {}", describe());
                return Err((rule::SNAPSHOT, detail));
            }
            let Some(floor) = arrival.strict_floor else { continue };
            let had_returned = |own: &RowVersion| own.is_shown && own.returned_at < arrival.at;
            let least = self.database.newest(*row, had_returned).max(floor);
            if version < least {
                let detail = format!("row {row}: {version}, {least} is due, {}", describe());
                return Err((rule::STRICT, detail));
            }
        }
        Ok(())
    }
}
