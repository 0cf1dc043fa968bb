//! Positions, versions and fences: the order of changes, as each engine can tell it.
//!
//! A *position* is a point in the database's log; clients carry it as a session token. A *version* is what one read
//! saw. A *mark* is what identifies one change in the feed. The engines differ in what they can compare:
//!
//! | engine | position | version of a read | mark of a change | a version sees a mark when |
//! |---|---|---|---|---|
//! | SQLite | sequence of the change log | the sequence, read in the same statement | sequence | sequence ≥ mark |
//! | PostgreSQL | LSN | snapshot (xmin, xmax, xip) | full transaction id | the snapshot contains the xid |
//! | MariaDB | point of the binlog | span of the binlog, from what was visible before | end of the commit's event | point ≥ mark |
//! | MySQL | point of the binlog | `gtid_executed`, read before the row | GTID | the set contains the GTID |
//! | MongoDB | cluster time | span of cluster times | cluster time | beginning of the span ≥ mark |

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

pub use crate::gtid::{Gtid, GtidError, GtidSet, SourceId};

/// A session token: a point in the log of one incarnation of a database.
///
/// An answer that carries position `p` reflects every commit up to `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which log it is: positions of different incarnations do not compare.
    pub incarnation: u64,
    /// The point in it: a sequence, an LSN, a cluster time (`seconds << 32 | increment`), a point of a binlog
    /// (`number of the file << 40 | offset`).
    pub at: u64,
}

/// Why a text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a position is 16 hexadecimal digits, a hyphen and a decimal number, as in an earlier Hotrow-Position")]
pub struct PositionError;

impl Position {
    /// Longest text form in bytes.
    pub const TEXT_BYTES_MAX: usize = 37;

    /// Reads the text form.
    ///
    /// # Errors
    /// When the text is not exactly what [`Position`] prints.
    pub fn parse(text: &str) -> Result<Self, PositionError> {
        let (incarnation, at) = text.split_once('-').ok_or(PositionError)?;
        let hex = incarnation.len() == 16 && incarnation.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let decimal = !at.is_empty() && at.bytes().all(|b| b.is_ascii_digit()) && (at == "0" || !at.starts_with('0'));
        if !hex || !decimal {
            return Err(PositionError);
        }
        let incarnation = u64::from_str_radix(incarnation, 16).map_err(|_| PositionError)?;
        Ok(Self { incarnation, at: at.parse().map_err(|_| PositionError)? })
    }

    /// Whether an answer at this position satisfies a wish for `wanted`. Different incarnations never do.
    #[must_use]
    pub fn reaches(&self, wanted: &Self) -> bool {
        self.incarnation == wanted.incarnation && self.at >= wanted.at
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.incarnation, self.at)
    }
}

/// What one read saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// The engine cannot tell; nothing compares.
    Unknown,
    /// Everything up to this point of a log whose order is the order of visibility, and nothing past it.
    Log(Position),
    /// Everything up to `from` of such a log, and nothing past `to`.
    Span {
        /// What it saw at least.
        from: Position,
        /// What it saw at most.
        to: Position,
    },
    /// At least these transactions of a MySQL server.
    Gtids(Arc<GtidSet>),
    /// A PostgreSQL snapshot.
    Snapshot(Arc<Snapshot>),
}

/// What identifies one change in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A point of a log whose order is the order of visibility, and which no feed shows before it is visible (SQLite).
    Log(Position),
    /// The same, but that the feed may be ahead of what readers see (MariaDB, MongoDB).
    Commit(Position),
    /// A PostgreSQL transaction, widened to 64 bits.
    Transaction(u64),
    /// A MySQL transaction.
    Gtid(Gtid),
}

impl Version {
    /// Whether this read certainly is at least as new as `other`. When in doubt, no.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Log(a) | Self::Span { from: a, .. }, Self::Log(b) | Self::Span { to: b, .. }) => a.reaches(b),
            (Self::Snapshot(a), Self::Snapshot(b)) => a.covers(b),
            // What a set of GTIDs saw at most is not known.
            _ => false,
        }
    }

    /// Whether this read certainly saw the change `mark`. When in doubt, no.
    #[must_use]
    pub fn sees(&self, mark: &Mark) -> bool {
        match (self, mark) {
            (Self::Log(a) | Self::Span { from: a, .. }, Mark::Log(m) | Mark::Commit(m)) => a.reaches(m),
            (Self::Snapshot(s), Mark::Transaction(xid)) => s.sees(*xid),
            (Self::Gtids(set), Mark::Gtid(gtid)) => set.contains(gtid),
            _ => false,
        }
    }

    /// Whether this read certainly saw `mark` and every change of before that ever commits. When in doubt, no.
    #[must_use]
    pub fn sees_all_up_to(&self, mark: &Mark) -> bool {
        match (self, mark) {
            // Numbers are given at the beginning, so that a lower one may commit later.
            (Self::Snapshot(snapshot), Mark::Transaction(xid)) => snapshot.xmin > *xid,
            (Self::Gtids(set), Mark::Gtid(gtid)) => set.contains_up_to(gtid),
            _ => self.sees(mark),
        }
    }
}

impl Mark {
    /// The later of two changes of one log; `None` when they are of different ones.
    #[must_use]
    pub fn later(&self, other: &Self) -> Option<Self> {
        let other_is_later = match (self, other) {
            (Self::Log(a), Self::Log(b)) | (Self::Commit(a), Self::Commit(b)) if a.incarnation == b.incarnation => {
                b.at > a.at
            }
            (Self::Transaction(a), Self::Transaction(b)) => b > a,
            (Self::Gtid(a), Self::Gtid(b)) if a.source == b.source => b.number > a.number,
            _ => return None,
        };
        Some(if other_is_later { *other } else { *self })
    }
}

/// A PostgreSQL snapshot as `pg_current_snapshot()` prints it: transactions below `xmin` are visible, from `xmax` on
/// they are not, and those in `running` (sorted) are not either.
/// Source: PostgreSQL documentation, "System Information Functions", pg_snapshot components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Lowest transaction still running.
    pub xmin: u64,
    /// First transaction not yet begun.
    pub xmax: u64,
    /// Transactions running between the two, ascending.
    pub running: Vec<u64>,
}

impl Snapshot {
    /// Whether the transaction's effects are visible in this snapshot (if it committed).
    #[must_use]
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.running.binary_search(&xid).is_err())
    }

    /// Whether every transaction that `other` sees is visible here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let ends_later = self.xmax.cmp(&other.xmax) != Ordering::Less;
        ends_later && self.running.iter().all(|&xid| !other.sees(xid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_one_spelling() {
        let p = Position { incarnation: 0xab, at: 1204 };
        assert_eq!(p.to_string(), "00000000000000ab-1204");
        assert_eq!(Position::parse(&p.to_string()), Ok(p));
        let end = Position { incarnation: u64::MAX, at: u64::MAX };
        assert_eq!(end.to_string().len(), Position::TEXT_BYTES_MAX);
        for bad in [
            "",
            "-",
            "ab-1",
            "00000000000000AB-1",
            "00000000000000ab-",
            "00000000000000ab-01",
            "00000000000000ab-+1",
            "00000000000000ab-18446744073709551616",
            "00000000000000ab-1 ",
        ] {
            assert_eq!(Position::parse(bad), Err(PositionError), "{bad}");
        }
    }

    #[test]
    fn incarnations_do_not_compare() {
        let (a, b) = (Position { incarnation: 1, at: 9 }, Position { incarnation: 2, at: 3 });
        assert!(!a.reaches(&b) && !b.reaches(&a));
        assert!(!Version::Log(a).covers(&Version::Log(b)));
        assert!(!Version::Unknown.covers(&Version::Unknown));
    }

    #[test]
    fn a_snapshot_orders_by_visibility_not_by_number() {
        let s = |xmin, xmax, running: &[u64]| Snapshot { xmin, xmax, running: running.to_vec() };
        let early = s(10, 14, &[10, 12]);
        assert!(
            early.sees(9) && !early.sees(10) && early.sees(11) && !early.sees(12) && early.sees(13) && !early.sees(14)
        );
        assert!(s(12, 14, &[12]).covers(&early));
        assert!(!early.covers(&s(12, 14, &[12])));
        // 12 committed in one, 10 in the other: neither covers.
        assert!(!s(10, 14, &[10]).covers(&s(12, 14, &[12])));
        assert!(!s(10, 13, &[]).covers(&s(10, 14, &[])));
    }
}
