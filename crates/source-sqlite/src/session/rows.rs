//! Conversion of the change log's rows to changes of records.

use hotrow_types::key::{KEY_PARTS_MAX, Key, KeyPart, KeySchema};
use hotrow_types::version::{ChangeId, Position};
use rusqlite::types::ValueRef;
use rusqlite::{Row, Transaction};

use super::{Ended, Session, Stop};
use crate::log::{Log, anchor, digest, read_log};
use crate::names::{LOG_TABLE, quote};
use hotrow_source::{Change, FlushCause, LossCause};

/// Changes collected while the log is read.
struct Delivery {
    changes: Vec<Change>,
    /// Number of changes per collection in this delivery; `None` after a flush of it.
    listed: Vec<Option<usize>>,
}

impl Session<'_> {
    /// Delivers the log from the session's position to its end, as seen by this transaction.
    pub(super) fn deliver_log(&mut self, tx: &Transaction<'_>) -> Result<(), Stop> {
        let Some(from) = self.position else { return Ok(()) };
        let Some(log) = read_log(tx)? else {
            return Err(Ended::new(LossCause::NotWatched, "the change log has lost its id").into());
        };
        self.check_continuity(tx, from, &log)?;
        let mut delivery =
            Delivery { changes: Vec::new(), listed: vec![Some(0); self.context.schemas.len()] };
        let sql = format!(
            "SELECT seq, tbl, k1, k2, k3, k4 FROM main.{} WHERE seq > ?1 ORDER BY seq LIMIT ?2",
            quote(LOG_TABLE)
        );
        let mut select = tx.prepare_cached(&sql)?;
        let mut at = from;
        while at.at < log.end.at {
            let limit = i64::try_from(self.context.tuning.chunk_rows).unwrap_or(i64::MAX);
            let mut rows = select.query([at.at.cast_signed(), limit])?;
            let before = at.at;
            while let Some(row) = rows.next()? {
                let seq = row.get::<_, i64>(0)?.cast_unsigned();
                if seq != at.at + 1 {
                    return Err(gap(at.at + 1, seq).into());
                }
                at.at = seq;
                self.take(row, at, &mut delivery)?;
                self.anchor = Some(digest(row)?);
            }
            if at.at == before {
                return Err(gap(before + 1, log.end.at).into());
            }
            self.send(&mut delivery);
            self.position = Some(at);
        }
        Ok(())
    }

    fn check_continuity(
        &self,
        tx: &Transaction<'_>,
        from: Position,
        log: &Log,
    ) -> Result<(), Stop> {
        let lost = |cause, detail: String| Err(Ended::new(cause, detail).into());
        if log.end.incarnation != from.incarnation {
            return lost(LossCause::OtherLog, "the change log has another id".into());
        }
        if log.end.at < from.at {
            return lost(
                LossCause::OtherLog,
                format!("the change log went back from {} to {}", from.at, log.end.at),
            );
        }
        if log.pruned_to > from.at {
            let detail = format!(
                "the change log was pruned up to {}, and the feed had read up to {}",
                log.pruned_to, from.at
            );
            return lost(LossCause::LogPruned, detail);
        }
        // The last row read must still exist unchanged, unless it was pruned in order. Otherwise
        // rows that were deleted and numbered anew would be taken for the next ones.
        if log.pruned_to < from.at && self.anchor.is_some() && anchor(tx, from.at)? != self.anchor {
            return lost(
                LossCause::OtherLog,
                format!("row {} of the change log is missing or different", from.at),
            );
        }
        Ok(())
    }

    fn take(&self, row: &Row<'_>, at: Position, delivery: &mut Delivery) -> Result<(), Stop> {
        let Ok(name) = row.get_ref(1)?.as_str() else {
            // A note of an instance that the triggers of this table were missing for a time.
            if let Ok(name) = row.get_ref(2)?.as_str() {
                self.watched
                    .named(name)
                    .iter()
                    .for_each(|i| self.flush(*i, FlushCause::Schema, delivery));
            }
            return Ok(());
        };
        for &i in self.watched.named(name) {
            let schema = &self.context.schemas[i];
            // A key that the schema cannot express cannot be requested either.
            let Some(key) = key_of(schema, row)? else { continue };
            let Some(listed) = &mut delivery.listed[i] else { continue };
            *listed += 1;
            if *listed > self.context.tuning.bulk_keys {
                self.flush(i, FlushCause::Bulk, delivery);
            } else {
                delivery.changes.push(Change { key, mark: ChangeId::Log(at) });
            }
        }
        Ok(())
    }

    /// Flushes everything of the collection that this transaction sees, so its further changes need
    /// not be listed.
    fn flush(&self, collection: usize, cause: FlushCause, delivery: &mut Delivery) {
        self.send(delivery);
        self.context.sink.flush(self.context.schemas[collection].collection(), cause, None);
        delivery.listed[collection] = None;
    }

    fn send(&self, delivery: &mut Delivery) {
        if !delivery.changes.is_empty() {
            self.context.sink.changes(&delivery.changes);
            delivery.changes.clear();
        }
    }
}

fn gap(expected: u64, found: u64) -> Ended {
    Ended::new(
        LossCause::OtherLog,
        format!("row {expected} of the change log is missing; the next is {found}"),
    )
}

fn key_of(schema: &KeySchema, row: &Row<'_>) -> rusqlite::Result<Option<Key>> {
    let mut parts = [KeyPart::Integer(0); KEY_PARTS_MAX];
    let count = schema.types().len();
    for (i, part) in parts.iter_mut().enumerate().take(count) {
        match part_of(row.get_ref(2 + i)?) {
            Some(found) => *part = found,
            None => return Ok(None),
        }
    }
    Ok(schema.key(&parts[..count]).ok())
}

/// Converts a value of a key column. SQLite compares numbers by value, so an integral
/// floating-point number equals that integer.
fn part_of(value: ValueRef<'_>) -> Option<KeyPart<'_>> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match value {
        ValueRef::Integer(v) => Some(KeyPart::Integer(v)),
        // Within the range of an i64, as just checked.
        ValueRef::Real(v) if v.fract() == 0.0 && (-LIMIT..LIMIT).contains(&v) => {
            Some(KeyPart::Integer(v as i64))
        }
        ValueRef::Text(v) => std::str::from_utf8(v).ok().map(KeyPart::Text),
        ValueRef::Blob(v) => Some(KeyPart::Bytes(v)),
        ValueRef::Real(_) | ValueRef::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_compared_by_value() {
        assert_eq!(part_of(ValueRef::Real(5.0)), Some(KeyPart::Integer(5)));
        assert_eq!(
            part_of(ValueRef::Real(-9_223_372_036_854_775_808.0)),
            Some(KeyPart::Integer(i64::MIN))
        );
        assert_eq!(part_of(ValueRef::Real(9_223_372_036_854_775_808.0)), None);
        assert_eq!(part_of(ValueRef::Real(5.5)), None);
        assert_eq!(part_of(ValueRef::Real(f64::INFINITY)), None);
        assert_eq!(part_of(ValueRef::Text(b"\xff")), None);
        assert_eq!(part_of(ValueRef::Null), None);
    }
}
