//! Landmarks of a log: what proves that a place in it is the place that was meant.
//!
//! A log that was begun anew, or that of another server, has the same points with other contents.
//! So a place is named with the time at which its file was created, and with the commit that begins
//! there.

use crate::version::Gtid;

/// A place in the binary log of a MariaDB or MySQL server, from which changes can be delivered
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmark {
    /// Point of the log, as in [`crate::version::Position::at`].
    pub at: u64,
    /// Time at which the log's file was created, in seconds since 1970 by the server's clock.
    pub file_created_s: u32,
    /// Commit that begins there; `None`: none was delivered yet.
    pub commit: Option<CommitMark>,
}

/// A commit of a MariaDB or MySQL server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMark {
    /// Its number (GTID).
    pub gtid: CommitId,
    /// Point of the log at which it ends.
    pub end: u64,
}

/// Number of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitId {
    /// Domain, server, sequence.
    MariaDb(u32, u32, u64),
    /// Source and number.
    MySql(Gtid),
}

impl Landmark {
    /// Returns the point before which every change was delivered.
    pub fn end(&self) -> u64 {
        self.commit.map_or(self.at, |commit| commit.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landmark_ends_with_its_commit() {
        let start = Landmark { at: 4, file_created_s: 9, commit: None };
        assert_eq!(start.end(), 4);
        let commit = Some(CommitMark { gtid: CommitId::MariaDb(0, 1, 7), end: 80 });
        assert_eq!(Landmark { commit, ..start }.end(), 80);
    }
}
