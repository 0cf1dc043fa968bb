//! Disturbances of the service, of its server and of the connections between them, each for a
//! while, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::MysqlRun;
use super::server::Stop;
use super::session::MysqlSession;
use crate::contract::board::Instance;
use crate::contract::rows::{Random, payload};
use crate::contract::writer::{note, state};

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Disturbance {
    /// The server's side of every stream is killed.
    StreamKilled,
    /// Every idle session is killed.
    SessionsKilled,
    /// No fault: the log continues in another file, and older files are purged.
    LogPurged,
    ServerPaused,
    ServicePaused,
    ServerRestarted,
    ServerKilled,
    /// No fault: the table is emptied.
    Truncated,
    /// No fault: one transaction changes more rows than the feed lists.
    ManyChanged,
    /// No fault: the table's columns change, twice.
    Reshaped,
}

pub(super) const DISTURBANCES: [Disturbance; 10] = [
    Disturbance::StreamKilled,
    Disturbance::SessionsKilled,
    Disturbance::LogPurged,
    Disturbance::ServerPaused,
    Disturbance::ServicePaused,
    Disturbance::ServerRestarted,
    Disturbance::ServerKilled,
    Disturbance::Truncated,
    Disturbance::ManyChanged,
    Disturbance::Reshaped,
];

impl Disturbance {
    /// Returns true if the disturbance ends the feed.
    pub(super) fn ends_the_feed(self) -> bool {
        matches!(self, Self::StreamKilled | Self::ServerRestarted | Self::ServerKilled)
    }

    /// Applies the disturbance and ends it.
    pub(super) fn apply(self, run: &mut MysqlRun, instance: Instance, random: &mut Random) {
        // Around the bound, so that some end before the policy applies and some do not.
        let a_while = Duration::from_millis(
            200 + random.below(2 * run.plan.max_staleness.as_millis() as u64),
        );
        match self {
            Self::StreamKilled => kill(run, "command = 'Binlog Dump'"),
            Self::SessionsKilled => kill(run, "command = 'Sleep'"),
            Self::LogPurged => {
                run.database.batch("FLUSH BINARY LOGS");
                let newest = run.database.query("SHOW MASTER STATUS");
                let file = newest.split('\t').next().expect("a file");
                // Refused while a stream reads an older file.
                _ = run.database.try_query(&format!("PURGE BINARY LOGS TO '{file}'"));
            }
            Self::ServerPaused => run.database.pause(),
            Self::ServicePaused => run.server(instance).stop(),
            Self::ServerRestarted => run.database.stop(Stop::Fast),
            Self::ServerKilled => run.database.stop(Stop::Kill),
            Self::Truncated => run.truncate(),
            Self::ManyChanged => run.change_all(),
            Self::Reshaped => {
                run.database.batch(
                    "ALTER TABLE items MODIFY payload MEDIUMTEXT NOT NULL; \
                     ALTER TABLE items MODIFY payload TEXT NOT NULL",
                );
            }
        }
        run.pass(a_while);
        match self {
            Self::ServerPaused => run.database.resume(),
            Self::ServicePaused => run.server(instance).signal(Signal::CONT),
            Self::ServerRestarted | Self::ServerKilled => run.restart(),
            _ => {}
        }
    }
}

/// Kills sessions of the service and of writers.
fn kill(run: &MysqlRun, which: &str) {
    let list = format!(
        "SELECT id FROM information_schema.PROCESSLIST WHERE {which} AND id <> CONNECTION_ID()"
    );
    for id in run.database.query(&list).lines() {
        // The session may have ended already.
        _ = run.database.try_query(&format!("KILL {id}"));
    }
}

impl MysqlRun {
    /// Empties the table while the writers are paused.
    pub(super) fn truncate(&mut self) {
        self.at_once(false, |_| "TRUNCATE items".to_owned());
    }

    /// Gives every key a row in one transaction, while the writers are paused: more rows than the
    /// feed lists.
    pub(super) fn change_all(&mut self) {
        let sizes = self.plan.sizes;
        self.at_once(true, |versions| {
            let row = |(key, version): &(u32, u64)| {
                format!("({key}, {version}, '{}')", payload(*key, *version, sizes))
            };
            let rows: Vec<String> = versions.iter().map(row).collect();
            let conflict =
                "ON DUPLICATE KEY UPDATE version = VALUES(version), payload = VALUES(payload)";
            format!("INSERT INTO items VALUES {} {conflict}", rows.join(","))
        });
    }

    /// Commits one statement after which every key has a row, or none has. `sql` receives the
    /// changed keys with their versions.
    fn at_once(&mut self, present: bool, sql: impl Fn(&[(u32, u64)]) -> String) {
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
        let mut session = MysqlSession::new(self.database.superuser_url());
        let commit = session.commit_sql(&sql(&versions), &self.board);
        changed.iter_mut().for_each(|history| _ = history.push(state(&commit, present, u8::MAX)));
        note(&self.board, &commit, changed.len());
        drop(changed);
        drop(locked);
        self.board.resume_writers();
    }
}
