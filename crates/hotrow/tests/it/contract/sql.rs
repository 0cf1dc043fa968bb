//! Engines with SQL: statements that change the table as a whole.

use std::collections::BTreeMap;

use crate::contract::board::Board;
use crate::contract::disturbances::Disturbance;
use crate::contract::engine::{Commit, Session};
use crate::contract::networked::Networked;
use crate::contract::rows::payload;
use crate::contract::run::Trial;
use crate::contract::writer::{note, record};

/// A writer's connection to a database with SQL.
pub(crate) trait SqlSession: Session {
    /// End of an INSERT statement that makes it replace rows.
    const REPLACING: &str;

    /// Commits one statement of any kind on a healthy server.
    fn commit_sql(&mut self, sql: &str, board: &Board) -> Commit;
}

/// Parses the output of `SELECT id, version FROM items`.
pub(crate) fn parse_rows(output: &str, separator: char) -> BTreeMap<u32, u64> {
    let row = |line: &str| {
        let (key, version) = line.split_once(separator)?;
        Some((key.parse().ok()?, version.parse().ok()?))
    };
    output.lines().map(|line| row(line).unwrap_or_else(|| panic!("no row: {line}"))).collect()
}

/// Returns the changes of the whole table. They are no faults.
pub(crate) fn of_tables<E: Networked<Session: SqlSession>>() -> Vec<Disturbance<E>> {
    vec![
        Disturbance::calmed("table emptied", false, |run, _, _| run.truncate()),
        Disturbance::calmed("many rows changed", false, |run, _, _| run.change_all()),
    ]
}

impl<E: Networked<Session: SqlSession>> Trial<E> {
    /// Empties the table after the second crash and fills it after the third.
    pub(crate) fn change_table_after_crash(&mut self, round: u64) {
        match round {
            2 => self.truncate(),
            3 => self.change_all(),
            _ => {}
        }
    }

    /// Empties the table while the writers are paused.
    fn truncate(&mut self) {
        self.at_once(false, |_| "TRUNCATE items".to_owned());
    }

    /// Gives every key a row in one transaction, while the writers are paused: more rows than the
    /// feed lists.
    fn change_all(&mut self) {
        let sizes = self.plan.sizes;
        self.at_once(true, |versions| {
            let row = |(key, version): &(u32, u64)| {
                format!("({key}, {version}, '{}')", payload(*key, *version, sizes))
            };
            let rows: Vec<String> = versions.iter().map(row).collect();
            format!("INSERT INTO items VALUES {} {}", rows.join(","), E::Session::REPLACING)
        });
    }

    /// Commits one statement after which every key has a row, or none has. `sql` receives the
    /// changed keys with their versions.
    pub(super) fn at_once(&mut self, present: bool, sql: impl Fn(&[(u32, u64)]) -> String) {
        self.board.pause_writers(self.writer_count());
        let mut locked: Vec<_> = self
            .writer_histories
            .iter()
            .map(|histories| histories.lock().expect("no panics here"))
            .collect();
        let histories = locked.iter_mut().flat_map(|histories| histories.iter_mut());
        let (versions, mut changed): (Vec<_>, Vec<_>) = histories
            .filter(|(_, history)| present || history.last().present)
            .map(|(key, history)| ((*key, history.next_version()), history))
            .unzip();
        let mut session = E::session(&self.database, &self.plan);
        let commit = session.commit_sql(&sql(&versions), &self.board);
        changed.iter_mut().for_each(|history| record(history, &commit, present));
        note(&self.board, &commit, changed.len());
        drop(changed);
        drop(locked);
        self.board.resume_writers();
    }
}
