//! What can go wrong between the service and its server, and with both: each for a while, under load.

use std::time::Duration;

use rustix::process::Signal;

use super::MysqlRun;
use super::server::Stop;
use super::session::MysqlSession;
use crate::board::Instance;
use crate::rows::{Random, payload};
use crate::writer::{note, state};

/// One disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weather {
    /// Somebody ends the server's side of every stream.
    StreamKilled,
    /// Somebody ends every session that waits for a question.
    SessionsKilled,
    /// No fault: the log goes on in another file, and older ones are thrown away.
    LogPurged,
    ServerPaused,
    ServicePaused,
    ServerRestarted,
    ServerKilled,
    /// No fault: the table is emptied.
    Truncated,
    /// No fault: one transaction changes more rows than a feed lists.
    ManyChanged,
    /// No fault: the table gets another shape, twice.
    Reshaped,
}

pub(super) const WEATHERS: [Weather; 10] = [
    Weather::StreamKilled,
    Weather::SessionsKilled,
    Weather::LogPurged,
    Weather::ServerPaused,
    Weather::ServicePaused,
    Weather::ServerRestarted,
    Weather::ServerKilled,
    Weather::Truncated,
    Weather::ManyChanged,
    Weather::Reshaped,
];

impl Weather {
    /// Whether the feed must lose its place by it.
    pub(super) fn ends_the_feed(self) -> bool {
        matches!(self, Self::StreamKilled | Self::ServerRestarted | Self::ServerKilled)
    }

    /// Brings it about and lets it pass.
    pub(super) fn come(self, run: &mut MysqlRun, instance: Instance, random: &mut Random) {
        // Around the bound: some pass before the policy acts, some do not.
        let a_while = Duration::from_millis(200 + random.below(2 * run.plan.max_staleness.as_millis() as u64));
        match self {
            Self::StreamKilled => kill(run, "command = 'Binlog Dump'"),
            Self::SessionsKilled => kill(run, "command = 'Sleep'"),
            Self::LogPurged => {
                run.database.batch("FLUSH BINARY LOGS");
                let newest = run.database.query("SHOW MASTER STATUS");
                let file = newest.split('\t').next().expect("a file");
                // Refused where a stream still reads an older one.
                _ = run.database.try_query(&format!("PURGE BINARY LOGS TO '{file}'"));
            }
            Self::ServerPaused => run.database.pause(),
            Self::ServicePaused => run.server(instance).stop(),
            Self::ServerRestarted => run.database.stop(Stop::Fast),
            Self::ServerKilled => run.database.stop(Stop::Kill),
            Self::Truncated => run.truncate(),
            Self::ManyChanged => run.change_all(),
            Self::Reshaped => {
                run.database.batch("ALTER TABLE items MODIFY payload MEDIUMTEXT NOT NULL; ALTER TABLE items MODIFY payload TEXT NOT NULL");
            }
        }
        run.pass(a_while);
        match self {
            Self::ServerPaused => run.database.resume(),
            Self::ServicePaused => run.server(instance).signal(Signal::CONT),
            Self::ServerRestarted | Self::ServerKilled => run.database.restart(),
            _ => {}
        }
    }
}

/// Ends sessions of the service and of writers alike.
fn kill(run: &MysqlRun, which: &str) {
    let list = format!("SELECT id FROM information_schema.PROCESSLIST WHERE {which} AND id <> CONNECTION_ID()");
    for id in run.database.query(&list).lines() {
        // It may have ended by itself.
        _ = run.database.try_query(&format!("KILL {id}"));
    }
}

impl MysqlRun {
    /// Empties the table while the writers pause.
    pub(super) fn truncate(&mut self) {
        self.at_once(false, |_| "TRUNCATE items".to_owned());
    }

    /// Gives every key a row, in one transaction, while the writers pause: more rows than a feed lists.
    pub(super) fn change_all(&mut self) {
        let sizes = self.plan.sizes;
        self.at_once(true, |versions| {
            let row = |(key, version): &(u32, u64)| format!("({key}, {version}, '{}')", payload(*key, *version, sizes));
            let rows: Vec<String> = versions.iter().map(row).collect();
            let conflict = "ON DUPLICATE KEY UPDATE version = VALUES(version), payload = VALUES(payload)";
            format!("INSERT INTO items VALUES {} {conflict}", rows.join(","))
        });
    }

    /// Makes one commit after which every key has a row, or none has. `sql` gets the keys that change with their versions.
    fn at_once(&mut self, present: bool, sql: impl Fn(&[(u32, u64)]) -> String) {
        self.board.pause_writers(self.writer_count());
        let mut kept: Vec<_> = self.kept.iter().map(|kept| kept.lock().expect("no panics here")).collect();
        let histories = kept.iter_mut().flat_map(|kept| kept.iter_mut());
        let (versions, mut changed): (Vec<_>, Vec<_>) = histories
            .filter(|(_, history)| present || history.last().present)
            .map(|(key, history)| ((*key, history.next_version()), history))
            .unzip();
        let mut session = MysqlSession::new(self.database.url());
        let commit = session.commit_sql(&sql(&versions), &self.board);
        changed.iter_mut().for_each(|history| _ = history.push(state(&commit, present, u8::MAX)));
        note(&self.board, &commit, changed.len());
        drop(changed);
        drop(kept);
        self.board.resume_writers();
    }
}
