//! Positions, versions and change ids: the order of changes, as far as each engine reports it.
//!
//! A *position* is a point in the database's log; clients carry it as a session token. A *version*
//! is what one read saw. A *change id* identifies one change in the feed. The engines differ in
//! what they can compare:
//!
//! | engine | position | version of a read | change id | read sees a change |
//! |---|---|---|---|---|
//! | SQLite | change log sequence | same, read in the statement | sequence | sequence ≥ id |
//! | PostgreSQL | LSN | snapshot (xmin, xmax, xip) | full xid | snapshot contains the xid |
//! | its standby | LSN | span of the replayed log | start of its commit | start of the span > id |
//! | MariaDB | binlog point | span of the binlog | end of the commit | point ≥ id |
//! | MySQL | binlog point | `gtid_executed` before the row | GTID | set contains the GTID |
//! | MongoDB | cluster time | span of cluster times | cluster time | start of the span ≥ id |
//!
//! MariaDB's span begins at what was visible before the read.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

pub use crate::gtid::{Gtid, GtidError, GtidSet, SourceId};

/// A session token: a point in the log of one incarnation of a database.
///
/// An answer with position `p` reflects every commit up to `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The log. Positions of different incarnations do not compare.
    pub incarnation: u64,
    /// The point in it: a sequence, an LSN, a cluster time (`seconds << 32 | increment`), or a
    /// point of a binlog (`number of the file << 40 | offset`).
    pub at: u64,
}

/// Error of a text that is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a position is 16 hexadecimal digits, a hyphen and a decimal number, as in an earlier \
     Hotrow-Position"
)]
pub struct PositionError;

impl Position {
    /// Longest text form in bytes.
    pub const TEXT_BYTES_MAX: usize = 37;

    /// Parses the text form.
    ///
    /// # Errors
    /// For a text that [`Position`] would not print exactly so.
    pub fn parse(text: &str) -> Result<Self, PositionError> {
        let (incarnation, at) = text.split_once('-').ok_or(PositionError)?;
        let hex = incarnation.len() == 16
            && incarnation.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let decimal = !at.is_empty()
            && at.bytes().all(|b| b.is_ascii_digit())
            && (at == "0" || !at.starts_with('0'));
        if !hex || !decimal {
            return Err(PositionError);
        }
        let incarnation = u64::from_str_radix(incarnation, 16).map_err(|_| PositionError)?;
        Ok(Self { incarnation, at: at.parse().map_err(|_| PositionError)? })
    }

    /// Returns whether an answer at this position satisfies a request for `wanted`. Different
    /// incarnations never do.
    pub fn reaches(&self, wanted: &Self) -> bool {
        self.incarnation == wanted.incarnation && self.at >= wanted.at
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.incarnation, self.at)
    }
}

/// The state that one read saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// Unknown to the engine; compares with nothing.
    Unknown,
    /// Everything up to this point of a log in order of visibility, and nothing past it.
    Log(Position),
    /// Everything up to `from` of such a log, and nothing past `to`.
    Span {
        /// Lower bound of what it saw.
        from: Position,
        /// Upper bound of what it saw.
        to: Position,
    },
    /// At least these transactions of a MySQL server.
    Gtids(Arc<GtidSet>),
    /// A PostgreSQL snapshot.
    Snapshot {
        /// The log, as in [`Position`]: a server that takes over may number its transactions lower.
        incarnation: u64,
        /// The transactions seen.
        snapshot: Arc<Snapshot>,
    },
    /// What a standby of a PostgreSQL server had replayed.
    Replayed {
        /// Everything before this point of the log was visible. It was asked for before the row.
        from: Position,
        /// Nothing past this point was visible.
        to: Position,
    },
}

/// Identity of one change in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeId {
    /// A point of a log in order of visibility, never delivered before it is visible (SQLite).
    Log(Position),
    /// The same, but delivered possibly before readers see it (MariaDB, MongoDB).
    Commit(Position),
    /// A PostgreSQL transaction.
    Transaction {
        /// Its number, widened to 64 bits: what snapshots know it by.
        xid: u64,
        /// Start of its commit record in the log: what standbys know it by. They replay whole
        /// records, so one that is past the start has replayed the commit.
        commit: u64,
    },
    /// A MySQL transaction.
    Gtid(Gtid),
}

impl Version {
    /// Returns whether this read is certainly at least as new as `other`. In doubt, `false`.
    pub fn dominates(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Log(a) | Self::Span { from: a, .. },
                Self::Log(b) | Self::Span { to: b, .. },
            )
            | (Self::Replayed { from: a, .. }, Self::Replayed { to: b, .. }) => a.reaches(b),
            (
                Self::Snapshot { incarnation, snapshot },
                Self::Snapshot { incarnation: others, snapshot: other },
            ) => incarnation == others && snapshot.dominates(other),
            // The upper bound of what a set of GTIDs saw is unknown; a snapshot and a point of the
            // log do not compare.
            _ => false,
        }
    }

    /// Returns whether this read certainly saw the change `mark`. In doubt, `false`.
    pub fn contains(&self, mark: &ChangeId) -> bool {
        match (self, mark) {
            (Self::Log(a) | Self::Span { from: a, .. }, ChangeId::Log(m) | ChangeId::Commit(m)) => {
                a.reaches(m)
            }
            (Self::Snapshot { snapshot, .. }, ChangeId::Transaction { xid, .. }) => {
                snapshot.contains(*xid)
            }
            (Self::Replayed { from, .. }, ChangeId::Transaction { commit, .. }) => {
                from.at > *commit
            }
            (Self::Gtids(set), ChangeId::Gtid(gtid)) => set.contains(gtid),
            _ => false,
        }
    }

    /// Returns whether this read certainly saw `mark` and every earlier change that ever commits.
    /// In doubt, `false`.
    pub fn contains_through(&self, mark: &ChangeId) -> bool {
        match (self, mark) {
            // Transaction ids are assigned at the start, so a lower one may commit later.
            (Self::Snapshot { snapshot, .. }, ChangeId::Transaction { xid, .. }) => {
                snapshot.xmin > *xid
            }
            (Self::Gtids(set), ChangeId::Gtid(gtid)) => set.contains_up_to(gtid),
            _ => self.contains(mark),
        }
    }
}

impl ChangeId {
    /// Returns the later of two changes of one log; `None` when their logs differ. Of transactions
    /// it is the higher number with the later commit, whichever of the two has each.
    #[must_use]
    pub fn later(&self, other: &Self) -> Option<Self> {
        let other_is_later = match (self, other) {
            (Self::Log(a), Self::Log(b)) | (Self::Commit(a), Self::Commit(b))
                if a.incarnation == b.incarnation =>
            {
                b.at > a.at
            }
            (
                Self::Transaction { xid, commit },
                Self::Transaction { xid: other, commit: others },
            ) => {
                let (xid, commit) = (*xid.max(other), *commit.max(others));
                return Some(Self::Transaction { xid, commit });
            }
            (Self::Gtid(a), Self::Gtid(b)) if a.source == b.source => b.number > a.number,
            _ => return None,
        };
        Some(if other_is_later { *other } else { *self })
    }
}

/// A PostgreSQL snapshot as `pg_current_snapshot()` prints it: transactions below `xmin` are
/// visible; those from `xmax` on, and those in `running` (sorted), are not. Source: PostgreSQL
/// documentation, "System Information Functions", pg_snapshot components.
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
    /// Returns whether the effects of the transaction are visible in this snapshot, if it
    /// committed.
    pub fn contains(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.running.binary_search(&xid).is_err())
    }

    /// Returns whether this snapshot contains every transaction that `other` contains.
    pub fn dominates(&self, other: &Self) -> bool {
        let ends_later = self.xmax.cmp(&other.xmax) != Ordering::Less;
        ends_later && self.running.iter().all(|&xid| !other.contains(xid))
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
        let a = Position { incarnation: 1, at: 9 };
        let b = Position { incarnation: 2, at: 3 };
        assert!(!a.reaches(&b) && !b.reaches(&a));
        assert!(!Version::Log(a).dominates(&Version::Log(b)));
        let seen = |incarnation, xmax| Version::Snapshot {
            incarnation,
            snapshot: Arc::new(Snapshot { xmin: xmax, xmax, running: Vec::new() }),
        };
        assert!(seen(1, 900).dominates(&seen(1, 100)));
        assert!(!seen(1, 900).dominates(&seen(2, 100)), "of the server before a fail-over");
        assert!(!Version::Unknown.dominates(&Version::Unknown));
    }

    #[test]
    fn a_standby_knows_a_change_by_its_commit() {
        let replayed = |from, to| {
            let at = |at| Position { incarnation: 1, at };
            Version::Replayed { from: at(from), to: at(to) }
        };
        let early = ChangeId::Transaction { xid: 9, commit: 100 };
        let late = ChangeId::Transaction { xid: 7, commit: 140 };
        assert!(replayed(101, 101).contains(&early) && !replayed(100, 140).contains(&early));
        let both = early.later(&late).unwrap();
        assert_eq!(both, ChangeId::Transaction { xid: 9, commit: 140 });
        assert!(!replayed(140, 141).contains_through(&both));
        assert!(replayed(120, 130).dominates(&replayed(90, 120)));
        assert!(!replayed(120, 130).dominates(&replayed(90, 121)));
    }

    #[test]
    fn a_snapshot_orders_by_visibility_not_by_number() {
        let s = |xmin, xmax, running: &[u64]| Snapshot { xmin, xmax, running: running.to_vec() };
        let early = s(10, 14, &[10, 12]);
        assert!(
            early.contains(9)
                && !early.contains(10)
                && early.contains(11)
                && !early.contains(12)
                && early.contains(13)
                && !early.contains(14)
        );
        assert!(s(12, 14, &[12]).dominates(&early));
        assert!(!early.dominates(&s(12, 14, &[12])));
        // 12 committed in one, 10 in the other: neither dominates.
        assert!(!s(10, 14, &[10]).dominates(&s(12, 14, &[12])));
        assert!(!s(10, 13, &[]).dominates(&s(10, 14, &[])));
    }
}
